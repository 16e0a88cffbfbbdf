"""`edgewise bench MODEL`: figures beside the machine's limits and a peer; with vllm-bench's flags, throughput of many prompts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from edgewise.cli.common import (
    ModelArgument,
    ModelOption,
    environment_path,
    one_model,
    progress_bar,
    setup_logging,
    store_settings,
)
from edgewise.core.errors import ConfigError


def command(
    model: ModelArgument = None,
    model_option: ModelOption = None,
    peer: Annotated[str | None, typer.Option(help="llama.cpp or ik_llama.cpp (see `make peers`)", show_default=False)] = None,
    peers_dir: Annotated[Path | None, typer.Option(help="where the peers are installed; also EDGEWISE_PEERS_DIR")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object a line")] = False,
    threads: Annotated[int | None, typer.Option(min=1, show_default="auto")] = None,
    isa: Annotated[str, typer.Option(help="kernels to use: auto, avx2, generic")] = "auto",
    samples: Annotated[int, typer.Option(min=1, help="samples of each figure")] = 5,
    budget_s: Annotated[float, typer.Option(min=1, help="most seconds spent sampling one figure")] = 90.0,
    figures: Annotated[str | None, typer.Option(help="only these, comma separated: decode, prefill, long_decode, prefix_hit", show_default="all")] = None,
    prefill_lens: Annotated[str, typer.Option(help="prompt lengths of prefill, comma separated")] = "512,4096",
    dataset_path: Annotated[Path | None, typer.Option(help="throughput: JSON lines with a prompt each", show_default=False)] = None,
    num_prompts: Annotated[int | None, typer.Option(min=1, help="throughput: number of prompts", show_default=False)] = None,
    input_len: Annotated[int | None, typer.Option(min=1, help="throughput: tokens of a made-up prompt", show_default=False)] = None,
    output_len: Annotated[int | None, typer.Option(min=1, help="throughput: tokens of an answer", show_default=False)] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="throughput: requests at once", show_default=False)] = None,
    max_num_batched_tokens: Annotated[int | None, typer.Option(min=1, show_default="auto")] = None,
    num_blocks: Annotated[int | None, typer.Option(min=1, show_default="auto")] = None,
) -> None:  # fmt: skip
    from edgewise.bench.measure import Bench, BenchOptions
    from edgewise.bench.settings import default_peers_dir
    from edgewise.checkpoints import resolve_source
    from edgewise.hardware import read_hardware

    setup_logging("warning")
    name = one_model(model, model_option)
    if any((dataset_path, num_prompts, input_len, output_len, concurrency)):
        from edgewise.bench.throughput import Load, measure_throughput

        load = Load(
            dataset_path=dataset_path,
            num_prompts=num_prompts or 32,
            input_len=input_len or 128,
            output_len=output_len or 64,
            concurrency=concurrency or 8,
        )
        sizes = {"max_num_batched_tokens": max_num_batched_tokens, "num_blocks": num_blocks}
        for figure in measure_throughput(name, load, threads=threads, isa=isa, **sizes):
            show(figure.to_json(), as_json)
        return
    with progress_bar() as report:
        source = resolve_source(name, settings=store_settings(), progress=report)
    options = BenchOptions(
        model=name,
        source=source,
        threads=threads or read_hardware().usable_cpus,
        isa=isa,
        peer=peer,
        peers_dir=peers_dir or environment_path("EDGEWISE_PEERS_DIR") or default_peers_dir(),
        samples=samples,
        budget_s=budget_s,
        figures=tuple(figures.split(",")) if figures else None,
        prefills=prompt_lengths(prefill_lens),
    )
    bench = Bench(options)
    try:
        for figure in bench.figures():
            show(figure.to_json(), as_json)
    finally:
        bench.close()


def prompt_lengths(text: str) -> tuple[int, ...]:
    """Whole numbers separated by commas. Raises ConfigError."""
    try:
        lengths = tuple(int(part) for part in text.split(","))
    except ValueError:
        lengths = (0,)
    if min(lengths) < 1:
        raise ConfigError(f"--prefill-lens must be positive numbers separated by commas, got {text!r}")
    return lengths


def show(figure: dict[str, object], as_json: bool) -> None:
    """One figure as a line: JSON, or for people."""
    if as_json:
        print(json.dumps(figure), flush=True)
        return
    where = " ".join(f"{k}={figure[k]}" for k in ("batch", "tokens", "context", "concurrency") if k in figure)
    line = f"{figure['figure']:15} {where:24} {figure['value']:>14.4g} {figure['unit']:9}"
    if "share_of_limit" in figure:
        line += f"  {float(str(figure['share_of_limit'])):5.0%} of limit"
    if "ratio" in figure:
        line += f"  {figure['peer_name']} {float(str(figure['peer'])):.4g}  ratio {float(str(figure['ratio'])):.2f}"
    print(line, flush=True)
