"""Upstreams that come and go, behind a running gateway: health, fail-over, the circuit, and a configuration that is read again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from edgewise.cli import make_app
from edgewise.core.errors import ConfigError
from edgewise.gateway.config import GatewayConfig, UpstreamConfig
from edgewise.gateway.keys import OpenDoor
from edgewise.gateway.parts import ForwardOptions
from edgewise.gateway.profile import Kind
from edgewise.gateway.run import Gateway
from tests.support.gateway_parts import serving_app
from tests.support.scripted_upstream import (
    Answer,
    Asked,
    Reset,
    ScriptedUpstream,
    chat_server,
    chat_stream,
    json_answer,
    scripted,
    stream_answer,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.http

CHAT = "/v1/chat/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


class Running:
    """A gateway on loopback. `config` is what it reads when it is told to read again."""

    def __init__(self, config: GatewayConfig, options: ForwardOptions) -> None:
        self.config: GatewayConfig | ConfigError = config
        self.gateway = Gateway(self._load, options, keys=OpenDoor())
        self.url = ""
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self._loop = asyncio.get_running_loop()
        await self.gateway.app(scope, receive, send)

    def _load(self) -> GatewayConfig:
        if isinstance(self.config, ConfigError):
            raise self.config
        return self.config

    def reload(self, config: GatewayConfig | ConfigError) -> None:
        self.config = config
        assert self._loop is not None
        done = threading.Event()
        self._loop.call_soon_threadsafe(lambda: (self.gateway.reload(), done.set()))
        assert done.wait(5)

    def ask(self, model: str = "m", **more: Any) -> httpx.Response:
        return httpx.post(self.url + CHAT, json={**BODY, "model": model, **more}, timeout=20)

    def who(self, model: str = "m", **more: Any) -> str:
        answer = self.ask(model, **more)
        assert answer.status_code == 200, answer.text
        return answer.headers["x-edgewise-upstream"]

    def state(self, name: str) -> Any:
        return next(one for one in self.gateway.fleet.upstreams if one.name == name)


def config_of(*upstreams: tuple[str, str], **settings: Any) -> GatewayConfig:
    made = tuple(UpstreamConfig(name, url, Kind.OPENAI) for name, url in upstreams)
    fast = {"refresh_s": 0.2, "health_s": 0.1, "breaker_pause_s": 0.2, "ask_timeout_s": 1.0}
    return GatewayConfig(made).replace(**{**fast, **settings})


@contextlib.contextmanager
def running(config: GatewayConfig, **options: Any) -> Iterator[Running]:
    one = Running(config, ForwardOptions(**options))
    with serving_app(one) as url:
        one.url = url
        yield one


def test_a_model_of_two_fails_over_and_back():
    with (
        scripted(chat_server("m")) as a,
        scripted(chat_server("m")) as b,
        running(config_of(("a", a.url), ("b", b.url))) as gateway,
    ):
        first = gateway.who()
        server, other = (a, "b") if first == "a" else (b, "a")
        server.kill()
        assert [gateway.who() for _ in range(4)] == [other] * 4
        wait_until(lambda: not gateway.state(first).answers)
        server.start()
        wait_until(lambda: gateway.state(first).healthy)
        assert gateway.who() == first, "the conversation goes home"


def test_the_order_of_the_command_line_decides_who_a_name_means():
    with (
        scripted(chat_server("m")) as a,
        scripted(chat_server("other")) as b,
        running(config_of(("a", a.url), ("b", b.url))) as gateway,
    ):
        assert [gateway.who(name) for name in ("m", "other", "gpt-4o", "b", "")] == [
            "a",
            "b",
            "a",
            "b",
            "a",
        ]
        assert b.asked(CHAT)[0].json["model"] == "other"
        assert b.asked(CHAT)[1].json["model"] == "other", "its name became its model's"


def test_an_upstream_that_is_started_later_is_found():
    late = ScriptedUpstream(chat_server("m"))
    late.start()
    late.kill()
    with running(config_of(("late", late.url))) as gateway:
        answer = gateway.ask()
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        assert "late" in answer.json()["error"]["message"]
        late.start()
        try:
            wait_until(lambda: gateway.state("late").healthy)
            assert gateway.who() == "late"
        finally:
            late.kill()


def test_a_model_loaded_later_is_known_as_soon_as_somebody_names_it():
    with (
        scripted(chat_server("m")) as a,
        running(config_of(("a", a.url), refresh_s=1000, strict_model_names=True)) as gateway,
    ):
        assert gateway.ask("new").status_code == 404
        a.script = chat_server("new")
        wait_until(lambda: gateway.ask("new").status_code == 200)


def test_a_server_that_answers_questions_but_no_requests_is_left_alone_for_a_while():
    def broken(asked: Asked) -> Answer:
        return Answer(200, {}, [Reset]) if asked.path == CHAT else chat_server("m")(asked)

    with (
        scripted(broken) as server,
        running(config_of(("a", server.url), breaker_pause_s=1000), retry_for_s=0.0) as gateway,
    ):
        statuses = [gateway.ask().status_code for _ in range(8)]
        assert set(statuses) <= {502, 503} and statuses[-1] == 503
        assert len(server.asked(CHAT)) <= 6
        assert gateway.state("a").answers, "it does answer"


def test_a_replica_that_only_fails_loses_its_conversations():
    def broken(asked: Asked) -> Answer:
        return (
            json_answer({"error": {"message": "no"}}, 500) if asked.path == CHAT else chat_server("m")(asked)
        )

    with scripted(broken) as bad, scripted(chat_server("m")) as good:
        config = config_of(("bad", bad.url), ("good", good.url), breaker_pause_s=1000)
        with running(config) as gateway:
            hellos = [[{"role": "user", "content": str(i)}] for i in range(40)]
            statuses = [gateway.ask("m", messages=one).status_code for one in hellos]
            assert statuses.count(500) <= 3 and statuses[-10:] == [200] * 10


def test_the_errors_of_an_only_upstream_reach_the_client_however_many():
    def broken(asked: Asked) -> Answer:
        return (
            json_answer({"error": {"message": "no"}}, 500) if asked.path == CHAT else chat_server("m")(asked)
        )

    with scripted(broken) as server, running(config_of(("a", server.url))) as gateway:
        assert [gateway.ask().status_code for _ in range(8)] == [500] * 8


def test_a_conversation_by_response_ids_stays_with_its_replica():
    def responding(asked: Asked) -> Answer:
        if asked.path == "/v1/responses" and asked.method == "POST" and asked.json.get("input"):
            ended = {
                "id": f"resp_{time.monotonic_ns()}",
                "object": "response",
                "status": "completed",
                "output": [],
            }
            return json_answer(ended)
        return chat_server("m")(asked)

    with (
        scripted(responding) as a,
        scripted(responding) as b,
        running(config_of(("a", a.url), ("b", b.url))) as gateway,
    ):
        wait_until(lambda: all(one.healthy for one in gateway.gateway.fleet.upstreams))
        seen = set()
        for i in range(12):
            previous: dict[str, Any] = {}
            places = []
            for turn in ("Hello", "Go on", "And then?"):
                body = {"model": "m", "input": f"{turn} {i}", **previous}
                answer = httpx.post(gateway.url + "/v1/responses", json=body, timeout=20)
                places.append(answer.headers["x-edgewise-upstream"])
                previous = {"previous_response_id": answer.json()["id"]}
            assert len(set(places)) == 1, places
            seen.update(places)
        assert seen == {"a", "b"}, "they are spread"


def test_an_upstream_that_restarts_is_waited_for_by_every_request():
    with scripted(chat_server("m")) as server, running(config_of(("a", server.url))) as gateway:
        assert gateway.ask().status_code == 200
        for known_s in (0.0, 0.5):  # before its death is noticed, and after
            server.kill()
            time.sleep(known_s)
            threading.Timer(0.4, server.start).start()
            assert [gateway.ask().status_code for _ in range(4)] == [200] * 4


def test_reading_the_configuration_again_keeps_streams_and_what_is_known():
    go_on = threading.Event()

    def slow(asked: Asked) -> Answer:
        if asked.path != CHAT:
            return chat_server("m")(asked)
        events = chat_stream(["one", "two"], model="m")
        return stream_answer(*events[:2], 1.5, *events[2:])

    with scripted(slow) as a, scripted(chat_server("k")) as b:
        before = config_of(("a", a.url))
        with running(before) as gateway:
            pieces: list[bytes] = []

            def read() -> None:
                with httpx.stream(
                    "POST", gateway.url + CHAT, json={**BODY, "stream": True}, timeout=20
                ) as answer:
                    for piece in answer.iter_raw():
                        pieces.append(piece)
                        go_on.set()

            reader = threading.Thread(target=read)
            reader.start()
            assert go_on.wait(5)
            kept = gateway.state("a")
            gateway.reload(config_of(("b", b.url)))  # a is gone while it streams
            wait_until(lambda: gateway.state("b").healthy)
            assert [one.name for one in gateway.gateway.fleet.upstreams] == ["b"]
            assert gateway.who("m") == "b"
            reader.join(10)
            assert b"".join(pieces) == b"".join(chat_stream(["one", "two"], model="m"))
            assert kept.in_flight == 0
            known = gateway.state("b")
            gateway.reload(config_of(("b", b.url), ("a", a.url), strict_model_names=True))
            assert gateway.state("b") is known, "asked in the same way, so still the same"
            wait_until(lambda: gateway.state("a").healthy)
            assert (gateway.who("m", stream=True), gateway.ask("gpt-4o").status_code) == ("a", 404)


def test_a_wrong_configuration_changes_nothing(caplog: pytest.LogCaptureFixture):
    with scripted(chat_server("m")) as a, running(config_of(("a", a.url))) as gateway:
        gateway.reload(ConfigError("there is no key 'x'", hint="did you mean 'y'?"))
        assert gateway.who() == "a"
        assert "stays as it was: there is no key 'x' (did you mean 'y'?)" in caplog.text


@pytest.mark.slow
def test_the_command_hears_sighup(tmp_path: Path):
    """The program itself, with a file that changes under it."""
    file = tmp_path / "gateway.toml"
    with scripted(chat_server("m")) as a, scripted(chat_server("k")) as b:
        file.write_text(f'[[upstream]]\nname = "a"\nurl = "{a.url}"\n')
        command = [
            sys.executable,
            "-m",
            "edgewise.cli",
            "gateway",
            "--config",
            str(file),
            "--port",
            "0",
            "--health-s",
            "0.1",
        ]
        environment = {**os.environ, "EDGEWISE_HOME": str(tmp_path)}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            url = line.strip().rsplit(" ", 1)[-1]
            assert httpx.post(url + CHAT, json=BODY).headers["x-edgewise-upstream"] == "a"
            file.write_text(f'default = "b"\n[[upstream]]\nname = "b"\nurl = "{b.url}"\n')
            process.send_signal(signal.SIGHUP)
            wait_until(lambda: httpx.post(url + CHAT, json=BODY).headers.get("x-edgewise-upstream") == "b")
            file.write_text("nonsense")
            process.send_signal(signal.SIGHUP)
            time.sleep(0.3)
            assert httpx.post(url + CHAT, json=BODY).headers["x-edgewise-upstream"] == "b"
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--engine", "a"], "'a' names no upstream"),
        (["--engine", "a=http://x", "--default", "b"], "there is no upstream 'b'"),
        (["--engine", "a=http://x", "--alias", "b"], "is not NAME=MODEL"),
        (["--config", "/nowhere.toml"], "cannot read /nowhere.toml"),
    ],
)
def test_wrong_flags_are_refused(
    flags: list[str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("EDGEWISE_HOME", str(tmp_path))
    result = CliRunner().invoke(make_app(), ["gateway", *flags])
    assert isinstance(result.exception, ConfigError), result.output
    assert said in result.exception.message


def test_odd_answers_do_not_end_the_watch():
    """A list that is deep nonsense, then a good one."""
    with (
        scripted(lambda _: json_answer({"data": [{"id": "m", "aliases": 3, "meta": []}]})) as server,
        running(config_of(("a", server.url))) as gateway,
    ):
        server.script = chat_server("later")
        wait_until(lambda: [card.id for card in gateway.state("a").profile.models] == ["later"])
