"""`edgewise build MODEL -o DIR`: turn a checkpoint into an engine directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from edgewise.cli.common import (
    ModelArgument,
    ModelOption,
    one_model,
    progress_bar,
    setup_logging,
    store_settings,
)
from edgewise.core.errors import ConfigError


def command(
    out: Annotated[Path, typer.Option("-o", "--output", help="the engine directory to make")],
    model: ModelArgument = None,
    model_option: ModelOption = None,
    isa: Annotated[str, typer.Option(help="instruction set to pack for: auto, avx2, generic")] = "auto",
    force: Annotated[bool, typer.Option(help="replace an engine directory that is there")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    from edgewise.build import build_engine_dir
    from edgewise.build.engine_dir import is_engine_dir
    from edgewise.checkpoints import resolve_source
    from edgewise.kernels.native import layout_of

    setup_logging("warning")
    out = out.expanduser().resolve()  # a link stays one, and what it leads to is replaced
    if out.exists() and not force:
        raise ConfigError(f"{out} exists", hint="--force replaces an engine directory")
    if out.exists() and not is_engine_dir(out):
        raise ConfigError(f"{out} exists and is not an engine directory")
    name = one_model(model, model_option)
    with progress_bar(quiet=as_json) as report:
        source = resolve_source(name, settings=store_settings(), progress=report)
        built = build_engine_dir(source, out, layout=layout_of(isa), progress=report)
    facts = {
        "path": str(built.path),
        "architecture": built.spec.architecture,
        "layout": built.layout,
        "tensors": len(built.tensors),
        "bytes": int(built.weights.nbytes),
        "fingerprint": built.fingerprint,
    }
    print(
        json.dumps(facts)
        if as_json
        else f"{out}: {built.spec.architecture}, {built.weights.nbytes / 1e6:,.0f} MB"
    )
