"""Names of GGUF tensors and their canonical counterparts, claimed one by one and checked against the spec's shapes.

Every tensor of the checkpoint must be claimed or known to be read elsewhere: one left over means that the model has a part
this description does not know, which would silently change its arithmetic.
"""

from __future__ import annotations

from edgewise.architectures.model_map import SourceTensor
from edgewise.architectures.rope import ROPE_TENSORS
from edgewise.checkpoints import Checkpoint
from edgewise.core.errors import CheckpointError, UnsupportedModelError
from edgewise.core.spec import AttentionSpec, DecoderSpec, LayerSpec


class Claims:
    """Collects the map from canonical to stored tensors."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self.tensors: dict[str, SourceTensor] = {}

    def claim(
        self, canonical: str, name: str, shape: tuple[int, ...], *, rows: slice | None = None, of: int = 0
    ) -> None:
        """Map one tensor. With `rows`, it is a row slice of a stored tensor of `of` rows.

        Raises CheckpointError when it is missing or has another shape.
        """
        info = self._checkpoint.tensors.get(name)
        if info is None:
            raise CheckpointError(f"{self._checkpoint.path}: tensor {name!r} is missing")
        expected = shape if rows is None else (of, *shape[1:])
        if info.shape != expected:
            raise CheckpointError(
                f"{self._checkpoint.path}: tensor {name!r} has shape {list(info.shape)}, "
                f"but the metadata asks for {list(expected)}"
            )
        self.tensors[canonical] = SourceTensor(name, rows)

    def refuse_rest(self) -> None:
        """Raise UnsupportedModelError naming a tensor nobody claimed, if there is one."""
        known = {source.name for source in self.tensors.values()} | set(ROPE_TENSORS)
        rest = sorted(set(self._checkpoint.tensors) - known)
        if rest:
            more = f" and {len(rest) - 1} more" if len(rest) > 1 else ""
            raise UnsupportedModelError(
                f"{self._checkpoint.path}: tensor {rest[0]!r}{more} is not part of the architecture as known"
            )


def claim_tensors(
    checkpoint: Checkpoint, spec: DecoderSpec, *, fused: bool, post_norms: tuple[str, str] | None
) -> dict[str, SourceTensor]:
    """The tensors of a dense attention model under ggml's usual names, in the order a step reads them.

    `fused`: q, k and v are row slices of attn_qkv, gate and up of ffn_up. `post_norms`: names of the sandwich norms.
    """
    claims = Claims(checkpoint)
    claims.claim("embed.weight", "token_embd.weight", (spec.vocab_size, spec.embed_dim))
    for index, layer in enumerate(spec.layers):
        _claim_layer(claims, spec.embed_dim, index, layer, fused=fused)
        if post_norms:
            for part, name in zip(("attn", "mlp"), post_norms, strict=True):
                claims.claim(
                    f"layers.{index}.{part}_post_norm.weight", f"blk.{index}.{name}.weight", (spec.embed_dim,)
                )
    claims.claim("final_norm.weight", "output_norm.weight", (spec.embed_dim,))
    if not spec.tied_head:
        claims.claim("head.weight", "output.weight", (spec.vocab_size, spec.embed_dim))
    claims.refuse_rest()
    return claims.tensors


def _claim_layer(claims: Claims, embed_dim: int, index: int, layer: LayerSpec, *, fused: bool) -> None:
    ours, theirs = f"layers.{index}", f"blk.{index}"
    attention = layer.mixer
    assert isinstance(attention, AttentionSpec)
    claims.claim(f"{ours}.attn_norm.weight", f"{theirs}.attn_norm.weight", (embed_dim,))
    claims.claim(f"{ours}.mlp_norm.weight", f"{theirs}.ffn_norm.weight", (embed_dim,))
    q_rows = attention.num_heads * attention.head_dim
    k_rows = attention.num_kv_heads * attention.head_dim
    v_rows = attention.num_kv_heads * attention.value_dim
    mixed = attention.num_heads * attention.value_dim
    hidden = layer.mlp.hidden_dim
    qkv = (("q", q_rows), ("k", k_rows), ("v", v_rows))
    _claim_rows(
        claims, f"{ours}.attn", f"{theirs}.attn", qkv, embed_dim, attention.qkv_bias, "qkv" if fused else ""
    )
    _claim_linear(claims, f"{ours}.attn.o", f"{theirs}.attn_output", (embed_dim, mixed), attention.out_bias)
    gate_up = (("gate", hidden), ("up", hidden))
    _claim_rows(
        claims, f"{ours}.mlp", f"{theirs}.ffn", gate_up, embed_dim, layer.mlp.bias, "up" if fused else ""
    )
    _claim_linear(claims, f"{ours}.mlp.down", f"{theirs}.ffn_down", (embed_dim, hidden), layer.mlp.bias)
    if attention.qk_norm:
        for part in ("q", "k"):
            name = f"{theirs}.attn_{part}_norm.weight"
            claims.claim(f"{ours}.attn.{part}_norm.weight", name, (attention.head_dim,))


def _claim_linear(claims: Claims, ours: str, theirs: str, shape: tuple[int, int], bias: bool) -> None:
    claims.claim(f"{ours}.weight", f"{theirs}.weight", shape)
    if bias:
        claims.claim(f"{ours}.bias", f"{theirs}.bias", shape[:1])


def _claim_rows(
    claims: Claims,
    ours: str,
    theirs: str,
    parts: tuple[tuple[str, int], ...],
    cols: int,
    bias: bool,
    fused: str,
) -> None:
    """Matrices over the same input: stored apart, or one below the other in the tensor `theirs_fused`."""
    total, start = sum(rows for _, rows in parts), 0
    for part, rows in parts:
        if not fused:
            _claim_linear(claims, f"{ours}.{part}", f"{theirs}_{part}", (rows, cols), bias)
            continue
        place = slice(start, start + rows)
        claims.claim(f"{ours}.{part}.weight", f"{theirs}_{fused}.weight", (rows, cols), rows=place, of=total)
        if bias:
            claims.claim(f"{ours}.{part}.bias", f"{theirs}_{fused}.bias", (rows,), rows=place, of=total)
        start += rows
