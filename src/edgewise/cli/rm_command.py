"""`edgewise rm MODEL`: remove a downloaded model and the engines built from it."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from edgewise.cli.common import store_settings


def command(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="names as `edgewise list` shows them")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object a line")] = False,
) -> None:
    from edgewise.manage.store import remove_model

    for name in models:
        removed = remove_model(name, store_settings())
        if as_json:
            facts = {"model": removed.name, "bytes": removed.num_bytes, "engines": removed.num_engines}
            print(json.dumps(facts))
        else:
            print(f"removed {removed.name}: {removed.num_bytes / 1e6:,.0f} MB, {removed.num_engines} engines")
