"""The doctor: each fault is found by its own probe and by no other; a server without faults has none; what comes of it is a profile."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgewise.cli import main
from edgewise.cli.common import profiles_folder
from edgewise.core.errors import ConfigError, UpstreamError
from edgewise.gateway.config import GatewayConfig, UpstreamConfig
from edgewise.gateway.doctor.examination import PROBES, Report, Row, examine
from edgewise.gateway.doctor.history import past_call
from edgewise.gateway.doctor.probe import Verdict
from edgewise.gateway.keys import OpenDoor
from edgewise.gateway.parts import ForwardOptions
from edgewise.gateway.profile import Api, Fault, Kind, Profile
from edgewise.gateway.profiles import FileProfiles
from edgewise.gateway.run import Gateway
from tests.server.conftest import running
from tests.support.edge_llm_rules import Rules
from tests.support.edge_llm_server import EdgeLlmServer
from tests.support.gateway_parts import serving_app
from tests.support.llama_server import llama_server
from tests.support.models import CODER_05B, model_path
from tests.support.pipelines import make_pipeline

pytestmark = pytest.mark.http

SWITCHES: dict[str, dict[str, Fault]] = {
    "unknown_fields_refused": {"unknown fields": Fault.UNKNOWN_FIELDS},
    "model_name_checked": {"model name": Fault.MODEL_NAME},
    "string_arguments_render_empty": {"arguments": Fault.STRING_ARGUMENTS},
    "object_arguments_refused": {"arguments": Fault.OBJECT_ARGUMENTS},
    "late_system_raises": {"late system": Fault.LATE_SYSTEM},
    "several_system_raises": {"several system": Fault.SEVERAL_SYSTEM},
    "developer_role_raises": {"developer": Fault.DEVELOPER_ROLE},
    "required_ignored": {"required": Fault.REQUIRED_CHOICE},
    "named_ignored": {"named": Fault.NAMED_CHOICE},
    "choice_refused": {"required": Fault.CHOICE_REFUSED, "named": Fault.CHOICE_REFUSED},
    "none_ignored": {"none": Fault.NONE_CHOICE},
    "parallel_ignored": {"parallel": Fault.PARALLEL_CALLS},
    "unstable_indices": {"streamed calls": Fault.CALL_INDICES},
    "late_system_dropped": {"late system": Fault.LATE_SYSTEM, "several system": Fault.SEVERAL_SYSTEM},
    "arguments_dropped": {"arguments": Fault.LOST_ARGUMENTS},
    "finish_hides_calls": {"calls": Fault.FINISH_REASON, "streamed calls": Fault.FINISH_REASON},
    "call_ids_empty": {"calls": Fault.CALL_IDS},
    "limit_ignored": {"max tokens": Fault.LIMIT_IGNORED},
    "end_mark_missing": {"stream end": Fault.END_MARK},
    "streams_leak_end_tokens": {"clean text": Fault.LEAKED_END_TOKENS},
    "no_stream_usage": {"stream usage": Fault.STREAM_USAGE},
    "stop_ignored": {"stops": Fault.STOP_STRINGS},
    "limit_refused": {"max tokens": Fault.MAX_TOKENS},
    "overlong_cut": {"overflow": Fault.OVERFLOW},
    "schema_ignored": {"json schema": Fault.JSON_SCHEMA},
    "leaked_end_tokens": {"clean text": Fault.LEAKED_END_TOKENS},
    "leaked_tool_markup": {"calls": Fault.LEAKED_TOOL_MARKUP},
    "thinking_in_text": {"thinking": Fault.REASONING_FIELD},
    "always_thinks": {"thinking": Fault.ALWAYS_THINKS},
    "thinks_by_default": {"thinking": Fault.THINKING_SWITCH},
    "no_cached_tokens": {"prefix cache": Fault.CACHED_TOKENS},
    "no_prefix_cache": {"prefix cache": Fault.NO_PREFIX_CACHE},
    "count_tokens_differs": {"count tokens": Fault.COUNT_TOKENS},
    "message_stop_missing": {"messages": Fault.MESSAGE_EVENTS},
    "string_errors": {"error shape": Fault.ERROR_SHAPE, "overflow": Fault.OVERFLOW},
    "input_errors_are_500": {"error shape": Fault.ERROR_SHAPE, "overflow": Fault.OVERFLOW},
}
"""What is switched on -> the probes that find it. The last two are errors that no probe of errors can read; a choice is of two kinds."""

BLAMELESS = (
    "penalties_refused", "only_one_choice", "arguments_must_be_json", "dangling_results_refused", "local_media_refused",
    "overlong_is_413", "default_limit_2048", "null_keys_in_chunks", "content_omitted_with_calls", "retry_after_on_429",
    "messages_roles_checked",
)  # fmt: skip
"""Rules that break nothing a probe asks for."""


def examined(rules: Rules, **options: Any) -> Report:
    with EdgeLlmServer(rules, window=2048, max_input=1024) as server:
        return asyncio.run(examine(server.url, timeout_s=20, **options))


SLOW = ("cancel", "keep-alive", "stream usage", "chat")
"""What takes a server that takes its time, and two probes to which that is no matter."""


def examined_slowly(rules: Rules) -> Report:
    with EdgeLlmServer(rules, window=2048, max_input=1800, token_s=0.004, prefill_s=0.0005) as server:
        return asyncio.run(examine(server.url, timeout_s=20, silence_s=0.3, only=SLOW))


def test_a_slow_server_without_faults():
    assert {row.verdict for row in examined_slowly(Rules.none()).rows} == {Verdict.PASS}


@pytest.mark.parametrize(
    ("switch", "found"),
    [
        ("never_cancels", {"cancel": Fault.NO_CANCEL}),
        ("silent_prefill", {"keep-alive": Fault.SILENT_PREFILL}),
        ("no_stream_usage", {"stream usage": Fault.STREAM_USAGE}),
    ],
)
def test_faults_that_take_time_are_found_by_their_own_probes(switch: str, found: dict[str, Fault]):
    report = examined_slowly(Rules.none().with_(**{switch: True}))
    assert faults(report) == found
    assert {row.verdict for row in report.rows if row.probe.name not in found} == {Verdict.PASS}


def test_a_server_that_refuses_tools_is_said_to_and_what_needs_them_is_not_measured():
    report = examined(Rules.none().with_(auto_choice_needs_flag=True))
    assert faults(report) == {"tools": Fault.TOOLS_REFUSED} and report.broken
    rows = {row.probe.name: row for row in report.rows}
    assert "--enable-auto-tool-choice" in rows["tools"].finding.note
    needing = {probe.name for probe in PROBES if probe.with_tools}
    assert needing == {"arguments", "required", "calls", "parallel", "streamed calls"}
    assert {rows[name].verdict for name in needing} == {Verdict.NOT_MEASURED}
    assert {rows[name].verdict for name in ("named", "none")} == {Verdict.PASS}
    presumed = {Fault.STRING_ARGUMENTS, Fault.REQUIRED_CHOICE}
    assert presumed <= report.profile.faults, "what is presumed of its kind stays"


def test_a_server_that_answers_no_chat_is_asked_nothing_more():
    with EdgeLlmServer(Rules.none()) as server:
        server.busy = True
        report = asyncio.run(examine(server.url, only=["late system", "cancel"]))
    verdicts = {row.probe.name: row.verdict for row in report.rows}
    unmeasured = dict.fromkeys(("late system", "cancel"), Verdict.NOT_MEASURED)
    assert verdicts == {"chat": Verdict.BROKEN, **unmeasured}
    assert report.num_requests == 1 and "429" in report.rows[0].finding.note


def faults(report: Report) -> dict[str, Fault]:
    return {row.probe.name: fault for row in report.rows for fault in row.finding.faults}


def test_a_server_that_stops_answering_is_not_blamed_for_what_it_says_then():
    with EdgeLlmServer(Rules.none(), window=2048, max_input=1024) as server:

        def heard(row: Row) -> None:
            server.busy = server.busy or row.probe.name == "late system"

        report = asyncio.run(examine(server.url, timeout_s=20, progress=heard))
    assert faults(report) == {}
    notes = {row.probe.name: row.finding.note for row in report.rows}
    assert notes["unknown fields"] == "the server stopped answering"


def test_a_server_that_hangs_is_given_up():
    with EdgeLlmServer(Rules.none(), prefill_s=30.0) as server:
        report = asyncio.run(examine(server.url, timeout_s=0.2))
        assert len(server.requests) == 2
    assert all(row.verdict is Verdict.NOT_MEASURED for row in report.rows)


def test_a_server_without_faults():
    report = examined(Rules.none())
    assert not faults(report) and not report.broken
    unmeasured = {row.probe.name for row in report.rows if row.verdict is Verdict.NOT_MEASURED}
    assert unmeasured - {"cancel"} == {"auth", "keep-alive"}, "an answer may be too quick to be left"
    translated = {row.probe.name for row in report.rows if row.verdict is Verdict.SHAPED}
    assert translated == {"responses"}, "Edge-LLM has none"
    assert report.num_requests < 50


@pytest.mark.parametrize("switch", SWITCHES)
def test_each_fault_is_found_by_its_own_probe(switch: str):
    report = examined(Rules.none().with_(**{switch: True}))
    assert faults(report) == SWITCHES[switch]
    assert set(SWITCHES[switch].values()) <= report.profile.faults


@pytest.mark.parametrize("switch", BLAMELESS)
def test_rules_that_break_nothing_are_not_blamed(switch: str):
    assert not faults(examined(Rules.none().with_(**{switch: True})))


def test_every_probe_can_fail():
    found = {name for each in SWITCHES.values() for name in each}
    elsewhere = {"auth", "responses", "cancel", "keep-alive", "chat", "tools"}
    assert {probe.name for probe in PROBES} - found == elsewhere, "tested below or above"


@pytest.mark.parametrize("open_door", [False, True])
def test_a_wrong_key(open_door: bool):
    with EdgeLlmServer(Rules.none().with_(open_door=open_door), api_key="sesame") as server:
        report = asyncio.run(examine(server.url, key="sesame", only=["auth"]))
    assert faults(report) == ({"auth": Fault.OPEN_DOOR} if open_door else {})


def test_an_api_that_is_missing_is_no_fault_but_made_up_for():
    report = examined(Rules.none().with_(no_messages=True), only=["messages", "count tokens"])
    assert {row.verdict for row in report.rows} == {Verdict.SHAPED}
    assert not faults(report) and not report.broken


def test_the_whole_of_edge_llm():
    report = examined(Rules())
    assert report.profile.kind is Kind.EDGE_LLM
    assert {Fault.STRING_ARGUMENTS, Fault.LATE_SYSTEM, Fault.REQUIRED_CHOICE} <= report.profile.faults
    assert Api.MESSAGES not in report.profile.apis, "its past calls lose their input"
    assert Profile.from_json(json.loads(json.dumps(report.profile.to_json()))) == report.profile


def test_mistakes():
    with pytest.raises(ConfigError, match="there is no probe"):
        asyncio.run(examine("http://127.0.0.1:9", only=["nonsense"]))
    with pytest.raises(UpstreamError, match="does not answer"):
        asyncio.run(examine("http://127.0.0.1:9"))


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[object, str, str]]:
    def call(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["edgewise", "doctor", *arguments])
        status: object = 0
        try:
            main()
        except SystemExit as end:
            status = end.code
        out, err = capfd.readouterr()
        return status, out, err

    return call


def test_the_command(run: Callable[..., tuple[object, str, str]], tmp_path: Path):
    saved = tmp_path / "profile.json"
    with EdgeLlmServer(Rules.none().with_(late_system_raises=True)) as server:
        arguments = (server.url + "/v1", "--only", "late system", "--only", "developer")
        status, table, _ = run(*arguments, "--profile", str(saved))
        assert not status and "works after shaping" in table and "late system" in table
        assert run(*arguments, "--strict")[0] == 1
        status, out, _ = run(*arguments, "--json")
    rows = {row["probe"]: row["verdict"] for row in json.loads(out)["rows"]}
    assert rows == {"late system": "works after shaping", "developer": "pass"}
    assert Fault.LATE_SYSTEM in Profile.from_json(json.loads(saved.read_text())).faults
    with EdgeLlmServer(Rules.none().with_(overlong_cut=True)) as server:
        assert run(server.url, "--only", "overflow")[0] == 1
    status, _, err = run("http://127.0.0.1:9")
    assert status == 1 and err.startswith("edgewise: ") and "Traceback" not in err


def test_edgewise_itself_has_no_faults():
    """Requests, errors, streams and APIs of our own server; what a model has to say is the next test's."""
    asked = "Say hello to me in one short sentence. Do not use any tool."
    turn = "<|im_end|>\n<|im_start|>assistant\n"
    pipeline = make_pipeline({f"{asked}{turn}": "Hello there friend.<|im_end|>"}, max_model_len=2048)
    with running(pipeline) as url:
        report = asyncio.run(examine(url, timeout_s=60))
    pipeline.close()
    assert not faults(report), [
        (row.probe.name, row.finding.note) for row in report.rows if row.finding.faults
    ]
    assert report.profile.kind is Kind.EDGEWISE
    assert {row.probe.name for row in report.rows if row.verdict is Verdict.SHAPED} == set()


