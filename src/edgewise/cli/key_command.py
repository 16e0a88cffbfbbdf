"""`edgewise key create | list | revoke`: who may use the gateway. What changes counts at once, without a restart."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli.common import store_settings

if TYPE_CHECKING:
    from edgewise.manage.keys import StoredKey
    from edgewise.manage.state import State

app = typer.Typer(no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]


@contextlib.contextmanager
def _state() -> Iterator[State]:
    from edgewise.manage.state import State

    state = State(store_settings().data_dir)
    try:
        yield state
    finally:
        state.close()


@app.command("create", short_help="make a key for somebody and show it once")
def create(
    name: Annotated[str, typer.Argument(help="whose key it is")],
    max_concurrent: Annotated[int | None, typer.Option(min=1, help="at most so many requests at a time", show_default=False)] = None,
    requests_per_minute: Annotated[float | None, typer.Option(min=0.01, help="at most so many requests a minute", show_default=False)] = None,
    weight: Annotated[float, typer.Option(min=0.01, help="share of a busy engine beside other keys")] = 1.0,
    background: Annotated[bool, typer.Option("--background", help="everything it asks waits for interactive work")] = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Make a key for somebody and show it, once: it is kept nowhere."""
    from edgewise.core.keys import KeyLimits
    from edgewise.manage.keys import create_key

    with _state() as state:
        limits = KeyLimits(max_concurrent, requests_per_minute, weight, background)
        key, secret = create_key(state, name, limits)
    if as_json:
        print(json.dumps({**_as_json(key), "key": secret}))
    else:
        print(secret)


@app.command("list", short_help="list the keys there are")
def list_them(
    revoked: Annotated[bool, typer.Option("--revoked", help="also those that were revoked")] = False,
    as_json: AsJson = False,
) -> None:
    """List the keys there are, without their secrets."""
    from rich.console import Console
    from rich.table import Table

    from edgewise.manage.keys import list_keys

    with _state() as state:
        keys = list_keys(state, with_revoked=revoked)
    if as_json:
        for key in keys:
            print(json.dumps(_as_json(key)))
        return
    table = Table(box=None, pad_edge=False)
    for title in ("NAME", "ID", "CREATED", "STATE", "LIMITS"):
        table.add_column(title)
    for key in keys:
        state_word = "active" if key.revoked_s is None else f"revoked {_day(key.revoked_s)}"
        table.add_row(key.record.name, key.record.id, _day(key.created_s), state_word, _limits(key))
    Console().print(table)


@app.command("revoke", short_help="take a key away")
def revoke(who: Annotated[str, typer.Argument(metavar="NAME|ID", help="whose key, or its id")]) -> None:
    """Take a key away; it is refused from the next request on."""
    from edgewise.manage.keys import revoke_key

    with _state() as state:
        key = revoke_key(state, who)
    print(f"revoked {key.record.id} of {key.record.name}")


def _as_json(key: StoredKey) -> dict[str, Any]:
    limits = key.record.limits
    return {
        "id": key.record.id,
        "name": key.record.name,
        "created": _moment(key.created_s),
        "revoked": None if key.revoked_s is None else _moment(key.revoked_s),
        "max_concurrent": limits.max_concurrent,
        "requests_per_minute": limits.requests_per_minute,
        "weight": limits.weight,
        "background": limits.background,
    }


def _limits(key: StoredKey) -> str:
    limits = key.record.limits
    texts = [
        f"{limits.max_concurrent} at a time" if limits.max_concurrent is not None else "",
        f"{limits.requests_per_minute:g} a minute" if limits.requests_per_minute is not None else "",
        f"weight {limits.weight:g}" if limits.weight != 1 else "",
        "background" if limits.background else "",
    ]
    return ", ".join(filter(None, texts))


def _moment(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _day(at_s: float) -> str:
    return _moment(at_s)[:10]
