"""Engines that are loaded, misbehave and are unloaded: real processes of a stand-in program."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgewise.core.errors import ConfigError
from edgewise.gateway.supervision.errors import EngineStartError, NoRoomError
from tests.gateway.supervision.conftest import GB, Machine, alive, ignore, until

pytestmark = pytest.mark.slow


async def test_load_and_unload(machine: Machine):
    launch = machine.book.put("a", need_bytes=10 * GB, keep_free_bytes=8 * GB)
    supervisor = await machine.supervisor()
    assert (await machine.state("a"))["state"] == "stopped"
    events: list[dict[str, Any]] = []
    await supervisor.load("a", events.append)
    assert [one["event"] for one in events] == ["room", "starting", "warming", "ready"]
    assert {"need_bytes": 10 * GB, "keep_free_bytes": 8 * GB, "free_bytes": 100 * GB}.items() <= events[
        0
    ].items()
    assert machine.changes[-1] == "a" and [one.name for one in supervisor.upstreams] == ["a"]
    assert machine.book.wanted() == {"a"}
    row = await machine.state("a")
    assert (row["state"], row["restarts"], row["last_error"]) == ("ready", 0, None)
    assert alive(row["pid"]) and os.getsid(row["pid"]) == row["pid"] and row["rss_bytes"] > 1 << 20
    assert 0 <= row["uptime_s"] < 20
    assert "loading model-of-a" in Path(launch.log).read_text()
    again: list[dict[str, Any]] = []
    await supervisor.load("a", again.append)
    assert again == [{"event": "ready", "name": "a", "already": True}]
    await supervisor.unload("a", ignore)
    assert supervisor.upstreams == () and machine.changes[-1] is None and machine.book.wanted() == frozenset()
    assert not alive(row["pid"]) and machine.book.ran() == {}
    with pytest.raises(ConfigError, match="a is not loaded"):
        await supervisor.unload("a", ignore)


async def test_nothing_starts_without_being_asked_for(machine: Machine):
    machine.book.put("a")
    supervisor = await machine.supervisor()
    await supervisor.apply(ignore)
    await asyncio.sleep(0.1)
    assert (await machine.state("a"))["state"] == "stopped" and machine.book.ran() == {}


@pytest.mark.parametrize("name", ["nobody", "", "a/b"])
async def test_a_name_nobody_has(machine: Machine, name: str):
    supervisor = await machine.supervisor()
    for action in (supervisor.load, supervisor.unload):
        with pytest.raises(ConfigError):
            await action(name, ignore)


async def test_what_does_not_fit_is_refused_before_it_starts(machine: Machine):
    machine.book.put("a", need_bytes=95 * GB, keep_free_bytes=8 * GB)
    supervisor = await machine.supervisor()
    with pytest.raises(NoRoomError, match=r"needs 95 GB and 8 GB must stay free, but only 100 GB is free"):
        await supervisor.load("a", ignore)
    row = await machine.state("a")
    assert row["state"] == "refused" and row["pid"] is None and not Path(row["log"]).exists()
    assert machine.book.wanted() == frozenset()
    machine.free_bytes = 200 * GB
    await supervisor.load("a", ignore)


async def test_an_engine_that_eats_more_than_it_said_is_stopped_below_the_floor(machine: Machine):
    machine.book.put("a", "--silent-model", keep_free_bytes=8 * GB)
    supervisor = await machine.supervisor()
    events: list[dict[str, Any]] = []

    def eat(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] == "warming":
            machine.free_bytes = 7 * GB

    with pytest.raises(NoRoomError, match="left 7 GB free, less than the 8 GB"):
        await supervisor.load("a", eat)
    pid = next(one["pid"] for one in events if one["event"] == "starting")
    assert not alive(pid) and machine.book.ran() == {} and supervisor.upstreams == ()


@pytest.mark.parametrize(
    ("flag", "options", "why", "line"),
    [
        ("--die-at-start", {}, "ended with status 3", "the weights are of another size"),
        ("--never-answer", {"start_timeout_s": 0.5}, "did not answer within 0.5 s", "loading model-of-a"),
        ("--broken-model", {}, "answered with 500", "loading model-of-a"),
        (
            "--silent-model",
            {"warm_up_timeout_s": 0.3},
            "did not (answer|make its first token)",
            "loading model-of-a",
        ),
    ],
)
async def test_a_start_that_fails_says_why(
    machine: Machine, flag: str, options: dict[str, Any], why: str, line: str
):
    machine.book.put("a", flag)
    supervisor = await machine.supervisor(**options)
    with pytest.raises(EngineStartError, match=why) as caught:
        await supervisor.load("a", ignore)
    assert caught.value.lines[-1] == line
    row = await machine.state("a")
    assert row["state"] == "failed" and row["pid"] is None and row["last_lines"][-1] == line
    assert machine.book.ran() == {} and machine.book.wanted() == frozenset()


async def test_a_program_that_is_not_there(machine: Machine):
    machine.book.put("a", argv=("no-such-program", "x"))
    supervisor = await machine.supervisor()
    with pytest.raises(EngineStartError, match="no program 'no-such-program'"):
        await supervisor.load("a", ignore)


async def test_a_port_that_another_program_has(machine: Machine):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        machine.book.put("a", port=other.getsockname()[1])
        supervisor = await machine.supervisor()
        with pytest.raises(EngineStartError, match="cannot listen on port"):
            await supervisor.load("a", ignore)


async def test_an_engine_that_dies_comes_back(machine: Machine):
    launch = machine.book.put("a", "--die-after", "2")  # the first is the warm-up
    supervisor = await machine.supervisor()
    await supervisor.load("a", ignore)
    first = (await machine.state("a"))["pid"]
    httpx.post(launch.url + "/v1/chat/completions", json={"model": "x"})

    async def back() -> bool:
        row = await machine.state("a")
        assert [one.name for one in supervisor.upstreams] == ["a"], "those who name it hear that it is down"
        return row["state"] == "ready" and row["pid"] not in (first, None)

    await until(back)
    row = await machine.state("a")
    assert row["restarts"] == 1 and "status 7" in row["last_error"]
    assert row["last_lines"][-1] == "out of memory, it says"


async def test_a_crash_loop_waits_longer_and_longer(machine: Machine):
    machine.book.put("a", "--die-at-start")
    machine.book.want("a", True)
    await machine.supervisor(first_pause_s=0.05, longest_pause_s=0.2)
    began_s = time.monotonic()

    async def tried_often() -> bool:
        return (await machine.state("a"))["restarts"] >= 4

    await until(tried_often)
    assert time.monotonic() - began_s >= 0.05 + 0.1 + 0.2 + 0.2
    assert machine.book.wanted() == {"a"}, "it is still what a person wanted"


async def test_a_load_ends_a_long_pause(machine: Machine):
    machine.book.put("a", "--die-at-start")
    machine.book.want("a", True)
    supervisor = await machine.supervisor(first_pause_s=60.0)

    async def waits() -> bool:
        return (await machine.state("a"))["state"] == "backing-off"

    await until(waits)
    machine.book.put("a")
    await supervisor.load("a", ignore)


async def test_one_that_ignores_term_is_killed_with_its_workers(machine: Machine):
    launch = machine.book.put("a", "--ignore-term", "--worker")
    supervisor = await machine.supervisor(stop_grace_s=0.3)
    await supervisor.load("a", ignore)
    pid = (await machine.state("a"))["pid"]
    worker = int(Path(launch.log).read_text().split("worker ")[1].split()[0])
    assert alive(worker)
    await supervisor.unload("a", ignore)

    async def gone() -> bool:
        return not alive(pid) and not alive(worker)

    await until(gone)


async def test_workers_of_one_that_was_killed_do_not_stay(machine: Machine):
    launch = machine.book.put("a", "--worker")
    supervisor = await machine.supervisor(first_pause_s=60.0)
    await supervisor.load("a", ignore)
    worker = int(Path(launch.log).read_text().split("worker ")[1].split()[0])
    os.kill((await machine.state("a"))["pid"], signal.SIGKILL)

    async def gone() -> bool:
        return not alive(worker)

    await until(gone)
    assert "SIGKILL" in (await machine.state("a"))["last_error"]


async def test_two_loads_at_once_are_one_after_the_other(machine: Machine):
    machine.book.put("a", "--slow-start-s", "0.3")
    machine.book.put("b")
    supervisor = await machine.supervisor()
    events: list[tuple[str, str]] = []

    def report(event: dict[str, Any]) -> None:
        events.append((event["name"], event["event"]))

    await asyncio.gather(
        supervisor.load("a", report), supervisor.load("b", report), supervisor.load("a", report)
    )
    assert events.index(("b", "waiting")) < events.index(("a", "ready")) < events.index(("b", "ready"))
    assert events.index(("a", "warming")) < events.index(("b", "room"))
    assert [one.name for one in supervisor.upstreams] == ["a", "b"]


async def test_one_that_comes_back_does_not_wait_for_a_long_load(machine: Machine):
    machine.book.put("a")
    machine.book.put("b", "--never-answer")
    supervisor = await machine.supervisor()
    await supervisor.load("a", ignore)
    loading = asyncio.create_task(supervisor.load("b", ignore))

    async def starting() -> bool:
        return (await machine.state("b"))["pid"] is not None

    await until(starting)
    os.kill((await machine.state("a"))["pid"], signal.SIGKILL)

    async def back() -> bool:
        row = await machine.state("a")
        return row["state"] == "ready" and row["restarts"] == 1

    await until(back)
    assert (await machine.state("b"))["state"] == "starting"
    await supervisor.unload("b", ignore)
    with pytest.raises(EngineStartError):
        await loading


async def test_an_engine_whose_name_the_configuration_has_runs_hidden(machine: Machine):
    machine.book.put("a")
    machine.book.want("a", True)
    supervisor = await machine.supervisor()
    supervisor.taken = frozenset({"a"})

    async def ready() -> bool:
        return (await machine.state("a"))["state"] == "ready"

    await until(ready)
    await supervisor.unload("a", ignore)
    with pytest.raises(ConfigError, match="another upstream called 'a'"):
        await supervisor.load("a", ignore)


async def test_other_settings_need_an_unload_first(machine: Machine):
    machine.book.put("a")
    supervisor = await machine.supervisor()
    await supervisor.load("a", ignore)
    machine.book.put("a", "--worker")
    with pytest.raises(ConfigError, match="loaded with other settings") as caught:
        await supervisor.load("a", ignore)
    assert caught.value.hint == "`edgewise unload a` first"


async def test_an_unload_ends_a_load(machine: Machine):
    machine.book.put("a", "--never-answer")
    supervisor = await machine.supervisor()
    loading = asyncio.create_task(supervisor.load("a", ignore))

    async def started() -> bool:
        return (await machine.state("a"))["pid"] is not None

    await until(started)
    pid = (await machine.state("a"))["pid"]
    await supervisor.unload("a", ignore)
    with pytest.raises(EngineStartError, match="unloaded while it started"):
        await loading
    assert not alive(pid)


async def test_a_client_that_leaves_does_not_end_a_load(machine: Machine):
    machine.book.put("a", "--slow-start-s", "0.2")
    supervisor = await machine.supervisor()
    loading = asyncio.create_task(supervisor.load("a", ignore))
    await asyncio.sleep(0.1)
    loading.cancel()

    async def ready() -> bool:
        return (await machine.state("a"))["state"] == "ready"

    await until(ready)


async def test_a_log_is_kept_within_its_limit(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    launch = machine.book.put("a")
    supervisor = await machine.supervisor()
    await supervisor.load("a", ignore)
    log = Path(launch.log)
    monkeypatch.setattr(supervisor._engines["a"]._log, "_limit_bytes", 1000)
    with log.open("ab") as file:
        file.write(b"x" * 2000)

    async def rotated() -> bool:
        return log.stat().st_size < 1000

    await until(rotated)
    assert log.with_name("a.log.1").stat().st_size > 2000


async def test_when_the_gateway_stops_so_do_its_engines(machine: Machine):
    for name in ("a", "b"):
        machine.book.put(name)
    supervisor = await machine.supervisor()
    for name in ("a", "b"):
        await supervisor.load(name, ignore)
    pids = [ran.pid for ran in machine.book.ran().values()]
    await supervisor.stop()
    assert not any(map(alive, pids)) and machine.book.ran() == {}
    assert machine.book.wanted() == {"a", "b"}, "they come back with it"
    await machine.supervisor()

    async def ready() -> bool:
        return [row["state"] for row in await machine.supervisors[-1].ps()] == ["ready", "ready"]

    await until(ready)


async def test_what_was_left_is_adopted_or_not(machine: Machine):
    """same: kept. changed: started anew. unlisted: stopped. unwanted, as after a gateway killed in the middle of an unload: stopped."""
    names = ("same", "changed", "unlisted", "unwanted")
    for name in names:
        machine.book.put(name)
    first = await machine.supervisor()
    await asyncio.gather(*(first.load(name, ignore) for name in names))
    pids = {name: ran.pid for name, ran in machine.book.ran().items()}
    first.leave()
    await first.stop()
    assert all(map(alive, pids.values())), "they were left"
    machine.book.put("changed", "--worker")
    del machine.book.launches["unlisted"]
    machine.book.want("unwanted", False)
    second = await machine.supervisor()

    async def ready() -> bool:
        rows = {row["name"]: row["state"] for row in await second.ps()}
        return rows == {"same": "ready", "changed": "ready", "unwanted": "stopped"}

    await until(ready)
    assert (await machine.state("same"))["pid"] == pids["same"]
    assert (await machine.state("changed"))["pid"] != pids["changed"]
    assert [alive(pids[name]) for name in names] == [True, False, False, False]
    os.kill(pids["same"], signal.SIGKILL)

    async def restarted() -> bool:
        row = await machine.state("same")
        return row["restarts"] == 1 and row["state"] == "ready" and row["pid"] is not None

    await until(restarted)


async def test_apply_restarts_what_changed_and_nothing_else(machine: Machine):
    for name in ("same", "changed", "gone", "stopped"):
        machine.book.put(name)
    supervisor = await machine.supervisor()
    for name in ("same", "changed", "gone"):
        await supervisor.load(name, ignore)
    pids = {name: ran.pid for name, ran in machine.book.ran().items()}
    machine.book.put("changed", "--worker")
    del machine.book.launches["gone"]
    machine.book.want("gone", False)
    events: list[dict[str, Any]] = []
    await supervisor.apply(events.append)
    assert {one["name"] for one in events} == {"changed"} and events[-1]["event"] == "ready"
    rows = {row["name"]: row for row in await supervisor.ps()}
    assert {name: row["state"] for name, row in rows.items()} == {
        "same": "ready",
        "changed": "ready",
        "stopped": "stopped",
    }
    assert rows["same"]["pid"] == pids["same"] and not alive(pids["changed"]) and not alive(pids["gone"])


async def test_apply_tells_of_what_did_not_start(machine: Machine):
    for name in ("good", "bad"):
        machine.book.put(name)
    supervisor = await machine.supervisor()
    for name in ("good", "bad"):
        await supervisor.load(name, ignore)
    machine.book.put("good", "--worker")
    machine.book.put("bad", "--die-at-start")
    events: list[dict[str, Any]] = []
    with pytest.raises(EngineStartError, match="bad did not start"):
        await supervisor.apply(events.append)
    assert {(one["name"], one["event"]) for one in events} >= {("bad", "failed"), ("good", "ready")}
    assert (await machine.state("bad"))["state"] in ("backing-off", "starting"), "it is still wanted"
