"""Measures the catalog's text models beside both peers and writes docs/benchmarks.md. Takes a while; run it on an idle machine.

Usage: python benchmarks/report.py [--models A,B] [--peers llama.cpp,ik_llama.cpp] [--samples N] [--budget-s S] [--render]
Every line of the report comes from `edgewise bench MODEL --peer PEER --json`; the raw lines are kept in docs/benchmarks.jsonl.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
MODELS = "smollm2-135m-instruct,qwen2.5-coder-0.5b-instruct,qwen2.5-coder-1.5b-instruct"
PEERS = "llama.cpp,ik_llama.cpp"


def run(model: str, peer: str, arguments: argparse.Namespace) -> list[dict[str, object]]:
    """The figures of one model beside one peer, echoed as they come."""
    command = [sys.executable, "-m", "edgewise.cli", "bench", model, "--peer", peer, "--json"]
    command += ["--samples", str(arguments.samples), "--budget-s", str(arguments.budget_s)]
    command += ["--figures", arguments.figures, "--prefill-lens", arguments.prefill_lens]
    figures = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            figures.append({"model": model, "beside": peer, **json.loads(line)})
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with status {process.returncode}")
    return figures


def label(figure: dict[str, object]) -> str:
    parts = [f"{name} {figure[name]}" for name in ("batch", "tokens", "context") if name in figure]
    if isinstance(share := figure.get("share_of_cold"), float):
        parts.append(f"{share:.2%} of the time without a cache")
    return f"{figure['figure']} ({', '.join(parts)})" if parts else str(figure["figure"])


def number(value: object, form: str) -> str:
    return "" if value is None else format(value, form)


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def report(figures: list[dict[str, object]], arguments: argparse.Namespace) -> str:
    today = datetime.date.today().isoformat()
    lines = [
        "# Benchmarks",
        "",
        f"Made with `edgewise bench MODEL --peer PEER --json` on {today}: {cpu_name()}, {len(os.sched_getaffinity(0))} cores. Medians of up to",
        f"{arguments.samples} samples, ours and the peer's runs in turn; ratio above 1: better than the peer. The peer runs through llama_decode in its own process",
        "with as many threads, flash attention on or off, the better counted. Our decode times include sampling. Shares are of the read bandwidth (decode,",
        "bytes of the weight file) or of the 8-bit multiply-add peak (prefill, and decode where that is nearer), measured in the run\nof each figure; of several runs the latest is shown.",
        "",
    ]
    for model in dict.fromkeys(str(f["model"]) for f in figures):
        lines += [
            f"## {model}",
            "",
            "| figure | peer | ours | unit | share of limit | peer's | ratio |",
            "|---|---|---:|---|---:|---:|---:|",
        ]
        for f in figures:
            if f["model"] == model:
                lines.append(
                    f"| {label(f)} | {f['beside'] if 'peer' in f else ''} | {number(f['value'], ',.4g')} | {f['unit']} "
                    f"| {number(f.get('share_of_limit'), '.0%')} | {number(f.get('peer'), ',.4g')} | {number(f.get('ratio'), '.2f')} |"
                )
        lines.append("")
    return "\n".join(lines + served() + agent_loops())


def served() -> list[str]:
    """The section on what HTTP keeps, of what benchmarks/serve.py --in-process printed into docs/serve.jsonl."""
    source = DOCS / "serve.jsonl"
    if not source.exists():
        return []
    lines = [
        "## Over HTTP",
        "",
        "Made with `benchmarks/serve.py --model MODEL --in-process`: streams of 128 tokens over HTTP and the same in this process, rounds in turn; the",
        "share is the median of the pairs.",
        "",
        "| model | clients | first token, s | p99 | between tokens, ms | p99 | tokens/s | in process | kept |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    found = [json.loads(line) for line in source.read_text().splitlines()]
    for model, clients in dict.fromkeys((f["model"], f["clients"]) for f in found):
        of = {f["figure"]: f for f in found if (f["model"], f["clients"]) == (model, clients)}
        first, gap, rate = (of[f"serve_{name}"] for name in ("first_token", "inter_token", "rate"))
        lines.append(
            f"| {model} | {clients} | {first['value']:.2f} | {first['p99']:.2f} | {1e3 * gap['value']:.1f} | {1e3 * gap['p99']:.1f} "
            f"| {rate['value']:.1f} | {rate['in_process']:.1f} | {rate['ratio']:.1%} |"
        )
    return [*lines, ""]


def agent_loops() -> list[str]:
    """The section on whole agent loops, of what benchmarks/agent_loop.py printed into docs/agent_loops.jsonl."""
    source = DOCS / "agent_loops.jsonl"
    if not source.exists():
        return []
    lines = [
        "## Agent loops beside llama-server",
        "",
        "Made with `benchmarks/agent_loop.py`: recorded loops of 12 steps over HTTP, the same requests to both servers. Seconds; ratio above 1: better",
        "than llama-server (of the `xllamacpp` wheel).",
        "",
        "| model | scenario | first prompt | total | peer's | ratio | later first tokens | peer's | worst ratio |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for line in source.read_text().splitlines():
        f = json.loads(line)
        lines.append(
            f"| {f['model']} | {f['scenario']} | {f['first_prompt_tokens']} | {f['total_s']:.1f} | {f['peer_total_s']:.1f} | {f['ratio']:.2f} "
            f"| {f['later_first_token_s']:.2f} | {f['peer_later_first_token_s']:.2f} | {f['worst_first_token_ratio']:.2f} |"
        )
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--peers", default=PEERS)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--budget-s", type=float, default=60.0)
    parser.add_argument("--figures", default="decode,prefill,long_decode,prefix_hit")
    parser.add_argument("--prefill-lens", default="512,4096")
    parser.add_argument(
        "--render", action="store_true", help="measure nothing: the page of docs/benchmarks.jsonl"
    )
    arguments = parser.parse_args()
    lines = DOCS / "benchmarks.jsonl"
    if arguments.render:
        figures = [json.loads(line) for line in lines.read_text().splitlines()]
    else:
        figures = [
            figure
            for model in arguments.models.split(",")
            for peer in arguments.peers.split(",")
            for figure in run(model, peer, arguments)
        ]
        lines.write_text("".join(json.dumps(f) + "\n" for f in figures))
    (DOCS / "benchmarks.md").write_text(report(figures, arguments))


if __name__ == "__main__":
    main()
