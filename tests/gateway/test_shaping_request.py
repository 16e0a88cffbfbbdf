"""Every rule of shaping does what its upstream needs, and nothing to whom it is not for."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest

import edgewise.gateway
from edgewise.core.errors import InvalidRequestError
from edgewise.gateway.doctor.probe import UNCURED
from edgewise.gateway.profile import Api, Fault, Kind, Profile
from edgewise.gateway.shaping import STEPS, shape, sound_apis, touches_request
from edgewise.gateway.shaping.choices import call_schema
from tests.gateway.shaping_cases import (
    ARGUMENTS,
    CASES,
    TOOL,
    USER,
    Case,
    call,
    messages,
    profile,
    result,
    system,
    turn,
)

HEALTHY = [Profile(kind) for kind in Kind]
MEDIA = "media-addresses"


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES} | {MEDIA} == {step.name for step in STEPS}


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{case.rule}" for i, case in enumerate(CASES)])
def test_a_rule_changes_what_it_says_and_only_that(case: Case) -> None:
    before = copy.deepcopy(case.body)
    shaped = shape(case.body, case.api, case.profile, model=case.model)
    kept = {name: value for name, value in case.body.items() if name not in case.changed}
    assert shaped.body == kept | {name: value for name, value in case.changed.items() if value is not None}
    assert shaped.applied == (case.rule,)
    assert shaped.dropped == case.dropped
    assert case.body == before, "a client's body is never changed in place"
    again = shape(shaped.body, case.api, case.profile, model=case.model)
    assert again.body is shaped.body
    assert (again.applied, again.dropped) == ((), ())
    assert touches_request(case.profile, case.api) or case.rule == "model-name"


PLAIN = messages(
    system("Be brief."),
    USER,
    turn(call('{"path": "a"}')),
    result(),
    tools=[TOOL],
    max_tokens=10,
    temperature=0.5,
    stream=True,
)


@pytest.mark.parametrize("upstream", HEALTHY, ids=[one.kind for one in HEALTHY])
def test_a_plain_request_to_an_upstream_without_faults_stays_the_same_object(upstream: Profile) -> None:
    body = PLAIN
    if upstream.kind in (Kind.LLAMA, Kind.VLLM):  # their templates think unless told not to
        body = {**PLAIN, "chat_template_kwargs": {"enable_thinking": False, "thinking": False}}
    assert shape(body, Api.CHAT, upstream, model="").body is body


def test_one_system_message_in_front_is_left_alone() -> None:
    upstream = profile(Fault.LATE_SYSTEM, Fault.SEVERAL_SYSTEM)
    body = messages({"role": "system", "content": [{"type": "text", "text": "a"}]}, USER)
    assert shape(body, Api.CHAT, upstream, model="").body is body
    late = messages(USER, system("late"))
    assert shape(late, Api.CHAT, profile(Fault.SEVERAL_SYSTEM), model="").body is late
    two = messages(system("a"), system("b"), USER)
    assert shape(two, Api.CHAT, profile(Fault.LATE_SYSTEM), model="").body is two


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        ("null", {}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ("{'a': True}", {"a": True}),
        ("no json", {"__raw__": "no json"}),
        ("[1]", {"__raw__": "[1]"}),
        ('{"a": 1, b: 2}', {"a": 1, "__raw__": "b: 2}"}),
        ('{"a": {"b": "c', {"a": {"b": "c"}}),
    ],
)
def test_arguments_of_any_sort_become_an_object(text: str, value: dict[str, Any]) -> None:
    shaped = shape(messages(USER, turn(call(text))), Api.CHAT, profile(Fault.STRING_ARGUMENTS), model="")
    assert shaped.body["messages"][1]["tool_calls"][0]["function"]["arguments"] == value


def test_an_upstream_that_reads_arguments_in_neither_form_gets_text() -> None:
    upstream = profile(Fault.STRING_ARGUMENTS, Fault.OBJECT_ARGUMENTS)
    shaped = shape(messages(USER, turn(call(ARGUMENTS)), result()), Api.CHAT, upstream, model="")
    assert shaped.applied == ("arguments-to-strings",)


def part(kind: str, **values: Any) -> dict[str, Any]:
    return messages(
        {"role": "user", "content": [{"type": "text", "text": "what?"}, {"type": kind, **values}]}
    )


REMOTE = [
    (Api.CHAT, part("image_url", image_url={"url": "http://169.254.169.254/x.png"})),
    (Api.CHAT, part("image_url", image_url="https://example.com/x.png")),
    (Api.CHAT, part("video_url", video_url={"url": "file:///etc/passwd"})),
    (Api.CHAT, part("video", frames=["/etc/passwd"])),
    (Api.CHAT, part("video", frames=["data:image/png;base64,AAAA", "http://x/"])),
    (Api.MESSAGES, part("image", source={"type": "url", "url": "https://example.com/x.png"})),
    (
        Api.MESSAGES,
        part("tool_result", content=[{"type": "image", "source": {"type": "url", "url": "http://x/"}}]),
    ),
    (Api.RESPONSES, {"input": part("input_image", image_url="https://example.com/x.png")["messages"]}),
]


@pytest.mark.parametrize(("api", "body"), REMOTE)
@pytest.mark.parametrize("upstream", HEALTHY, ids=[one.kind for one in HEALTHY])
def test_addresses_are_never_passed_on(api: Api, body: dict[str, Any], upstream: Profile) -> None:
    with pytest.raises(InvalidRequestError, match="data: URLs") as caught:
        shape(body, api, upstream, model="")
    assert (caught.value.param or "").startswith(("messages[0].content[1]", "input[0].content[1]"))


DATA = [
    (Api.CHAT, part("image_url", image_url={"url": "data:image/png;base64,AAAA"})),
    (Api.CHAT, part("audio_url", audio_url="data:audio/wav;base64,AAAA")),
    (Api.CHAT, part("input_audio", input_audio={"data": "AAAA", "format": "wav"})),
    (Api.CHAT, part("video", frames=["data:image/png;base64,AAAA"])),
    (
        Api.MESSAGES,
        part("image", source={"type": "base64", "media_type": "image/png", "data": "AAAA"}),
    ),
    (Api.MESSAGES, part("document", source={"type": "text", "data": "see https://example.com/"})),
    (Api.RESPONSES, {"input": part("input_image", image_url="data:image/png;base64,AAAA")["messages"]}),
]


@pytest.mark.parametrize(("api", "body"), DATA)
def test_media_that_are_sent_pass(api: Api, body: dict[str, Any]) -> None:
    assert shape(body, api, profile(), model="").body is body


def test_references_in_tools_hold_in_the_schema_they_move_to() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    named = {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"$ref": "#/definitions/b"}},
        "definitions": {"b": {"type": "string"}},
    }
    schema = call_schema([{"name": "walk", "parameters": node}, {"name": "say", "parameters": named}])
    targets: list[str] = []

    def visit(value: Any) -> None:
        if isinstance(value, dict):
            targets.extend([value["$ref"]] if isinstance(value.get("$ref"), str) else [])
            for one in value.values():
                visit(one)
        elif isinstance(value, list):
            for one in value:
                visit(one)

    visit(schema)
    assert set(targets) == {"#/$defs/f0", "#/$defs/f1_a", "#/$defs/f1_b"}
    assert set(schema["$defs"]) == {"f0", "f1_a", "f1_b"}


def test_an_api_that_loses_calls_past_curing_is_not_asked_in() -> None:
    apis = frozenset((Api.CHAT, Api.MESSAGES, Api.COUNT_TOKENS))
    faulty = profile(Fault.STRING_ARGUMENTS, kind=Kind.EDGE_LLM, apis=apis)
    assert sound_apis(faulty) == {Api.CHAT}
    assert sound_apis(faulty.replace(faults=frozenset())) == apis
    assert sound_apis(faulty.replace(kind=Kind.LLAMA)) == apis
    assert sound_apis(faulty.replace(apis=frozenset((Api.MESSAGES,)))) == {Api.MESSAGES}


def test_apis_with_broken_events_and_counts_that_are_wrong_are_made_up_for() -> None:
    apis = frozenset((Api.CHAT, Api.MESSAGES, Api.COUNT_TOKENS, Api.RESPONSES))
    for fault, lost in (
        (Fault.MESSAGE_EVENTS, Api.MESSAGES),
        (Fault.COUNT_TOKENS, Api.COUNT_TOKENS),
        (Fault.RESPONSE_EVENTS, Api.RESPONSES),
    ):
        assert sound_apis(profile(fault, apis=apis)) == apis - {lost}
        assert sound_apis(profile(fault, apis=frozenset((lost,)))) == {lost}, (
            "there is nothing to fall back on"
        )


def test_every_fault_is_cured_or_said_to_have_no_cure() -> None:
    """Reading a fault is what a cure begins with; those of the doctor, and the kinds that presume them, cure nothing."""
    root = Path(edgewise.gateway.__file__).parent
    sources = [
        path.read_text()
        for path in root.rglob("*.py")
        if path.name != "profile.py" and not {"doctor", "kinds"} & {folder.name for folder in path.parents}
    ]
    read = {fault for fault in Fault if any(re.search(rf"Fault\.{fault.name}\b", text) for text in sources)}
    always = {
        Fault.MODEL_NAME,  # every request is sent under the upstream's own name
        Fault.SILENT_PREFILL,  # every stream has signs of life
        Fault.END_MARK,  # every stream that passes ends with it
    }
    assert UNCURED | always | read == set(Fault)
    assert not always & UNCURED
    assert read & UNCURED <= {Fault.JSON_SCHEMA}, "read to know what not to rely on"


def test_the_page_on_shaping_names_every_rule() -> None:
    page = (Path(__file__).parents[2] / "docs" / "shaping.md").read_text()
    requests = page.partition("## Requests")[2].partition("## Replies")[0]
    listed = {line.split("`")[1] for line in requests.splitlines() if line.startswith("| `")}
    assert listed == {step.name for step in STEPS}
