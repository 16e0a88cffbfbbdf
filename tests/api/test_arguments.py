"""The arguments of LLM: one source, names of both worlds, and what is not there yet."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from edgewise import LLM, AsyncLLM, ConfigError
from edgewise.pipeline import arguments
from edgewise.pipeline.arguments import config_from_arguments
from edgewise.pipeline.load import eos_ids, source_name


@pytest.mark.parametrize("kind", [LLM, AsyncLLM])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"model": "a", "engine_dir": "b"},
        {"model": "a", "onnx_dir": "c"},
        {"engine_dir": "b", "onnx_dir": "c"},
        {"model": ""},
    ],
)
def test_exactly_one_source(kind, given):
    with pytest.raises(ConfigError, match="exactly one of model, engine_dir and onnx_dir"):
        kind(**given)


def test_the_model_may_be_the_first_argument():
    assert next(iter(inspect.signature(LLM).parameters)) == "model"
    assert config_from_arguments("name", None, None, {}).model.model == "name"
    assert config_from_arguments(Path("a/b.gguf"), None, None, {}).model.model == "a/b.gguf"
    assert config_from_arguments(None, "dir", None, {}).model.engine_dir == Path("dir")


def test_onnx_is_not_available_yet():
    with pytest.raises(ConfigError, match=r"onnx_dir.*not available yet"):
        LLM(onnx_dir="somewhere")


@pytest.mark.parametrize("name", arguments._NOT_YET)
def test_later_arguments_exist_and_say_so(name: str):
    assert name in arguments.LLMArguments.__annotations__
    with pytest.raises(ConfigError, match=rf"^{name}: .* not available yet"):
        LLM("some-model", **{name: 4})
    config_from_arguments("some-model", None, None, {name: None})
    config_from_arguments("some-model", None, None, {name: ""})


def test_an_unknown_argument_is_refused_with_a_suggestion():
    with pytest.raises(ConfigError, match="'max_model_length'") as caught:
        LLM("some-model", max_model_length=5)
    assert caught.value.hint == "did you mean 'max_model_len'?"


def test_both_worlds_names_of_one_thing():
    got = config_from_arguments(
        "m", None, None, {"max_batch_size": 3, "max_kv_cache_capacity": 4096, "max_input_len": 1024}
    ).engine
    assert (got.max_num_seqs, got.max_model_len, got.max_input_len) == (3, 4096, 1024)
    assert (
        config_from_arguments("m", None, None, {"enable_context_reuse": False}).engine.enable_prefix_caching
        is False
    )
    with pytest.raises(ConfigError, match=r"max_batch_size \(3\) and max_num_seqs \(4\)"):
        config_from_arguments("m", None, None, {"max_batch_size": 3, "max_num_seqs": 4})


def test_cache_options():
    got = config_from_arguments(
        "m", None, None, {"cache_dir": "x", "engine_cache_max_size_gb": 2.5, "clear_engine_cache": True}
    )
    assert (got.cache.cache_dir, got.cache.engine_cache_max_size_gb, got.cache.clear_engine_cache) == (
        Path("x"),
        2.5,
        True,
    )
    for bad in (0, -1, float("inf"), float("nan"), "big", True):
        with pytest.raises(ConfigError, match="engine_cache_max_size_gb"):
            config_from_arguments("m", None, None, {"engine_cache_max_size_gb": bad})


def test_generation_config_is_auto_or_none():
    assert (
        config_from_arguments("m", None, None, {"generation_config": "none"}).model.generation_config
        == "none"
    )
    with pytest.raises(ConfigError, match="generation_config"):
        config_from_arguments("m", None, None, {"generation_config": "vllm"})


def test_a_model_is_called_by_its_source(tmp_path: Path):
    (tmp_path / "SmolLM.Q4_1.gguf").touch()
    for given, name in (
        ("smollm2-135m-instruct", "smollm2-135m-instruct"),
        ("hf:owner/repo/file.gguf", "owner/repo/file"),
        (tmp_path / "SmolLM.Q4_1.gguf", "SmolLM.Q4_1"),
        (tmp_path, tmp_path.name),
    ):
        assert source_name(config_from_arguments(given, None, None, {}).model) == name


@pytest.mark.parametrize(
    ("config", "ids"),
    [
        ({}, set()),
        ({"eos_token_id": 3}, {3}),
        ({"eos_token_id": [3, 4, 99]}, {3, 4}),
        ({"eos_token_id": ["a", True, None, -1]}, set()),
    ],
)
def test_stop_tokens_of_a_generation_config(config, ids):
    assert eos_ids(config, 10) == ids
