"""The server as a process: one line when ready, a drained end on SIGTERM, an address that is taken."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from edgewise.core.errors import ConfigError
from edgewise.serving.listening import bind, url_of

pytestmark = pytest.mark.http

ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys
from edgewise.server import ServerOptions, serve
from tests.support.pipelines import make_pipeline

pipeline = make_pipeline({}, max_model_len=2048, model={"step_delay_s": 0.01})
serve(pipeline, ServerOptions(port=0, drain_timeout_s=float(sys.argv[1])))
pipeline.close()
print("closed", flush=True)
"""


@contextmanager
def server_process(drain_timeout_s: float) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(drain_timeout_s)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]),
        },
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert (
            line.startswith("Edgewise serves scripted at http://127.0.0.1:") and "window 2,048 tokens" in line
        )
        yield process, line.split(" at ")[1].split(" ")[0]
    finally:
        process.kill()
        process.wait()


def stream_in_background(url: str, max_tokens: int) -> tuple[threading.Thread, list[str]]:
    lines: list[str] = []

    def read() -> None:
        body = {"prompt": "x", "max_tokens": max_tokens, "stream": True}
        with httpx.stream("POST", url + "/v1/completions", json=body, timeout=20) as response:
            lines.extend(line for line in response.iter_lines() if line.startswith("data:"))

    thread = threading.Thread(target=read)
    thread.start()
    return thread, lines


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_requests_finish_and_refuses_new_ones(number: signal.Signals):
    with server_process(10) as (process, url):
        thread, lines = stream_in_background(url, 80)
        time.sleep(0.4)
        process.send_signal(number)
        time.sleep(0.3)
        with pytest.raises(httpx.ConnectError):
            httpx.get(url + "/health")
        thread.join(10)
        assert lines[-1] == "data: [DONE]"
        assert json.loads(lines[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
        assert process.wait(10) == 0
        assert process.stdout is not None and process.stdout.read() == "closed\n"


def test_what_does_not_finish_in_time_ends_with_an_error_event():
    with server_process(1) as (process, url):
        thread, lines = stream_in_background(url, 2000)
        time.sleep(0.4)
        process.terminate()
        thread.join(10)
        assert lines[-1] == "data: [DONE]"
        assert "shutting down" in json.loads(lines[-2].removeprefix("data: "))["error"]["message"]
        assert process.wait(10) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_what_runs_at_once(number: signal.Signals):
    with server_process(30) as (process, url):
        thread, lines = stream_in_background(url, 2000)
        time.sleep(0.4)
        process.send_signal(number)
        time.sleep(0.2)
        process.send_signal(number)
        assert process.wait(10) == 0
        thread.join(10)
        assert "shutting down" in json.loads(lines[-2].removeprefix("data: "))["error"]["message"]
        assert process.stderr is not None and "Traceback" not in process.stderr.read()


def test_who_waits_for_a_whole_answer_is_told_to_try_again_and_nothing_is_an_accident():
    with server_process(1) as (process, url), ThreadPoolExecutor(1) as pool:
        thread, lines = stream_in_background(url, 2000)
        body = {"prompt": "x", "max_tokens": 2000}
        waiting = pool.submit(httpx.post, url + "/v1/completions", json=body, timeout=20)
        time.sleep(0.4)
        process.terminate()
        answer = waiting.result(15)
        thread.join(10)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "shutting down" in answer.json()["error"]["message"]
        assert lines[-1] == "data: [DONE]"
        assert process.wait(10) == 0
        assert process.stderr is not None and "Traceback" not in process.stderr.read()


def test_headers_without_end_are_refused():
    with server_process(1) as (_, url):
        address = urlsplit(url)
        with socket.create_connection((address.hostname, address.port), timeout=5) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n")
            with contextlib.suppress(ConnectionError):
                for number in range(100):
                    client.sendall(b"X-%d: " % number + b"v" * 30_000 + b"\r\n")
            with contextlib.suppress(ConnectionError):
                answer = client.recv(4096)
                assert answer.startswith(b"HTTP/1.1 431 ") and b'"headers_too_large"' in answer
        ordinary = httpx.get(url + "/health", headers={"x-long": "v" * 20_000})
        assert ordinary.status_code == 200


def test_an_address_that_is_taken_is_a_clear_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            bind("127.0.0.1", port)
    with pytest.raises(ConfigError, match=r"cannot listen on no\.such\.host\.invalid") as caught:
        bind("no.such.host.invalid", 8000)
    assert caught.value.hint is None, "the port is not to blame"


def test_ipv6_addresses_have_brackets():
    try:
        listener = bind("::1", 0)
    except ConfigError:
        pytest.skip("no IPv6 here")
    with listener:
        assert url_of(listener).startswith("http://[::1]:")
