"""What an HTTP client costs the gateway: processor time of each event that passes, of each request, and memory of streams that wait.

A server in a process of its own streams events at a pace to 32 connections at once; this process reads them with one client and does
nothing else. Clients take turns, so that what else the machine does falls on all alike; processor time is what the process itself used.

Usage: python benchmarks/http_clients.py [--streams 32] [--tokens-per-s 800] [--rounds 3] [--tokens 100] [--idle 256]
Prints one JSON line per client. httpx and aiohttp must be installed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
SHORT = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
EVENT = b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}\n\n'
CHUNK = f"{len(EVENT):x}\r\n".encode() + EVENT + b"\r\n"
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "words " * 2000}]}).encode()

Stream = Callable[[str, str], AsyncIterator[bytes]]
"""A client: (address, path) -> the body's pieces, as they come."""


async def serve(ready: Connection, interval_s: float, num_tokens: int) -> None:
    """/stream: events at a pace. /idle: one event, then silence. Anything else: two bytes at once."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lengths = [
                    line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
                ]
                await reader.readexactly(int(lengths[0]))
                if b" /idle " in head:
                    writer.write(HEAD + CHUNK)
                    await reader.read(1)
                    break
                if b" /stream " not in head:
                    writer.write(SHORT)
                    continue
                writer.write(HEAD)
                start_s = time.monotonic()
                for i in range(num_tokens):
                    await asyncio.sleep(start_s + i * interval_s - time.monotonic())
                    writer.write(CHUNK)
                writer.write(b"0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def run_server(ready: Connection, interval_s: float, num_tokens: int) -> None:
    import uvloop

    uvloop.run(serve(ready, interval_s, num_tokens))


@contextlib.asynccontextmanager
async def httpx_client() -> AsyncIterator[Stream]:
    import httpx

    async with httpx.AsyncClient(
        limits=httpx.Limits(max_connections=None), timeout=3600.0, trust_env=False
    ) as client:

        async def stream(url: str, path: str) -> AsyncIterator[bytes]:
            async with client.stream("POST", url + path, content=BODY) as response:
                async for piece in response.aiter_raw():
                    yield piece

        yield stream


@contextlib.asynccontextmanager
async def aiohttp_client() -> AsyncIterator[Stream]:
    import aiohttp

    options: dict[str, Any] = {"connector": aiohttp.TCPConnector(limit=0), "auto_decompress": False}
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=None, sock_read=3600.0), **options
    ) as client:

        async def stream(url: str, path: str) -> AsyncIterator[bytes]:
            async with client.post(url + path, data=BODY) as response:
                async for piece in response.content.iter_any():
                    yield piece

        yield stream


@contextlib.asynccontextmanager
async def own_client() -> AsyncIterator[Stream]:
    from edgewise.gateway.transport import HttpTransport

    transport = HttpTransport()

    async def stream(url: str, path: str) -> AsyncIterator[bytes]:
        reply = await transport.send("POST", url + path, {}, BODY, timeout=3600.0)
        try:
            async for piece in reply.chunks():
                yield piece
        finally:
            await reply.aclose()

    yield stream
    await transport.aclose()


CLIENTS: dict[str, Callable[[], contextlib.AbstractAsyncContextManager[Stream]]] = {
    "httpx": httpx_client,
    "aiohttp": aiohttp_client,
    "own (asyncio + httptools)": own_client,
}


async def read_all(stream: Stream, url: str, path: str) -> int:
    size = 0
    async for piece in stream(url, path):
        size += len(piece)
    return size


async def measure_events(stream: Stream, url: str, num_streams: int) -> float:
    """Processor time of one event, in microseconds."""
    used_s = time.process_time()
    sizes = await asyncio.gather(*(read_all(stream, url, "/stream") for _ in range(num_streams)))
    return (time.process_time() - used_s) * 1e6 / (sum(sizes) / len(EVENT))


async def measure_requests(stream: Stream, url: str, count: int = 400) -> float:
    """Processor time of one short request with a body of 12 kB, in microseconds."""
    used_s = time.process_time()
    for _ in range(count):
        await read_all(stream, url, "/short")
    return (time.process_time() - used_s) * 1e6 / count


async def measure_idle(stream: Stream, url: str, count: int) -> float:
    """Memory of one stream that waits, in kB of resident pages."""

    async def wait() -> None:
        async for _ in stream(url, "/idle"):
            pass

    before = resident_kb()
    tasks = [asyncio.create_task(wait()) for _ in range(count)]
    await asyncio.sleep(2)
    used = (resident_kb() - before) / count
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return used


def resident_kb() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1])


def run_client(results: Connection, name: str, url: str, num_streams: int, num_idle: int) -> None:
    """One round of one client, in a process that has imported no other."""
    import uvloop

    async def run() -> dict[str, float]:
        async with CLIENTS[name]() as stream:
            await measure_requests(stream, url, 50)
            return {
                "us_per_event": await measure_events(stream, url, num_streams),
                "us_per_request": await measure_requests(stream, url),
                "kb_per_idle_stream": await measure_idle(stream, url, num_idle),
            }

    results.send(uvloop.run(run()))


@contextlib.contextmanager
def child(target: Any, *arguments: Any) -> Iterator[Any]:
    """What a process of its own sends first."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.terminate()
        process.join(5)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens-per-s", type=float, default=800.0, help="of all streams together")
    parser.add_argument("--tokens", type=int, default=100, help="events of one stream")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle", type=int, default=256)
    options = parser.parse_args()
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in CLIENTS}
    with child(run_server, options.streams / options.tokens_per_s, options.tokens) as port:
        for _ in range(options.rounds):
            for name in CLIENTS:
                with child(
                    run_client, name, f"http://127.0.0.1:{port}", options.streams, options.idle
                ) as figures:
                    rounds[name].append(figures)
    for name, runs in rounds.items():
        line = {figure: round(statistics.median(run[figure] for run in runs), 1) for figure in runs[0]}
        spread = {f"{figure}_all": [round(run[figure], 1) for run in runs] for figure in runs[0]}
        print(json.dumps({"client": name, **line, **spread}))


if __name__ == "__main__":
    main()
