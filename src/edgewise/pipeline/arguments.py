"""The keyword arguments of LLM and AsyncLLM -> Config. Names are vLLM's, and TensorRT Edge-LLM's where it has its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypedDict

from edgewise.config import CacheOptions, Config, EngineOptions, ModelOptions, from_mapping, unknown_option
from edgewise.core.errors import ConfigError


class LLMArguments(TypedDict, total=False):
    """What LLM and AsyncLLM accept beside the source of the model. None means "auto" or "not given" everywhere."""

    served_model_name: str | None
    generation_config: str
    chat_template: str | None
    threads: int | None
    isa: str
    max_model_len: int | None
    max_input_len: int | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    num_blocks: int | None
    block_size: int
    scheduling_policy: str
    enable_prefix_caching: bool
    enable_jump_forward: bool
    cache_dir: str | Path | None
    engine_cache_max_size_gb: float | None
    clear_engine_cache: bool
    max_batch_size: int | None
    max_kv_cache_capacity: int | None
    enable_context_reuse: bool | None
    enable_in_flight_batching: bool | None
    multimodal_engine_dir: str | Path | None
    visual_engine_dir: str | Path | None
    visual_onnx_dir: str | Path | None
    audio_onnx_dir: str | Path | None
    max_image_tokens: int | None
    max_image_tokens_per_image: int | None
    eagle_engine_dir: str | Path | None
    draft_top_k: int | None
    draft_step: int | None
    verify_tree_size: int | None
    max_verify_tree_size: int | None
    max_draft_tree_size: int | None
    speculative_config: Any
    talker_engine_dir: str | Path | None
    code_predictor_engine_dir: str | Path | None
    code2wav_engine_dir: str | Path | None
    context_cache_config: Any
    build_options: Any


_ALIASES = {
    "max_batch_size": "max_num_seqs",
    "max_kv_cache_capacity": "max_model_len",
    "enable_context_reuse": "enable_prefix_caching",
}

_NOT_YET = {
    "multimodal_engine_dir": "image and audio input",
    "visual_engine_dir": "image input",
    "visual_onnx_dir": "image input",
    "audio_onnx_dir": "audio input",
    "max_image_tokens": "image input",
    "max_image_tokens_per_image": "image input",
    "eagle_engine_dir": "speculative decoding",
    "draft_top_k": "speculative decoding",
    "draft_step": "speculative decoding",
    "verify_tree_size": "speculative decoding",
    "max_verify_tree_size": "speculative decoding",
    "max_draft_tree_size": "speculative decoding",
    "speculative_config": "speculative decoding",
    "talker_engine_dir": "speech output",
    "code_predictor_engine_dir": "speech output",
    "code2wav_engine_dir": "speech output",
    "context_cache_config": "a tuned context cache",
    "build_options": "options of the engine build",
}

_ALWAYS_ON = ("enable_in_flight_batching",)


def config_from_arguments(
    model: str | Path | None,
    engine_dir: str | Path | None,
    onnx_dir: str | Path | None,
    arguments: Mapping[str, Any],
) -> Config:
    """The Config that the arguments of LLM mean. Raises ConfigError for bad, unknown and not yet possible ones."""
    _check_source(model, engine_dir, onnx_dir)
    given = _known(arguments)
    for name, what in _NOT_YET.items():
        if given.pop(name, None) not in (None, ""):
            raise ConfigError(f"{name}: {what} is not available yet")
    for name in _ALWAYS_ON:
        given.pop(name, None)
    for name, ours in _ALIASES.items():
        value = given.pop(name, None)
        if value is not None and given.setdefault(ours, value) != value:
            raise ConfigError(f"{name} ({value!r}) and {ours} ({given[ours]!r}) mean the same and differ")
    return Config(
        model=_model_options(model, engine_dir, given),
        engine=from_mapping(EngineOptions, _part(EngineOptions, given)),
        cache=_cache_options(given),
    )


def _check_source(model: object, engine_dir: object, onnx_dir: object) -> None:
    sources = {"model": model, "engine_dir": engine_dir, "onnx_dir": onnx_dir}
    named = [name for name, value in sources.items() if value not in (None, "")]
    if len(named) != 1:
        found = " and ".join(named) if named else "none of them"
        raise ConfigError(f"give exactly one of model, engine_dir and onnx_dir; got {found}")
    if named == ["onnx_dir"]:
        raise ConfigError(
            "onnx_dir: loading ONNX models is not available yet", hint="give model= a GGUF file instead"
        )


def _known(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that say something. Raises ConfigError for an unknown name."""
    known = list(LLMArguments.__annotations__)
    for name in arguments:
        if name not in known:
            raise unknown_option(name, known)
    return {name: value for name, value in arguments.items() if value is not None}


def _part(kind: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in given.items() if name in names}


def _model_options(model: object, engine_dir: str | Path | None, given: Mapping[str, Any]) -> ModelOptions:
    options = from_mapping(
        ModelOptions,
        {
            **_part(ModelOptions, given),
            "model": str(model) if model else None,
            "engine_dir": Path(engine_dir) if engine_dir else None,
        },
    )
    if options.generation_config not in ("auto", "none"):
        raise ConfigError(f"generation_config must be 'auto' or 'none', got {options.generation_config!r}")
    return options


def _cache_options(given: Mapping[str, Any]) -> CacheOptions:
    values = _part(CacheOptions, given)
    if "cache_dir" in values:
        values["cache_dir"] = Path(values["cache_dir"])
    size = values.get("engine_cache_max_size_gb", 1.0)
    if isinstance(size, bool) or not isinstance(size, int | float) or not 0 < size < float("inf"):
        raise ConfigError(f"engine_cache_max_size_gb must be a positive number, got {size!r}")
    return from_mapping(CacheOptions, values)
