"""`edgewise list-latest`: the newest models that others have published and that fit this machine."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from typing import Annotated

import typer

from edgewise.cli.common import store_settings
from edgewise.cli.engine_parts import settings_of_gateway


def command(
    context: Annotated[
        int, typer.Option(min=1024, help="tokens that have to fit beside the weights")
    ] = 32768,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object a line")] = False,
) -> None:
    """Asks the hub; where that cannot be reached, shows what it said last, and when."""
    from rich.console import Console
    from rich.table import Table

    from edgewise.hardware import read_hardware
    from edgewise.manage.latest import latest_models

    settings = store_settings()
    hardware = read_hardware()
    room = min(hardware.total_memory_bytes, hardware.memory_limit_bytes or hardware.total_memory_bytes)
    room -= settings_of_gateway().keep_free_bytes
    answer = latest_models(settings, settings.data_dir / "latest.json", context=context, room_bytes=room)
    if answer.problem:
        hours = (time.time() - answer.asked_s) / 3600
        print(f"{answer.problem}; this is what was known {hours:.1f} h ago", file=sys.stderr)
    if as_json:
        for model in answer.models:
            print(json.dumps(dataclasses.asdict(model)))
        return
    table = Table(box=None, pad_edge=False)
    for title in ("MODEL", "CREATED", "SIZE", "MEMORY", "RUNS ON"):
        table.add_column(title, no_wrap=title == "MODEL")
    for model in answer.models:
        sizes = (f"{size / 1e9:.1f} GB" for size in (model.file_bytes, model.need_bytes))
        table.add_row(model.source, model.created[:10], *sizes, model.engine)
    Console().print(table)
    print("edgewise pull MODEL gets one; edgewise load MODEL runs it")
