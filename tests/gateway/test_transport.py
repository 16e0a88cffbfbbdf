"""The HTTP client against a scripted server: how bodies may be framed, what breaks, which connections are used again."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from edgewise.core.errors import ConfigError
from edgewise.gateway.parts import BrokenReplyError, NotBegunError
from edgewise.gateway.transport import HttpReply, HttpTransport, SilentError
from tests.support.scripted_upstream import (
    Answer,
    Asked,
    Hang,
    Reset,
    Script,
    json_answer,
    scripted,
    stream_answer,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.http

FRAMINGS = ("chunked", "length", "close")


@contextlib.asynccontextmanager
async def client() -> AsyncIterator[HttpTransport]:
    transport = HttpTransport()
    try:
        yield transport
    finally:
        await transport.aclose()


async def get(transport: HttpTransport, url: str, timeout: float | None = 5.0) -> bytes:
    reply = await transport.send("GET", url, {}, b"", timeout=timeout)
    try:
        return await reply.read()
    finally:
        await reply.aclose()


def always(answer: Answer) -> Script:
    return lambda _: answer


@pytest.mark.parametrize("framing", FRAMINGS)
async def test_bodies_come_whole_however_they_are_framed(framing: str):
    pieces = [b"a" * 70_000, b"b", b"c" * 300_000]
    answer = Answer(200, {"X-Odd": "1"}, pieces, framing=framing)  # type: ignore[arg-type]
    with scripted(always(answer)) as server:
        async with client() as transport:
            reply = await transport.send("POST", server.url + "/p?q=1", {"x-mine": "2"}, b"body", timeout=5)
            assert (reply.status, reply.headers["x-odd"]) == (200, "1")
            assert await reply.read() == b"".join(pieces)
            await reply.aclose()
        asked = server.requests[0]
        assert (asked.method, asked.path, asked.body) == ("POST", "/p?q=1", b"body")
        assert asked.headers["x-mine"] == "2"
        assert asked.headers["host"] == server.url.removeprefix("http://")


async def test_events_come_as_they_are_sent_and_not_later():
    with scripted(always(stream_answer(b"data: 1\n\n", Hang))) as server:
        async with client() as transport:
            reply = await transport.send("GET", server.url, {}, b"", timeout=5)
            async with asyncio.timeout(2):
                assert await anext(aiter(reply.chunks())) == b"data: 1\n\n"
            await reply.aclose()
        await asyncio.to_thread(wait_until, lambda: server.num_left == 1)


@pytest.mark.parametrize("framing", ["chunked", "length"])
async def test_an_answer_that_breaks_is_told_from_a_whole_one(framing: str):
    answer = Answer(200, {}, [b"half", Reset, b"rest"], framing=framing)  # type: ignore[arg-type]
    with scripted(always(answer)) as server:
        async with client() as transport:
            reply = await transport.send("GET", server.url, {}, b"", timeout=5)
            got = []
            with pytest.raises(BrokenReplyError, match="in the middle"):
                async for piece in reply.chunks():
                    got.append(piece)  # noqa: PERF401
            assert b"".join(got) == b"half"
            await reply.aclose()


async def test_no_answer_at_all_is_not_begun():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        refused = f"http://127.0.0.1:{free.getsockname()[1]}"
    async with client() as transport:
        with pytest.raises(NotBegunError, match="refused"):
            await get(transport, refused)
        with scripted(always(Answer(200, {}, [Reset]))) as server:
            with pytest.raises(NotBegunError, match="before it answered"):
                await get(transport, server.url)
            server.script = always(Answer(200, {}, [], before_s=3))
            with pytest.raises(SilentError, match=r"no answer for 0\.1 s"):
                await get(transport, server.url, timeout=0.1)


async def test_silence_in_an_answer_ends_it_after_the_timeout():
    with scripted(always(stream_answer(b"x", Hang))) as server:
        async with client() as transport:
            with pytest.raises(BrokenReplyError, match="silent"):
                await get(transport, server.url, timeout=0.1)


def connections_of(server: object) -> int:
    return len(server._writers)  # type: ignore[attr-defined]


async def test_connections_are_used_again_after_whole_answers_only():
    with scripted(always(json_answer({}))) as server:
        async with client() as transport:
            for _ in range(5):
                await get(transport, server.url)
            assert connections_of(server) == 1
            server.script = always(stream_answer(b"x", Hang))
            reply = await transport.send("GET", server.url, {}, b"", timeout=5)
            await reply.aclose()
            await asyncio.to_thread(wait_until, lambda: connections_of(server) == 0)
            server.script = always(json_answer({}))
            replies = [await transport.send("GET", server.url, {}, b"", timeout=5) for _ in range(3)]
            assert connections_of(server) == 3
            for reply in replies:
                await reply.read()
                await reply.aclose()
            await get(transport, server.url)
            assert connections_of(server) == 3


async def test_a_kept_connection_that_the_server_closed_is_replaced_without_a_word():
    with scripted(always(json_answer({}))) as server:
        async with client() as transport:
            await get(transport, server.url)
            server.kill()
            server.start()
            assert await get(transport, server.url) == b"{}"


async def test_a_server_that_lets_go_of_each_kept_connection_is_not_asked_for_ever():
    """Of a new connection too: then it is an error, not another attempt."""

    def script(asked: Asked) -> Answer:
        return json_answer({}) if asked.path == "/first" else Answer(200, {}, [Reset])

    with scripted(script) as server:
        async with client() as transport:
            await get(transport, server.url + "/first")
            with pytest.raises(NotBegunError):
                await get(transport, server.url + "/second")
            assert len(server.asked("/second")) == 2


async def test_a_reader_that_is_slow_holds_the_server_back():
    sent = [b"x" * 65536] * 400
    with scripted(always(Answer(200, {}, sent))) as server:
        async with client() as transport:
            reply = await transport.send("GET", server.url, {}, b"", timeout=10)
            await asyncio.sleep(0.3)
            assert server.num_open == 1, "26 MB are not in memory: the rest waits at the server"
            assert len(await reply.read()) == 400 * 65536
            await reply.aclose()


async def test_headers_cannot_begin_another_request():
    with scripted(always(json_answer({}))) as server:
        async with client() as transport:
            odd = {"user-agent": "x\r\nx-smuggled: 1\r\n\r\nGET / HTTP/1.1"}
            reply: HttpReply = await transport.send("GET", server.url, odd, b"", timeout=5)
            await reply.read()
            await reply.aclose()
        assert len(server.requests) == 1
        assert "x-smuggled" not in server.requests[0].headers


@pytest.mark.parametrize(
    "wire",
    [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000],
    ids=["no HTTP", "endless headers"],
)
async def test_what_is_no_answer_is_not_begun(wire: bytes):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(wire)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with client() as transport, server:
        with pytest.raises(NotBegunError):
            await get(transport, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")


async def test_an_interim_answer_is_passed_over():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
        await asyncio.sleep(0.05)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with client() as transport, server:
        assert await get(transport, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") == b"ok"


@pytest.mark.parametrize("late", [False, True], ids=["at once", "while the connection is kept"])
async def test_an_answer_that_nobody_asked_for_is_no_answer_of_the_next_request(late: bool):
    good, odd = (b"HTTP/1.1 200 OK\r\nx-odd: %d\r\ncontent-length: 1\r\n\r\n%d" % (i, i) for i in (0, 1))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(good if late else good + odd)
                await asyncio.sleep(0.05)
                writer.write(odd if late else b"")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with client() as transport, server:
        for _ in range(3):
            reply = await transport.send("GET", url, {}, b"", timeout=5)
            assert (await reply.read(), reply.headers["x-odd"]) == (b"0", "0")
            await reply.aclose()
            await asyncio.sleep(0.1)


async def test_an_address_that_is_none():
    async with client() as transport:
        for url in ("ftp://x", "http://", "http://x:port"):
            with pytest.raises(ConfigError):
                await get(transport, url)
