"""Options as people give them, and `resolve`, which decides every "auto" once.

Options are frozen dataclasses that hold `None` for "auto". `resolve` turns them into a `ResolvedConfig` without any "auto"
left, from the facts of the model and of the machine, and logs each decision. Nothing here reads argv or the environment.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from edgewise.core.errors import ConfigError
from edgewise.core.spec import AttentionSpec, DecoderSpec
from edgewise.hardware import HardwareFacts

logger = logging.getLogger("edgewise.config")

SchedulingPolicy = Literal["fcfs", "priority", "lpm"]
POLICIES = ("fcfs", "priority", "lpm")
MAX_THREADS = 256  # of the native pool
BLOCK_SIZE = 32  # tokens; the kernels' attention partitions are made of whole blocks

MIB = 1 << 20
HEADROOM_BYTES = (
    512 * MIB
)  # left to the system, Python, activations and the page tables of the mapped weights
KV_SHARE = (
    0.5  # of the memory left, at most, for KV blocks whose number nobody gave: the machine has other work too
)
AUTO_NUM_SEQS = 16  # decode throughput on a CPU stops growing near here: rows then fill the integer units
AUTO_BATCHED_TOKENS = 512  # long enough that reading the weights costs little beside the arithmetic
MIN_SEQ_TOKENS = 1024  # an automatic number of sequences leaves each at least this much room
LOGITS_BYTES = 32 * MIB  # of one step: how many prompt positions a step can score


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Which model, and what of its own files to heed."""

    model: str | None = None  # catalog name, hub id, file, checkpoint or engine directory
    engine_dir: Path | None = None  # an engine directory, nothing else
    served_model_name: str | None = None  # None: the source's name
    generation_config: Literal["auto", "none"] = (
        "auto"  # none: the model's own sampling defaults are not read
    )
    chat_template: str | None = None  # replaces the model's own; the template's text

    def __post_init__(self) -> None:
        if self.generation_config not in ("auto", "none"):
            raise ConfigError(f"generation_config must be 'auto' or 'none', got {self.generation_config!r}")


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Sizes and policies of the engine. None: decided by `resolve`."""

    threads: int | None = None
    isa: str = "auto"
    max_model_len: int | None = None  # tokens of prompt and answer together
    max_input_len: int | None = None  # tokens of a prompt; None: what max_model_len leaves
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    num_blocks: int | None = None
    block_size: int = BLOCK_SIZE
    scheduling_policy: SchedulingPolicy = "fcfs"
    enable_prefix_caching: bool = True
    enable_jump_forward: bool = True
    huge_pages: bool | None = (
        None  # copy the weights into huge pages; None: where the system has them and memory is ample
    )


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """How the answers of a chat model are read and bound."""

    tool_call_parser: str = "auto"  # a tool dialect; auto: the template's; none: calls stay text
    reasoning_parser: str = "auto"  # a reasoning dialect; auto: the template's; none: thinking stays text
    bare_calls: bool = (
        True  # an answer that opens as a call without its markers is one, where tools are offered
    )
    reasoning_budget: int | None = (
        None  # tokens of thinking where the request names none; None: without limit
    )


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """Where engine directories made on first use are kept. None: the room's own default."""

    cache_dir: Path | None = None
    engine_cache_max_size_gb: float | None = None
    clear_engine_cache: bool = False


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What the HTTP server needs beside the engine."""

    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()  # CORS; empty: off
    max_body_bytes: int = 32 * MIB
    request_queue_size: int = 32  # requests admitted at once, running and waiting
    drain_timeout_s: float = 30.0  # after SIGTERM
    keep_alive_s: float = 10.0  # a stream shows a sign of life at least this often
    force_include_usage: bool = False
    strict_model_names: bool = False
    trust_request_chat_template: bool = False  # a request may bring its own template, rendered in the sandbox
    root_path: str = ""
    page: bool = True  # browsers get the chat page at /
    search_url: str | None = None  # of a SearXNG: the page can search the web then
    log_level: Literal["debug", "info", "warning", "error"] = "info"


@dataclass(frozen=True, slots=True)
class Config:
    """Everything a person can choose about a served model."""

    model: ModelOptions = field(default_factory=ModelOptions)
    engine: EngineOptions = field(default_factory=EngineOptions)
    chat: ChatOptions = field(default_factory=ChatOptions)
    cache: CacheOptions = field(default_factory=CacheOptions)
    server: ServerOptions = field(default_factory=ServerOptions)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What `resolve` must know of the model."""

    spec: DecoderSpec
    file_bytes: int  # of weights, mapped and read whole at every step
    kv_bytes_per_block: int  # all layers together


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    """Every size decided. Immutable; the same object sizes decoder, engine and server."""

    threads: int
    isa: str
    block_size: int
    num_blocks: int
    max_model_len: int
    max_input_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_output_rows: int
    scheduling_policy: SchedulingPolicy
    enable_prefix_caching: bool
    enable_jump_forward: bool
    huge_pages: bool
    kv_bytes: int
    weights_bytes: int


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


