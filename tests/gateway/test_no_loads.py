"""Nothing ever loads a model by accident: thousands of names, known and unknown, against a router that loads whatever it is asked for."""

from __future__ import annotations

import asyncio
import random
import string

import pytest

from edgewise.gateway.config import GatewayConfig, UpstreamConfig
from edgewise.gateway.fleet import Fleet
from edgewise.gateway.keys import OpenDoor
from edgewise.gateway.parts import ForwardOptions
from edgewise.gateway.profile import Kind
from edgewise.gateway.run import Gateway
from edgewise.gateway.transport import HttpTransport
from tests.support.gateway_parts import serving_app
from tests.support.router_server import RouterModel, RouterScript, router_server
from tests.support.scripted_upstream import ScriptedUpstream, chat_server, scripted

pytestmark = pytest.mark.http

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/tokenize")


def disk() -> dict[str, RouterModel]:
    return {
        "gemma-3-12b-it-Q8_0": RouterModel("loaded", ("gemma", "default")),
        "phi-4-Q6_K": RouterModel("loaded", ("phi",)),
        "nemotron-3-nano-Q8_0": RouterModel("unloaded", ("nemotron", "nemotron-think")),
        "qwen3-30b-Q4_K_M": RouterModel("sleeping", ("qwen",)),
        "smol-Q4_1": RouterModel("loading", ("smol",)),
        "broken-Q2_K": RouterModel("failed", ("broken",)),
    }


def names(count: int, seed: int) -> list[str]:
    """Names as clients have them: the router's own, its aliases, those of other engines, of hosted models, and noise."""
    chance = random.Random(seed)
    listed = [name for key, model in disk().items() for name in (key, *model.aliases)]
    hosted = ["gpt-4o", "claude-sonnet-4-5", "local", "", "edge", "llama", "small", "big"]

    def one() -> str:
        if chance.random() < 0.6:
            return chance.choice(listed)
        if chance.random() < 0.5:
            return chance.choice(hosted)
        letters = string.ascii_letters + string.digits + "/-_.:%?&=# é\u4e00"
        base = chance.choice(["", chance.choice(listed)])
        return base + "".join(chance.choices(letters, k=chance.randint(1, 20)))

    return [one() for _ in range(count)]


def bodies(model: str, chance: random.Random) -> tuple[str, dict[str, object]]:
    path = chance.choice(PATHS)
    body: dict[str, object] = {"model": model, "max_tokens": 4}
    if path == "/tokenize":
        return path, {"model": model, "content": "Hi", "prompt": "Hi"}
    if path == "/v1/completions":
        return path, {**body, "prompt": "Hi"}
    return path, {**body, "messages": [{"role": "user", "content": "Hi"}]}


def check(script: RouterScript, server: ScriptedUpstream) -> None:
    assert script.loads == []
    assert set(script.answered) <= {"gemma-3-12b-it-Q8_0", "phi-4-Q6_K"}
    loaded = {
        "",
        *(name for key in ("gemma-3-12b-it-Q8_0", "phi-4-Q6_K") for name in (key, *disk()[key].aliases)),
    }
    for asked in server.requests:
        assert not asked.path.startswith("/models"), asked.path
        if asked.method == "POST" and asked.body != b"{}":
            assert asked.json["model"] in loaded, asked
            assert "autoload=false" in asked.path


@pytest.mark.parametrize(
    "count", [pytest.param(400, id="quick"), pytest.param(10_000, id="ten thousand", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("aliases", [{}, {"small": "smol", "big": "qwen3-30b-Q4_K_M", "gpt-4o": "nemotron"}])
def test_thousands_of_names_load_nothing(count: int, aliases: dict[str, str]):
    import orjson

    async def ask_all(url: str) -> list[int]:
        transport, chance, statuses = HttpTransport(), random.Random(7), []
        headers = {"content-type": "application/json"}

        async def ask_some(some: list[str]) -> None:
            for name in some:
                path, body = bodies(name, chance)
                reply = await transport.send("POST", url + path, headers, orjson.dumps(body), timeout=20)
                await reply.read()
                await reply.aclose()
                statuses.append(reply.status)

        all_names = names(count, seed=count)
        await asyncio.gather(*(ask_some(all_names[i::8]) for i in range(8)))
        await transport.aclose()
        return statuses

    with router_server(disk()) as (server, script), scripted(chat_server("edge-model")) as edge:
        config = GatewayConfig(
            (UpstreamConfig("llama", server.url, Kind.LLAMA), UpstreamConfig("edge", edge.url, Kind.OPENAI)),
            aliases=aliases,
            refresh_s=0.1,
            health_s=0.1,
        )
        gateway = Gateway(lambda: config, ForwardOptions(), keys=OpenDoor())
        with serving_app(gateway.app) as url:
            statuses = asyncio.run(ask_all(url))
        assert len(statuses) == count
        assert set(statuses) <= {200, 404}, "404: an API the engine has not"
        assert statuses.count(200) > count / 2
        check(script, server)


async def test_a_model_that_was_unloaded_a_moment_ago_is_not_loaded_again():
    """Between two lists the gateway still believes in it; the router is told with each request to load nothing."""
    with router_server(disk()) as (server, script):
        transport = HttpTransport()
        config = GatewayConfig((UpstreamConfig("llama", server.url, Kind.LLAMA),), refresh_s=1000)
        fleet = Fleet(config, transport)
        await fleet.start()
        script.models["phi-4-Q6_K"].status = "unloaded"
        (route,) = fleet.router.routes("phi")
        address = route.upstream.address("/v1/chat/completions")
        reply = await transport.send("POST", address, {}, b'{"model": "phi-4-Q6_K"}', timeout=5)
        assert (reply.status, script.loads) == (400, [])
        await reply.aclose()
        await fleet.stop()
        await transport.aclose()
