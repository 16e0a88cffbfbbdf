"""Throughput of many prompts through the engine: what vllm-bench reports, with its flags."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgewise.bench.figure import Figure
from edgewise.core.errors import ConfigError
from edgewise.core.sampling import SamplingParams
from edgewise.llm import LLM


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked: `num_prompts` prompts, `concurrency` at a time, answers of `output_len` tokens."""

    dataset_path: Path | None
    num_prompts: int
    input_len: int
    output_len: int
    concurrency: int


def read_prompts(path: Path) -> list[str]:
    """Prompts of a JSON-lines file: strings, or objects with "prompt" or "text". Raises ConfigError naming the line."""
    prompts = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{path}:{number}: not JSON: {error}") from None
        text = entry.get("prompt", entry.get("text")) if isinstance(entry, dict) else entry
        if not isinstance(text, str) or not text:
            raise ConfigError(f'{path}:{number}: neither a string nor an object with "prompt"')
        prompts.append(text)
    if not prompts:
        raise ConfigError(f"{path} has no prompts")
    return prompts


def measure_throughput(
    model: str, load: Load, *, threads: int | None, isa: str, **sizes: Any
) -> Iterator[Figure]:
    """Run the load once (after one warm-up request) and yield its figures."""
    with LLM(
        model,
        threads=threads,
        isa=isa,
        max_num_seqs=load.concurrency,
        **{k: v for k, v in sizes.items() if v},
    ) as llm:
        vocab = llm.tokenizer.vocab_size - 200
        texts = read_prompts(load.dataset_path) if load.dataset_path else []
        prompts: list[Any] = [
            texts[n % len(texts)]
            if texts
            else [100 + (i * 7919 + n * 104729) % vocab for i in range(load.input_len)]
            for n in range(load.num_prompts)
        ]
        sampling = SamplingParams(temperature=0, max_tokens=load.output_len, ignore_eos=True)
        llm.generate([[1, 2, 3]], SamplingParams(temperature=0, max_tokens=2))
        times: list[tuple[float, float, int, int]] = []
        lock = threading.Lock()

        def one(prompt: Any) -> None:
            start = time.perf_counter()
            first, tokens, prompt_tokens = 0.0, 0, 0
            for delta in llm.generate_stream(prompt, sampling):
                if delta.token_ids and not first:
                    first = time.perf_counter()
                tokens += len(delta.token_ids)
                prompt_tokens = delta.prompt_tokens or prompt_tokens
            with lock:
                times.append((first - start, time.perf_counter() - start, tokens, prompt_tokens))

        begin = time.perf_counter()
        with ThreadPoolExecutor(load.concurrency) as pool:
            list(pool.map(one, prompts))
        wall = time.perf_counter() - begin
    details = {"concurrency": load.concurrency, "num_prompts": load.num_prompts}
    output = sum(t[2] for t in times)
    yield Figure("request_throughput", load.num_prompts / wall, "requests/s", details=details)
    yield Figure("output_throughput", output / wall, "tokens/s", details=details)
    yield Figure("total_throughput", (output + sum(t[3] for t in times)) / wall, "tokens/s", details=details)
    yield Figure("time_to_first_token", statistics.median(t[0] for t in times), "s", details=details)
    yield Figure("request_latency", statistics.median(t[1] for t in times), "s", details=details)
