"""A tiny seeded decoder as a native program, and the same arithmetic in NumPy float64: what the program tests compare."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from edgewise import _native

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]

BLOCK = 32
LANES = 8


def aligned(data: bytes) -> npt.NDArray[np.uint8]:
    """The bytes at an address that is a multiple of 64."""
    memory = np.zeros(len(data) + 64, np.uint8)
    start = -memory.ctypes.data % 64
    view = memory[start : start + len(data)]
    view[:] = np.frombuffer(data, np.uint8)
    return view


def pack_f32(weight: F32, lanes: int = LANES) -> _native.Matrix:
    """weight f32[rows, cols] in the packed order [row block][k][lane], padded with zero rows."""
    rows, cols = weight.shape
    blocks = -(-rows // lanes)
    padded = np.zeros((blocks * lanes, cols), np.float32)
    padded[:rows] = weight
    packed = padded.reshape(blocks, lanes, cols).transpose(0, 2, 1).tobytes()
    data = aligned(packed + bytes(-len(packed) % 64))
    return _native.Matrix("F32", lanes, rows, cols, data)


@dataclass(frozen=True)
class Shape:
    """Sizes and traits of the tiny decoder."""

    vocab: int = 43
    embed: int = 24
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 8
    value_dim: int = 16
    hidden: int = 37
    layers: int = 2
    kinds: tuple[tuple[str, int], ...] = (("full", 0), ("sliding", 9))  # in turn
    pairing: str = "half"
    pairs: int = 3
    activation: str = "silu"
    norm: str = "rms"
    qk_norm: bool = True
    bias: bool = True
    sinks: bool = False
    soft_cap: float = 0.0
    logit_cap: float = 0.0
    lanes: int = LANES


@dataclass
class TinyDecoder:
    """Weights of a decoder; `program` compiles them, `reference` runs them in float64."""

    shape: Shape
    seed: int = 0
    weights: dict[str, F32] = field(default_factory=dict)

    def __post_init__(self) -> None:
        s = self.shape
        rng = np.random.default_rng(self.seed)

        def add(name: str, *size: int, center: float = 0.0, spread: float | None = None) -> None:
            spread = 1.0 / np.sqrt(size[-1]) if spread is None else spread
            self.weights[name] = rng.normal(center, spread, size).astype(np.float32)

        add("embed", s.vocab, s.embed, spread=1.0)
        for i in range(s.layers):
            for name, rows, cols in (
                ("q", s.heads * s.head_dim, s.embed),
                ("k", s.kv_heads * s.head_dim, s.embed),
                ("v", s.kv_heads * s.value_dim, s.embed),
                ("o", s.embed, s.heads * s.value_dim),
                ("gate", s.hidden, s.embed),
                ("up", s.hidden, s.embed),
                ("down", s.embed, s.hidden),
            ):
                add(f"{i}.{name}", rows, cols)
                add(f"{i}.{name}.bias", rows, spread=0.3)
            for name in ("attn_norm", "mlp_norm"):
                add(f"{i}.{name}", s.embed, center=1.0, spread=0.2)
            for name in ("q_norm", "k_norm"):
                add(f"{i}.{name}", s.head_dim, center=1.0, spread=0.2)
            add(f"{i}.sinks", s.heads, spread=1.0)
        add("norm", s.embed, center=1.0, spread=0.2)

    @property
    def inv_freq(self) -> F64:
        return 100.0 ** (-np.arange(self.shape.pairs) / self.shape.pairs)

    def kind(self, layer: int) -> tuple[str, int]:
        return self.shape.kinds[layer % len(self.shape.kinds)]

    def cache(self, num_blocks: int = 64) -> _native.KvCache:
        s = self.shape
        return _native.KvCache([(s.kv_heads, s.head_dim, s.value_dim)] * s.layers, num_blocks)

    def program(
        self,
        pool: _native.Pool,
        cache: _native.KvCache,
        *,
        isa: str = "auto",
        max_rows: int = 512,
        max_outputs: int = 512,
    ) -> _native.Program:
        s, w = self.shape, self.weights
        p = _native.Program(pool, isa, max_rows, max_outputs, cache)

        def matrix(name: str) -> _native.Matrix:
            return pack_f32(w[name], s.lanes)

        def bias(name: str) -> F32 | None:
            return w[f"{name}.bias"] if s.bias else None

        def norm(name: str) -> tuple[str, F32, F32 | None, float]:
            return (s.norm, w[name], w[name] - 1.0 if s.norm == "layer" else None, 1e-5)

        x = p.buffer(s.embed)
        q, k = p.buffer(s.heads * s.head_dim), p.buffer(s.kv_heads * s.head_dim)
        v, mixed = p.buffer(s.kv_heads * s.value_dim), p.buffer(s.heads * s.value_dim)
        hidden = p.buffer(s.hidden)
        table = p.rope_table(self.inv_freq, 1.0) if s.pairs else None
        p.embed(matrix("embed"), x, 1.0)
        for i in range(s.layers):
            targets = [
                (matrix(f"{i}.{n}"), bias(f"{i}.{n}"), b, 0) for n, b in (("q", q), ("k", k), ("v", v))
            ]
            p.linear(x, targets, norm=norm(f"{i}.attn_norm"))
            kind, window = self.kind(i)
            p.attention(
                i, q, k, v, mixed, s.heads, s.kv_heads, s.head_dim, s.value_dim, s.head_dim**-0.5, table, s.pairing,
                w[f"{i}.q_norm"] if s.qk_norm else None, w[f"{i}.k_norm"] if s.qk_norm else None, 1e-5,
                kind, window, s.soft_cap, w[f"{i}.sinks"] if s.sinks else None,
            )  # fmt: skip
            p.linear(mixed, [(matrix(f"{i}.o"), bias(f"{i}.o"), x, 0)], accumulate=True, scale=0.5)
            p.gated_mlp(
                x, matrix(f"{i}.gate"), matrix(f"{i}.up"), s.activation, hidden, norm=norm(f"{i}.mlp_norm"),
                gate_bias=bias(f"{i}.gate"), up_bias=bias(f"{i}.up"),
            )  # fmt: skip
            p.linear(hidden, [(matrix(f"{i}.down"), bias(f"{i}.down"), x, 0)], accumulate=True)
        wanted = p.output_buffer(s.embed)
        p.gather_outputs(x, wanted)
        p.head(wanted, matrix("embed"), norm("norm"), None, 1.5, s.logit_cap)
        return p

    def reference(self, ids: I32, embeddings: dict[int, F32] | None = None) -> F64:
        """Logits f64[T, V] of one sequence; keys and values are rounded to float16 as the cache does."""
        s, w = self.shape, {name: value.astype(np.float64) for name, value in self.weights.items()}
        x = w["embed"][ids]
        for row, value in (embeddings or {}).items():
            x[row] = value
        for i in range(s.layers):
            x = x + 0.5 * self._linear(w, f"{i}.o", self._attention(w, i, self._norm(w, f"{i}.attn_norm", x)))
            h = self._norm(w, f"{i}.mlp_norm", x)
            gate, up = self._linear(w, f"{i}.gate", h), self._linear(w, f"{i}.up", h)
            x = x + self._linear(w, f"{i}.down", activation(s.activation, gate) * up)
        logits = self._norm(w, "norm", x) @ w["embed"].T * 1.5
        return s.logit_cap * np.tanh(logits / s.logit_cap) if s.logit_cap else logits

    def _linear(self, w: dict[str, F64], name: str, x: F64) -> F64:
        return x @ w[name].T + (w[f"{name}.bias"] if self.shape.bias else 0.0)

    def _norm(self, w: dict[str, F64], name: str, x: F64) -> F64:
        if self.shape.norm == "rms":
            return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w[name]
        d = x - x.mean(-1, keepdims=True)
        return d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5) * w[name] + w[name] - 1.0

    def _attention(self, w: dict[str, F64], i: int, x: F64) -> F64:
        s, rows = self.shape, len(x)
        q = self._linear(w, f"{i}.q", x).reshape(rows, s.heads, s.head_dim)
        k = self._linear(w, f"{i}.k", x).reshape(rows, s.kv_heads, s.head_dim)
        v = self._linear(w, f"{i}.v", x).reshape(rows, s.kv_heads, s.value_dim)
        if s.qk_norm:
            q, k = self._norm_rms(q, w[f"{i}.q_norm"]), self._norm_rms(k, w[f"{i}.k_norm"])
        q, k = self._rotate(q), self._rotate(k)
        k, v = k.astype(np.float16).astype(np.float64), v.astype(np.float16).astype(np.float64)
        out = np.zeros((rows, s.heads, s.value_dim))
        mask = visible(*self.kind(i), rows)
        for h in range(s.heads):
            g = h // (s.heads // s.kv_heads)
            scores = q[:, h] @ k[:, g].T * s.head_dim**-0.5
            if s.soft_cap:
                scores = s.soft_cap * np.tanh(scores / s.soft_cap)
            p = np.exp(np.where(mask, scores, -np.inf))
            total = p.sum(-1, keepdims=True) + (np.exp(w[f"{i}.sinks"][h]) if s.sinks else 0.0)
            out[:, h] = p / total @ v[:, g]
        return out.reshape(rows, -1)

    def _norm_rms(self, x: F64, weight: F64) -> F64:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight

    def _rotate(self, x: F64) -> F64:
        n = self.shape.pairs
        angles = np.arange(len(x))[:, None] * self.inv_freq if n else np.zeros((len(x), 0))
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        first, second = (slice(0, n), slice(n, 2 * n))
        if self.shape.pairing == "interleaved":
            first, second = slice(0, 2 * n, 2), slice(1, 2 * n, 2)
        y = x.copy()
        y[..., first] = x[..., first] * cos - x[..., second] * sin
        y[..., second] = x[..., second] * cos + x[..., first] * sin
        return y


def activation(kind: str, x: F64) -> F64:
    """The activations of edgewise.core.spec.ActivationKind in float64."""
    from math import erf

    match kind:
        case "silu":
            return x / (1.0 + np.exp(-x))
        case "gelu_tanh":
            return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))
        case "gelu":
            return 0.5 * x * (1.0 + np.vectorize(erf, otypes=[np.float64])(x / np.sqrt(2.0)))
        case "relu2":
            return np.maximum(x, 0.0) ** 2
    raise ValueError(kind)


def visible(kind: str, window: int, rows: int) -> npt.NDArray[np.bool_]:
    """mask[i, j]: row i sees key j."""
    i, j = np.arange(rows)[:, None], np.arange(rows)[None, :]
    mask = j <= i
    if kind == "sliding":
        mask &= j > i - window
    if kind == "chunked":
        mask &= j >= i // window * window
    return mask


@dataclass
class Part:
    """Rows of one sequence in a step: tokens `ids` after `context` cached ones, its KV in `blocks`."""

    ids: I32
    context: int
    blocks: list[int]


def step_arrays(parts: list[Part], wanted: list[int] | None = None) -> dict[str, Any]:
    """The arguments of Program.run; every row's logits unless `wanted` lists rows."""
    lengths = [len(part.ids) for part in parts]
    width = max(len(part.blocks) for part in parts)
    rows = range(sum(lengths)) if wanted is None else wanted
    positions = [np.arange(part.context, part.context + len(part.ids)) for part in parts]
    return {
        "token_ids": np.concatenate([part.ids for part in parts]).astype(np.int32),
        "positions": np.concatenate(positions).astype(np.int32),
        "row_starts": np.cumsum([0, *lengths]).astype(np.int32),
        "context_lens": np.array([part.context for part in parts], np.int32),
        "block_tables": np.array(
            [part.blocks + [-1] * (width - len(part.blocks)) for part in parts], np.int32
        ),
        "output_rows": np.array(rows, np.int32),
    }


def run_step(program: _native.Program, parts: list[Part], wanted: list[int] | None = None) -> F32:
    """Logits of the wanted rows, copied."""
    arrays = step_arrays(parts, wanted)
    assert program.run(**arrays)
    return program.logits(len(arrays["output_rows"])).copy()


def run_chunks(program: _native.Program, ids: I32, chunks: list[int], blocks: list[int]) -> F32:
    """One sequence in steps of the given sizes; the last size repeats. Logits of all rows."""
    logits, start = [], 0
    sizes = iter(chunks)
    size = 1
    while start < len(ids):
        size = next(sizes, size)
        logits.append(run_step(program, [Part(ids[start : start + size], start, blocks)]))
        start += size
    return np.concatenate(logits)
