"""`edgewise list`: engines, models on this machine and those the catalog offers, one table with a state column."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli.common import store_settings
from edgewise.cli.engine_parts import engine_list, engine_rows

if TYPE_CHECKING:
    from edgewise.core.engines import EngineSpec
    from edgewise.manage.store import StoredModel

_ON_DISK = {"ready": "on disk", "available": "catalog"}
"""What the store says of a model, in the words of the table."""


_NOTHING = {"state": None, "num_bytes": 0, "engine_bytes": 0, "path": None, "licence": ""}
"""What the store says of a model it does not keep."""


def command(
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object a line")] = False,
    local: Annotated[bool, typer.Option(help="only what is on this machine")] = False,
) -> None:
    from rich.console import Console
    from rich.table import Table

    from edgewise.manage.store import list_models

    with engine_list() as engines:
        specs = engines.list()
    rows = [*_rows(list_models(store_settings(), with_catalog=not local), specs, engine_rows())]
    if as_json:
        for row in rows:
            print(json.dumps(row, default=str))
        return
    table = Table(box=None, pad_edge=False)
    for title in ("MODEL", "STATE", "SIZE", "BUILT", "ABOUT"):
        table.add_column(
            title, no_wrap=title == "MODEL", justify="right" if title in ("SIZE", "BUILT") else "left"
        )
    for row in rows:
        about = ", ".join(text for text in (row["summary"], row["licence"]) if text)
        table.add_row(
            row["name"], _state(row), _megabytes(row["num_bytes"]), _megabytes(row["engine_bytes"]), about
        )
    Console().print(table)


def _rows(
    models: Sequence[StoredModel], specs: Sequence[EngineSpec], rows: Mapping[str, Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Engines in their order, each with what the store knows of its model, a router's models below it; then the models of no engine."""
    left = {model.name: model for model in models}
    for spec in specs:
        model = next((one for one in models if _is_of(spec, one)), None)
        if model is not None:
            left.pop(model.name, None)
        state = rows[spec.name]["state"] if spec.name in rows else "stopped"
        known = dataclasses.asdict(model) if model else _elsewhere(spec.model)
        about = f"{spec.kind.value}, {spec.model}"
        row = {**known, "summary": about, "name": spec.name, "engine": state}
        yield row
        for of_router in rows.get(spec.name, {}).get("models", ()):
            state = "ready" if of_router["loaded"] else "stopped"
            yield {
                **row,
                **_NOTHING,
                "name": f"{spec.name}/{of_router['name']}",
                "engine": state,
                "summary": "",
            }
    for model in left.values():
        yield {**dataclasses.asdict(model), "engine": None}


def _elsewhere(model: str) -> dict[str, Any]:
    """A model that the store does not keep: a file, a folder, or a name that only its engine knows."""
    path = Path(model)
    size = path.stat().st_size if path.is_file() else 0
    return {**_NOTHING, "num_bytes": size, "path": path if path.exists() else None}


def _is_of(spec: EngineSpec, model: StoredModel) -> bool:
    return spec.model == model.name or (model.path is not None and spec.model == str(model.path))


def _state(row: Mapping[str, Any]) -> str:
    """An engine's, "loaded" where it is ready; else where the model is."""
    if row["engine"] is None:
        return _ON_DISK.get(row["state"], str(row["state"]))
    return "loaded" if row["engine"] == "ready" else str(row["engine"])


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.0f} MB" if num_bytes else ""
