"""Edgewise: a model server for small machines, and the engine inside it as a library.

The public names below load on first use, so that `import edgewise` is quick and works where the native module does not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "LLM": "edgewise.llm",
    "AsyncLLM": "edgewise.async_llm",
    "SamplingParams": "edgewise.core.sampling",
    "CompletionOutput": "edgewise.outputs",
    "RequestOutput": "edgewise.outputs",
    "StreamDelta": "edgewise.outputs",
    "RequestTimings": "edgewise.core.requests",
    "TokenLogprob": "edgewise.core.requests",
    "Usage": "edgewise.core.requests",
    "CheckpointError": "edgewise.core.errors",
    "ConfigError": "edgewise.core.errors",
    "ContextLengthError": "edgewise.core.errors",
    "DownloadError": "edgewise.core.errors",
    "EdgewiseError": "edgewise.core.errors",
    "EngineDeadError": "edgewise.core.errors",
    "EngineDirError": "edgewise.core.errors",
    "InvalidRequestError": "edgewise.core.errors",
    "ModelError": "edgewise.core.errors",
    "ModelNotFoundError": "edgewise.core.errors",
    "OverloadedError": "edgewise.core.errors",
    "RequestCancelledError": "edgewise.core.errors",
    "TokenizerError": "edgewise.core.errors",
    "UnsupportedModelError": "edgewise.core.errors",
    "UpstreamError": "edgewise.core.errors",
}

__all__ = ["__version__", *_HOMES]

if TYPE_CHECKING:
    from edgewise.async_llm import AsyncLLM as AsyncLLM
    from edgewise.core.errors import CheckpointError as CheckpointError
    from edgewise.core.errors import ConfigError as ConfigError
    from edgewise.core.errors import ContextLengthError as ContextLengthError
    from edgewise.core.errors import DownloadError as DownloadError
    from edgewise.core.errors import EdgewiseError as EdgewiseError
    from edgewise.core.errors import EngineDeadError as EngineDeadError
    from edgewise.core.errors import EngineDirError as EngineDirError
    from edgewise.core.errors import InvalidRequestError as InvalidRequestError
    from edgewise.core.errors import ModelError as ModelError
    from edgewise.core.errors import ModelNotFoundError as ModelNotFoundError
    from edgewise.core.errors import OverloadedError as OverloadedError
    from edgewise.core.errors import RequestCancelledError as RequestCancelledError
    from edgewise.core.errors import TokenizerError as TokenizerError
    from edgewise.core.errors import UnsupportedModelError as UnsupportedModelError
    from edgewise.core.errors import UpstreamError as UpstreamError
    from edgewise.core.requests import RequestTimings as RequestTimings
    from edgewise.core.requests import TokenLogprob as TokenLogprob
    from edgewise.core.requests import Usage as Usage
    from edgewise.core.sampling import SamplingParams as SamplingParams
    from edgewise.llm import LLM as LLM
    from edgewise.outputs import CompletionOutput as CompletionOutput
    from edgewise.outputs import RequestOutput as RequestOutput
    from edgewise.outputs import StreamDelta as StreamDelta


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'edgewise' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
