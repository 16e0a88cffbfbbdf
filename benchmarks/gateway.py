"""What the gateway costs: time to first byte and tokens per second beside the same upstream asked directly, and memory of idle streams.

The upstream is scripted: a process that answers at once and then keeps a pace, so whatever is slower through the gateway is the gateway's
doing. Direct and forwarded phases take turns, so that what else the machine does falls on both alike.

Usage: python benchmarks/gateway.py [--streams 32] [--tokens-per-s 800] [--phases 3] [--phase-s 6] [--idle 256]
Prints one JSON line per figure.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

TOKENS = 40  # of one answer
PATH = "/v1/chat/completions"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{i}",
            "description": "Does one of the things that coding agents have tools for. " * 8,
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}},
                "required": ["path"],
            },
        },
    }
    for i in range(20)
]
BODY = json.dumps(
    {
        "model": "m",
        "stream": True,
        "messages": [
            {"role": "system", "content": "Be brief. " * 400},
            {"role": "user", "content": "Go on."},
        ],
        "tools": TOOLS,
    }
).encode()
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
DELTA = {"index": 0, "delta": {"content": " word"}, "logprobs": None, "finish_reason": None}
EVENT = json.dumps(
    {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [DELTA]}
)


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


TOKEN = chunk(f"data: {EVENT}\n\n".encode())
END = chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    size = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return await reader.readexactly(size)


async def serve_upstream(ready: Connection, interval_s: float) -> None:
    """Answers every request with `TOKENS` events, one each `interval_s`; a body with "idle" gets one, and then silence."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                body = await read_request(reader)
                writer.write(HEAD + TOKEN)
                if b'"idle"' in body:
                    await reader.read(1)
                    break
                start_s = time.monotonic()
                for i in range(1, TOKENS):
                    await asyncio.sleep(start_s + i * interval_s - time.monotonic())
                    writer.write(TOKEN)
                writer.write(END)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def run_upstream(ready: Connection, interval_s: float) -> None:
    import uvloop

    uvloop.run(serve_upstream(ready, interval_s))


def run_gateway(ready: Connection, upstream_url: str) -> None:
    """A gateway in a process that has imported nothing else."""
    from edgewise.gateway.app import create_gateway
    from edgewise.gateway.config import GatewayConfig, UpstreamConfig
    from edgewise.gateway.parts import GatewayParts
    from edgewise.gateway.profile import Kind
    from edgewise.gateway.routing import Router
    from edgewise.gateway.transport import HttpTransport
    from edgewise.gateway.upstream import CircuitBreaker, Upstream
    from edgewise.serving.listening import Server, bind

    config = GatewayConfig((UpstreamConfig("one", upstream_url, Kind.OPENAI, models=("m",)),))
    one = Upstream(config.upstreams[0], CircuitBreaker(config.breaker_failures, config.breaker_pause_s))
    one.answers = True
    app = create_gateway(GatewayParts(Router(config, [one]), HttpTransport()))
    listener = bind("127.0.0.1", 0)
    Server(app, listener, lambda: ready.send(listener.getsockname()[1]), drain_timeout_s=1).run()


