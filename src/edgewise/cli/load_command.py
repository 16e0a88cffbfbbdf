"""`edgewise load NAME|MODEL`: have the gateway start an engine, and wait until it is ready."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli.common import progress_bar, store_settings
from edgewise.cli.engine_parts import check_fits, control, engine_list, follow
from edgewise.core.engines import EngineKind, EngineSpec
from edgewise.core.errors import ConfigError

if TYPE_CHECKING:
    from edgewise.manage.engines import Engines


def command(
    name: Annotated[str, typer.Argument(metavar="NAME|MODEL", help="an engine of `edgewise list`, ROUTER/MODEL, or a model: catalog name, file or folder", show_default=False)],
    args: Annotated[list[str] | None, typer.Argument(metavar="[-- ARG ...]", help="further arguments of the engine's program", show_default=False)] = None,
    kind: Annotated[EngineKind | None, typer.Option(help="what program runs it", show_default="edgewise")] = None,
    context: Annotated[int | None, typer.Option(min=1, help="tokens of one conversation", show_default="the kind's own")] = None,
    users: Annotated[int | None, typer.Option(min=1, help="conversations at once", show_default="1")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="where it listens", show_default="a free one")] = None,
    program: Annotated[str | None, typer.Option(help="the engine's program", show_default="found on the path")] = None,
    reasoning_parser: Annotated[str | None, typer.Option(help="of engines that have to be told", show_default="auto")] = None,
    tool_parser: Annotated[str | None, typer.Option(help="of engines that have to be told", show_default="auto")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="unload it first if it is loaded with other settings")] = False,
) -> None:  # fmt: skip
    """Start an engine and wait until it answers. What is said here is kept: the gateway starts it again whenever it starts."""
    now = control().ask("ps")
    rows = {row["name"]: row for row in now["engines"]}
    values = {
        "kind": kind,
        "context": context,
        "users": users,
        "port": port,
        "program": program,
        "reasoning_parser": reasoning_parser,
        "tool_parser": tool_parser,
        "args": tuple(args) if args else None,
    }
    given = {key: value for key, value in values.items() if value is not None}
    with engine_list() as engines:
        known = {spec.name: spec for spec in engines.list()}
        if name not in known and name.partition("/")[0] in rows and not Path(name).expanduser().exists():
            if given:
                raise ConfigError(
                    "a router's model is loaded as its presets say",
                    hint="change them, and load the router anew",
                )
            follow("load", name)
            return
        spec = known.get(name) or _new(engines, name, kind)
        _keep(engines, spec, given, known, rows.get(spec.name), now.get("keep_free_bytes", 0), yes=yes)
    follow("load", spec.name)


def _keep(
    engines: Engines,
    spec: EngineSpec,
    given: Mapping[str, object],
    known: dict[str, EngineSpec],
    row: Mapping[str, Any] | None,
    keep_free_bytes: int,
    *,
    yes: bool,
) -> None:
    """Write down what was said, unless the engine runs as something else. `row`: as it runs. Raises ConfigError."""
    from edgewise.manage.engines import changed

    wanted = changed(spec, **given)
    if spec.name not in known:
        engines.add(wanted)
        return
    if wanted == spec:
        return
    if row is not None and _is_loaded(row):
        launch = engines.launch_of(wanted)
        check_fits(spec.name, launch.need_bytes, int(row["rss_bytes"] or 0), keep_free_bytes)
        if not (yes or _agreed(f"{spec.name} is loaded with other settings. Unload it first?")):
            raise ConfigError(
                f"{spec.name} is loaded with other settings",
                hint=f"`edgewise unload {spec.name}` first, or --yes",
            )
        follow("unload", spec.name)
    engines.replace(changed(engines.get(spec.name), **given))


def _new(engines: Engines, model: str, kind: EngineKind | None) -> EngineSpec:
    """An engine for a model, fetched first if it is to be found elsewhere. Raises ModelNotFoundError, DownloadError."""
    from edgewise.manage.engines import unused_name

    path = Path(model).expanduser()
    if kind is None:
        kind = EngineKind.LLAMA if path.suffix == ".ini" else EngineKind.EDGEWISE
    if kind in (EngineKind.EDGEWISE, EngineKind.LLAMA) and not path.exists():
        _fetch(model)
    model = str(path.resolve()) if path.exists() else model
    specs = engines.list()
    same = next((spec for spec in specs if (spec.model, spec.kind) == (model, kind)), None)
    if same is not None:
        return same
    title = path.name.removesuffix(path.suffix) if path.suffix in (".gguf", ".ini") else path.name
    return EngineSpec(unused_name(title, [spec.name for spec in specs]), kind, model, engines.free_port())


def _fetch(model: str) -> None:
    from edgewise.checkpoints.source import resolve_source

    with progress_bar() as progress:
        resolve_source(model, settings=store_settings(), progress=progress)


def _is_loaded(row: Mapping[str, Any]) -> bool:
    return row["state"] not in ("stopped", "failed", "refused")


def _agreed(question: str) -> bool:
    return sys.stdin.isatty() and typer.confirm(question)
