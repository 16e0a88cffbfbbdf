"""What tools ask a server about itself."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import httpx

from edgewise.pipeline import Pipeline
from tests.server.conftest import MakeClient
from tests.support.byte_tokenizer import ByteTokenizer


async def test_models(pipeline: Pipeline, client_of: MakeClient):
    client = client_of(pipeline, served_model_name="org/named", model_aliases=("gpt-4o",))
    listed = (await client.get("/v1/models")).json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == ["org/named", "gpt-4o"]
    one = (await client.get("/v1/models/org/named")).json()
    assert one == listed["data"][0]
    assert (one["object"], one["max_model_len"], one["max_input_len"]) == ("model", 512, 512)
    alias = (await client.get("/v1/models/gpt-4o")).json()
    assert alias == one | {"id": "gpt-4o", "display_name": "gpt-4o"} and alias["root"] == "org/named"


async def test_anthropics_clients_read_the_list_too(pipeline: Pipeline, client_of: MakeClient):
    client = client_of(pipeline, served_model_name="org/named", model_aliases=("claude",))
    listed = (await client.get("/v1/models", headers={"anthropic-version": "2023-06-01"})).json()
    assert (listed["has_more"], listed["first_id"], listed["last_id"]) == (False, "org/named", "claude")
    for model in listed["data"]:
        assert model["type"] == "model" and model["display_name"] == model["id"]
        assert datetime.fromisoformat(model["created_at"]).timestamp() == model["created"]


async def test_models_say_what_they_can_do(client: httpx.AsyncClient, make: Any, client_of: MakeClient):
    (model,) = (await client.get("/v1/models")).json()["data"]
    able = model["capabilities"]
    assert able["chat"] and able["tools"] and able["structured_output"] and able["completion"]
    assert not able["vision"] and not able["audio"]
    assert model["input_modalities"] == ["text"]
    assert {"tools", "tool_choice", "response_format"} <= set(model["supported_parameters"])
    (bare,) = (await client_of(make(template=None)).get("/v1/models")).json()["data"]
    assert not bare["capabilities"]["chat"] and not bare["capabilities"]["tools"]
    assert "tools" not in bare["supported_parameters"]


async def test_props(client: httpx.AsyncClient, pipeline: Pipeline):
    props = (await client.get("/props")).json()
    assert props["default_generation_settings"]["n_ctx"] == 512
    assert props["default_generation_settings"]["params"] == {
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 50,
        "n_predict": -1,
    }
    assert "im_start" in props["chat_template"]
    assert props["total_slots"] >= 1 and props["model_path"] and props["build_info"].startswith("edgewise")


async def test_health_ping_and_version(client: httpx.AsyncClient):
    health = (await client.get("/health")).json()
    assert health["status"] == "ok" and health["active_requests"] == 0
    assert (await client.get("/ping")).status_code == 200
    assert (await client.post("/ping")).status_code == 200
    assert (await client.get("/version")).json()["version"]


async def test_server_info_blanks_secrets(pipeline: Pipeline, client_of: MakeClient):
    environment = {
        "EDGEWISE_API_KEY": "sk-hidden",
        "HF_TOKEN": "hf-hidden",
        "EDGEWISE_HOME": "/data",
        "PROXY": "http://u:pw@h/",
    }
    client = client_of(pipeline, environment=environment)
    response = await client.get("/server_info")
    info = response.json()
    assert set(info) == {"vllm_config", "vllm_env", "system_env"}
    assert info["vllm_env"] == {
        "EDGEWISE_API_KEY": "***",
        "HF_TOKEN": "***",
        "EDGEWISE_HOME": "/data",
        "PROXY": "http://***@h/",
    }
    assert info["vllm_config"]["max_model_len"] == 512
    assert info["system_env"]["python"]


async def test_server_info_never_shows_keys(pipeline: Pipeline, client_of: MakeClient):
    client = client_of(pipeline, api_keys=("sk-very-secret",))
    text = (await client.get("/server_info", headers={"x-api-key": "sk-very-secret"})).text
    assert "sk-very-secret" not in text and '"api_keys":["***"]' in text


async def test_tokenize_and_back(client: httpx.AsyncClient):
    text = "héllo <|im_end|>"
    body = (await client.post("/tokenize", json={"prompt": text, "return_token_strs": True})).json()
    ids = ByteTokenizer().encode(text, parse_special=True)
    assert body["tokens"] == ids and body["count"] == len(ids) and body["max_model_len"] == 512
    assert len(body["token_strs"]) == len(ids) and body["token_strs"][0] == "h"
    assert (await client.post("/detokenize", json={"tokens": ids})).json()["prompt"] == text
    plain = (await client.post("/tokenize", json={"content": text})).json()
    assert plain["tokens"] == ids and plain["token_strs"] is None


async def test_tokenizing_conversations(client: httpx.AsyncClient):
    messages = [{"role": "user", "content": "a<|im_end|>b"}]
    with_prompt = (await client.post("/tokenize", json={"messages": messages})).json()
    without = (
        await client.post("/tokenize", json={"messages": messages, "add_generation_prompt": False})
    ).json()
    assert with_prompt["count"] > without["count"]
    end_of_turn = ByteTokenizer().special_tokens["<|im_end|>"]
    assert without["tokens"].count(end_of_turn) == 1, "the user's characters are not a control token"


async def test_what_tokenize_refuses(client: httpx.AsyncClient):
    for body, param in (
        ({}, "prompt"),
        ({"prompt": "a", "messages": []}, "prompt"),
        ({"prompt": 3}, "prompt"),
        ({"messages": [{"role": "x", "content": ""}]}, "messages[0].role"),
        ({"prompt": "x" * (1 << 21)}, "prompt"),
    ):
        response = await client.post("/tokenize", json=body)
        assert (response.status_code, response.json()["error"]["param"]) == (400, param)
    for body in ({}, {"tokens": "a"}, {"tokens": [1, -1]}, {"tokens": [100_000]}):
        assert (await client.post("/detokenize", json=body)).status_code == 400


async def test_the_prefix_cache_can_be_reset(client: httpx.AsyncClient):
    body = {"prompt": "a prompt of some length", "max_tokens": 1}

    async def cached() -> int:
        usage = (await client.post("/v1/completions", json=body)).json()["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    assert await cached() == 0
    assert await cached() > 0
    assert (await client.post("/reset_prefix_cache")).json() == {"success": True}
    assert await cached() == 0


async def test_probes_may_use_head(client: httpx.AsyncClient):
    for path in ("/", "/health", "/v1/health", "/ping"):
        answer = await client.head(path)
        assert (answer.status_code, answer.content) == (200, b""), path


async def test_far_more_ids_than_the_window_holds_are_not_detokenized(client: httpx.AsyncClient):
    many = await client.post("/detokenize", json={"tokens": [65] * 131_072})
    assert many.status_code == 200
    refused = await client.post("/detokenize", json={"tokens": [65] * 131_073})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "tokens"
