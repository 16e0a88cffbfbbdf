"""`edgewise context [TOKENS [USERS]]`: how long conversations may be and how many at once; what that costs is shown before it is set."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from edgewise.cli.common import store_settings
from edgewise.cli.engine_parts import control, engine_list, launcher, running
from edgewise.core.errors import ConfigError

if TYPE_CHECKING:
    from edgewise.core.engines import EngineSpec
    from edgewise.manage.engines import Engines
    from edgewise.manage.launch import LaunchSettings


def command(
    tokens: Annotated[int | None, typer.Argument(min=1024, help="of one conversation", show_default=False)] = None,
    users: Annotated[int | None, typer.Argument(min=1, help="conversations at once", show_default=False)] = None,
    engine: Annotated[str | None, typer.Option(help="which engine", show_default="the first, or all to show")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
) -> None:  # fmt: skip
    """Without TOKENS it shows what is set. An engine that runs is started anew with what was set."""
    from edgewise.manage.engines import changed

    settings = launcher(store_settings()).settings
    with engine_list() as engines:
        chosen = _chosen(engines, engine, one=tokens is not None)
        if tokens is None:
            for spec in chosen:
                _show(spec, spec, settings)
            return
        (spec,) = chosen
        wanted = changed(spec, context=tokens, users=users)
        _show(spec, wanted, settings)
        _check_fits(wanted, settings)
        if not yes and not (sys.stdin.isatty() and typer.confirm("Set it?")):
            raise ConfigError("nothing was changed", hint="--yes sets it without asking")
        engines.replace(wanted)
    if wanted.name in running():
        control().ask("apply")
        print(f"{wanted.name} runs with it now")
    else:
        print("set; it counts from the next load on")


def _chosen(engines: Engines, name: str | None, *, one: bool) -> list[EngineSpec]:
    """Raises ConfigError where there is none."""
    if name is not None:
        return [engines.get(name)]
    specs = engines.list()
    if not specs:
        raise ConfigError("there is no engine yet", hint="edgewise load MODEL makes one")
    return specs[:1] if one else specs


def _show(before: EngineSpec, after: EngineSpec, settings: LaunchSettings) -> None:
    """One engine's memory, and how it would be."""
    from edgewise.manage.launch import DEFAULT_CONTEXT, need_of_spec

    need = need_of_spec(before, settings)
    if need is None:
        print(f"{after.name}: {_words(after)}; nobody can tell what memory that takes")
        return
    context = after.context or min(need.window or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    total, kv = need.total_bytes(context, after.users), need.kv_bytes(context, after.users)
    print(
        f"{after.name}: {_words(after)}: {total / 1e9:.1f} GB, of which weights {need.weight_bytes / 1e9:.1f} "
        f"and conversations {kv / 1e9:.1f}"
    )
    if need.window and context > need.window:
        print(f"  the model was made for {need.window:,} tokens")


def _words(spec: EngineSpec) -> str:
    return f"{f'{spec.context:,}' if spec.context else 'its own'} tokens x {spec.users}"


def _check_fits(spec: EngineSpec, settings: LaunchSettings) -> None:
    """Beside everything else on the machine, not beside the engine itself as it runs now. Raises ConfigError."""
    from edgewise.hardware import read_hardware
    from edgewise.manage.launch import need_of_spec

    need = need_of_spec(spec, settings)
    if need is None or spec.context is None:
        return
    held = int(running().get(spec.name, {}).get("rss_bytes") or 0)
    free = read_hardware().usable_memory_bytes + held
    total = need.total_bytes(spec.context, spec.users)
    print(f"  {free / 1e9:.1f} GB is free for it, of which {settings.keep_free_bytes / 1e9:.1f} must stay")
    if total + settings.keep_free_bytes > free:
        raise ConfigError(
            f"{spec.name} would need {total / 1e9:.1f} GB; {settings.keep_free_bytes / 1e9:.1f} GB must stay free, and {free / 1e9:.1f} GB is free",
            hint="fewer tokens or fewer users",
        )