@contextlib.contextmanager
def process(target: Any, *arguments: Any) -> Iterator[tuple[Any, int]]:
    """What a child process sends when it is ready, and its number."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=target, args=(theirs, *arguments), daemon=True)
    child.start()
    try:
        if not ours.poll(30):
            raise RuntimeError(f"{target.__name__} did not start")
        yield ours.recv(), child.pid or 0
    finally:
        child.terminate()
        child.join(5)


def request(body: bytes) -> bytes:
    head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


@dataclass
class Phase:
    first_byte_ms: list[float] = field(default_factory=list)
    num_tokens: int = 0
    wall_s: float = 0.0


async def stream_until(port: int, end_s: float, phase: Phase, delay_s: float) -> None:
    """One client: answers one after another on one connection."""
    await asyncio.sleep(delay_s)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    wire = request(BODY)
    while time.monotonic() < end_s:
        start_s = time.monotonic()
        writer.write(wire)
        data = b""
        while b"data:" not in data:  # the first byte of the answer itself
            data += await reader.read(65536)
        phase.first_byte_ms.append((time.monotonic() - start_s) * 1e3)
        while not data.endswith(b"0\r\n\r\n"):
            phase.num_tokens += data.count(b'" word"')
            data = data[-8:] if b'" word"' not in data[-8:] else b""
            more = await reader.read(65536)
            if not more:
                raise RuntimeError("the stream ended early")
            data += more
        phase.num_tokens += data.count(b'" word"')
    writer.close()


async def run_phase(port: int, streams: int, phase_s: float) -> Phase:
    phase = Phase()
    start_s = time.monotonic()
    spread_s = 1.6 / streams  # answers begin evenly, not all at once
    await asyncio.gather(
        *(stream_until(port, start_s + phase_s, phase, i * spread_s) for i in range(streams))
    )
    phase.wall_s = time.monotonic() - start_s
    return phase


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def tell(figure: str, **values: Any) -> None:
    print(json.dumps({"figure": figure, **values}), flush=True)


async def measure_overhead(direct: int, forwarded: int, options: argparse.Namespace) -> None:
    """Phases in turn; the difference of the percentiles is the gateway's share."""
    await run_phase(forwarded, options.streams, 1.0)
    phases: dict[str, list[Phase]] = {"direct": [], "gateway": []}
    for _ in range(options.phases):
        phases["direct"].append(await run_phase(direct, options.streams, options.phase_s))
        phases["gateway"].append(await run_phase(forwarded, options.streams, options.phase_s))
    first = {name: [ms for one in some for ms in one.first_byte_ms] for name, some in phases.items()}
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        of_direct, of_gateway = (percentile(first[who], share) for who in ("direct", "gateway"))
        tell(
            f"first byte {name}, added",
            ms=round(of_gateway - of_direct, 3),
            direct_ms=round(of_direct, 3),
            gateway_ms=round(of_gateway, 3),
            samples=len(first["gateway"]),
            streams=options.streams,
        )
    rates = {name: [one.num_tokens / one.wall_s for one in some] for name, some in phases.items()}
    medians = {name: statistics.median(some) for name, some in rates.items()}
    tell(
        "tokens per second, lost",
        percent=round(100 * (1 - medians["gateway"] / medians["direct"]), 2),
        direct=round(medians["direct"], 1),
        gateway=round(medians["gateway"], 1),
    )


def memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def measure_idle(port: int, pid: int, num_streams: int) -> None:
    body = BODY[:-1] + b', "user": "idle"}'
    before_mb = memory_mb(pid)
    writers = []
    for _ in range(num_streams):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(body))
        while b"data:" not in await reader.read(65536):
            pass
        writers.append(writer)
    await asyncio.sleep(1.0)
    start_s, start_cpu_s = time.monotonic(), cpu_s(pid)
    await asyncio.sleep(3.0)
    share = (cpu_s(pid) - start_cpu_s) / (time.monotonic() - start_s)
    tell(
        "idle streams, resident memory",
        mb=round(memory_mb(pid), 1),
        before_mb=round(before_mb, 1),
        streams=num_streams,
        cpu_percent=round(100 * share, 1),
    )
    for writer in writers:
        writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens-per-s", type=float, default=800.0)
    parser.add_argument("--phases", type=int, default=3)
    parser.add_argument("--phase-s", type=float, default=6.0)
    parser.add_argument("--idle", type=int, default=256)
    options = parser.parse_args()
    interval_s = options.streams / options.tokens_per_s
    with (
        process(run_upstream, interval_s) as (upstream, _),
        process(run_gateway, f"http://127.0.0.1:{upstream}") as (port, pid),
    ):
        asyncio.run(measure_idle(port, pid, options.idle))
        asyncio.run(measure_overhead(upstream, port, options))


if __name__ == "__main__":
    main()
