"""A gateway with engines of its own: requests before, during and after a load; the control socket; two gateways and one data folder."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgewise.core.errors import ConfigError, EdgewiseError
from edgewise.gateway.config import GatewayConfig, UpstreamConfig
from edgewise.gateway.keys import OpenDoor
from edgewise.gateway.parts import ForwardOptions
from edgewise.gateway.profile import Kind
from edgewise.gateway.run import Gateway
from edgewise.gateway.supervision.client import ControlClient, NoGatewayError
from edgewise.gateway.supervision.desk import EngineDesk
from tests.gateway.supervision.conftest import GB, QUICK, alive
from tests.support.engine_book import MemoryBook
from tests.support.gateway_parts import serving_app
from tests.support.scripted_upstream import Answer, Asked, chat_server, chat_stream, scripted, stream_answer
from tests.support.waiting import wait_until

CHAT = "/v1/chat/completions"

pytestmark = pytest.mark.slow


@dataclass
class Running:
    """A gateway on loopback and the commands' way to it. `config` is read again by `reload`."""

    gateway: Gateway
    url: str
    client: ControlClient
    loop: asyncio.AbstractEventLoop

    def ask(self, model: str, **more: Any) -> httpx.Response:
        body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], **more}
        return httpx.post(self.url + CHAT, json=body, timeout=20)

    def row(self, name: str) -> dict[str, Any]:
        return next(row for row in self.client.ask("ps")["engines"] if row["name"] == name)

    def reload(self) -> None:
        done = threading.Event()
        self.loop.call_soon_threadsafe(lambda: (self.gateway.reload(), done.set()))
        assert done.wait(5)


@contextlib.contextmanager
def running(book: MemoryBook, folder: Path, *upstreams: UpstreamConfig, **settings: Any) -> Iterator[Running]:
    fast = {"refresh_s": 0.2, "health_s": 0.1, "ask_timeout_s": 2.0}
    config = GatewayConfig(upstreams, engines=tuple(book.names()), **{**fast, **settings})
    desk = EngineDesk(book, folder, lambda: 100 * GB, QUICK)
    gateway = Gateway(lambda: config, ForwardOptions(retry_for_s=0.0), keys=OpenDoor(), desk=desk)
    loops: list[asyncio.AbstractEventLoop] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        loops.append(asyncio.get_running_loop())
        await gateway.app(scope, receive, send)

    try:
        with serving_app(app) as url:
            yield Running(gateway, url, ControlClient(folder), loops[0])
    finally:
        desk.release()


@pytest.fixture
def book(tmp_path: Path) -> MemoryBook:
    return MemoryBook(tmp_path)


def test_an_empty_gateway_says_so_and_learns_better(book: MemoryBook, tmp_path: Path):
    book.put("a")
    with running(book, tmp_path) as gateway:
        assert httpx.get(gateway.url + "/v1/models").json()["data"] == []
        assert httpx.get(gateway.url + "/health").status_code == 503
        refused = gateway.ask("a")
        assert refused.status_code == 503 and "no engine is loaded" in refused.json()["error"]["message"]
        assert gateway.row("a")["state"] == "stopped", "a request starts nothing"
        *_, last = gateway.client.do("load", name="a")
        assert last == {"done": True}
        answers = [gateway.ask(name) for name in ("a", "model-of-a", "anything")]
        assert [one.headers["x-edgewise-upstream"] for one in answers] == ["a"] * 3, (
            "from the first request on"
        )
        assert gateway.client.ask("ps")["default"] == "a"
        gateway.client.ask("unload", name="a")
        assert gateway.ask("a").status_code == 503
        assert httpx.get(gateway.url + "/v1/models").json()["data"] == []


def test_without_the_default_an_engine_that_is_not_loaded_is_not_there(book: MemoryBook, tmp_path: Path):
    book.put("a")
    with running(book, tmp_path, strict_model_names=True) as gateway:
        refused = gateway.ask("a")
        assert refused.status_code == 404 and refused.json()["error"]["code"] == "model_not_found"


def test_streams_of_others_do_not_notice(book: MemoryBook, tmp_path: Path):
    book.put("a")
    go_on = threading.Event()

    def slowly(asked: Asked) -> Answer:
        if asked.path != CHAT or not asked.json.get("stream"):
            return chat_server("m")(asked)
        words = [f"w{i} " for i in range(40)]
        pieces = [piece for event in chat_stream(words, model="m") for piece in (event, 0.05)]
        return stream_answer(*pieces)

    with scripted(slowly) as server:
        other = UpstreamConfig("other", server.url, Kind.OPENAI)
        with running(book, tmp_path, other) as gateway:
            texts: list[str] = []

            def read() -> None:
                body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
                with httpx.stream("POST", gateway.url + CHAT, json=body, timeout=20) as stream:
                    for line in stream.iter_lines():
                        texts.append(line)
                        go_on.set()

            reader = threading.Thread(target=read)
            reader.start()
            assert go_on.wait(5)
            gateway.client.ask("load", name="a")
            gateway.reload()
            assert gateway.ask("a").headers["x-edgewise-upstream"] == "a"
            assert gateway.ask("unknown").headers["x-edgewise-upstream"] == "other", (
                "the configured come first"
            )
            gateway.client.ask("unload", name="a")
            assert reader.is_alive(), "it was running all the time"
            reader.join(10)
            assert "data: [DONE]" in texts and sum('"content": "w' in line for line in texts) == 40
            assert len(server.asked(CHAT)) == 2


