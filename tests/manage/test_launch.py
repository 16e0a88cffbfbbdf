"""Commands that are made of specs, and the memory a model is said to need."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from edgewise.build import build_engine_dir
from edgewise.checkpoints.settings import StoreSettings
from edgewise.core.engines import EngineKind, EngineSpec, Launch
from edgewise.core.errors import ConfigError
from edgewise.manage.launch import LaunchSettings, cost_of, cost_of_preset, launch_of, router_model_bytes
from edgewise.manage.need import STEP_TOKENS, WORKING_BYTES, CacheForm, need_of
from edgewise.manage.presets import preset_of
from tests.support.tiny_gguf import TinyModel, write_tiny_gguf


@pytest.fixture
def settings(tmp_path: Path) -> LaunchSettings:
    store = StoreSettings(data_dir=tmp_path / "data")
    return LaunchSettings(store, tmp_path / "logs", 1 << 30, lambda name: f"/opt/{Path(name).name}")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "tiny.gguf")


def spec(kind: EngineKind, model: Path | str, **values: Any) -> EngineSpec:
    return EngineSpec("mine", kind, str(model), 8090, **values)


def value_of(launch: Launch, flag: str) -> str:
    return launch.argv[launch.argv.index(flag) + 1]


@pytest.mark.parametrize("kind", EngineKind)
def test_every_kind_listens_on_loopback_at_its_port(kind: EngineKind, settings: LaunchSettings, model: Path):
    launch = launch_of(spec(kind, model.parent if kind is EngineKind.EDGE_LLM else model), settings)
    assert value_of(launch, "--host") == "127.0.0.1" and value_of(launch, "--port") == "8090"
    assert launch.url == "http://127.0.0.1:8090"
    assert launch.log == str(settings.logs_dir / "mine.log") and launch.keep_free_bytes == 1 << 30


def test_our_own_engine_takes_the_flags_it_is_given(settings: LaunchSettings, model: Path):
    """Every flag is one that `edgewise serve` has."""
    from typer.main import get_command

    from edgewise.cli import make_app

    launch = launch_of(
        spec(EngineKind.EDGEWISE, model, context=512, users=3, args=("--no-bare-calls",)), settings
    )
    assert launch.argv[:4] == (sys.executable, "-m", "edgewise.cli", "serve")
    serve = get_command(make_app()).commands["serve"]  # type: ignore[attr-defined]
    serve.make_context("serve", list(launch.argv[4:]))
    assert (value_of(launch, "--max-model-len"), value_of(launch, "--max-num-seqs")) == ("512", "3")


def test_llama_server_shares_its_context_among_its_users(settings: LaunchSettings, model: Path):
    launch = launch_of(spec(EngineKind.LLAMA, model, context=4096, users=4), settings)
    assert launch.argv[0] == "/opt/llama-server" and "--jinja" in launch.argv
    assert (value_of(launch, "--ctx-size"), value_of(launch, "--parallel")) == ("16384", "4")


def test_a_router_never_loads_by_itself(settings: LaunchSettings, tmp_path: Path, model: Path):
    presets = tmp_path / "presets.ini"
    presets.write_text(f"[small]\nmodel = {model}\nctx-size = 64\n[remote]\nhf-repo = a/b\n")
    router = spec(EngineKind.LLAMA, presets, args=("--models-max", "2"))
    launch = launch_of(router, settings)
    assert (
        launch.router and "--no-models-autoload" in launch.argv and launch.argv[-2:] == ("--models-max", "2")
    )
    assert router_model_bytes(router, "small") > WORKING_BYTES
    assert router_model_bytes(router, "remote") == 0
    with pytest.raises(ConfigError, match="has no model 'other'"):
        router_model_bytes(router, "other")
    assert cost_of(router, settings) is None and launch.need_bytes == 0


def test_a_router_needs_what_it_loads_at_its_start(settings: LaunchSettings, tmp_path: Path, model: Path):
    presets = tmp_path / "presets.ini"
    one = f"model = {model}\nctx-size = 64\n"
    presets.write_text(
        f"[*]\nload-on-startup = true\n[a]\n{one}[b]\n{one}load-on-startup = false\n[c]\n{one}"
    )
    router = spec(EngineKind.LLAMA, presets)
    assert launch_of(router, settings).need_bytes == 2 * router_model_bytes(router, "b")


def test_a_preset_s_context_is_that_of_all_its_slots(tmp_path: Path, model: Path):
    presets = tmp_path / "presets.ini"
    presets.write_text(
        f"[a]\nmodel = {model}\nc = 512\nnp = 2\n[q]\nmodel = {model}\nc = 512\nctk = q8_0\nctv = q8_0\n"
    )
    whole, small = (cost_of_preset(preset_of(presets, name)) for name in "aq")
    assert whole is not None and small is not None and whole.context == 256
    assert small.kv_bytes == round(whole.kv_bytes * 34 / 64)


def test_edge_llm_reads_half_of_its_window(settings: LaunchSettings, tmp_path: Path):
    launch = launch_of(spec(EngineKind.EDGE_LLM, tmp_path, context=65536), settings)
    assert value_of(launch, "--max-input-len") == "32768"
    assert value_of(launch, "--max-kv-cache-capacity") == "65536"
    assert value_of(launch, "--cache-dir") == str(tmp_path.parent / ".edgellm-cache")


@pytest.mark.parametrize("kind", EngineKind)
@pytest.mark.parametrize("word", ["--host", "--host=0.0.0.0", "--port", "--models-autoload"])
def test_further_arguments_cannot_open_an_engine(
    kind: EngineKind, word: str, settings: LaunchSettings, tmp_path: Path
):
    with pytest.raises(ConfigError, match=word.partition("=")[0]):
        launch_of(spec(kind, tmp_path, args=(word, "0.0.0.0")), settings)


def test_vllm_is_given_parsers_it_knows_or_none(settings: LaunchSettings):
    qwen = launch_of(spec(EngineKind.VLLM, "Qwen/Qwen3.6-35B-A3B"), settings)
    assert (value_of(qwen, "--tool-call-parser"), value_of(qwen, "--reasoning-parser")) == (
        "qwen3_xml",
        "qwen3",
    )
    assert "--enable-auto-tool-choice" in qwen.argv and qwen.need_bytes == 0
    other = launch_of(spec(EngineKind.VLLM, "nvidia/Nemotron-3.5-Lightning"), settings)
    assert not {
        "--tool-call-parser",
        "--reasoning-parser",
        "--enable-auto-tool-choice",
        "--max-model-len",
    } & set(other.argv)


def test_llama_server_takes_no_parsers(settings: LaunchSettings, model: Path):
    with pytest.raises(ConfigError, match="takes no parsers"):
        launch_of(spec(EngineKind.LLAMA, model, tool_parser="hermes"), settings)


@pytest.mark.parametrize(
    ("folder", "reasoning", "tools"),
    [
        ("Qwen3.6-35B-A3B-NVFP4", "qwen3", "qwen3_xml"),
        ("Nemotron-3.5-Lightning", "nemotron", "nemotron"),
        ("Other-7B", "auto", "auto"),
    ],
)
def test_parsers_by_the_model_s_name(
    settings: LaunchSettings, tmp_path: Path, folder: str, reasoning: str, tools: str
):
    (tmp_path / folder).mkdir()
    launch = launch_of(spec(EngineKind.EDGE_LLM, tmp_path / folder), settings)
    assert (value_of(launch, "--reasoning-parser"), value_of(launch, "--tool-call-parser")) == (
        reasoning,
        tools,
    )
    said = launch_of(spec(EngineKind.EDGE_LLM, tmp_path / folder, tool_parser="hermes"), settings)
    assert value_of(said, "--tool-call-parser") == "hermes"


def test_what_is_not_here_is_named(settings: LaunchSettings, tmp_path: Path, model: Path):
    nothing = LaunchSettings(settings.store, settings.logs_dir, find_program=lambda name: None)
    with pytest.raises(ConfigError, match="llama-server is not on this machine"):
        launch_of(spec(EngineKind.LLAMA, model), nothing)
    with pytest.raises(ConfigError, match="'smollm2-135m-instruct' is not on this machine") as caught:
        launch_of(spec(EngineKind.EDGEWISE, "smollm2-135m-instruct"), settings)
    assert caught.value.hint == "edgewise pull smollm2-135m-instruct"
    with pytest.raises(ConfigError, match="is no checkpoint folder"):
        launch_of(spec(EngineKind.EDGE_LLM, tmp_path / "absent"), settings)


def test_the_digest_is_that_of_the_command(settings: LaunchSettings, model: Path):
    first, same, other = (launch_of(spec(EngineKind.EDGEWISE, model, users=n), settings) for n in (1, 1, 2))
    assert first.digest == same.digest != other.digest


def test_a_gguf_s_need_is_that_of_its_shape(tmp_path: Path):
    shape = TinyModel(architecture="qwen2")
    path = write_tiny_gguf(tmp_path / "m.gguf", shape)
    need = need_of(path)
    assert need is not None
    assert need.weight_bytes == path.stat().st_size and need.window == shape.context_length
    assert need.kv_bytes_per_token == shape.num_layers * shape.num_kv_heads * 2 * shape.head_dim * 2
    assert need.total_bytes(100, 3) == path.stat().st_size + 300 * need.kv_bytes_per_token + WORKING_BYTES


def test_an_engine_directory_needs_what_its_file_did(tmp_path: Path):
    path = write_tiny_gguf(tmp_path / "m.gguf")
    build_engine_dir(path, tmp_path / "engine", layout=8)
    of_file, of_engine = need_of(path), need_of(tmp_path / "engine")
    assert of_file is not None and of_engine is not None
    assert of_engine.kv_bytes_per_token == of_file.kv_bytes_per_token and of_engine.window == of_file.window


def test_a_published_checkpoint(tmp_path: Path):
    config = {"num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 64}
    hybrid = {**config, "layer_types": ["linear_attention", "full_attention"] * 2, "head_dim": 16}
    (tmp_path / "model.safetensors").write_bytes(bytes(1000))
    for shape, per_token in ((config, 4 * 2 * 2 * 8 * 2), (hybrid, 2 * 2 * 2 * 16 * 2)):
        (tmp_path / "config.json").write_text(json.dumps({**shape, "max_position_embeddings": 2048}))
        need = need_of(tmp_path)
        assert need is not None
        assert (need.weight_bytes, need.kv_bytes_per_token, need.window) == (1000, per_token, 2048)


def test_layers_that_forget_count_by_their_window(tmp_path: Path):
    shape = TinyModel(architecture="gemma3", num_layers=6)
    need = need_of(write_tiny_gguf(tmp_path / "m.gguf", shape))
    assert need is not None and need.sliding_tokens == 8
    one_layer = shape.num_kv_heads * 2 * shape.head_dim * 2
    assert need.kv_bytes(10_000, 2) == 2 * 6 * one_layer * 10_000
    assert need.kv_bytes(10_000, 2, CacheForm(forgets=True)) == 2 * one_layer * (
        10_000 + 5 * (8 + STEP_TOKENS)
    )
    assert need.kv_bytes(4, 1, CacheForm(forgets=True)) == 6 * one_layer * 4


def test_types_of_keys_and_values_count(settings: LaunchSettings, model: Path):
    def kv_bytes(kind: EngineKind, *args: str) -> int:
        cost = cost_of(spec(kind, model, context=1000, args=args), settings)
        assert cost is not None
        return cost.kv_bytes

    whole = kv_bytes(EngineKind.LLAMA)
    assert kv_bytes(EngineKind.LLAMA, "-ctk", "q8_0", "--cache-type-v=q4_0") == round(whole * (34 + 18) / 128)
    assert kv_bytes(EngineKind.VLLM, "--kv-cache-dtype", "fp8") * 2 == whole


@pytest.mark.parametrize(
    ("kinds", "layers"),
    [
        ({"hybrid_override_pattern": "MEM*EMEM*E"}, 2),
        ({"layers_block_type": ["mamba", "attention", "moe"]}, 1),
        ({"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}, 2),
    ],
)
def test_hybrids_keep_nothing_for_layers_without_attention(
    tmp_path: Path, kinds: dict[str, Any], layers: int
):
    config = {"num_hidden_layers": 9, "num_attention_heads": 2, "hidden_size": 8, **kinds}
    (tmp_path / "model.safetensors").write_bytes(bytes(10))
    (tmp_path / "config.json").write_text(json.dumps(config))
    need = need_of(tmp_path)
    assert need is not None and need.kv_bytes_per_token == layers * 2 * 2 * 4 * 2
    assert need.sliding_bytes_per_token == (32 if "sliding_window" in kinds else 0)


def test_what_nobody_can_tell(tmp_path: Path):
    (tmp_path / "junk.gguf").write_bytes(b"GGUF\0\0")
    assert need_of(tmp_path / "junk.gguf") is None and need_of(tmp_path / "absent") is None
    (tmp_path / "empty").mkdir()
    assert need_of(tmp_path / "empty") is None
