"""DecoderSpec -> native program: the layers of a model written as calls of kernels, once, at load.

Each statement here appends one operation to the program; a step then runs them all in a single native call. The order of
statements is the way of the data: embedding, per layer (norm, q/k/v, attention, output, norm, MLP), head.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from edgewise import _native
from edgewise.core.errors import UnsupportedModelError
from edgewise.core.spec import AttentionSpec, DecoderSpec, LayerSpec, MlpSpec, RopeSpec
from edgewise.decoder.rope import rope_frequencies
from edgewise.decoder.weights import Weights

Norm = tuple[str, npt.NDArray[np.float32], npt.NDArray[np.float32] | None, float]


def cache_layers(spec: DecoderSpec) -> list[tuple[int, int, int]]:
    """(kv heads, key dim, value dim) of every attention layer's KV cache, in layer order."""
    check_supported(spec)
    return [(a.num_kv_heads, a.head_dim, a.value_dim) for a in map(_attention_of, spec.layers)]


def check_supported(spec: DecoderSpec) -> None:
    """Raises UnsupportedModelError naming the first feature of `spec` that the decoder does not run."""
    for index, layer in enumerate(spec.layers):
        if not isinstance(layer.mixer, AttentionSpec):
            raise UnsupportedModelError(f"layer {index}: {layer.mixer.kind} layers are not supported yet")
        if layer.mlp.moe is not None:
            raise UnsupportedModelError(f"layer {index}: mixture-of-experts layers are not supported yet")
        if layer.mixer.rope is not None and layer.mixer.rope.mrope_sections:
            raise UnsupportedModelError(f"layer {index}: multi-component positions are not supported yet")
        if layer.mixer.head_dim % 8 or layer.mixer.value_dim % 8:
            raise UnsupportedModelError(
                f"layer {index}: heads of {layer.mixer.head_dim} and {layer.mixer.value_dim} values; only multiples of 8 are supported"
            )
        if layer.mixer.num_heads % layer.mixer.num_kv_heads:
            raise UnsupportedModelError(
                f"layer {index}: {layer.mixer.num_heads} heads over {layer.mixer.num_kv_heads} kv heads"
            )


def _attention_of(layer: LayerSpec) -> AttentionSpec:
    assert isinstance(layer.mixer, AttentionSpec)
    return layer.mixer


def norm_of(spec: DecoderSpec, weights: Weights, name: str, width: int) -> Norm:
    """A norm of the model by name: (kind, weight, bias, eps)."""
    bias = weights.optional_vector(f"{name}.bias", width, present=spec.norm == "layer")
    return (spec.norm, weights.vector(f"{name}.weight", width), bias, spec.norm_eps)