T = TypeVar("T", bound=_Dataclass)


def from_mapping(kind: type[T], values: Mapping[str, Any]) -> T:
    """An options object from names and values. Raises ConfigError for an unknown name, suggesting the nearest."""
    known = [f.name for f in dataclasses.fields(kind)]
    for name in values:
        if name not in known:
            raise unknown_option(name, known)
    return kind(**values)


def unknown_option(name: str, known: list[str]) -> ConfigError:
    """The error for an option nobody knows, with the nearest known name as its hint."""
    near = difflib.get_close_matches(name, known, n=1)
    return ConfigError(f"unknown option {name!r}", hint=f"did you mean {near[0]!r}?" if near else None)


def kv_bytes_per_block(spec: DecoderSpec, block_size: int = BLOCK_SIZE) -> int:
    """Bytes of float16 KV one block takes over all attention layers."""
    mixers = (layer.mixer for layer in spec.layers)
    return sum(
        m.num_kv_heads * (m.head_dim + m.value_dim) * block_size * 2
        for m in mixers
        if isinstance(m, AttentionSpec)
    )


def resolve(options: EngineOptions, model: ModelFacts, hardware: HardwareFacts) -> ResolvedConfig:
    """Decide every "auto" and log the outcome.

    Raises ConfigError for a value out of range, and for an explicit length or number of blocks that cannot fit, with both
    numbers.
    """
    _check(options)
    budget_blocks = _blocks_in_memory(model, hardware)
    num_seqs = options.max_num_seqs or AUTO_NUM_SEQS
    window = _window(options, model.spec)
    num_blocks = _num_blocks(options, window, num_seqs, budget_blocks, model, hardware)
    max_model_len = _max_model_len(options, window, num_blocks)
    if options.max_num_seqs is None:
        num_seqs = max(1, min(num_seqs, num_blocks * BLOCK_SIZE // min(MIN_SEQ_TOKENS, max_model_len)))
    batched = options.max_num_batched_tokens or max(num_seqs, min(AUTO_BATCHED_TOKENS, max_model_len))
    if batched < num_seqs:
        raise ConfigError(
            f"max_num_batched_tokens ({batched}) must be at least max_num_seqs ({num_seqs}): each running sequence takes one row"
        )
    resolved = ResolvedConfig(
        threads=options.threads or hardware.usable_cpus,
        isa=options.isa,
        block_size=BLOCK_SIZE,
        num_blocks=num_blocks,
        max_model_len=max_model_len,
        max_input_len=_max_input_len(options, max_model_len),
        max_num_seqs=num_seqs,
        max_num_batched_tokens=batched,
        max_output_rows=min(batched, max(num_seqs, LOGITS_BYTES // (4 * model.spec.vocab_size))),
        scheduling_policy=options.scheduling_policy,
        enable_prefix_caching=options.enable_prefix_caching,
        enable_jump_forward=options.enable_jump_forward,
        huge_pages=_huge_pages(options, model, hardware),
        kv_bytes=num_blocks * model.kv_bytes_per_block,
        weights_bytes=model.file_bytes,
    )
    _log(options, resolved, hardware)
    return resolved


def _check(options: EngineOptions) -> None:
    for name in (
        "threads",
        "max_model_len",
        "max_input_len",
        "max_num_seqs",
        "max_num_batched_tokens",
        "num_blocks",
    ):
        value = getattr(options, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ConfigError(f"{name} must be a whole number of at least 1, or None for auto; got {value!r}")
    if (options.threads or 0) > MAX_THREADS:
        raise ConfigError(f"threads must be at most {MAX_THREADS}, got {options.threads}")
    if options.block_size != BLOCK_SIZE:
        raise ConfigError(f"block_size must be {BLOCK_SIZE}, got {options.block_size!r}")
    if options.scheduling_policy not in POLICIES:
        near = difflib.get_close_matches(str(options.scheduling_policy), POLICIES, n=1)
        raise ConfigError(
            f"scheduling_policy must be one of {', '.join(POLICIES)}; got {options.scheduling_policy!r}",
            hint=f"did you mean {near[0]!r}?" if near else None,
        )


def _huge_pages(options: EngineOptions, model: ModelFacts, hardware: HardwareFacts) -> bool:
    """The mapped file stays in the page cache beside the copy, so an automatic copy asks for room for three."""
    if options.huge_pages is not None:
        return options.huge_pages
    return hardware.huge_pages and 3 * model.file_bytes < hardware.usable_memory_bytes


def _blocks_in_memory(model: ModelFacts, hardware: HardwareFacts) -> int:
    """Blocks that fit beside the weights and the headroom. May be below one."""
    room = hardware.usable_memory_bytes - model.file_bytes - HEADROOM_BYTES
    return room // max(1, model.kv_bytes_per_block)


def _window(options: EngineOptions, spec: DecoderSpec) -> int:
    """The longest sequence wanted, in tokens: what was asked, or what the model was made for."""
    wanted = options.max_model_len
    if wanted is not None and wanted > spec.max_positions:
        raise ConfigError(
            f"max_model_len ({wanted}) is more than the {spec.max_positions} tokens the model was made for",
            hint=f"leave it out, or give at most {spec.max_positions}",
        )
    return wanted or spec.max_positions


def _num_blocks(
    options: EngineOptions,
    window: int,
    num_seqs: int,
    budget: int,
    model: ModelFacts,
    hardware: HardwareFacts,
) -> int:
    """KV blocks: those asked for; else enough for `num_seqs` full windows, within a share of the memory left."""
    if options.num_blocks is not None:
        if options.num_blocks > budget:
            raise ConfigError(
                f"num_blocks ({options.num_blocks}) needs {_mib(options.num_blocks * model.kv_bytes_per_block)} of memory, but"
                f" only {max(0, budget)} blocks ({_mib(max(0, budget) * model.kv_bytes_per_block)}) fit"
            )
        return options.num_blocks
    need = -(-window // BLOCK_SIZE)
    blocks = min(int(budget * KV_SHARE), num_seqs * need)
    if options.max_model_len is not None:
        if need > budget:
            raise ConfigError(
                f"max_model_len ({options.max_model_len}) needs {_mib(need * model.kv_bytes_per_block)} of KV memory, but only"
                f" {max(0, budget) * BLOCK_SIZE} tokens ({_mib(max(0, budget) * model.kv_bytes_per_block)}) fit",
                hint="give a smaller max_model_len, or leave it out",
            )
        blocks = max(blocks, need)
    if blocks < 1:
        raise ConfigError(
            f"the model does not fit: its weights take {_mib(model.file_bytes)} and {_mib(hardware.usable_memory_bytes)} of"
            " memory are free"
        )
    return blocks


def _max_model_len(options: EngineOptions, window: int, num_blocks: int) -> int:
    fits = num_blocks * BLOCK_SIZE
    if options.max_model_len is not None and options.max_model_len > fits:
        raise ConfigError(
            f"max_model_len ({options.max_model_len}) does not fit: num_blocks ({num_blocks}) holds {fits} tokens",
            hint=f"give num_blocks of at least {-(-options.max_model_len // BLOCK_SIZE)}",
        )
    return min(window, fits)


def _max_input_len(options: EngineOptions, max_model_len: int) -> int:
    if options.max_input_len is None:
        return max_model_len
    if options.max_input_len > max_model_len:
        raise ConfigError(
            f"max_input_len ({options.max_input_len}) is more than max_model_len ({max_model_len})",
            hint="raise max_model_len too",
        )
    return options.max_input_len


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / MIB:,.0f} MiB"


def _log(options: EngineOptions, resolved: ResolvedConfig, hardware: HardwareFacts) -> None:
    """One line with every size; "auto" marks what nobody gave."""
    names = ("threads", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "num_blocks")
    sizes = [
        f"{name}={getattr(resolved, name)}" + (" (auto)" if getattr(options, name) is None else "")
        for name in names
    ]
    logger.info(
        "%s; KV %s, weights %s; %d processors, quota %s, %s of memory usable",
        ", ".join(sizes),
        _mib(resolved.kv_bytes),
        _mib(resolved.weights_bytes),
        hardware.num_cpus,
        "none" if hardware.cpu_quota is None else f"{hardware.cpu_quota:g}",
        _mib(hardware.usable_memory_bytes),
    )
