"""From what a person wants to run to the command that runs it. Every engine listens on loopback alone; the gateway is what others reach.

Sources: `edgewise serve --help`; llama.cpp, tools/server/README.md; vLLM, `vllm serve --help`; TensorRT Edge-LLM 0.11, `tensorrt-edgellm-serve --help`.
"""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from edgewise.checkpoints.settings import StoreSettings
from edgewise.checkpoints.stored import stored_file, wanted_model
from edgewise.core.engines import EngineKind, EngineSpec, Launch
from edgewise.core.errors import ConfigError
from edgewise.manage.need import WHOLE, CacheForm, Need, need_of
from edgewise.manage.presets import Preset, preset_of, read_presets

DEFAULT_CONTEXT = 32768
"""Tokens a model is given where nobody says, if its window is no shorter."""

EDGE_LLM_CONTEXT = 32768

PROGRAMS = {
    EngineKind.LLAMA: ("llama-server", "llama.cpp, or the xllamacpp wheel"),
    EngineKind.VLLM: ("vllm", "pip install vllm"),
    EngineKind.EDGE_LLM: ("tensorrt-edgellm-serve", "TensorRT Edge-LLM"),
}
"""What is looked for on the path, and where it comes from."""

PARSERS: dict[EngineKind, dict[str, tuple[str, str]]] = {
    EngineKind.EDGE_LLM: {"qwen3.6": ("qwen3", "qwen3_xml"), "nemotron-3": ("nemotron", "nemotron")},
    EngineKind.VLLM: {"qwen3.6": ("qwen3", "qwen3_xml")},
}
"""Part of a model's name -> its reasoning and tool parsers, as the engine calls them, where it would have to guess. Others stay "auto"."""

_OURS = {
    "--host": "engines listen on loopback alone",
    "--port": "`edgewise load --port` says it",
    "--models-autoload": "models are loaded by `edgewise load` alone",
    "--models-preset": "it is the engine's model",
    "--served-model-name": "it is the engine's name",
}
"""What nobody may say among the further arguments, and why: they come last, so it would win over what is said here."""