def test_the_default_may_be_an_engine_that_is_not_loaded_yet(book: MemoryBook, tmp_path: Path):
    book.put("a")
    with scripted(chat_server("m")) as server:
        other = UpstreamConfig("other", server.url, Kind.OPENAI)
        with running(book, tmp_path, other, default="a") as gateway:
            assert gateway.ask("unknown").headers["x-edgewise-upstream"] == "other"
            gateway.client.ask("load", name="a")
            assert gateway.ask("unknown").headers["x-edgewise-upstream"] == "a"


def test_those_who_name_an_engine_that_comes_back_are_told_to_wait(book: MemoryBook, tmp_path: Path):
    book.put("a", "--slow-start-s", "0.3")
    with running(book, tmp_path, strict_model_names=True) as gateway:
        gateway.client.ask("load", name="a")
        os.kill(gateway.row("a")["pid"], signal.SIGKILL)
        wait_until(lambda: gateway.row("a")["state"] != "ready")
        refused = gateway.ask("a")
        assert refused.status_code in (502, 503), "down, which is something else than unknown"
        wait_until(lambda: gateway.ask("a").status_code == 200, timeout_s=10)
        assert gateway.row("a")["restarts"] == 1


def test_a_name_the_configuration_has(book: MemoryBook, tmp_path: Path):
    book.put("a")
    with (
        scripted(chat_server("m")) as server,
        running(book, tmp_path, UpstreamConfig("a", server.url, Kind.OPENAI)) as gateway,
    ):
        with pytest.raises(EdgewiseError, match="another upstream called 'a'"):
            gateway.client.ask("load", name="a")
        assert gateway.ask("a").json()["model"] == "m"


def test_what_is_refused_reaches_the_command_with_its_hint_and_its_log(book: MemoryBook, tmp_path: Path):
    book.put("a", need_bytes=200 * GB)
    book.put("b", "--die-at-start")
    with running(book, tmp_path) as gateway:
        events: list[dict[str, Any]] = []
        with pytest.raises(EdgewiseError, match="a needs 200 GB") as caught:
            events.extend(gateway.client.do("load", name="a"))
        assert caught.value.hint and "unload another" in caught.value.hint
        with pytest.raises(EdgewiseError, match="ended with status 3") as caught:
            gateway.client.ask("load", name="b")
        assert caught.value.lines == ("loading model-of-b", "the weights are of another size")
        for what in ("fly", ""):
            with pytest.raises(EdgewiseError, match="knows no command"):
                gateway.client.ask(what)


@pytest.mark.parametrize("line", [b"nonsense\n", b"[]\n", b"\xff\xff\n", b"{\n", b"null\n"])
def test_a_line_that_is_no_command(book: MemoryBook, tmp_path: Path, line: bytes):
    with running(book, tmp_path) as gateway, socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(tmp_path / "gateway.sock"))
        raw.sendall(line + b'{"do": "ps"}\n')
        with raw.makefile("rb") as lines:
            assert "error" in json.loads(lines.readline())
            assert json.loads(lines.readline())["done"], "the connection goes on"
        assert gateway.client.ask("ps")["engines"] == []


def test_a_line_without_end_is_not_kept(book: MemoryBook, tmp_path: Path):
    with running(book, tmp_path) as gateway, socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(tmp_path / "gateway.sock"))
        with contextlib.suppress(OSError):
            raw.sendall(b"x" * (1 << 20))
        assert gateway.client.ask("ps")["done"]


def test_a_client_that_leaves_in_the_middle_of_a_load(book: MemoryBook, tmp_path: Path):
    book.put("a", "--slow-start-s", "0.3")
    with running(book, tmp_path) as gateway:
        events = gateway.client.do("load", name="a")
        assert next(events)["event"] == "room"
        events.close()
        wait_until(lambda: gateway.row("a")["state"] == "ready")


def test_the_socket_is_the_owners_and_goes_with_the_gateway(book: MemoryBook, tmp_path: Path):
    path = tmp_path / "gateway.sock"
    path.write_text("what an earlier gateway left")
    with running(book, tmp_path):
        mode = path.stat().st_mode
        assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600
    assert not path.exists()
    with pytest.raises(NoGatewayError, match="no gateway runs here"):
        ControlClient(tmp_path).ask("ps")
    with pytest.raises(NoGatewayError):
        ControlClient(tmp_path / "nowhere").ask("ps")


def test_a_data_folder_of_a_long_name(book: MemoryBook, tmp_path: Path):
    folder = tmp_path / ("x" * 100)
    with running(book, folder) as gateway:
        assert gateway.client.ask("ps")["done"]


def test_one_gateway_looks_after_a_data_folder(book: MemoryBook, tmp_path: Path):
    with running(book, tmp_path), pytest.raises(ConfigError, match="another gateway looks after the engines"):
        EngineDesk(book, tmp_path, lambda: 0)
    EngineDesk(book, tmp_path, lambda: 0).release()


def test_engines_are_left_and_taken_up_again(book: MemoryBook, tmp_path: Path):
    book.put("a")
    with running(book, tmp_path) as gateway:
        gateway.client.ask("load", name="a")
        pid = gateway.row("a")["pid"]
        gateway.client.ask("leave")
    assert alive(pid)
    with running(book, tmp_path) as gateway:
        wait_until(lambda: gateway.row("a")["state"] == "ready")
        assert gateway.row("a")["pid"] == pid and gateway.ask("a").status_code == 200
    assert not alive(pid)
