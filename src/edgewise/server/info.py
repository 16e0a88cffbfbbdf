"""What tools ask a server about itself: /props, /v1/models, /version, /server_info. Data only."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import platform
import re
from collections.abc import Mapping
from typing import Any

import edgewise
from edgewise.core.requests import EngineStats
from edgewise.pipeline.defaults import CHAT, model_defaults
from edgewise.protocols.models import Capabilities, encode_model
from edgewise.server.state import ServerState

_SECRET_NAME = re.compile(r"key|token|secret|password|passwd|credential|auth|cookie", re.IGNORECASE)
_SECRET_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")
_PACKAGES = ("numpy", "tokenizers", "jinja2", "fastapi", "uvicorn", "orjson")
BLANKED = "***"


def models(state: ServerState) -> list[dict[str, Any]]:
    """A model object for the served name and for each alias."""
    pipeline = state.pipeline
    able = capabilities(state)
    return [
        encode_model(
            name,
            root=state.model_name,
            created=state.created_s,
            max_model_len=pipeline.max_model_len,
            max_input_len=pipeline.max_input_len,
            vocab_size=pipeline.tokenizer.vocab_size,
            capabilities=able,
        )
        for name in state.model_names
    ]


def capabilities(state: ServerState) -> Capabilities:
    """What the served model can be asked for: a chat needs a template, a gap to fill needs tokens for it."""
    pipeline = state.pipeline
    chat = pipeline.template is not None
    style = pipeline.chat_style
    return Capabilities(
        chat=chat,
        tools=chat and style.tools is not None,
        reasoning=chat and style.reasoning is not None,
        fill_in_the_middle=pipeline.tokenizer.fim is not None,
        embeddings=True,
    )


def props(state: ServerState, stats: EngineStats) -> dict[str, Any]:
    """The part of llama-server's /props that tools read: the window, the template, the slots."""
    pipeline = state.pipeline
    sampling = {**dataclasses.asdict(CHAT), **model_defaults(pipeline.generation_config)}
    sampling["n_predict"] = sampling.pop("max_tokens") or -1
    tokenizer = pipeline.tokenizer
    return {
        "default_generation_settings": {
            "n_ctx": pipeline.max_model_len,
            "params": sampling,
        },
        "total_slots": num_slots(state, stats),
        "model_alias": state.model_name,
        "model_path": state.options.model_path or state.model_name,
        "chat_template": pipeline.template.source if pipeline.template else "",
        "bos_token": tokenizer.bos_token,
        "eos_token": tokenizer.eos_token,
        "modalities": {"vision": False, "audio": False},
        "build_info": f"edgewise {edgewise.__version__}",
    }


def num_slots(state: ServerState, stats: EngineStats) -> int:
    """How many sequences run at once; what is running now where nobody said."""
    resolved = state.pipeline.resolved
    return resolved.max_num_seqs if resolved else max(1, stats.num_running)


def server_info(state: ServerState) -> dict[str, Any]:
    """Configuration, environment and machine, with everything that may be a secret blanked."""
    resolved = state.pipeline.resolved
    options = dataclasses.asdict(state.options)
    environment = options.pop("environment")
    options["api_keys"] = [BLANKED] * len(state.options.api_keys)
    config = {
        "model": state.model_name,
        "max_model_len": state.pipeline.max_model_len,
        "max_input_len": state.pipeline.max_input_len,
        "engine": dataclasses.asdict(resolved) if resolved else {},
        "server": options,
    }
    return {
        "vllm_config": redacted(config),
        "vllm_env": redacted(environment),
        "system_env": system_environment(),
    }


def redacted(value: Any, name: str = "") -> Any:
    """`value` with strings under telling names blanked, and passwords inside URLs."""
    if isinstance(value, Mapping):
        return {str(key): redacted(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(inner, name) for inner in value]
    if isinstance(value, str):
        return BLANKED if value and _SECRET_NAME.search(name) else _SECRET_IN_URL.sub(f"{BLANKED}@", value)
    return value if isinstance(value, int | float | bool | None) else str(value)


def system_environment() -> dict[str, Any]:
    """The machine and the libraries: facts a bug report needs."""
    return {
        "edgewise": edgewise.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu_count": os.cpu_count(),
        "packages": {name: version for name in _PACKAGES if (version := _version_of(name))},
    }


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
