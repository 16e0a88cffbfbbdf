"""What the native module was built with and what this machine can do at most.

`edgewise._native` holds the classes that `decoder` composes (Pool, KvCache, Matrix, Program); its stub documents them.
"""

from __future__ import annotations

from edgewise import _native
from edgewise.core.errors import ConfigError


def available_isas() -> tuple[str, ...]:
    """Names of the instruction sets whose kernels run here, best first; the last is always "generic"."""
    return tuple(_native.available_isas())


def check_isa(isa: str) -> str:
    """`isa` itself when it is "auto" or one of `available_isas()`. Raises ConfigError otherwise."""
    if isa != "auto" and isa not in available_isas():
        raise ConfigError(
            f"instruction set {isa!r} is not available on this machine",
            hint=f"use auto or one of: {', '.join(available_isas())}",
        )
    return isa


def layout_of(isa: str = "auto") -> int:
    """Rows interleaved in the weight layout that the kernels of `isa` are written for. Raises ConfigError."""
    return _native.isa_layout(check_isa(isa))


def read_bandwidth(threads: int, *, num_bytes: int = 512 << 20, seconds: float = 0.5) -> float:
    """GB/s (1e9 bytes) that `threads` threads read from memory together."""
    pool = _native.Pool(threads)
    try:
        return _native.read_bandwidth(pool, num_bytes, seconds)
    finally:
        pool.close()


def int8_peak(threads: int, *, seconds: float = 0.3) -> float:
    """GOP/s (1e9 multiplies and adds) of the fastest int8 loop on registers, `threads` threads together."""
    pool = _native.Pool(threads)
    try:
        return _native.int8_peak(pool, seconds)
    finally:
        pool.close()
