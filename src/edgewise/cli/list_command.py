"""`edgewise list`: models on this machine and those the catalog offers, one table with a state column."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from edgewise.cli.common import store_settings


def command(
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object a line")] = False,
    local: Annotated[bool, typer.Option(help="only what is on this machine")] = False,
) -> None:
    from rich.console import Console
    from rich.table import Table

    from edgewise.manage.store import list_models

    models = list_models(store_settings(), with_catalog=not local)
    if as_json:
        for model in models:
            print(json.dumps(dataclasses.asdict(model), default=str))
        return
    table = Table(box=None, pad_edge=False)
    for title in ("MODEL", "STATE", "SIZE", "ENGINES", "ABOUT"):
        table.add_column(
            title, no_wrap=title == "MODEL", justify="right" if title in ("SIZE", "ENGINES") else "left"
        )
    for model in models:
        engines = f"{model.engine_bytes / 1e6:,.0f} MB" if model.engine_bytes else ""
        about = ", ".join(text for text in (model.summary, model.licence) if text)
        table.add_row(model.name, model.state, f"{model.num_bytes / 1e6:,.0f} MB", engines, about)
    Console().print(table)
