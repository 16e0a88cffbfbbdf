"""`edgewise ps`: the engines as the gateway sees them now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from edgewise.cli.engine_parts import control, engine_list
from edgewise.core.engines import EngineSpec

_TITLES = ["NAME", "KIND", "MODEL", "STATE", "PID", "PORT", "UPTIME", "MEMORY", "CONTEXT", "RESTARTS"]

_ROOM_FOR_MODELS = 110  # columns of a terminal


def command(
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object a line")] = False,
) -> None:
    from rich.console import Console
    from rich.table import Table

    now = control().ask("ps")
    with engine_list() as engines:
        specs = {spec.name: spec for spec in engines.list()}
    rows = [_with_spec(row, specs.get(row["name"]), now["default"]) for row in now["engines"]]
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return
    console = Console()
    titles = [title for title in _TITLES if title != "MODEL" or console.width >= _ROOM_FOR_MODELS]
    cells = [
        [cell for title, cell in zip(_TITLES, _cells(row), strict=True) if title in titles] for row in rows
    ]
    table = Table(box=None, pad_edge=False)
    for title, *column in zip(titles, *cells, strict=True):
        wide = title in ("NAME", "MODEL")  # the others are never cut
        least = 4 if wide else max(map(len, (title, *column)))
        table.add_column(title, overflow="fold", no_wrap=not wide, min_width=least)
    for row_cells in cells:
        table.add_row(*row_cells)
    console.print(table)
    for row in rows:
        if row["last_error"]:
            console.print(f"\n{row['last_error']}", markup=False, highlight=False)
            for line in row["last_lines"][-5:]:
                console.print(f"  | {line}", markup=False, highlight=False)


def _with_spec(row: dict[str, Any], spec: EngineSpec | None, default: str | None) -> dict[str, Any]:
    """The gateway's row and what the list says of the engine."""
    return {
        **row,
        "kind": spec.kind.value if spec else row["kind"],
        "model": spec.model if spec else None,
        "port": spec.port if spec else urlsplit(row["url"]).port,
        "context": spec.context if spec else None,
        "users": spec.users if spec else None,
        "wanted": spec.wanted if spec else False,
        "default": row["name"] == default,
    }


def _cells(row: dict[str, Any]) -> list[str]:
    context = f"{row['context']:,} x {row['users']}" if row["context"] else f"auto x {row['users'] or 1}"
    return [
        row["name"] + ("*" if row["default"] else ""),
        row["kind"] or "",
        Path(row["model"] or "").name,
        row["state"],
        str(row["pid"] or ""),
        str(row["port"] or ""),
        _span(row["uptime_s"]),
        f"{row['rss_bytes'] / 1e9:.2f} GB" if row["rss_bytes"] else "",
        context,
        str(row["restarts"] or ""),
    ]


def _span(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    texts = [
        f"{days}d" if days else "",
        f"{hours}h" if hours else "",
        f"{minutes}m" if minutes else "",
        f"{rest}s",
    ]
    return " ".join([text for text in texts if text][:2])
