"""A coding agent's loop against the HTTP server, beside llama-server: total time, and each step's time to first token.

A loop is recorded: a system prompt and tools of a given length, a task, then steps that each add the call the agent had made and
the tool's result. Both servers get the same requests, so neither is helped or hurt by what its model happens to answer. Servers take
turns, loop by loop; a second scenario interleaves two loops and a title request. llama-server is the one of the `xllamacpp` wheel
(`benchmarks/build_peers.sh`), with four slots and its prompt cache.

Usage: python benchmarks/agent_loop.py smollm2-135m-instruct --prompt-tokens 6000 [--steps 12] [--json]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgewise.checkpoints.settings import settings_from_environment
from edgewise.checkpoints.source import resolve_source

ACTIONS = {
    "read": "Reads a {thing} and gives back its content with line numbers. Long ones are cut; ask again with an offset to see the rest.",
    "write": "Writes a {thing} whole. What was there is replaced, so read it first; missing folders above it are made.",
    "search": "Searches every {thing} for a regular expression and lists the places, newest first, with two lines round each.",
    "rename": "Gives a {thing} another name and corrects the places that mention it. Fails when the new name is taken already.",
    "delete": "Removes a {thing}. It cannot be brought back, so ask the user before anything that is not in version control.",
    "check": "Checks a {thing} with the project's own tools and reports what they say, errors first, then warnings.",
}
THINGS = ("file", "module", "test", "note", "branch", "ticket", "table", "service", "page", "recipe")
ADVICE = (
    "Look before you change anything: read the {thing} and what uses it.",
    "Keep each change to a {thing} small enough that a reviewer can follow it in one sitting.",
    "When a {thing} does not behave as you expect, find out why before you work round it.",
    "Say what you are about to do with the {thing} in one sentence, then do it.",
    "Never invent the content of a {thing}; if you have not seen it, read it.",
    "After a change to a {thing} run its checks and quote the part of their output that matters.",
)
PEER_SERVER = """
import sys, time, xllamacpp as x
path, port, threads, window = sys.argv[1], *map(int, sys.argv[2:5])
p = x.CommonParams()
p.model.path, p.port, p.n_ctx, p.n_parallel, p.kv_unified, p.warmup = path, port, 4 * window, 4, True, True
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
server = x.Server(p)
print("ready", server.listening_address, flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One request as it was answered. Seconds."""

    first_token_s: float
    total_s: float
    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    url: str

    def post(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"content-type": "application/json"}
        )
        return urllib.request.urlopen(request, timeout=1800)

    def chat(self, body: dict[str, Any]) -> Step:
        """Stream one request; the first token is the first delta that carries text or a call."""
        start = time.perf_counter()
        first, usage = 0.0, {}
        for line in self.post("/v1/chat/completions", body):
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            usage = chunk.get("usage") or usage
            deltas = [choice["delta"] for choice in chunk["choices"]]
            if not first and any(
                d.get(k) for d in deltas for k in ("content", "tool_calls", "reasoning_content")
            ):
                first = time.perf_counter() - start
        total = time.perf_counter() - start
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        return Step(first or total, total, usage.get("prompt_tokens", 0), cached)


class Loop:
    """The requests of one agent: each step's body extends the one before."""

    def __init__(self, name: str, prompt_words: int, answer_tokens: int, *, inline: bool) -> None:
        self.name = name
        self._answer_tokens = answer_tokens
        self._inline = inline
        self._tools = make_tools(max(4, prompt_words // 220))
        system = make_advice(name, prompt_words // 2)
        if inline:
            system += "\n\nTools:\n" + "\n".join(json.dumps(tool["function"]) for tool in self._tools)
        self._messages: list[dict[str, Any]] = [
            {"role": "system", "content": system},
            {
                "role": "user",
                "content": f"The {name} job: the totals on the first page are wrong. Find out why and mend it.",
            },
        ]

    def body(self) -> dict[str, Any]:
        return {
            "messages": list(self._messages),
            **({} if self._inline else {"tools": self._tools}),
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            "max_tokens": self._answer_tokens,
        }

    def advance(self, step: int) -> None:
        """Add the recorded call of a step and its result."""
        thing = THINGS[step % len(THINGS)]
        call = {
            "name": "search_file",
            "arguments": json.dumps({"pattern": f"total_{step}", "place": f"src/{thing}.py"}),
        }
        result = "\n".join(
            f"{line}: {thing} total_{step} = sum(row.amount for row in rows[{line}:])" for line in range(3)
        )
        if self._inline:
            said = f"I look for total {step}.\n{json.dumps(call)}"
            self._messages += [{"role": "assistant", "content": said}, {"role": "user", "content": result}]
            return
        self._messages += [
            {
                "role": "assistant",
                "content": f"I look for total {step}.",
                "tool_calls": [{"id": f"call_{self.name}_{step}", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"call_{self.name}_{step}", "content": result},
        ]


def make_tools(count: int) -> list[dict[str, Any]]:
    pairs = [(action, thing) for thing in THINGS for action in ACTIONS][:count]
    place = {"type": "string", "description": "where it lies, from the root of the project"}
    pattern = {"type": "string", "description": "what to look for or to write"}
    schema = {"type": "object", "properties": {"place": place, "pattern": pattern}, "required": ["place"]}
    return [
        {
            "type": "function",
            "function": {
                "name": f"{action}_{thing}",
                "description": ACTIONS[action].format(thing=thing),
                "parameters": schema,
            },
        }
        for action, thing in pairs
    ]


def make_advice(name: str, words: int) -> str:
    """System text of about so many words, different for each agent from its first line on."""
    lines, count = [f"You are the {name} agent and work in the user's project."], 10
    for number in range(1, words):
        thing = THINGS[number % len(THINGS)]
        lines.append(f"{number}. {ADVICE[number % len(ADVICE)].format(thing=thing)}")
        count += len(lines[-1].split())
        if count >= words:
            break
    return "\n".join(lines)


def words_for(server: Server, options: argparse.Namespace) -> int:
    """How many words make a first request of about `--prompt-tokens`, found by asking the server."""
    words = options.prompt_tokens // 2
    for _ in range(4):
        body = Loop("sizing", words, 1, inline=options.inline_tools).body()
        asked = {name: body[name] for name in ("messages", "tools") if name in body}
        tokenized = json.load(server.post("/tokenize", asked))
        words = max(100, int(words * options.prompt_tokens / tokenized["count"]))
    return words


TITLE = {
    "messages": [
        {"role": "system", "content": "You write a title of at most six words for a conversation."},
        {"role": "user", "content": "The totals on the first page are wrong."},
    ],
    "stream": True,
    "stream_options": {"include_usage": True},
    "temperature": 0,
    "max_tokens": 12,
}


def run_loop(server: Server, words: int, options: argparse.Namespace, name: str) -> list[Step]:
    loop = Loop(name, words, options.answer_tokens, inline=options.inline_tools)
    steps = []
    for number in range(options.steps):
        steps.append(server.chat(loop.body()))
        loop.advance(number)
    return steps


def run_interleaved(server: Server, words: int, options: argparse.Namespace, name: str) -> list[Step]:
    """Two agents in turn, a title request after each first step."""
    loops = [Loop(f"{name}-{i}", words, options.answer_tokens, inline=options.inline_tools) for i in range(2)]
    steps = []
    for number in range(options.steps):
        for loop in loops:
            steps.append(server.chat(loop.body()))
            if number == 0:
                steps.append(server.chat(TITLE))
            loop.advance(number)
    return steps


@contextlib.contextmanager
def serving(command: list[str], url: str, name: str) -> Iterator[Server]:
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_for(url + "/health", process)
            yield Server(name, url)
        finally:
            process.terminate()


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(1200):
        if process.poll() is not None:
            raise SystemExit(f"a server ended with status {process.returncode} before it was ready")
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.1)
    raise SystemExit(f"{url} did not come up")


def report(model: str, scenario: str, ours: list[list[Step]], theirs: list[list[Step]]) -> dict[str, Any]:
    """Medians over rounds, ratio above 1: ours is better."""

    def total(rounds: list[list[Step]]) -> float:
        return statistics.median(sum(step.total_s for step in steps) for steps in rounds)

    def later(rounds: list[list[Step]]) -> list[float]:
        return [
            statistics.median(steps[i].first_token_s for steps in rounds) for i in range(1, len(rounds[0]))
        ]

    ratios = [b / a for a, b in zip(later(ours), later(theirs), strict=True)]
    last = ours[0][-1]
    return {
        "model": model,
        "scenario": scenario,
        "total_s": total(ours),
        "peer_total_s": total(theirs),
        "ratio": total(theirs) / total(ours),
        "later_first_token_s": statistics.median(later(ours)),
        "peer_later_first_token_s": statistics.median(later(theirs)),
        "worst_first_token_ratio": min(ratios),
        "median_first_token_ratio": statistics.median(ratios),
        "first_prompt_tokens": ours[0][0].prompt_tokens,
        "peer_first_prompt_tokens": theirs[0][0].prompt_tokens,
        "last_uncached_tokens": last.prompt_tokens - last.cached_tokens,
        "rounds": len(ours),
    }


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("model")
    parser.add_argument("--prompt-tokens", type=int, default=6000)
    parser.add_argument("--window", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--answer-tokens", type=int, default=32)
    parser.add_argument(
        "--inline-tools", action="store_true", help="tools as system text: for templates that know none"
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--scenario", choices=("loop", "interleaved", "both"), default="both")
    parser.add_argument("--peers-dir", type=Path)
    return parser.parse_args()


def main() -> None:
    options = read_arguments()
    settings = settings_from_environment(os.environ)
    path = resolve_source(options.model, settings=settings)
    peer_python = (options.peers_dir or settings.data_dir / "peers") / "llama-server" / "bin" / "python"
    if not peer_python.exists():
        raise SystemExit(f"{peer_python} is not there; run `make peers`")
    edgewise = [
        sys.executable,
        "-c",
        "from edgewise.cli import main; main()",
        "serve",
        str(path),
        "--port",
        "8831",
    ]
    edgewise += ["--threads", str(options.threads), "--max-model-len", str(options.window)]
    peer = [str(peer_python), "-c", PEER_SERVER, str(path), "8832", str(options.threads), str(options.window)]
    scenarios = {"loop": run_loop, "interleaved": run_interleaved}
    with (
        serving(edgewise, "http://127.0.0.1:8831", "edgewise") as ours,
        serving(peer, "http://127.0.0.1:8832", "llama-server") as theirs,
    ):
        words = words_for(ours, options)
        for scenario, run in scenarios.items():
            if options.scenario not in (scenario, "both"):
                continue
            results: dict[str, list[list[Step]]] = {"edgewise": [], "llama-server": []}
            for number in range(options.rounds):
                for server in (ours, theirs):
                    results[server.name].append(run(server, words, options, f"{scenario}-{number}"))
            print(
                json.dumps(report(options.model, scenario, results["edgewise"], results["llama-server"])),
                flush=True,
            )


if __name__ == "__main__":
    main()
