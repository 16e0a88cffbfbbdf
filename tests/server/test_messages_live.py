"""/v1/messages over real sockets: signs of life that Claude Code counts, and Anthropic's own package as the client."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from edgewise.pipeline import Pipeline
from tests.server.conftest import ANSWERS, running
from tests.support.pipelines import make_pipeline

HI: Any = [{"role": "user", "content": "Say hi"}]


def test_a_slow_prompt_opens_at_once_and_shows_life_by_the_clock(make: Callable[..., Pipeline]):
    """message_delta events count as life for Claude Code; comment lines and pings do not."""
    step_s = 2.0
    body = {"messages": HI, "max_tokens": 1, "stream": True, "temperature": 0}
    seen: list[tuple[float, dict[str, Any]]] = []
    with running(make(model={"step_delay_s": step_s}), keep_alive_s=0.2) as url:
        began = time.monotonic()
        with httpx.stream("POST", url + "/v1/messages?beta=true", json=body, timeout=20) as response:
            for line in response.iter_lines():
                if line.startswith("data: "):
                    event = json.loads(line.removeprefix("data: "))
                    seen.append((time.monotonic() - began, event))
    at, first = seen[0]
    assert first["type"] == "message_start" and at < step_s / 2
    assert first["message"]["usage"]["input_tokens"] > 10
    life = [
        event for _, event in seen if event["type"] == "message_delta" and not event["delta"]["stop_reason"]
    ]
    assert 5 <= len(life) <= 11
    assert seen[-1][1]["type"] == "message_stop" and seen[-2][1]["delta"]["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_the_root_is_probed_without_a_key(pipeline: Pipeline, method: str):
    with running(pipeline, api_keys=("one",)) as url:
        assert httpx.request(method, url + "/").status_code == 200


anthropic = pytest.importorskip("anthropic")

pytestmark = pytest.mark.http


@pytest.fixture
def sdk() -> Iterator[Any]:
    pipeline = make_pipeline(ANSWERS)
    with running(pipeline, api_keys=("one",), keep_alive_s=0.001) as url:
        yield anthropic.Anthropic(base_url=url, api_key="one", max_retries=0)
    pipeline.close()


ASKED: dict[str, Any] = {"model": "local", "max_tokens": 20, "messages": HI, "extra_body": {"temperature": 0}}


def test_the_package_reads_a_message(sdk: Any):
    message = sdk.messages.create(**ASKED, system=[{"type": "text", "text": "Be kind"}])
    assert message.content[0].text == "Hello there!"
    assert (message.stop_reason, message.usage.output_tokens) == ("end_turn", 13)


def test_the_package_reads_a_stream_amid_signs_of_life(sdk: Any):
    with sdk.messages.stream(**ASKED, stop_sequences=["!"]) as events:
        text = "".join(events.text_stream)
        message = events.get_final_message()
    assert text == message.content[0].text == "Hello there"
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "!")
    assert message.usage.input_tokens + message.usage.cache_read_input_tokens > 10


def test_the_package_counts(sdk: Any):
    counted = sdk.messages.count_tokens(model="local", messages=HI).input_tokens
    usage = sdk.messages.create(**ASKED).usage
    assert counted == usage.input_tokens + usage.cache_read_input_tokens


def test_errors_arrive_as_the_package_s_own(sdk: Any):
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 512 maximum"):
        sdk.messages.create(**{**ASKED, "messages": [{"role": "user", "content": "x" * 600}]})
    with pytest.raises(anthropic.AuthenticationError) as caught:
        sdk.with_options(api_key="wrong").messages.create(**ASKED)
    assert caught.value.type == "authentication_error" and caught.value.request_id