@dataclass(slots=True)
class _Compiler:
    """Appends a model's operations; `buffers` and `tables` share storage between layers."""

    program: _native.Program
    spec: DecoderSpec
    weights: Weights
    window: int  # tokens of the longest sequence
    buffers: dict[tuple[str, int], int] = field(default_factory=dict)
    tables: dict[RopeSpec, int] = field(default_factory=dict)

    def buffer(self, role: str, width: int) -> int:
        key = (role, width)
        if key not in self.buffers:
            self.buffers[key] = self.program.buffer(width)
        return self.buffers[key]

    def rope_table(self, rope: RopeSpec | None) -> int | None:
        if rope is None:
            return None
        if rope not in self.tables:
            inv_freq, scale = rope_frequencies(rope, self.window)
            self.tables[rope] = self.program.rope_table(inv_freq, scale)
        return self.tables[rope]

    def norm(self, name: str, width: int) -> Norm:
        return norm_of(self.spec, self.weights, name, width)

    def run(self) -> int:
        spec, program = self.spec, self.program
        x = program.buffer(spec.embed_dim)
        for layer in spec.layers:  # tables come first: they are filled once, before the layers read them
            self.rope_table(_attention_of(layer).rope)
        embed = self.weights.matrix("embed.weight", spec.vocab_size, spec.embed_dim)
        program.embed(embed, x, spec.embed_scale)
        for index, layer in enumerate(spec.layers):
            self.attention(index, layer, x)
            self.mlp(index, layer, x)
        self.head(x, embed)
        return x

    def attention(self, index: int, layer: LayerSpec, x: int) -> None:
        spec, a, name = self.spec, _attention_of(layer), f"layers.{index}.attn"
        q_dim, k_dim, v_dim = (
            a.num_heads * a.head_dim,
            a.num_kv_heads * a.head_dim,
            a.num_kv_heads * a.value_dim,
        )
        q, k, v = self.buffer("q", q_dim), self.buffer("k", k_dim), self.buffer("v", v_dim)
        targets = []
        for part, width, dest in (("q", q_dim, q), ("k", k_dim, k), ("v", v_dim, v)):
            bias = self.weights.optional_vector(f"{name}.{part}.bias", width, present=a.qkv_bias)
            targets.append(
                (self.weights.matrix(f"{name}.{part}.weight", width, spec.embed_dim), bias, dest, 0)
            )
        self.program.linear(x, targets, norm=self.norm(f"layers.{index}.attn_norm", spec.embed_dim))
        mixed = self.buffer("mixed", a.num_heads * a.value_dim)
        self.program.attention(
            index, q, k, v, mixed, a.num_heads, a.num_kv_heads, a.head_dim, a.value_dim, a.scale,
            self.rope_table(a.rope), a.rope.pairing if a.rope else "half",
            self.weights.optional_vector(f"{name}.q_norm.weight", a.head_dim, present=a.qk_norm),
            self.weights.optional_vector(f"{name}.k_norm.weight", a.head_dim, present=a.qk_norm),
            spec.norm_eps, a.kind, a.window, a.soft_cap,
            self.weights.optional_vector(f"{name}.sinks", a.num_heads, present=a.sinks),
        )  # fmt: skip
        self.project(
            f"{name}.o", mixed, a.num_heads * a.value_dim, x, a.out_bias, layer, f"layers.{index}.attn"
        )

    def mlp(self, index: int, layer: LayerSpec, x: int) -> None:
        m, name = layer.mlp, f"layers.{index}.mlp"
        norm = self.norm(f"layers.{index}.mlp_norm", self.spec.embed_dim)
        hidden = self.buffer("hidden", m.hidden_dim)
        up, up_bias = self.mlp_weight(f"{name}.up", m)
        if m.gated:
            gate, gate_bias = self.mlp_weight(f"{name}.gate", m)
            self.program.gated_mlp(
                x, gate, up, m.activation, hidden, norm=norm, gate_bias=gate_bias, up_bias=up_bias
            )
        else:
            self.program.mlp_up(x, up, m.activation, hidden, norm=norm, bias=up_bias)
        self.project(f"{name}.down", hidden, m.hidden_dim, x, m.bias, layer, name)

    def mlp_weight(self, name: str, m: MlpSpec) -> tuple[_native.Matrix, npt.NDArray[np.float32] | None]:
        matrix = self.weights.matrix(f"{name}.weight", m.hidden_dim, self.spec.embed_dim)
        return matrix, self.weights.optional_vector(f"{name}.bias", m.hidden_dim, present=m.bias)

    def project(
        self, name: str, source: int, width: int, x: int, has_bias: bool, layer: LayerSpec, block: str
    ) -> None:
        """The product back to the model's width and the residual sum, with the sandwich norm between where there is one."""
        spec = self.spec
        matrix = self.weights.matrix(f"{name}.weight", spec.embed_dim, width)
        bias = self.weights.optional_vector(f"{name}.bias", spec.embed_dim, present=has_bias)
        if not layer.post_norms:
            self.program.linear(source, [(matrix, bias, x, 0)], accumulate=True, scale=spec.residual_scale)
            return
        out = self.buffer("out", spec.embed_dim)
        self.program.linear(source, [(matrix, bias, out, 0)])
        kind, weight, norm_bias, eps = self.norm(f"{block}_post_norm", spec.embed_dim)
        self.program.norm(out, out, kind, weight, norm_bias, eps)
        self.program.add(out, x, spec.residual_scale)

    def head(self, x: int, embed: _native.Matrix) -> None:
        spec = self.spec
        matrix = embed
        if not spec.tied_head:
            matrix = self.weights.matrix("head.weight", spec.vocab_size, spec.embed_dim)
        bias = self.weights.optional_vector("head.bias", spec.vocab_size, present=spec.head_bias)
        wanted = self.program.output_buffer(spec.embed_dim)
        self.program.gather_outputs(x, wanted)
        self.program.head(
            wanted,
            matrix,
            self.norm("final_norm", spec.embed_dim),
            bias,
            spec.logit_scale,
            spec.logit_soft_cap,
        )


def compile_program(
    program: _native.Program, spec: DecoderSpec, weights: Weights, window: int | None = None
) -> int:
    """Append the whole model to an empty `program`, for sequences of up to `window` tokens (None: the model's own window).

    Returns the buffer that holds, after a run, the hidden states of all rows as the last layer left them.

    Raises UnsupportedModelError for a feature the decoder lacks, EngineDirError for missing or misshapen tensors.
    """
    check_supported(spec)
    return _Compiler(program, spec, weights, window or spec.max_positions).run()
