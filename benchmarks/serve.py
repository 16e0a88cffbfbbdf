"""Many streaming clients against the HTTP server: time to first token, time between tokens, tokens/s; one JSON line a figure.

A client is a raw socket that reads events and notes when they came, so that it costs little beside the server. With --model the
server is started here, and with --in-process the same model also runs inside this process, rounds interleaved; the ratio is
what HTTP keeps of the in-process rate. Each round sends prompts that share no prefix, so every one is computed.

Usage: python benchmarks/serve.py --model smollm2-135m-instruct --in-process [--clients 1,4,8] [--json]
       python benchmarks/serve.py --url http://127.0.0.1:8000
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from edgewise import LLM

WORDS = [
    "river",
    "stone",
    "lamp",
    "forest",
    "paper",
    "cloud",
    "metal",
    "garden",
    "window",
    "signal",
    "copper",
    "winter",
    "music",
    "harbor",
    "engine",
]
READ_BYTES = 1 << 16
_rounds = itertools.count()


@dataclass(frozen=True, slots=True)
class Answer:
    """What one client saw. Times in seconds."""

    first_token_s: float
    gaps_s: tuple[float, ...]  # between events that carry text
    num_tokens: int  # as the server counted them
    total_s: float


@dataclass(frozen=True, slots=True)
class Round:
    """All answers of clients that ran together, and how long the whole took."""

    answers: tuple[Answer, ...]
    wall_s: float

    @property
    def tokens_per_s(self) -> float:
        return sum(answer.num_tokens for answer in self.answers) / self.wall_s


def make_prompts(count: int, num_words: int) -> list[str]:
    """Prompts that begin differently, in this round and from every other round."""
    seed = random.Random(next(_rounds))
    return [f"{seed.random()} " + " ".join(seed.choices(WORDS, k=num_words)) for _ in range(count)]


def http_request(url: str, prompt: str, options: argparse.Namespace) -> bytes:
    body: dict[str, Any] = {
        "max_tokens": options.max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if options.endpoint == "chat":
        body["messages"] = [{"role": "user", "content": prompt}]
    else:
        body["prompt"] = prompt
    payload = json.dumps(body).encode()
    path = "/v1/chat/completions" if options.endpoint == "chat" else "/v1/completions"
    head = f"POST {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nContent-Length: {len(payload)}\r\n"
    if options.api_key:
        head += f"Authorization: Bearer {options.api_key}\r\n"
    return head.encode() + b"Content-Type: application/json\r\nConnection: close\r\n\r\n" + payload


def carries_text(line: bytes) -> bool:
    """Whether an event is a delta with text: neither the role chunk nor the finish nor a sign of life."""
    return (b'"content":"' in line and b'"content":""' not in line) or (
        b'"text":"' in line and b'"text":""' not in line
    )


async def one_client(url: str, prompt: str, options: argparse.Namespace) -> Answer:
    """Send a request and note when its events come. Raises RuntimeError when it is not answered 200."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 22)
    began = time.perf_counter()
    writer.write(http_request(url, prompt, options))
    status = await reader.readline()
    if b" 200 " not in status:
        raise RuntimeError(f"{status.decode().strip()}: {(await reader.read(2000)).decode()[-500:]}")
    times: list[float] = []
    num_tokens = 0
    async for line in reader:
        if not line.startswith(b"data: "):
            continue
        if carries_text(line):
            times.append(time.perf_counter())
        elif b'"completion_tokens"' in line:
            num_tokens = json.loads(line.removeprefix(b"data: "))["usage"]["completion_tokens"]
        elif b'"error"' in line:
            raise RuntimeError(line.decode())
    writer.close()
    if not times:
        raise RuntimeError("an answer without text")
    gaps = tuple(later - earlier for earlier, later in itertools.pairwise(times))
    return Answer(times[0] - began, gaps, num_tokens, time.perf_counter() - began)


async def http_round(url: str, count: int, options: argparse.Namespace) -> Round:
    prompts = make_prompts(count, options.prompt_words)
    began = time.perf_counter()
    answers = await asyncio.gather(*(one_client(url, prompt, options) for prompt in prompts))
    return Round(tuple(answers), time.perf_counter() - began)


