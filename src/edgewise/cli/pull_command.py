"""`edgewise pull MODEL`: download a model into the store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from edgewise.cli.common import ModelArgument, ModelOption, one_model, progress_bar, store_settings
from edgewise.core.errors import ConfigError


def command(
    model: ModelArgument = None,
    model_option: ModelOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    from edgewise.checkpoints import resolve_source

    name = one_model(model, model_option)
    if Path(name).expanduser().exists():
        raise ConfigError(f"{name} is a path on this machine: there is nothing to pull")
    with progress_bar(quiet=as_json) as report:
        path = resolve_source(name, settings=store_settings(), progress=report)
    size = (
        sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
        if path.is_dir()
        else path.stat().st_size
    )
    if as_json:
        print(json.dumps({"model": name, "path": str(path), "bytes": size}))
    else:
        print(f"{name}: {path} ({size / 1e6:,.0f} MB)")
