"""Every family beside transformers: tiny random models, their float32 eager forward, and ours over the converted file.

transformers is the definition the checkpoints were made for; nothing of ours takes part in its side of the comparison.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewise.architectures import ModelMap, describe
from edgewise.build import build_engine_dir
from edgewise.checkpoints import open_checkpoint
from edgewise.core.spec import AttentionSpec, DecoderSpec, RopeSpec
from edgewise.decoder.batch import Batch
from edgewise.decoder.decoder import BLOCK_SIZE, Decoder, DecoderConfig
from edgewise.decoder.reference import ReferenceDecoder, TensorLookup
from edgewise.kernels.native import layout_of

torch = pytest.importorskip("torch", reason="the oracle needs PyTorch: make oracle")
transformers = pytest.importorskip("transformers", reason="the oracle needs transformers: make oracle")

from tests.oracle.hf_to_gguf import write_gguf  # noqa: E402

pytestmark = pytest.mark.oracle

# Largest error of any logit over the largest logit. Both sides compute in float32 and round each sum and each rotary angle on their own.
REFERENCE_TOLERANCE = 1e-4
# The native cache holds keys and values in float16, which moves each by up to 2^-11 of itself: scores shift by as much of
# |q||k|, and so do the attended values. Eight times that unit leaves room for what layers add up (3e-3 was the most seen).
NATIVE_TOLERANCE = 8 * 2.0**-11
# Beside NumPy with keys and values rounded alike, what remains are the few values that other sums round to the other neighbour.
ROUNDED_TOLERANCE = 2.0**-10

# No size is a multiple of a vector register's lanes where the engine leaves the choice (heads must be multiples of 8).
SIZES: dict[str, Any] = {
    "vocab_size": 311, "hidden_size": 144, "intermediate_size": 100, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-3, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A model: `family` names the transformers classes, `config` what differs from SIZES."""

    family: str
    config: dict[str, Any] = field(default_factory=dict)
    architecture: str = ""  # of the file; the family's own name where empty
    length: int = 300  # positions compared
    served: int | None = None  # tokens of the longest sequence served, where it matters


def scaled(kind: str, theta: float = 10000.0, **rope: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **rope}}


LLAMA3 = scaled(
    "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64
)
YARN = scaled("yarn", factor=4.0, original_max_position_embeddings=128)
YARN_FULL = scaled(
    "yarn", 5e5, factor=8.0, original_max_position_embeddings=64, attention_factor=1.4, beta_fast=8.0, beta_slow=0.5
)  # fmt: skip
LONGROPE = scaled(
    "longrope", original_max_position_embeddings=128, partial_rotary_factor=0.75,
    short_factor=[1.0, 1.0, 1.1, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5], long_factor=[1.0, 1.5, 2.0, 2.5, 3.5, 4.5, 8.0, 12.0, 16.0],
) | {"original_max_position_embeddings": 128}  # fmt: skip
GEMMA = {"head_dim": 40, "query_pre_attn_scalar": 40, "sliding_window": 37, "num_hidden_layers": 4}
MIXED = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
GEMMA_ROPE = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
}
GEMMA_LOCAL = {**GEMMA_ROPE, "sliding_attention": {"rope_type": "default", "rope_theta": 20000.0}}

