"""From what a person wants to run to the command that runs it. Every engine listens on loopback alone; the gateway is what others reach.

Sources: `edgewise serve --help`; llama.cpp, tools/server/README.md; vLLM, `vllm serve --help`; TensorRT Edge-LLM 0.11, `tensorrt-edgellm-serve --help`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from edgewise.checkpoints.settings import StoreSettings
from edgewise.checkpoints.stored import stored_file, wanted_model
from edgewise.core.engines import EngineKind, EngineSpec, Launch
from edgewise.core.errors import ConfigError
from edgewise.manage.need import Need, need_of
from edgewise.manage.presets import Preset, read_presets

DEFAULT_CONTEXT = 32768
"""Tokens a model is given where nobody says, if its window is no shorter."""

EDGE_LLM_CONTEXT = 32768

PROGRAMS = {
    EngineKind.LLAMA: ("llama-server", "llama.cpp, or the xllamacpp wheel"),
    EngineKind.VLLM: ("vllm", "pip install vllm"),
    EngineKind.EDGE_LLM: ("tensorrt-edgellm-serve", "TensorRT Edge-LLM"),
}
"""What is looked for on the path, and where it comes from."""

PARSERS: dict[str, tuple[str, str]] = {
    "qwen3.6": ("qwen3", "qwen3_xml"),
    "nemotron": ("nemotron", "nemotron"),
}
"""Beginning of a model's name -> its reasoning and tool parsers, for engines that would have to guess. Those not here stay "auto"."""


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
    """Raises ConfigError for a program or model that is not there."""
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
    read_presets(presets)  # what is wrong in them is said now, not in a log
    return _finished(spec, settings, argv, 0)


def router_model_bytes(spec: EngineSpec, model: str) -> int:
    """What a model of a router's needs once it is loaded; 0 where nobody can tell. Raises ConfigError for a model it does not have."""
    presets = {one.name: one for one in read_presets(Path(spec.model).expanduser()).models}
    if model not in presets:
        raise ConfigError(
            f"{spec.name} has no model {model!r}", hint=f"{spec.model} has {', '.join(presets) or 'none'}"
        )
    return _preset_bytes(presets[model])


def _preset_bytes(preset: Preset) -> int:
    """`ctx-size` of a preset is that of all its slots together."""
    need = need_of(Path(preset.model).expanduser()) if preset.model else None
    if need is None:
        return 0
    return need.total_bytes(preset.context or need.window or DEFAULT_CONTEXT, 1)


def _vllm(spec: EngineSpec, settings: LaunchSettings) -> Launch:
    argv = [_program(spec, settings), "serve", spec.model, *_address(spec), "--served-model-name", spec.name]
    argv += ["--max-num-seqs", str(spec.users)]
    argv += ["--max-model-len", str(spec.context)] if spec.context else []
    reasoning, tools = _parsers_of(spec)
    argv += ["--reasoning-parser", reasoning] if reasoning != "auto" else []
    argv += ["--enable-auto-tool-choice", "--tool-call-parser", tools] if tools != "auto" else []
    return _launch(spec, settings, argv, Path(spec.model).expanduser())


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


def need_of_spec(spec: EngineSpec, settings: LaunchSettings) -> Need | None:
    """What the model of an engine needs; None where nobody can tell, as for a router. Raises ConfigError for a model that is not here."""
    if is_router(spec):
        return None
    own = spec.kind in (EngineKind.EDGEWISE, EngineKind.LLAMA)
    return need_of(_model_path(spec, settings) if own else Path(spec.model).expanduser())


def _launch(spec: EngineSpec, settings: LaunchSettings, argv: list[str], model: Path) -> Launch:
    need = need_of(model)
    context = spec.context or min((need and need.window) or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    return _finished(spec, settings, argv, 0 if need is None else need.total_bytes(context, spec.users))


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
    if spec.context:
        return spec.context
    need = need_of(model)
    return min((need and need.window) or DEFAULT_CONTEXT, DEFAULT_CONTEXT)


def _parsers(spec: EngineSpec, tool_flag: str) -> list[str]:
    reasoning, tools = _parsers_of(spec)
    return ["--reasoning-parser", reasoning, tool_flag, tools]


def _parsers_of(spec: EngineSpec) -> tuple[str, str]:
    """What the person said, else the row of the model's name. Our own engine reads its template and needs no row."""
    names = (spec.name.lower(), Path(spec.model).name.lower())
    row = next(
        (
            pair
            for start, pair in PARSERS.items()
            if spec.kind is not EngineKind.EDGEWISE and any(start in name for name in names)
        ),
        ("auto", "auto"),
    )
    reasoning = spec.reasoning_parser if spec.reasoning_parser != "auto" else row[0]
    return reasoning, spec.tool_parser if spec.tool_parser != "auto" else row[1]