def in_process_round(llm: LLM, count: int, options: argparse.Namespace) -> Round:
    """The same prompts' kind without HTTP: the engine and the text of every token."""
    sampling = {"max_tokens": options.max_tokens, "temperature": 0, "ignore_eos": True}
    prompts: Sequence[Any] = make_prompts(count, options.prompt_words)
    if options.endpoint == "chat":
        prompts = [[{"role": "user", "content": prompt}] for prompt in prompts]
    began = time.perf_counter()
    outputs = llm.chat(prompts, sampling) if options.endpoint == "chat" else llm.generate(prompts, sampling)
    wall_s = time.perf_counter() - began
    return Round(tuple(Answer(0.0, (), len(output.token_ids), wall_s) for output in outputs), wall_s)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of all are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def figures(
    count: int, rounds: Sequence[Round], inside: Sequence[Round], num_tokens: int
) -> Iterator[dict[str, Any]]:
    """One object a figure, as `edgewise bench --json` writes them."""
    details = {"clients": count, "rounds": len(rounds), "max_tokens": num_tokens}
    answers = [answer for one in rounds for answer in one.answers]
    first = [answer.first_token_s for answer in answers]
    gaps = [gap for answer in answers for gap in answer.gaps_s]
    rates = [one.tokens_per_s for one in rounds]
    yield {
        "figure": "serve_first_token",
        **details,
        "value": statistics.median(first),
        "p99": percentile(first, 0.99),
        "unit": "s",
    }
    yield {
        "figure": "serve_inter_token",
        **details,
        "value": percentile(gaps, 0.5),
        "p99": percentile(gaps, 0.99),
        "unit": "s",
    }
    rate: dict[str, Any] = {
        "figure": "serve_rate",
        **details,
        "value": statistics.median(rates),
        "low": min(rates),
        "high": max(rates),
        "unit": "tokens/s",
    }
    if inside:
        rate["in_process"] = statistics.median(one.tokens_per_s for one in inside)
        pairs = zip(rounds, inside, strict=True)
        rate["ratio"] = statistics.median(http.tokens_per_s / own.tokens_per_s for http, own in pairs)
    yield rate


@contextmanager
def server_of(options: argparse.Namespace) -> Iterator[str]:
    """The address of the server to measure; one is started for --model."""
    if options.url:
        yield options.url
        return
    command = [
        sys.executable,
        "-m",
        "edgewise.cli",
        "serve",
        options.model,
        "--port",
        "0",
        *options.serve_flags,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if " at http" in line:
                yield line.split(" at ")[1].split()[0]
                return
        raise SystemExit(f"the server did not start: {' '.join(command)}")
    finally:
        process.terminate()
        process.wait()


def measure(url: str, llm: LLM | None, options: argparse.Namespace) -> None:
    for count in map(int, options.clients.split(",")):
        asyncio.run(http_round(url, count, options))  # warm-up
        if llm is not None:
            in_process_round(llm, count, options)
        outside, inside = [], []
        for _ in range(options.rounds):
            outside.append(asyncio.run(http_round(url, count, options)))
            if llm is not None:
                inside.append(in_process_round(llm, count, options))
        for figure in figures(count, outside, inside, options.max_tokens):
            print(json.dumps({"model": options.model or url, **figure}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--url", help="a running server")
    which.add_argument("--model", help="serve this model on a free port")
    parser.add_argument(
        "--in-process", action="store_true", help="also run the model here and give the ratio"
    )
    parser.add_argument("--clients", default="1,4,8", help="how many stream at once, comma-separated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--prompt-words", type=int, default=32)
    parser.add_argument("--endpoint", choices=("chat", "completions"), default="completions")
    parser.add_argument("--api-key", default="")
    options, options.serve_flags = parser.parse_known_args()
    if options.in_process and not options.model:
        parser.error("--in-process needs --model")
    llm = None
    if options.in_process:
        from edgewise import LLM

        llm = LLM(options.model)
    with server_of(options) as url:
        measure(url, llm, options)
    if llm is not None:
        llm.close()


if __name__ == "__main__":
    main()