CASES = {
    "llama": Case("Llama"),
    "llama, own head size, tied": Case("Llama", {"head_dim": 40, "tie_word_embeddings": True}),
    "llama, all biases": Case("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, one kv head each": Case("Llama", {"num_key_value_heads": 6}),
    "llama, linear": Case("Llama", scaled("linear", factor=4.0)),
    "llama, llama3": Case("Llama", {**LLAMA3, "head_dim": 16}),
    "llama, yarn": Case("Llama", YARN),
    # Converters write Mistral as llama and drop its window; files of an architecture "mistral" may keep it.
    "mistral as llama": Case("Mistral", {"sliding_window": None, "head_dim": 16}, "llama"),
    "mistral, window": Case("Mistral", {"sliding_window": 41}),
    "qwen2": Case("Qwen2", scaled("default", 1e6)),
    "qwen2, tied, yarn": Case("Qwen2", {**YARN, "tie_word_embeddings": True}),
    "qwen3": Case("Qwen3", {**scaled("default", 1e6), "head_dim": 16}),
    "qwen3, yarn with its own factors": Case("Qwen3", {**YARN_FULL, "head_dim": 32}),
    "gemma3": Case("Gemma3", {**GEMMA, "num_hidden_layers": 7}),
    "gemma3, scaled global layers": Case("Gemma3", {**GEMMA, "layer_types": MIXED, "rope_parameters": GEMMA_ROPE}),
    "gemma3, own local base, capped": Case(
        "Gemma3",
        {**GEMMA, "layer_types": MIXED, "rope_parameters": GEMMA_LOCAL, "final_logit_softcapping": 3.0},
    ),
    "gemma3, the 27b's query scale": Case(
        "Gemma3", {**GEMMA, "num_hidden_layers": 62, "query_pre_attn_scalar": 24}, length=64
    ),
    "phi3": Case("Phi3"),
    "phi3, window": Case("Phi3", {"sliding_window": 41}),
    "phi3, longrope beyond the original window": Case("Phi3", LONGROPE),
    "phi3, longrope within it": Case("Phi3", LONGROPE, length=120, served=128),
}  # fmt: skip


@dataclass(frozen=True)
class Converted:
    """A case made: its file, what transformers says, and our description."""

    case: Case
    path: Path
    ids: np.ndarray  # i32[T]
    expected: np.ndarray  # f32[T, V], transformers' logits
    map: ModelMap
    tensor: TensorLookup

    def reference(
        self, spec: DecoderSpec | None = None, kv_dtype: type[np.floating] | None = None
    ) -> np.ndarray:
        decoder = ReferenceDecoder(
            spec or self.map.spec, self.tensor, np.float32, window=self.case.served, kv_dtype=kv_dtype
        )
        return decoder.logits(self.ids)

    def error(self, logits: np.ndarray, beside: np.ndarray | None = None) -> float:
        """Largest difference to transformers' logits, or to those `beside`, over the largest logit."""
        truth = self.expected if beside is None else beside
        return float(np.abs(logits - truth).max() / np.abs(self.expected).max())


def random_model(case: Case) -> Any:
    """The case's transformers model in float32 with seeded weights, queries doubled so that attention is far from even."""
    kind = f"{case.family}{'Text' if case.family == 'Gemma3' else ''}Config"
    config = getattr(transformers, kind)(**{**SIZES, **case.config})
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{case.family}ForCausalLM")(config).float().eval()
    offset = 0.0 if case.family == "Gemma3" else 1.0  # Gemma's norms multiply by 1 + weight
    rng = np.random.default_rng(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = rng.standard_normal(tuple(parameter.shape)).astype(np.float32)
            if name.endswith("norm.weight") or "layernorm" in name:
                values = offset + 0.2 * values
            elif parameter.ndim == 1:
                values = 0.3 * values
            else:
                values /= np.sqrt(parameter.shape[1])
            if "q_proj" in name:
                values *= 2
            elif "qkv_proj" in name:
                values[: config.hidden_size] *= 2  # the rows of q
            parameter.copy_(torch.from_numpy(np.asarray(values, np.float32)))
    return model


@pytest.fixture(scope="module", params=sorted(CASES))
def converted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Converted]:
    case = CASES[request.param]
    torch.set_num_threads(1)
    model = random_model(case)
    ids = np.random.default_rng(11).integers(0, SIZES["vocab_size"], case.length).astype(np.int32)
    with torch.no_grad():
        expected = model(torch.from_numpy(ids[None]).long(), use_cache=False).logits[0].numpy()
    folder = tmp_path_factory.mktemp("oracle")
    path = write_gguf(folder / "model.gguf", model, case.architecture or case.family.lower())
    checkpoint = open_checkpoint(path)
    mapping = describe(checkpoint)

    def tensor(name: str) -> np.ndarray:
        source = mapping.tensors[name]
        values = checkpoint.dequantize(source.name)
        return (values if source.rows is None else values[source.rows]) + np.float32(source.add)

    yield Converted(case, path, ids, expected, mapping, tensor)
    checkpoint.close()


def native_logits(converted: Converted, out: Path) -> np.ndarray:
    """f32[T, V] from the native decoder: a prefill in uneven chunks, then single tokens."""
    length = len(converted.ids)
    engine_dir = build_engine_dir(converted.path, out, layout=layout_of("auto"))
    blocks = np.arange(-(-length // BLOCK_SIZE), dtype=np.int32)[None]
    config = DecoderConfig(
        num_blocks=blocks.size, max_rows=97, max_outputs=97, threads=1, max_model_len=converted.case.served
    )
    decoder = Decoder(engine_dir, config)
    try:
        starts = [*range(0, length - 9, 97), *range(length - 9, length + 1)]
        steps = [native_step(decoder, converted.ids, blocks, *bounds) for bounds in pairwise(starts)]
    finally:
        decoder.close()
    return np.concatenate(steps)


def native_step(decoder: Decoder, ids: np.ndarray, blocks: np.ndarray, start: int, stop: int) -> np.ndarray:
    rows = np.arange(stop - start, dtype=np.int32)
    batch = Batch(
        token_ids=ids[start:stop], positions=rows + np.int32(start), row_starts=np.array([0, rows.size], np.int32),
        context_lens=np.array([start], np.int32), block_tables=blocks, output_rows=rows,
    )  # fmt: skip
    return decoder.step(batch).logits.copy()


def test_the_reference_agrees(converted: Converted) -> None:
    error = converted.error(converted.reference())
    print(f"reference: {error:.1e}")
    assert error <= REFERENCE_TOLERANCE


def test_the_native_decoder_agrees(converted: Converted, tmp_path: Path) -> None:
    logits = native_logits(converted, tmp_path / "engine")
    error = converted.error(logits)
    rounded = converted.error(logits, converted.reference(kv_dtype=np.float16))
    print(f"native: {error:.1e}, beside NumPy over float16 keys and values: {rounded:.1e}")
    assert error <= NATIVE_TOLERANCE
    assert rounded <= ROUNDED_TOLERANCE


def spoiled_specs(spec: DecoderSpec) -> Iterator[tuple[str, DecoderSpec]]:
    """The description with one thing wrong at a time, of those things that the model has."""
    kinds = [attention_of(layer) for layer in spec.layers]
    rope = rope_of(kinds[-1])
    yield "scale", spoiled(spec, scale=kinds[0].scale * 1.05)
    yield (
        "pairing",
        spoiled(spec, rope={"pairing": "half" if rope.pairing == "interleaved" else "interleaved"}),
    )
    yield "theta", spoiled(spec, rope={"theta": rope.theta * 1.2})
    yield "epsilon", replace(spec, norm_eps=spec.norm_eps / 2)
    if any(a.kind == "sliding" for a in kinds):
        yield "window", spoiled(spec, window=max(a.window for a in kinds) + 1)
    if any(rope_of(a).scaling not in ("none", "longrope") for a in kinds):
        yield "rope scaling", spoiled(spec, rope={"scaling": "none"})
    if rope.attention_factor not in (None, 1.0):
        yield "attention factor", spoiled(spec, rope={"attention_factor": rope.attention_factor * 1.05})
    if rope.freq_factors:
        backwards = {name: getattr(rope, name)[::-1] for name in ("freq_factors", "long_freq_factors")}
        yield "rope factors", spoiled(spec, rope=backwards)
    if rope.long_freq_factors:
        exchanged = {"freq_factors": rope.long_freq_factors, "long_freq_factors": rope.freq_factors}
        yield "long and short factors", spoiled(spec, rope=exchanged)
    if spec.embed_scale != 1.0:
        yield "embedding scale", replace(spec, embed_scale=1.0)
    if spec.logit_soft_cap:
        yield "soft cap", replace(spec, logit_soft_cap=spec.logit_soft_cap * 1.05)


def spoiled(spec: DecoderSpec, *, rope: dict[str, Any] | None = None, **changes: Any) -> DecoderSpec:
    """`spec` with every layer's attention changed, `rope` naming changes of its rotary embedding."""
    layers = []
    for layer in spec.layers:
        a = attention_of(layer)
        layers.append(replace(layer, mixer=replace(a, **changes, rope=replace(rope_of(a), **(rope or {})))))
    return replace(spec, layers=tuple(layers))


def attention_of(layer: Any) -> AttentionSpec:
    assert isinstance(layer.mixer, AttentionSpec)
    return layer.mixer


def rope_of(attention: AttentionSpec) -> RopeSpec:
    assert attention.rope is not None
    return attention.rope


def test_the_comparison_notices_each_part_of_the_description(converted: Converted) -> None:
    """An error in any of them moves the logits at least ten times as far as the reference may err."""
    errors = {
        what: converted.error(converted.reference(spec)) for what, spec in spoiled_specs(converted.map.spec)
    }
    print({what: f"{error:.1e}" for what, error in errors.items()})
    unseen = {what: error for what, error in errors.items() if error < 10 * REFERENCE_TOLERANCE}
    assert not unseen
