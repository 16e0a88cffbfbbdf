"""A stand-in for llama-server as a router: models on disk, some loaded; a request for one that is not makes it load, unless told otherwise.

It records every request, and every load and wake with what caused it, so that a test can say that there was none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.scripted_upstream import (
    Answer,
    Asked,
    ScriptedUpstream,
    chat_reply,
    chat_stream,
    json_answer,
    stream_answer,
)

_POSTS = {"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/embeddings", "/tokenize"}


_OTHER_APIS: dict[str, dict[str, Any]] = {
    "/v1/messages": {"type": "message", "content": []},
    "/v1/messages/count_tokens": {"input_tokens": 1},
    "/v1/responses": {"object": "response", "output": []},
    "/v1/embeddings": {"data": []},
}
"""What answers of these have beside a chat's."""


@dataclass
class RouterModel:
    """`status`: loaded, unloaded, loading, sleeping or failed."""

    status: str
    aliases: tuple[str, ...] = ()
    window: int = 16384
    meta: bool = True  # whether the list says the window, as newer versions do


@dataclass
class RouterScript:
    """The script of a `ScriptedUpstream`. `loads`: (model, method and path) of each load or wake that a request caused."""

    models: dict[str, RouterModel]
    autoload: bool = True
    loads: list[tuple[str, str]] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)  # models that generated, in order
    broken: set[str] = field(default_factory=set)  # models that fail to load

    def __call__(self, asked: Asked) -> Answer:
        parts = urlsplit(asked.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if asked.method == "GET":
            return self._get(asked, parts.path, query)
        if parts.path in ("/models/load", "/models/unload"):
            return self._switch(asked.json.get("model", ""), parts.path)
        if parts.path not in _POSTS:
            return json_answer({"error": {"code": 404, "message": "File Not Found"}}, 404)
        name = asked.json.get("model", "")
        return self._reach(name, query, asked) or self._generate(asked, name)

    def _get(self, asked: Asked, path: str, query: dict[str, str]) -> Answer:
        if path == "/health":
            return json_answer({"status": "ok"})
        if path in ("/v1/models", "/models"):
            return json_answer({"object": "list", "data": [self._entry(name) for name in self.models]})
        if path == "/props" and "model" not in query:
            return json_answer({"role": "router", "build_info": "b9000-test", "max_instances": 4})
        if path == "/props":
            name = query["model"]
            settings = {"n_ctx": self.models[name].window} if name in self.models else {}
            return self._reach(name, query, asked) or json_answer(
                {"default_generation_settings": settings, "total_slots": 2}
            )
        return json_answer({"error": {"code": 404, "message": "File Not Found"}}, 404)

    def _entry(self, name: str) -> dict[str, Any]:
        model = self.models[name]
        failed = {"failed": True, "exit_code": 1} if model.status == "failed" else {}
        value = "unloaded" if model.status == "failed" else model.status
        meta = {"meta": {"n_ctx": model.window}} if model.meta and model.status == "loaded" else {}
        return {
            "id": name,
            "object": "model",
            "owned_by": "llamacpp",
            "created": 1,
            "aliases": list(model.aliases),
            "status": {"value": value, "args": ["llama-server"], **failed},
            **meta,
        }

    def _reach(self, name: str, query: dict[str, str], asked: Asked) -> Answer | None:
        """The refusal, or None: the model is loaded now, by this request if need be."""
        found = next(
            (key for key, model in self.models.items() if name == key or name in model.aliases), None
        )
        if found is None:
            return json_answer({"error": {"code": 400, "message": f"model '{name}' not found"}}, 400)
        if self.models[found].status == "loaded":
            return None
        may_load = query.get("autoload", "true" if self.autoload else "false") == "true"
        if not may_load:
            return json_answer({"error": {"code": 400, "message": "model is not loaded"}}, 400)
        self.loads.append((found, f"{asked.method} {asked.path}"))
        self.models[found].status = "loaded"
        return None

    def _switch(self, name: str, path: str) -> Answer:
        """As it was told to; a model that cannot be loaded says so in the list afterwards."""
        self.loads.append((name, f"POST {path}"))
        if name not in self.models:
            return json_answer({"error": {"code": 400, "message": f"model '{name}' not found"}}, 400)
        after = "failed" if name in self.broken else "loaded"
        self.models[name].status = after if path == "/models/load" else "unloaded"
        return json_answer({"success": True})

    def _generate(self, asked: Asked, name: str) -> Answer:
        self.answered.append(name)
        if asked.json.get("stream"):
            return stream_answer(*chat_stream(["Hello"], model=name))
        return json_answer(
            {**chat_reply("Hello", model=name), **_OTHER_APIS.get(asked.path.partition("?")[0], {})}
        )


@contextlib.contextmanager
def router_server(
    models: dict[str, RouterModel], *, autoload: bool = True
) -> Iterator[tuple[ScriptedUpstream, RouterScript]]:
    script = RouterScript(models, autoload)
    upstream = ScriptedUpstream(script)
    upstream.start()
    try:
        yield upstream, script
    finally:
        upstream.kill()
