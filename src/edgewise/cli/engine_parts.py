"""What the commands of engines share: the list, what starts them, the gateway that runs them."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from edgewise.checkpoints.settings import StoreSettings
from edgewise.cli.common import store_settings
from edgewise.core.errors import ConfigError

if TYPE_CHECKING:
    from edgewise.gateway.supervision.client import ControlClient
    from edgewise.gateway.supervision.desk import EngineDesk
    from edgewise.manage.engines import Engines
    from edgewise.manage.launch import Launcher, LaunchSettings

logger = logging.getLogger("edgewise.cli")

_OWN_KEYS = ("EDGEWISE_API_KEY", "VLLM_API_KEY", "LLAMA_API_KEY")
"""Keys of the gateway's clients: its engines ask for none, since they listen on loopback for the gateway alone."""

_MOST_KEPT_FREE_BYTES = 8 << 30
_KEPT_FREE_SHARE = 16  # one in so many bytes of the machine


def launcher(settings: StoreSettings, keep_free_bytes: int | None = None) -> Launcher:
    """What starts engines on this machine. `keep_free_bytes` None: a sixteenth of its memory, at most 8 GiB."""
    from edgewise.hardware import read_hardware
    from edgewise.manage.launch import Launcher, LaunchSettings

    if keep_free_bytes is None:
        keep_free_bytes = min(_MOST_KEPT_FREE_BYTES, read_hardware().total_memory_bytes // _KEPT_FREE_SHARE)
    return Launcher(LaunchSettings(settings, settings.data_dir / "logs", keep_free_bytes))


def check_fits(name: str, need_bytes: int, held_bytes: int, keep_free_bytes: int) -> None:
    """Whether an engine fits beside everything else on the machine, but not beside itself as it runs now, with `held_bytes`.

    Raises ConfigError. A need of 0 is unknown, and fits.
    """
    from edgewise.hardware import read_hardware

    free = read_hardware().usable_memory_bytes + held_bytes
    if need_bytes and need_bytes + keep_free_bytes > free:
        raise ConfigError(
            f"{name} would need {need_bytes / 1e9:.1f} GB; {keep_free_bytes / 1e9:.1f} GB must stay free, and {free / 1e9:.1f} GB is free",
            hint="fewer tokens or fewer users",
        )


@contextlib.contextmanager
def engine_list(
    settings: StoreSettings | None = None, keep_free_bytes: int | None = None
) -> Iterator[Engines]:
    """The engines of the data folder. Raises ConfigError for a state file that cannot be used."""
    from edgewise.manage.engines import Engines
    from edgewise.manage.state import State

    settings = settings or store_settings()
    engines = Engines(State(settings.data_dir), launcher(settings, keep_free_bytes))
    try:
        yield engines
    finally:
        engines.close()


def engine_names(settings: StoreSettings) -> tuple[str, ...]:
    with engine_list(settings) as engines:
        return tuple(engines.names())


@contextlib.contextmanager
def gateway_desk(
    settings: StoreSettings, keep_free_gb: float | None, *, needed: bool
) -> Iterator[EngineDesk | None]:
    """Who looks after the engines of the data folder: this gateway, unless another one does already. Raises ConfigError if one is needed."""
    from edgewise.gateway.supervision.desk import EngineDesk
    from edgewise.gateway.supervision.shop import SupervisorOptions
    from edgewise.hardware import read_hardware

    keep_free_bytes = None if keep_free_gb is None else int(keep_free_gb * 1e9)
    environment = {name: value for name, value in os.environ.items() if name not in _OWN_KEYS}
    with engine_list(settings, keep_free_bytes) as engines:
        try:
            desk = EngineDesk(
                engines,
                settings.data_dir,
                lambda: read_hardware().usable_memory_bytes,
                SupervisorOptions(
                    environment=environment,
                    keep_free_bytes=launcher(settings, keep_free_bytes).settings.keep_free_bytes,
                ),
            )
        except ConfigError as error:
            if needed:
                raise ConfigError(error.message, hint="EDGEWISE_HOME names another data folder") from error
            logger.warning("%s; this one starts none", error.message)
            yield None
            return
        try:
            yield desk
        finally:
            desk.release()


def control() -> ControlClient:
    """The gateway of the data folder."""
    from edgewise.gateway.supervision.client import ControlClient

    return ControlClient(store_settings().data_dir)


def engine_rows() -> dict[str, Mapping[str, Any]]:
    """The gateway's rows of all engines of the list, by name; empty where none runs."""
    from edgewise.gateway.supervision.client import NoGatewayError

    try:
        return {row["name"]: row for row in control().ask("ps")["engines"]}
    except NoGatewayError:
        return {}


def settings_of_gateway() -> LaunchSettings:
    """With the floor of the gateway that runs, or that of one that would run as `edgewise gateway` does."""
    from edgewise.gateway.supervision.client import NoGatewayError

    try:
        keep_free_bytes = control().ask("ps").get("keep_free_bytes")
    except NoGatewayError:
        keep_free_bytes = None
    return launcher(store_settings(), keep_free_bytes).settings


def running() -> dict[str, Mapping[str, Any]]:
    """Those that run, or that the gateway would have run."""
    return {name: row for name, row in engine_rows().items() if row["state"] not in ("stopped", "failed")}


def follow(what: str, name: str = "") -> None:
    """Have the gateway do something, and tell of it line by line. Raises EdgewiseError, after the last lines of the engine's log."""
    from edgewise.gateway.supervision.errors import EngineStartError

    try:
        for said in control().do(what, name=name):
            if (line := _line(said)) is not None:
                print(line, flush=True)
    except EngineStartError as error:
        for line in error.lines:
            print(f"  | {line}", file=sys.stderr)
        raise
    except KeyboardInterrupt:
        print(
            "\nthe gateway goes on with it; `edgewise ps` shows how far it is, `edgewise unload` ends it",
            file=sys.stderr,
        )
        raise


def _line(said: Mapping[str, Any]) -> str | None:
    from edgewise.gateway.supervision.memory import gigabytes

    name = said.get("name", "")
    match said.get("event"):
        case "waiting":
            return f"{name}: waiting, {said['what']}"
        case "room":
            need = gigabytes(said["need_bytes"]) if said["need_bytes"] else "an unknown amount"
            free, keep = gigabytes(said["free_bytes"]), gigabytes(said["keep_free_bytes"])
            return f"{name}: needs {need}; {free} is free, of which {keep} must stay"
        case "starting":
            return f"{name}: starting" + (f", process {said['pid']}" if "pid" in said else "")
        case "warming":
            return f"{name}: warming up" + (
                f", answers after {said['seconds']:g} s" if "seconds" in said else ""
            )
        case "ready":
            return f"{name}: is ready already" if said.get("already") else f"{name}: ready" + _after(said)
        case "unloading":
            return f"{name}: unloading"
        case "restarting":
            return f"{name}: starting anew"
        case "failed":
            return f"{name}: {said['why']}"
        case _:
            return None


def _after(said: Mapping[str, Any]) -> str:
    return f" after {said['seconds']:g} s" if "seconds" in said else ""
