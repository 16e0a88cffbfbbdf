"""Engine processes that the gateway looks after: what a person asked for, and the process that comes of it. Shared by gateway and manage."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class EngineKind(StrEnum):
    """What program an engine is. A llama-server is one model, or a router of many when it has presets."""

    EDGEWISE = "edgewise"
    LLAMA = "llama-server"
    VLLM = "vllm"
    EDGE_LLM = "edge-llm"


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What a person wants to run. `name` is unique, and what requests may call it.

    `model`: a catalog name, file or folder; for a router of llama-server its presets file. `context`: tokens of one conversation, None
    for the kind's own choice. `users`: conversations at once. Parsers: "auto", or a name the engine knows. `args`: further arguments, as written.
    `wanted`: it runs whenever the gateway does.
    """

    name: str
    kind: EngineKind
    model: str
    port: int
    context: int | None = None
    users: int = 1
    reasoning_parser: str = "auto"
    tool_parser: str = "auto"
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    program: str | None = None  # None: found on the path
    wanted: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """A process that is ready to be started, and where it then listens. Sizes in bytes.

    `need_bytes`: weights, KV and working memory, 0 where nobody can tell. `keep_free_bytes`: what must stay free on the machine while it runs.
    `log`: the file its output goes to.
    """

    name: str
    kind: EngineKind
    argv: tuple[str, ...]
    url: str
    log: str
    env: Mapping[str, str] = field(default_factory=dict)
    need_bytes: int = 0
    keep_free_bytes: int = 0
    router: bool = False

    @property
    def digest(self) -> str:
        """The same for the same command: an engine whose digest did not change need not be started again."""
        parts = (self.argv, sorted(self.env.items()))
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Ran:
    """A process that was started for an engine: enough to find it again, and to tell it from a later one with the same number.

    `start_ticks`: when it began, in clock ticks since the machine did (field 22 of /proc/PID/stat). `digest`: of the Launch it came of.
    """

    pid: int
    start_ticks: int
    digest: str
