"""`edgewise inspect MODEL`: metadata, tensors, memory needed at a context length, tokenizer and template."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated

import typer

from edgewise.cli.common import ModelArgument, ModelOption, one_model, printable, progress_bar, store_settings
from edgewise.core.errors import ConfigError

if TYPE_CHECKING:
    from edgewise.build.inspect import Inspection


def command(
    model: ModelArgument = None,
    model_option: ModelOption = None,
    context: Annotated[int | None, typer.Option(min=1, help="tokens of context to budget for", show_default="the model's window")] = None,
    tensors: Annotated[bool, typer.Option(help="list every tensor")] = False,
    verify: Annotated[bool, typer.Option(help="check every byte of an engine directory against its checksums")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:  # fmt: skip
    from edgewise.build import verify_weights
    from edgewise.build.engine_dir import is_engine_dir, load_engine_dir
    from edgewise.build.inspect import inspect_model
    from edgewise.checkpoints import resolve_source

    with progress_bar(quiet=as_json) as report:
        path = resolve_source(one_model(model, model_option), settings=store_settings(), progress=report)
        if verify:
            if not is_engine_dir(path):
                raise ConfigError(f"--verify needs an engine directory; {path} is a checkpoint")
            verify_weights(load_engine_dir(path), report)
    found = inspect_model(path, context_len=context)
    if as_json:
        print(json.dumps(dataclasses.asdict(found), default=str))
        return
    show(found)
    if tensors:
        for row in found.tensors:
            shape = "x".join(map(str, row.shape))
            print(f"  {printable(row.name):48} {row.dtype:6} {shape:>16} {row.num_bytes:>14,}")
    if verify:
        print("every byte matches its checksum")


def show(found: Inspection) -> None:
    """The summary for people."""
    formats = ", ".join(
        f"{count} {name}" for name, count in sorted(found.formats.items(), key=lambda f: -f[1])
    )
    print(printable(f"{found.name} ({found.kind}, {found.path})"))
    unsupported = f": {found.unsupported}" if found.unsupported else ""
    print(printable(f"  architecture   {found.architecture}{unsupported}"))
    print(f"  size           {found.file_bytes:,} bytes; {len(found.tensors)} tensors: {formats}")
    print(printable(f"  tokenizer      {found.tokenizer}"))
    print(f"  chat template  {'yes' if found.has_template else 'no'}")
    if found.spec:
        spec = found.spec
        print(
            f"  shape          {len(spec.layers)} layers, width {spec.embed_dim}, vocabulary {spec.vocab_size:,}"
        )
        print(f"  window         {spec.max_positions:,} tokens")
    if found.memory:
        need = found.memory
        print(
            f"  memory         {need.total_bytes / 2**20:,.0f} MiB at {need.context_len:,} tokens"
            f" (weights {need.weight_bytes / 2**20:,.0f}, KV {need.kv_bytes / 2**20:,.0f})"
        )
    for key, value in found.metadata.items():
        print(printable(f"  {key} = {str(value)[:100]}"))