@pytest.mark.slow
@pytest.mark.model
def test_a_real_llama_server():
    with llama_server(model_path(CODER_05B)) as url:
        report = asyncio.run(examine(url, timeout_s=120))
    assert report.profile.kind is Kind.LLAMA
    assert Fault.RESPONSE_EVENTS in report.profile.faults and Api.RESPONSES not in report.profile.apis
    assert not {Fault.STRING_ARGUMENTS, Fault.UNKNOWN_FIELDS, Fault.MODEL_NAME} & report.profile.faults


def test_what_was_found_shapes_the_gateways_upstream_of_that_name(
    run: Callable[..., tuple[object, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """From the command to the request that the server gets: the doctor's word replaces what is presumed of the kind."""
    monkeypatch.setenv("EDGEWISE_HOME", str(tmp_path))
    system = {"role": "system", "content": "Be brief."}
    body = {"messages": [*past_call('{"path": "a"}'), system], "model": "m"}
    with EdgeLlmServer(Rules.none().with_(late_system_raises=True)) as server:
        found = ("late system", "several system", "arguments")
        status, _, err = run(
            server.url, "--for", "qwen", *(word for name in found for word in ("--only", name))
        )
        assert not status and "qwen" in err and str(tmp_path) in err
        config = GatewayConfig(
            upstreams=tuple(UpstreamConfig(name, server.url) for name in ("qwen", "another"))
        )
        gateway = Gateway(
            lambda: config, ForwardOptions(), keys=OpenDoor(), profiles=FileProfiles(profiles_folder())
        )
        with serving_app(gateway.app) as url:
            for name in ("qwen", "another"):
                answer = httpx.post(f"{url}/v1/chat/completions", json={**body, "model": name}, timeout=20)
                assert answer.status_code == 200, answer.text
            (_, examined), (_, presumed) = server.requests[-2:]
    assert [one["role"] for one in examined["messages"]] == ["system", "user", "assistant", "tool"]
    arguments = [one["messages"][2]["tool_calls"][0]["function"]["arguments"] for one in (examined, presumed)]
    assert arguments == ['{"path": "a"}', {"path": "a"}]
