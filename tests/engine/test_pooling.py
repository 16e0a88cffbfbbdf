"""Embeddings through the engine: the right rows, whatever the chunks, the company, the cache and preemption."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.build import build_engine_dir, open_engine_dir
from edgewise.core.errors import ContextLengthError, InvalidRequestError
from edgewise.core.requests import GenerationRequest, Pooling
from edgewise.core.sampling import SamplingParams
from edgewise.decoder.decoder import Decoder, DecoderConfig
from edgewise.engine.admission import check_request
from edgewise.kernels.native import layout_of
from tests.engine.running import Runner, make_request
from tests.support.examples import examples
from tests.support.scripted_model import HIDDEN_DIM, ScriptedModel, prefix_logits
from tests.support.tiny_gguf import write_tiny_gguf

_ids = itertools.count()


def pooled(prompt: Sequence[int], pooling: Pooling = "mean", **sampling: int) -> GenerationRequest:
    return GenerationRequest(
        f"p{next(_ids)}",
        np.array(prompt, np.int32),
        SamplingParams(**{"max_tokens": 0, **sampling}),
        outputs_from=0 if pooling == "mean" else None,
        pooling=pooling,
    )


def expected(prompt: Sequence[int], pooling: Pooling) -> npt.NDArray[np.float32]:
    ids = np.array(prompt, np.int32)
    rows = np.stack([prefix_logits(ids[: i + 1], HIDDEN_DIM) for i in range(len(ids))])
    return rows.mean(axis=0, dtype=np.float64).astype(np.float32) if pooling == "mean" else rows[-1]


@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("length", [1, 4, 31, 64])
def test_one_event_with_the_vector(pooling: Pooling, length: int):
    runner = Runner()
    prompt = [(7 * i) % 32 for i in range(length)]
    (recorder,) = runner.run(pooled(prompt, pooling))
    (event,) = recorder.events
    assert event.finish_reason == "stop" and event.token_ids == ()
    np.testing.assert_array_equal(event.embedding, expected(prompt, pooling))
    runner.assert_nothing_leaks()


def test_a_cached_prefix_skips_nothing_that_is_needed():
    runner = Runner()
    prompt = list(range(24))
    first, again = (runner.run(pooled(prompt))[0] for _ in range(2))
    np.testing.assert_array_equal(first.events[0].embedding, again.events[0].embedding)
    assert again.num_cached_tokens == 0
    (last,) = runner.run(pooled(prompt, "last"))
    assert last.num_cached_tokens > 16, "one row is enough where only the last token counts"
    np.testing.assert_array_equal(last.events[0].embedding, expected(prompt, "last"))
    generated = runner.generate([*prompt, 1], max_tokens=2)
    assert generated.num_cached_tokens >= 24 // 4 * 4, "what was computed for it serves others"


prompts = st.lists(st.integers(0, 31), min_size=1, max_size=60)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.tuples(prompts, st.sampled_from(["last", "mean", None])), min_size=1, max_size=8),
    st.integers(16, 40),
    st.integers(4, 32),
)
def test_company_chunks_and_preemption_change_nothing(
    jobs: list[tuple[list[int], Pooling | None]], num_blocks: int, max_rows: int
):
    runner = Runner(ScriptedModel(num_blocks=num_blocks, max_outputs=8), max_num_batched_tokens=max_rows)
    requests = [
        make_request(prompt, max_tokens=4) if pooling is None else pooled(prompt, pooling)
        for prompt, pooling in jobs
    ]
    for recorder, (prompt, pooling) in zip(runner.run(*requests), jobs, strict=True):
        if pooling is not None:
            np.testing.assert_array_equal(recorder.events[-1].embedding, expected(prompt, pooling))
    runner.assert_nothing_leaks()


def test_a_cancelled_one_leaves_nothing_behind():
    runner = Runner(max_num_batched_tokens=8)
    request = pooled(range(30))
    recorder = runner.add(request)
    runner.core.step()
    runner.core.cancel(request.request_id)
    assert recorder.reason == "cancelled" and recorder.events[-1].embedding is None
    runner.assert_nothing_leaks()


def test_what_cannot_be_pooled_is_refused():
    check_request(pooled([1] * 64), 32, 64)
    with pytest.raises(ContextLengthError):
        check_request(pooled([1] * 65), 32, 64)
    for sampling in ({"n": 2}, {"prompt_logprobs": 1}):
        with pytest.raises(InvalidRequestError) as caught:
            check_request(pooled([1], **sampling), 32, 64)
        assert caught.value.param == "pooling"


# The native decoder.


@pytest.mark.parametrize(("architecture", "dtype"), [("llama", "Q4_1"), ("qwen2", "Q8_0"), ("gemma3", "F16")])
def test_the_native_decoder_alone_and_in_company(tmp_path: Path, architecture: str, dtype: str):
    source = write_tiny_gguf(tmp_path / "tiny.gguf", architecture=architecture, dtype=dtype)
    build_engine_dir(source, tmp_path / "engine", layout=layout_of())
    engine_dir = open_engine_dir(tmp_path / "engine", layout=layout_of())
    text = np.random.default_rng(3).integers(3, engine_dir.spec.vocab_size, 300).tolist()
    jobs: list[tuple[list[int], Pooling]] = [
        (text[:150], "mean"),
        (text[:150], "last"),
        (text[:70], "mean"),
        (text[100:101], "mean"),
        (text[:90], "last"),
    ]

    def embeddings(
        *chosen: tuple[list[int], Pooling], rows: int, busy: bool
    ) -> list[npt.NDArray[np.float32]]:
        decoder = Decoder(engine_dir, DecoderConfig(num_blocks=30, max_rows=200, max_outputs=4, threads=2))
        try:
            runner = Runner(decoder, max_model_len=192, max_num_batched_tokens=rows)  # type: ignore[arg-type]
            company = [make_request(text[:100], max_tokens=20)] if busy else []
            recorders = runner.run(*company, *(pooled(*job) for job in chosen))
        finally:
            decoder.close()
        found = [recorder.events[-1].embedding for recorder in recorders[len(company) :]]
        assert all(one is not None and one.shape == (engine_dir.spec.embed_dim,) for one in found)
        return found  # type: ignore[return-value]

    alone = [embeddings(job, rows=200, busy=False)[0] for job in jobs]
    for rows in (24, 200):
        np.testing.assert_array_equal(embeddings(*jobs, rows=rows, busy=True), alone)
