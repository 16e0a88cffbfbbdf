"""A model server whose answers, delays and breaks are scripted: HTTP/1.1 by hand on loopback, so that every byte and every break is the script's.

It runs in a thread of its own, can be killed in the middle of answers and started again on the same port.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Reset:
    """In an answer's pieces: the connection is reset here."""


class Hang:
    """In an answer's pieces: nothing more comes until the client leaves."""


Piece = bytes | float | type[Reset] | type[Hang]
"""Bytes to send as one write, seconds to wait, or an end."""


@dataclass(frozen=True)
class Answer:
    """`framing`: chunked, by content-length, or by the connection's end (the last says nothing of completeness)."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: Sequence[Piece] = ()
    before_s: float = 0.0  # until the status is sent
    framing: Literal["chunked", "length", "close"] = "chunked"


def json_answer(value: Any, status: int = 200, **headers: str) -> Answer:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    body = json.dumps(value).encode()
    return Answer(status, {"content-type": "application/json", **named}, [body], framing="length")


def stream_answer(*pieces: Piece, before_s: float = 0.0) -> Answer:
    return Answer(200, {"content-type": "text/event-stream"}, pieces, before_s)


Script = Callable[[Asked], Answer]


class ScriptedUpstream:
    """`script` may be exchanged at any time. `requests`: everything asked so far. `num_left`: clients that left before an answer's end."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Asked] = []
        self.num_left = 0
        self.num_open = 0  # answers under way
        self.port = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def asked(self, path: str) -> list[Asked]:
        return [one for one in self.requests if one.path == path]

    def start(self) -> None:
        """Listen, on the port of the first start."""
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(ready)), daemon=True)
        self._thread.start()
        assert ready.wait(10)

    def kill(self) -> None:
        """As SIGKILL: every connection is reset, the port refuses. Safe to repeat."""
        assert self._loop is not None and self._stop is not None and self._thread is not None
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    async def _run(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        await self._stop.wait()
        server.close()
        for writer in list(self._writers):
            _reset(writer)
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while (asked := await _read(reader)) is not None:
                self.requests.append(asked)
                if not await self._answer(self.script(asked), reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(
        self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether the connection goes on."""
        self.num_open += 1
        leaving = asyncio.ensure_future(reader.read(1))
        sending = asyncio.ensure_future(_send(answer, writer))
        try:
            await asyncio.wait((leaving, sending), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                self.num_left += 1
                return False
            return sending.result() and not leaving.done()
        finally:
            self.num_open -= 1
            sending.cancel()
            leaving.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await leaving


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, path, headers, body)


async def _send(answer: Answer, writer: asyncio.StreamWriter) -> bool:
    """Everything the answer says; whether the connection goes on."""
    await asyncio.sleep(answer.before_s)
    whole = b"".join(piece for piece in answer.pieces if isinstance(piece, bytes))
    framing = {
        "chunked": "transfer-encoding: chunked\r\n",
        "length": f"content-length: {len(whole)}\r\n",
        "close": "connection: close\r\n",
    }[answer.framing]
    lines = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
    if answer.pieces and answer.pieces[0] is Reset:
        _reset(writer)
        return False
    writer.write(f"HTTP/1.1 {answer.status} Scripted\r\n{lines}{framing}\r\n".encode())
    for piece in answer.pieces:
        if isinstance(piece, bytes):
            size = f"{len(piece):x}\r\n".encode()
            writer.write(size + piece + b"\r\n" if answer.framing == "chunked" else piece)
            await writer.drain()
        elif isinstance(piece, float | int):
            await asyncio.sleep(piece)
        elif piece is Reset:
            await asyncio.sleep(0.02)  # what was written reaches the client before the reset does
            _reset(writer)
            return False
        else:
            await asyncio.sleep(3600)
    if answer.framing == "chunked":
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    return answer.framing != "close"


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        sock: socket.socket = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@contextlib.contextmanager
def scripted(script: Script) -> Iterator[ScriptedUpstream]:
    upstream = ScriptedUpstream(script)
    upstream.start()
    try:
        yield upstream
    finally:
        upstream.kill()


def chat_chunk(
    delta: Mapping[str, Any], finish_reason: str | None = None, *, model: str, **more: Any
) -> bytes:
    """One event of a streamed chat completion."""
    choice = {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": finish_reason}
    body = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": model,
        "choices": [choice],
        **more,
    }
    return b"data: " + json.dumps(body).encode() + b"\n\n"


USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def chat_stream(words: Sequence[str], *, model: str, call: tuple[str, str] | None = None) -> list[bytes]:
    """The events of a whole streamed answer: text, then a call of a tool (name, arguments) if there is one."""
    events = [chat_chunk({"role": "assistant", "content": ""}, model=model)]
    events += [chat_chunk({"content": word}, model=model) for word in words]
    if call is not None:
        name, arguments = call
        head = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": ""}}
        events.append(chat_chunk({"tool_calls": [head]}, model=model))
        for half in (arguments[:4], arguments[4:]):
            events.append(
                chat_chunk({"tool_calls": [{"index": 0, "function": {"arguments": half}}]}, model=model)
            )
    events.append(chat_chunk({}, "stop" if call is None else "tool_calls", model=model))
    usage = {"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 1, "model": model}
    events.append(b"data: " + json.dumps({**usage, "choices": [], "usage": USAGE}).encode() + b"\n\n")
    return [*events, b"data: [DONE]\n\n"]


def chat_reply(text: str | None, *, model: str, call: tuple[str, str] | None = None) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if call is not None:
        function = {"name": call[0], "arguments": call[1]}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
    reason = "stop" if call is None else "tool_calls"
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": USAGE,
    }


def chat_server(
    model: str, words: Sequence[str] = ("Hello", " there", "!"), *, call: tuple[str, str] | None = None
) -> Script:
    """A server that speaks chat completions only, with one model; every other path is 404."""

    def answer(asked: Asked) -> Answer:
        if asked.path == "/v1/models":
            return json_answer(
                {"object": "list", "data": [{"id": model, "object": "model", "max_model_len": 4096}]}
            )
        if asked.path == "/health":
            return json_answer({"status": "ok"})
        if asked.path != "/v1/chat/completions":
            return json_answer({"error": {"message": "no such path", "type": "not_found"}}, 404)
        if asked.json.get("stream"):
            return stream_answer(*chat_stream(words, model=model, call=call))
        return json_answer(chat_reply("".join(words), model=model, call=call))

    return answer
