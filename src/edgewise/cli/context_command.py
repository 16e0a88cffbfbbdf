"""`edgewise context [TOKENS [USERS]]`: how long conversations may be and how many at once; what that costs is shown before it is set."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgewise.cli.engine_parts import check_fits, control, engine_list, follow, running, settings_of_gateway
from edgewise.core.errors import ConfigError, EdgewiseError

if TYPE_CHECKING:
    from edgewise.core.engines import EngineSpec
    from edgewise.manage.engines import Engines
    from edgewise.manage.launch import Cost, LaunchSettings
    from edgewise.manage.presets import Preset


def command(
    tokens: Annotated[int | None, typer.Argument(min=1024, help="of one conversation", show_default=False)] = None,
    users: Annotated[int | None, typer.Argument(min=1, help="conversations at once", show_default=False)] = None,
    engine: Annotated[str | None, typer.Option(metavar="NAME|ROUTER/MODEL", help="which engine", show_default="the first, or all to show")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
) -> None:  # fmt: skip
    """Without TOKENS it shows what is set. An engine that runs is started anew with what was set."""
    settings = settings_of_gateway()
    with engine_list() as engines:
        router, model = _router_model(engines, engine)
        if router is not None:
            _of_router(router, model, settings, tokens, users, yes=yes)
            return
        chosen = _chosen(engines, engine, one=tokens is not None)
        if tokens is None:
            for spec in chosen:
                _show(spec, settings)
            _show_free(settings)
            return
        wanted = _agreed(chosen[0], settings, tokens, users, yes=yes)
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


def _agreed(
    spec: EngineSpec, settings: LaunchSettings, tokens: int, users: int | None, *, yes: bool
) -> EngineSpec:
    """The engine as it will be, once its cost was shown and it was agreed to. Raises ConfigError."""
    from edgewise.manage.engines import changed
    from edgewise.manage.launch import cost_of, is_router

    if is_router(spec):
        raise ConfigError(
            f"{spec.name} is a router of several models",
            hint=f"edgewise context {tokens} --engine {spec.name}/MODEL sets one of them",
        )
    wanted = changed(spec, context=tokens, users=users)
    _show(wanted, settings)
    cost = cost_of(wanted, settings)
    held = int(running().get(spec.name, {}).get("rss_bytes") or 0)
    _check_fits(spec.name, cost, held, settings)
    _ask(yes=yes)
    return wanted


def _router_model(engines: Engines, name: str | None) -> tuple[EngineSpec | None, str]:
    """ROUTER/MODEL in its two parts, if that is what was said."""
    from edgewise.manage.launch import is_router

    router, _, model = (name or "").partition("/")
    spec = next((one for one in engines.list() if one.name == router and is_router(one)), None)
    return (spec, model) if model else (None, "")


def _of_router(
    router: EngineSpec,
    model: str,
    settings: LaunchSettings,
    tokens: int | None,
    users: int | None,
    *,
    yes: bool,
) -> None:
    """Of one model of a router: its presets say it. Raises ConfigError."""
    from edgewise.manage.launch import cost_of_preset
    from edgewise.manage.presets import preset_of, presets_with, replaced

    path, name = Path(router.model).expanduser(), f"{router.name}/{model}"
    preset = preset_of(path, model)
    wanted = preset if tokens is None else replaced(preset, tokens, users or preset.users or 1)
    cost = cost_of_preset(wanted)
    _show_cost(name, _preset_words(wanted), cost)
    if tokens is None:
        _show_free(settings)
        return
    loaded, before = _is_loaded(router.name, model), cost_of_preset(preset)
    _check_fits(name, cost, before.total_bytes if loaded and before else 0, settings)
    _ask(yes=yes)
    written = path.with_suffix(".new")
    written.write_text(presets_with(path.read_text(encoding="utf-8"), wanted), encoding="utf-8")
    written.replace(path)
    _read_again(router, name, loaded=loaded)


def _read_again(router: EngineSpec, name: str, *, loaded: bool) -> None:
    """A router that runs takes its presets up again, and the model with them if it was loaded. Raises EdgewiseError."""
    import httpx

    if router.name not in running():
        print("set; it counts from the next load on")
        return
    if loaded:
        follow("unload", name)
    try:
        url = f"http://127.0.0.1:{router.port}/models"
        httpx.get(url, params={"reload": 1}, timeout=30).raise_for_status()
    except httpx.HTTPError as error:
        raise EdgewiseError(
            f"{router.name} does not read its presets again: {error}",
            hint=f"edgewise unload {router.name}; edgewise load {router.name}",
        ) from error
    if loaded:
        follow("load", name)
    else:
        print("set; it counts from the next load on")


def _is_loaded(router: str, model: str) -> bool:
    models = running().get(router, {}).get("models") or ()
    return any(one["name"] == model and one["loaded"] for one in models)


def _show(spec: EngineSpec, settings: LaunchSettings) -> None:
    """One engine's memory, as it is or would be; a router's models one by one."""
    from edgewise.manage.launch import cost_of, cost_of_preset, is_router
    from edgewise.manage.presets import read_presets

    if not is_router(spec):
        words = f"{f'{spec.context:,}' if spec.context else 'its own'} tokens x {spec.users}"
        _show_cost(spec.name, words, cost_of(spec, settings))
        return
    for preset in read_presets(Path(spec.model).expanduser()).models:
        _show_cost(f"{spec.name}/{preset.name}", _preset_words(preset), cost_of_preset(preset))


def _show_cost(name: str, words: str, cost: Cost | None) -> None:
    if cost is None:
        print(f"{name}: {words}; nobody can tell what memory that takes")
        return
    print(
        f"{name}: {words}: {cost.total_bytes / 1e9:.1f} GB, of which weights {cost.weight_bytes / 1e9:.1f} "
        f"and conversations {cost.kv_bytes / 1e9:.1f}"
    )
    if cost.window and cost.context > cost.window:
        print(f"  the model was made for {cost.window:,} tokens")


def _preset_words(preset: Preset) -> str:
    users = preset.users or 1
    return f"{f'{preset.context // users:,}' if preset.context else 'its own'} tokens x {users}"


def _show_free(settings: LaunchSettings) -> None:
    from edgewise.hardware import read_hardware

    free = read_hardware().usable_memory_bytes
    print(f"free now: {free / 1e9:.1f} GB, of which {settings.keep_free_bytes / 1e9:.1f} must stay")


def _check_fits(name: str, cost: Cost | None, held_bytes: int, settings: LaunchSettings) -> None:
    """Says what is free for an engine, too. Raises ConfigError."""
    from edgewise.hardware import read_hardware

    free, keep = read_hardware().usable_memory_bytes + held_bytes, settings.keep_free_bytes
    print(f"  {free / 1e9:.1f} GB is free for it, of which {keep / 1e9:.1f} must stay")
    check_fits(name, 0 if cost is None else cost.total_bytes, held_bytes, keep)


def _ask(*, yes: bool) -> None:
    """Raises ConfigError for a no."""
    if not yes and not (sys.stdin.isatty() and typer.confirm("Set it?")):
        raise ConfigError("nothing was changed", hint="--yes sets it without asking")
