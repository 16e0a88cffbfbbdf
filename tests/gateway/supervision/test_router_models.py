"""Models of a router: loaded by its own call after a look at the memory, unloaded again below the floor. The router itself is an adopted process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from edgewise.core.engines import EngineKind, Ran
from edgewise.core.errors import ConfigError
from edgewise.gateway.supervision.errors import EngineStartError, NoRoomError
from edgewise.gateway.supervision.process import read_process
from edgewise.gateway.supervision.supervisor import Supervisor
from tests.gateway.supervision.conftest import GB, Machine, ignore, until
from tests.support.router_server import RouterModel, RouterScript, router_server

pytestmark = pytest.mark.slow


@pytest.fixture
async def router(machine: Machine) -> AsyncIterator[tuple[Supervisor, RouterScript]]:
    models = {"small": RouterModel("loaded"), "org/large": RouterModel("unloaded", ("large",))}
    with router_server(models, autoload=False) as (server, script):
        launch = machine.book.put(
            "router", kind=EngineKind.LLAMA, url=server.url, router=True, keep_free_bytes=8 * GB
        )
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True
        )
        facts = read_process(process.pid)
        assert facts is not None
        machine.book.note("router", Ran(process.pid, facts.start_ticks, launch.digest))
        machine.book.want("router", True)
        machine.book.sizes["org/large"] = 35 * GB
        supervisor = await machine.supervisor()

        async def ready() -> bool:
            return (await machine.state("router"))["state"] == "ready"

        await until(ready)
        yield supervisor, script
        await supervisor.unload("router", ignore)
        assert process.wait(5) != 0


async def test_a_model_is_loaded_and_unloaded(machine: Machine, router: tuple[Supervisor, RouterScript]):
    supervisor, script = router
    events: list[dict[str, Any]] = []
    await supervisor.load("router/large", events.append)
    assert [one["event"] for one in events] == ["room", "starting", "warming", "ready"]
    assert events[0]["need_bytes"] == 35 * GB
    assert script.loads == [("org/large", "POST /models/load")] and script.answered == ["org/large"]
    listed = [{"name": "small", "loaded": True}, {"name": "org/large", "loaded": True}]
    assert (await machine.state("router"))["models"] == listed
    await supervisor.load("router/org/large", ignore)
    assert len(script.loads) == 1, "it is there already"
    await supervisor.unload("router/large", ignore)
    assert script.loads[1:] == [("org/large", "POST /models/unload")]
    with pytest.raises(ConfigError, match="not loaded"):
        await supervisor.unload("router/large", ignore)


async def test_what_does_not_fit_is_never_asked_for(
    machine: Machine, router: tuple[Supervisor, RouterScript]
):
    supervisor, script = router
    machine.free_bytes = 42 * GB
    with pytest.raises(NoRoomError, match="needs 35 GB and 8 GB must stay free, but only 42 GB is free"):
        await supervisor.load("router/large", ignore)
    assert script.loads == []


async def test_below_the_floor_it_is_unloaded_again(
    machine: Machine, router: tuple[Supervisor, RouterScript]
):
    supervisor, script = router

    def eat(event: dict[str, Any]) -> None:
        if event["event"] == "warming":
            machine.free_bytes = 5 * GB

    with pytest.raises(NoRoomError, match="less than the 8 GB"):
        await supervisor.load("router/large", eat)
    assert [path for _, path in script.loads] == ["POST /models/load", "POST /models/unload"]
    assert script.models["org/large"].status == "unloaded"


async def test_a_model_that_cannot_be_loaded(router: tuple[Supervisor, RouterScript]):
    supervisor, script = router
    script.broken.add("org/large")
    with pytest.raises(EngineStartError, match="could not load org/large"):
        await supervisor.load("router/large", ignore)


async def test_names_that_are_not_there(machine: Machine, router: tuple[Supervisor, RouterScript]):
    supervisor, script = router
    machine.book.put("single")
    await supervisor.load("single", ignore)
    for name, said in (
        ("router/x", "no model 'x'"),
        ("nobody/x", "nobody is not loaded"),
        ("single/x", "no router"),
    ):
        with pytest.raises(ConfigError, match=said):
            await supervisor.load(name, ignore)
    assert script.loads == []


async def test_the_router_is_ready_without_any_model(
    machine: Machine, router: tuple[Supervisor, RouterScript]
):
    """Its warm-up is that of each model: none is loaded for it."""
    supervisor, script = router
    assert script.answered == [] and script.loads == []
    assert [one.name for one in supervisor.upstreams] == ["router"]
