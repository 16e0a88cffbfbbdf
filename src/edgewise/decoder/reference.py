"""The definition of a decoder in NumPy: a whole forward pass in one float type, weights dequantised, no cache, no tricks.

The oracle of the tests and of the published accuracy figures. Slow on purpose: it shares no code with the native decoder but
the `DecoderSpec` and the rotary frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from edgewise.core.spec import AttentionSpec, DecoderSpec, LayerSpec, MlpSpec
from edgewise.decoder.compile import check_supported
from edgewise.decoder.rope import rope_frequencies

Array: TypeAlias = npt.NDArray[np.floating]
TensorLookup: TypeAlias = Callable[[str], Array]
"""Canonical tensor name -> f32 array ([rows, cols] or [n])."""


class ReferenceDecoder:
    """Forward pass of one sequence. `tensor` looks up dequantised weights; `dtype` is np.float32 or np.float64.

    `window` is the longest sequence served, tokens (None: the model's own window); LongRoPE's factors depend on it. `kv_dtype`
    is what keys and values are rounded to before attention reads them, as a cache of that type would (None: not at all).
    """

    def __init__(
        self,
        spec: DecoderSpec,
        tensor: TensorLookup,
        dtype: type[np.floating] = np.float32,
        *,
        window: int | None = None,
        kv_dtype: type[np.floating] | None = None,
    ) -> None:
        check_supported(spec)
        self.spec = spec
        self.dtype = dtype
        self.window = window or spec.max_positions
        self.kv_dtype = kv_dtype or dtype
        self._tensor = tensor

    def logits(self, token_ids: npt.NDArray[np.int32]) -> Array:
        """Logits [T, V] of every position of one text."""
        spec = self.spec
        head = self._get("embed.weight" if spec.tied_head else "head.weight")
        y = self.hidden(token_ids) @ head.T
        if spec.head_bias:
            y = y + self._get("head.bias")
        return self._cap(y * self.dtype(spec.logit_scale), spec.logit_soft_cap)

    def hidden(self, token_ids: npt.NDArray[np.int32]) -> Array:
        """Hidden states [T, E] of every position after the final norm."""
        spec = self.spec
        x = self._get("embed.weight")[token_ids] * self.dtype(spec.embed_scale)
        for index, layer in enumerate(spec.layers):
            x = self._residual(x, self._attention(index, layer, x), layer, f"layers.{index}.attn")
            x = self._residual(x, self._mlp(index, layer.mlp, x), layer, f"layers.{index}.mlp")
        return self._norm(x, "final_norm")

    def _get(self, name: str) -> Array:
        return np.asarray(self._tensor(name), dtype=self.dtype)

    def _linear(self, x: Array, name: str, has_bias: bool) -> Array:
        y = x @ self._get(f"{name}.weight").T
        return y + self._get(f"{name}.bias") if has_bias else y

    def _residual(self, x: Array, update: Array, layer: LayerSpec, block: str) -> Array:
        if layer.post_norms:
            update = self._norm(update, f"{block}_post_norm")
        return x + update * self.dtype(self.spec.residual_scale)

    def _norm(self, x: Array, name: str) -> Array:
        weight = self._get(f"{name}.weight")
        if self.spec.norm == "layer":
            x = x - x.mean(axis=-1, keepdims=True)
            return self._rms(x) * weight + self._get(f"{name}.bias")
        return self._rms(x) * weight

    def _rms(self, x: Array) -> Array:
        mean: Array = (x * x).mean(axis=-1, keepdims=True)
        scaled: Array = x / np.sqrt(mean + self.dtype(self.spec.norm_eps))
        return scaled

    def _attention(self, index: int, layer: LayerSpec, x: Array) -> Array:
        a, name = layer.mixer, f"layers.{index}.attn"
        assert isinstance(a, AttentionSpec)
        x = self._norm(x, f"layers.{index}.attn_norm")
        rows = x.shape[0]
        q = self._linear(x, f"{name}.q", a.qkv_bias).reshape(rows, a.num_heads, a.head_dim)
        k = self._linear(x, f"{name}.k", a.qkv_bias).reshape(rows, a.num_kv_heads, a.head_dim)
        v = self._linear(x, f"{name}.v", a.qkv_bias).reshape(rows, a.num_kv_heads, a.value_dim)
        if a.qk_norm:
            q = self._rms(q) * self._get(f"{name}.q_norm.weight")
            k = self._rms(k) * self._get(f"{name}.k_norm.weight")
        if a.rope is not None:
            q, k = self._rope(q, a), self._rope(k, a)
        k, v = (x.astype(self.kv_dtype).astype(self.dtype) for x in (k, v))
        group = a.num_heads // a.num_kv_heads
        sinks = self._get(f"{name}.sinks") if a.sinks else None
        visible = _mask(rows, a)
        out = np.empty((rows, a.num_heads, a.value_dim), dtype=self.dtype)
        for head in range(a.num_heads):
            scores = (q[:, head] @ k[:, head // group].T) * self.dtype(a.scale)
            scores = np.where(visible, self._cap(scores, a.soft_cap), -np.inf)
            top = scores.max(axis=-1, keepdims=True)
            if sinks is not None:
                top = np.maximum(top, sinks[head])
            weights = np.exp(scores - top)
            total = weights.sum(axis=-1, keepdims=True)
            if sinks is not None:
                total = total + np.exp(sinks[head] - top)
            out[:, head] = (weights / total) @ v[:, head // group]
        return self._linear(out.reshape(rows, -1), f"{name}.o", a.out_bias)

    def _rope(self, x: Array, a: AttentionSpec) -> Array:
        assert a.rope is not None
        inv_freq, scale = rope_frequencies(a.rope, self.window)
        angles = np.arange(x.shape[0])[:, None] * inv_freq
        cos = (np.cos(angles) * scale).astype(self.dtype)[:, None, :]
        sin = (np.sin(angles) * scale).astype(self.dtype)[:, None, :]
        pairs = inv_freq.size
        if a.rope.pairing == "interleaved":
            first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
        else:
            first, second = slice(0, pairs), slice(pairs, 2 * pairs)
        out = x.copy()
        out[..., first] = x[..., first] * cos - x[..., second] * sin
        out[..., second] = x[..., second] * cos + x[..., first] * sin
        return out

    def _mlp(self, index: int, m: MlpSpec, x: Array) -> Array:
        name = f"layers.{index}.mlp"
        x = self._norm(x, f"layers.{index}.mlp_norm")
        up = self._linear(x, f"{name}.up", m.bias)
        hidden = (
            _activate(self._linear(x, f"{name}.gate", m.bias), m.activation) * up
            if m.gated
            else _activate(up, m.activation)
        )
        return self._linear(hidden, f"{name}.down", m.bias)

    def _cap(self, x: Array, cap: float) -> Array:
        return np.tanh(x / self.dtype(cap)) * self.dtype(cap) if cap else x


def _mask(rows: int, a: AttentionSpec) -> npt.NDArray[np.bool_]:
    """bool[T, T]: may the row's position see the column's."""
    query, key = np.arange(rows)[:, None], np.arange(rows)[None, :]
    visible = key <= query
    if a.kind == "sliding":
        visible &= key > query - a.window
    elif a.kind == "chunked":
        visible &= key >= query // a.window * a.window
    return visible


def _activate(x: Array, kind: str) -> Array:
    match kind:
        case "silu":
            return x / (1.0 + np.exp(-x))
        case "gelu_tanh":
            return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
        case "gelu":
            erf: Array = np.vectorize(math.erf)(x / math.sqrt(2.0))
            return 0.5 * x * (1.0 + erf)
        case "relu2":
            return np.maximum(x, 0.0) ** 2
        case _:
            raise AssertionError(kind)
