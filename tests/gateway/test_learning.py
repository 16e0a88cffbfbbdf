"""What is learned of each kind of upstream, from servers that answer as that kind does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from edgewise.gateway.config import GatewayConfig, UpstreamConfig
from edgewise.gateway.kinds.edge_llm import CHAT_FIELDS
from edgewise.gateway.learning import Learner, NoProfiles, ProfileStore, allow_list_changes
from edgewise.gateway.profile import Api, Fault, Kind, ModelCard, Profile
from edgewise.gateway.profiles import FileProfiles
from edgewise.gateway.transport import HttpTransport
from edgewise.gateway.upstream import CircuitBreaker, Upstream
from tests.support.edge_llm_server import EdgeLlmServer
from tests.support.router_server import RouterModel, router_server
from tests.support.scripted_upstream import Answer, Asked, json_answer, scripted

pytestmark = pytest.mark.http

FAST = GatewayConfig(refresh_s=0.05, ask_timeout_s=2.0)


class Looking:
    """One upstream and who asks it."""

    def __init__(self, learner: Learner, upstream: Upstream) -> None:
        self.learner = learner
        self.upstream = upstream

    async def look(self, *, wanted: bool = True) -> Profile:
        await self.learner.look(self.upstream, wanted=wanted)
        return self.upstream.profile


@contextlib.asynccontextmanager
async def looking(
    url: str,
    kind: Kind | None = None,
    *,
    profiles: ProfileStore | None = None,
    config: GatewayConfig = FAST,
    **settings: Any,
) -> AsyncIterator[Looking]:
    transport = HttpTransport()
    upstream = Upstream(UpstreamConfig("up", url, kind, **settings), CircuitBreaker(3, 1.0))
    try:
        yield Looking(Learner(transport, config, profiles or NoProfiles()), upstream)
    finally:
        await transport.aclose()


Pages = dict[str, Any]
"""Path -> JSON of a GET. A path in `posts` takes POST and refuses what it is sent."""


def serving(pages: Pages, posts: tuple[str, ...] = ()) -> Any:
    def script(asked: Asked) -> Answer:
        page = pages.get(asked.path)
        if page is not None and (asked.method == "GET" or isinstance(page, Answer)):
            return page if isinstance(page, Answer) else json_answer(page)
        if asked.method == "POST" and asked.path in posts:
            return json_answer({"error": {"message": "messages is missing"}}, 400)
        return json_answer({"error": {"message": "no such path"}}, 404)

    return script


def models(*entries: Mapping[str, Any], owner: str = "somebody") -> Pages:
    return {"/v1/models": {"data": [{"object": "model", "owned_by": owner, **entry} for entry in entries]}}


def schema_page(version: str, fields: frozenset[str], *, closed: bool = True, **paths: Any) -> dict[str, Any]:
    reference = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/ChatRequest"}}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "x", "version": version},
        "paths": {Api.CHAT.value: {"post": {"requestBody": reference}}, **paths},
        "components": {
            "schemas": {
                "ChatRequest": {
                    "type": "object",
                    "additionalProperties": not closed,
                    "properties": {name: {} for name in fields},
                }
            }
        },
    }


def edge_llm_pages(fields: frozenset[str] = CHAT_FIELDS, version: str = "0.11.0") -> Pages:
    return {
        **models({"id": "qwen", "max_model_len": 65536}, owner="tensorrt-edgellm"),
        "/health": {
            "status": "healthy",
            "model": "qwen",
            "capabilities": {"chat": True, "max_model_len": 65536, "max_input_len": 32768, "max_num_seqs": 2},
        },
        "/openapi.json": schema_page(version, fields, **{Api.MESSAGES.value: {"post": {}}}),
    }


async def test_window_and_longest_prompt_of_edge_llm_are_two_things():
    with scripted(serving(edge_llm_pages())) as server:
        async with looking(server.url) as one:
            profile = await one.look()
            (card,) = profile.models
            assert (profile.kind, profile.version) == (Kind.EDGE_LLM, "0.11.0")
            assert (card.id, card.window, card.max_input) == ("qwen", 65536, 32768)
            assert profile.fields == {Api.CHAT: CHAT_FIELDS}
            assert profile.apis == {Api.CHAT}, "its messages lose the input of past calls"
            assert Fault.STRING_ARGUMENTS in profile.faults
            assert one.upstream.max_in_flight == 2
            assert one.upstream.answers and one.upstream.known


async def test_the_imitation_of_edge_llm_is_learned_likewise():
    def learn(url: str) -> Profile:
        async def run() -> Profile:
            async with looking(url, config=GatewayConfig()) as one:
                return await one.look()

        return asyncio.run(run())

    with EdgeLlmServer(window=65536, max_input=32768) as server:
        profile = await asyncio.to_thread(learn, server.url)
        (card,) = profile.models
        assert (profile.kind, card.id) == (Kind.EDGE_LLM, server.model)
        assert (card.window, card.max_input) == (65536, 32768)
        assert {"messages", "model", "tools"} <= profile.fields[Api.CHAT]
        assert not {"user", "store"} & profile.fields[Api.CHAT]
        assert Api.CHAT in profile.apis
        assert not {Api.MESSAGES, Api.RESPONSES} & profile.apis


async def test_without_an_allow_list_the_constant_stands_in_with_a_warning(caplog: pytest.LogCaptureFixture):
    pages = edge_llm_pages()
    del pages["/openapi.json"]
    with scripted(serving(pages)) as server, caplog.at_level(logging.WARNING):
        async with looking(server.url) as one:
            for _ in range(3):
                profile = await one.look()
                one.upstream.answers = False  # as if it had been away: everything is asked again
    assert profile.fields == {Api.CHAT: CHAT_FIELDS}
    assert len([line for line in caplog.messages if "0.11.0" in line]) == 1, "said once"


async def test_an_allow_list_that_changed_is_noticed_when_an_upstream_comes_back(
    caplog: pytest.LogCaptureFixture,
):
    with scripted(serving(edge_llm_pages())) as server, caplog.at_level(logging.WARNING):
        async with looking(server.url) as one:
            await one.look()
            assert not caplog.messages
            server.kill()
            await one.look()
            assert not one.upstream.answers
            changed = CHAT_FIELDS - {"seed"} | {"user"}
            server.script = serving(edge_llm_pages(changed, "0.12.0"))
            server.start()
            profile = await one.look()
    assert profile.fields == {Api.CHAT: changed}
    assert "up: /v1/chat/completions no longer takes seed and now takes user" in caplog.messages
    assert "up: version 0.12.0, before 0.11.0" in caplog.messages


def test_changes_of_allow_lists_in_words():
    a, b = frozenset("ab"), frozenset("bc")
    assert allow_list_changes({Api.CHAT: a}, {Api.CHAT: a}) == []
    assert allow_list_changes({}, {Api.CHAT: a}) == ["/v1/chat/completions now takes listed fields only"]
    assert allow_list_changes({Api.CHAT: a}, {}) == ["/v1/chat/completions now takes any field"]
    assert allow_list_changes({Api.CHAT: a}, {Api.CHAT: b}) == [
        "/v1/chat/completions no longer takes a and now takes c"
    ]


@pytest.mark.parametrize("meta", [True, False], ids=["window in the list", "window in /props"])
async def test_a_router_is_learned_without_waking_anything(meta: bool):
    disk = {
        "gemma": RouterModel("loaded", ("g",), 8192, meta),
        "nemotron": RouterModel("unloaded"),
        "phi": RouterModel("sleeping"),
        "qwen": RouterModel("loading"),
        "smol": RouterModel("failed"),
    }
    with router_server(disk) as (server, script):
        async with looking(server.url) as one:
            profile = await one.look()
        assert profile.kind is Kind.LLAMA
        assert [(card.id, card.loaded) for card in profile.models] == [
            ("gemma", True),
            ("nemotron", False),
            ("phi", False),
            ("qwen", False),
            ("smol", False),
        ]
        gemma = profile.models[0]
        assert (gemma.aliases, gemma.window, gemma.max_input) == (("g",), 8192, 8192)
        assert profile.version == "b9000-test"
        assert Api.MESSAGES in profile.apis and Api.RESPONSES not in profile.apis
        assert one.upstream.max_in_flight is None
        assert script.loads == []


async def test_a_router_with_nothing_at_all_is_known_by_its_props():
    with router_server({}) as (server, _):
        async with looking(server.url) as one:
            assert (await one.look()).kind is Kind.LLAMA


async def test_a_llama_server_of_one_model():
    pages = {
        **models(
            {"id": "m.gguf", "aliases": ["m.gguf", "m"], "meta": {"n_ctx_train": 32768}}, owner="llamacpp"
        ),
        "/health": {"status": "ok"},
        "/props": {"default_generation_settings": {"n_ctx": 4096}, "total_slots": 4, "build_info": "b1"},
    }
    pages[Api.EMBEDDINGS.value] = json_answer({"error": {"code": 501}}, 501)
    with scripted(serving(pages, (Api.MESSAGES.value, Api.RESPONSES.value))) as server:
        async with looking(server.url) as one:
            profile = await one.look()
    (card,) = profile.models
    assert (profile.kind, card.loaded, card.window) == (Kind.LLAMA, True, 4096)
    assert card.aliases == ("m",)
    assert one.upstream.max_in_flight == 4
    assert Api.MESSAGES in profile.apis and Api.COUNT_TOKENS not in profile.apis
    assert Api.RESPONSES not in profile.apis, "its events lack their numbers, so it is asked in chats"
    assert Api.EMBEDDINGS not in profile.apis, "a server that was not started for them says 501"


async def test_a_vllm_server():
    chat = {"post": {}}
    pages = {
        **models({"id": "Qwen/Qwen3", "root": "Qwen/Qwen3", "max_model_len": 40960}, owner="vllm"),
        "/health": {},
        "/version": {"version": "0.32.0"},
        "/openapi.json": schema_page("1", frozenset({"model"}), closed=False, **{Api.MESSAGES.value: chat}),
    }
    with scripted(serving(pages)) as server:
        async with looking(server.url) as one:
            profile = await one.look()
    assert (profile.kind, profile.version) == (Kind.VLLM, "0.32.0")
    assert profile.models[0].window == profile.models[0].max_input == 40960
    assert profile.apis == {Api.CHAT, Api.MESSAGES}
    assert profile.fields == {}, "an open schema is no allow-list"


async def test_another_edgewise_lists_aliases_as_entries():
    entry = {"root": "smol", "max_model_len": 8192, "max_input_len": 4096}
    pages = {
        **models({"id": "smol", **entry}, {"id": "alias", **entry}, owner="edgewise"),
        "/health": {},
        "/version": {"version": "0.1.0"},
    }
    with scripted(serving(pages)) as server:
        async with looking(server.url) as one:
            profile = await one.look()
    (card,) = profile.models
    assert (card.id, card.aliases, card.window, card.max_input) == ("smol", ("alias",), 8192, 4096)
    assert profile.apis == frozenset(Api)


async def test_any_other_server_is_found_out_by_asking_for_nothing():
    pages = models({"id": "gpt", "context_length": 1000})
    with scripted(serving(pages, (Api.RESPONSES.value,))) as server:
        async with looking(server.url) as one:
            profile = await one.look()
        assert (profile.kind, profile.apis) == (Kind.OPENAI, {Api.CHAT, Api.RESPONSES})
        assert profile.models[0].window == 1000
        assert all(asked.body == b"{}" for asked in server.requests if asked.method == "POST")


async def test_a_server_without_a_list_serves_what_the_configuration_says():
    with scripted(serving({})) as server:
        async with looking(server.url, models=("m",)) as one:
            assert (await one.look()).models == (ModelCard("m"),)
            assert one.upstream.answers


async def test_its_key_is_sent_with_each_question():
    with scripted(serving(models({"id": "m"}))) as server:
        async with looking(server.url, key="secret") as one:
            await one.look()
        assert {asked.headers.get("authorization") for asked in server.requests} == {"Bearer secret"}


@pytest.mark.parametrize(
    "page",
    [
        Answer(200, {}, [b"not json"], framing="length"),
        {"data": None},
        {"data": [3, {"id": 4}, {"id": ""}, {}]},
        [],
        Answer(401, {}, [], framing="length"),
    ],
)
async def test_odd_lists_are_lists_of_nothing(page: Any):
    for kind in Kind:
        with scripted(serving({"/v1/models": page, "/health": {}})) as server:
            async with looking(server.url, kind) as one:
                assert (await one.look()).models == ()


async def test_an_engine_that_is_still_loading_does_not_answer_yet():
    pages = {**models({"id": "m"}, owner="llamacpp"), "/health": json_answer({"error": "loading"}, 503)}
    with scripted(serving(pages)) as server:
        async with looking(server.url, Kind.LLAMA) as one:
            await one.look()
            assert not one.upstream.answers and "503" in one.upstream.trouble
            server.script = serving({**pages, "/health": {}})
            await one.look()
            assert one.upstream.answers and one.upstream.trouble == ""


async def test_one_question_without_an_answer_is_not_death_but_two_are():
    with scripted(serving(models({"id": "m"}))) as server:
        async with looking(server.url, config=GatewayConfig(ask_timeout_s=0.1)) as one:
            await one.look()
            server.script = lambda _: Answer(200, {}, [], before_s=5)
            await one.look()
            assert one.upstream.answers
            await one.look()
            assert not one.upstream.answers


async def test_models_are_listed_again_when_it_is_time_or_wanted_and_the_rest_is_not():
    with scripted(serving(models({"id": "m"}))) as server:
        async with looking(server.url, Kind.VLLM, config=GatewayConfig(refresh_s=1000)) as one:
            server.script = serving({**models({"id": "m"}, owner="vllm"), "/health": {}})
            for wanted in (False, False, True):
                await one.look(wanted=wanted)
            assert len(server.asked("/v1/models")) == 2
            assert len(server.asked("/openapi.json")) == 1


class Examined:
    def load(self, name: str, version: str, /) -> Profile | None:
        return (
            Profile(Kind.EDGE_LLM, version, faults=frozenset({Fault.OVERFLOW}))
            if version == "0.11.0"
            else None
        )


async def test_what_the_doctor_found_replaces_what_is_presumed_for_that_version():
    with scripted(serving(edge_llm_pages())) as server:
        async with looking(server.url, profiles=Examined()) as one:
            assert (await one.look()).faults == {Fault.OVERFLOW}
            server.script = serving(edge_llm_pages(version="0.12.0"))
            one.upstream.answers = False
            assert Fault.STRING_ARGUMENTS in (await one.look()).faults


def test_profiles_on_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    store = FileProfiles(tmp_path / "profiles")
    profile = Profile(
        Kind.VLLM, "0.32/x", faults=frozenset({Fault.OVERFLOW}), models=(ModelCard("m", ("n",)),)
    )
    assert store.load("up", "0.32/x") is None
    path = store.save("up", profile)
    assert path.parent == tmp_path / "profiles"
    assert store.load("up", "0.32/x") == profile
    assert store.load("up", "0.33") is None
    path.write_text('{"kind": "vllm"}')
    assert store.load("up", "0.32/x") is None
    assert str(path) in caplog.text


async def test_an_api_with_a_fault_of_its_own_is_not_asked_in_after_an_examination(tmp_path: Path):
    store = FileProfiles(tmp_path)
    found = frozenset({Fault.MESSAGE_EVENTS, Fault.COUNT_TOKENS})
    store.save("up", Profile(Kind.EDGE_LLM, "0.11.0", faults=found))
    with EdgeLlmServer() as server:
        async with looking(server.url, profiles=store) as one:
            assert (await one.look()).apis == {Api.CHAT}


async def test_a_kind_is_not_guessed_from_a_server_that_starts_and_may_change_while_it_is_away():
    pages = {"/v1/models": json_answer({"error": {"message": "Loading model"}}, 503)}
    with scripted(serving(pages)) as server:
        async with looking(server.url) as one:
            await one.look()
            assert not one.upstream.answers and "503" in one.upstream.trouble
            pages |= {**models({"id": "m"}, owner="llamacpp"), "/health": {"status": "ok"}}
            assert (await one.look()).kind is Kind.LLAMA and one.upstream.answers
            one.upstream.answers = False
            pages |= models({"id": "m"}, owner="vllm")
            assert (await one.look()).kind is Kind.VLLM


async def test_a_kind_that_could_not_be_seen_is_looked_for_again():
    pages: Pages = {"/v1/models": json_answer({"error": {"message": "no key"}}, 401)}
    with scripted(serving(pages)) as server:
        async with looking(server.url) as one:
            assert (await one.look()).kind is Kind.OPENAI
            pages |= {**models({"id": "m"}, owner="llamacpp"), "/health": {"status": "ok"}}
            assert (await one.look()).kind is Kind.LLAMA