_NUMBER_BYTES = {
    **{"f32": 4.0, "f16": 2.0, "bf16": 2.0, "q8_0": 34 / 32, "q5_1": 24 / 32, "q5_0": 22 / 32},
    **{"q4_1": 20 / 32, "q4_0": 18 / 32, "iq4_nl": 18 / 32, "fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0},
}
"""Type of keys and values -> bytes of a number, by the names of llama.cpp and vLLM."""


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """What the machine adds to a spec. `keep_free_bytes`: of memory, once an engine runs."""

    store: StoreSettings
    logs_dir: Path
    keep_free_bytes: int = 0
    find_program: Callable[[str], str | None] = shutil.which


@dataclass(frozen=True, slots=True)
class Launcher:
    """Makes commands of specs, on this machine."""

    settings: LaunchSettings

    def launch(self, spec: EngineSpec) -> Launch:
        return launch_of(spec, self.settings)

    def model_bytes(self, spec: EngineSpec, model: str) -> int:
        return router_model_bytes(spec, model)


def launch_of(spec: EngineSpec, settings: LaunchSettings) -> Launch:
    """Raises ConfigError for a program or model that is not there, and for arguments that are not the person's to give."""
    check_args(spec)
    match spec.kind:
        case EngineKind.EDGEWISE:
            return _edgewise(spec, settings)
        case EngineKind.LLAMA:
            return _router(spec, settings) if is_router(spec) else _llama(spec, settings)
        case EngineKind.VLLM:
            return _vllm(spec, settings)
        case EngineKind.EDGE_LLM:
            return _edge_llm(spec, settings)
        case _:
            assert_never(spec.kind)


def is_router(spec: EngineSpec) -> bool:
    return spec.kind is EngineKind.LLAMA and spec.model.endswith(".ini")


def check_args(spec: EngineSpec) -> None:
    """Raises ConfigError for arguments that are not the person's to give."""
    for word in spec.args:
        flag = word.partition("=")[0]
        if flag in _OURS:
            raise ConfigError(f"{spec.name}: {flag} cannot be given to an engine: {_OURS[flag]}")
    if spec.kind is EngineKind.LLAMA and (spec.reasoning_parser, spec.tool_parser) != ("auto", "auto"):
        raise ConfigError(f"{spec.name}: llama-server reads the model's template and takes no parsers")


def _edgewise(spec: EngineSpec, settings: LaunchSettings) -> Launch:
    model = _model_path(spec, settings)
    argv = [sys.executable, "-m", "edgewise.cli", "serve", str(model), *_address(spec)]
    argv += ["--served-model-name", spec.name, "--max-num-seqs", str(max(spec.users, 1))]
    argv += ["--max-model-len", str(_context(spec, model)), *_parsers(spec, "--tool-call-parser")]
    return _launch(spec, settings, argv, model)


def _llama(spec: EngineSpec, settings: LaunchSettings) -> Launch:
    model = _model_path(spec, settings)
    argv = [_program(spec, settings), "--model", str(model), *_address(spec), "--alias", spec.name]
    argv += ["--ctx-size", str(_context(spec, model) * spec.users), "--parallel", str(spec.users), "--jinja"]
    return _launch(spec, settings, argv, model)


def _router(spec: EngineSpec, settings: LaunchSettings) -> Launch:
    """Many models behind one llama-server. It loads what it is told to and nothing else: not what a request happens to name."""
    presets = Path(spec.model).expanduser()
    argv = [_program(spec, settings), "--models-preset", str(presets), "--no-models-autoload"]
    argv += _address(spec)
    at_start = [one for one in read_presets(presets).models if one.load_on_startup]
    return _finished(spec, settings, argv, sum(_preset_bytes(one) for one in at_start))


def router_model_bytes(spec: EngineSpec, model: str) -> int:
    """What a model of a router's needs once it is loaded; 0 where nobody can tell. Raises ConfigError for a model it does not have."""
    return _preset_bytes(preset_of(Path(spec.model).expanduser(), model))


def _preset_bytes(preset: Preset) -> int:
    cost = cost_of_preset(preset)
    return 0 if cost is None else cost.total_bytes


def cost_of_preset(preset: Preset) -> Cost | None:
    """`ctx-size` of a preset is that of all its slots together. None where nobody can tell."""
    need = need_of(Path(preset.model).expanduser()) if preset.model else None
    if need is None:
        return None
    users = preset.users or 1
    each = (preset.context or need.window or DEFAULT_CONTEXT) // users
    return _cost(need, each, users, llama_form(preset.values))


def _vllm(spec: EngineSpec, settings: LaunchSettings) -> Launch:
    """`model` may also be a name that vLLM itself fetches; what that needs nobody can tell, nor how long a context may be."""
    model = Path(spec.model).expanduser()
    known = str(model) if model.exists() else spec.model
    argv = [_program(spec, settings), "serve", known, *_address(spec), "--served-model-name", spec.name]
    argv += ["--max-num-seqs", str(spec.users)]
    if context := spec.context or _own_context(need_of(model)):
        argv += ["--max-model-len", str(context)]
    reasoning, tools = _parsers_of(spec)
    argv += ["--reasoning-parser", reasoning] if reasoning != "auto" else []
    argv += ["--enable-auto-tool-choice", "--tool-call-parser", tools] if tools != "auto" else []
    return _launch(spec, settings, argv, model)


def _edge_llm(spec: EngineSpec, settings: LaunchSettings) -> Launch:
    """Its longest prompt is half of the window, as it is run where this was measured; the cache of built engines lies beside the checkpoint."""
    model = Path(spec.model).expanduser()
    if not model.is_dir():
        raise ConfigError(f"{spec.name}: {model} is no checkpoint folder")
    context = spec.context or EDGE_LLM_CONTEXT
    argv = [_program(spec, settings), str(model), *_address(spec), "--served-model-name", spec.name]
    argv += [*_parsers(spec, "--tool-call-parser"), "--enable-auto-tool-choice"]
    argv += ["--cache-dir", str(model.parent / ".edgellm-cache")]
    argv += ["--max-input-len", str(context // 2), "--max-kv-cache-capacity", str(context)]
    argv += ["--max-batch-size", str(spec.users)]
    argv += ["--enable-in-flight-batching"] if spec.users > 1 else []
    return _launch(spec, settings, argv, model)


@dataclass(frozen=True, slots=True)
class Cost:
    """What an engine takes, in bytes, with conversations of `context` tokens. `window`: what its model was made for, None where nothing says."""

    context: int
    weight_bytes: int
    kv_bytes: int
    total_bytes: int
    window: int | None


def cost_of(spec: EngineSpec, settings: LaunchSettings) -> Cost | None:
    """None where nobody can tell, as for a router. Raises ConfigError for a model that is not here."""
    if is_router(spec):
        return None
    own = spec.kind in (EngineKind.EDGEWISE, EngineKind.LLAMA)
    return _cost_of_need(spec, need_of(_model_path(spec, settings) if own else Path(spec.model).expanduser()))


def _cost_of_need(spec: EngineSpec, need: Need | None) -> Cost | None:
    context = spec.context or _own_context(need)
    return None if need is None or context is None else _cost(need, context, spec.users, cache_form(spec))


def _cost(need: Need, context: int, users: int, form: CacheForm) -> Cost:
    kv_bytes, total_bytes = need.kv_bytes(context, users, form), need.total_bytes(context, users, form)
    return Cost(context, need.weight_bytes, kv_bytes, total_bytes, need.window)


def _own_context(need: Need | None) -> int | None:
    """What a model is given where nobody says; None for one that nobody knows."""
    return None if need is None else min(need.window or DEFAULT_CONTEXT, DEFAULT_CONTEXT)


def cache_form(spec: EngineSpec) -> CacheForm:
    """How the kind of engine keeps keys and values, with what its further arguments say of that."""
    match spec.kind:
        case EngineKind.EDGEWISE | EngineKind.EDGE_LLM:
            return WHOLE
        case EngineKind.LLAMA:
            return llama_form(_flags(spec.args))
        case EngineKind.VLLM:
            return CacheForm(
                _NUMBER_BYTES.get(_flags(spec.args).get("kv-cache-dtype", ""), 2.0), forgets=True
            )
        case _:
            assert_never(spec.kind)


def llama_form(said: Mapping[str, str]) -> CacheForm:
    """`said`: flags of llama-server without their dashes."""
    kinds = [
        next((said[name] for name in names if name in said), "f16")
        for names in (("cache-type-k", "ctk"), ("cache-type-v", "ctv"))
    ]
    both = sum(_NUMBER_BYTES.get(kind, 2.0) for kind in kinds)
    return CacheForm(both / 2, forgets="swa-full" not in said)


def _flags(args: Sequence[str]) -> dict[str, str]:
    """Flags without their dashes, each with the word after it."""
    words = [part for word in args for part in (word.split("=", 1) if word.startswith("-") else [word])]
    return {flag.lstrip("-"): value for flag, value in itertools.pairwise([*words, ""]) if flag[:1] == "-"}


def _launch(spec: EngineSpec, settings: LaunchSettings, argv: list[str], model: Path) -> Launch:
    cost = _cost_of_need(spec, need_of(model))
    return _finished(spec, settings, argv, 0 if cost is None else cost.total_bytes)


def _finished(
    spec: EngineSpec,
    settings: LaunchSettings,
    argv: list[str],
    need_bytes: int,
) -> Launch:
    return Launch(
        name=spec.name,
        kind=spec.kind,
        argv=(*argv, *spec.args),
        url=f"http://127.0.0.1:{spec.port}",
        log=str(settings.logs_dir / f"{spec.name}.log"),
        env=spec.env,
        need_bytes=need_bytes,
        keep_free_bytes=settings.keep_free_bytes,
        router=is_router(spec),
    )


def _address(spec: EngineSpec) -> list[str]:
    return ["--host", "127.0.0.1", "--port", str(spec.port)]


def _program(spec: EngineSpec, settings: LaunchSettings) -> str:
    name, source = PROGRAMS[spec.kind]
    found = settings.find_program(str(Path(spec.program).expanduser()) if spec.program else name)
    if found is None:
        raise ConfigError(
            f"{spec.name}: {spec.program or name} is not on this machine",
            hint=f"it comes from {source}; --program names its path",
        )
    return found


def _model_path(spec: EngineSpec, settings: LaunchSettings) -> Path:
    """A file or folder that is here already: an engine that starts must not begin to download."""
    path = Path(spec.model).expanduser()
    if path.exists():
        return path
    wanted = wanted_model(spec.model)
    stored = stored_file(settings.store.models_dir / wanted.entry) if wanted else None
    if stored is None:
        raise ConfigError(
            f"{spec.name}: the model {spec.model!r} is not on this machine",
            hint=f"edgewise pull {spec.model}",
        )
    return stored


def _context(spec: EngineSpec, model: Path) -> int:
    return spec.context or _own_context(need_of(model)) or DEFAULT_CONTEXT


def _parsers(spec: EngineSpec, tool_flag: str) -> list[str]:
    reasoning, tools = _parsers_of(spec)
    return ["--reasoning-parser", reasoning, tool_flag, tools]


def _parsers_of(spec: EngineSpec) -> tuple[str, str]:
    """What the person said, else the row of the model's name. Our own engine reads its template and needs no row."""
    names = (spec.name.lower(), Path(spec.model).name.lower())
    rows = PARSERS.get(spec.kind, {})
    row = next((rows[part] for part in rows if any(part in name for name in names)), ("auto", "auto"))
    reasoning = spec.reasoning_parser if spec.reasoning_parser != "auto" else row[0]
    return reasoning, spec.tool_parser if spec.tool_parser != "auto" else row[1]
