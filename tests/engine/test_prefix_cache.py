"""What a later request finds of earlier ones: exact to the token, told truthfully, apart by salt."""

from __future__ import annotations

import pytest

from tests.engine.running import Runner, make_request
from tests.support.scripted_model import ScriptedModel, greedy_continuation

PROMPT = [(5 * i + i * i) % 23 for i in range(22)]


@pytest.mark.parametrize("common", range(1, 23))
def test_a_hit_is_exact_to_the_token(common) -> None:
    runner = Runner()
    runner.generate(PROMPT, max_tokens=1)
    other = [*PROMPT[:common], 31, 30, 29]
    before = runner.model.num_rows
    found = runner.generate(other, max_tokens=1)
    assert found.num_cached_tokens == common
    assert runner.model.num_rows - before == len(other) - common, "cached tokens are not computed again"
    assert found.tokens() == greedy_continuation(other, 1)


def test_the_last_prompt_token_is_always_computed() -> None:
    runner = Runner()
    runner.generate(PROMPT, max_tokens=1)
    assert runner.generate(PROMPT, max_tokens=1).num_cached_tokens == len(PROMPT) - 1


def test_salts_do_not_share() -> None:
    runner = Runner()
    runner.generate(PROMPT, max_tokens=1, cache_salt="a")
    assert runner.generate(PROMPT, max_tokens=1, cache_salt="b").num_cached_tokens == 0
    assert runner.generate(PROMPT, max_tokens=1, cache_salt="a").num_cached_tokens == len(PROMPT) - 1


def test_generated_tokens_are_cached_for_the_next_turn() -> None:
    runner = Runner()
    answer = runner.generate(PROMPT, max_tokens=9).tokens()
    found = runner.generate([*PROMPT, *answer, 1, 2], max_tokens=1)
    # The last token of an answer was never fed to the model.
    assert found.num_cached_tokens == len(PROMPT) + len(answer) - 1


def test_an_answer_kept_to_itself_leaves_its_prompt_alone() -> None:
    runner = Runner()
    answer = runner.generate(PROMPT, max_tokens=40, cache_output=False).tokens()
    found = runner.generate([*PROMPT, *answer, 1, 2], max_tokens=1)
    assert found.num_cached_tokens == len(PROMPT)
    runner.assert_nothing_leaks()


@pytest.mark.parametrize("num_steps", [1, 2, 3, 8])
def test_what_a_cancelled_request_computed_is_cached(num_steps) -> None:
    runner = Runner(max_num_batched_tokens=10)
    request = make_request(PROMPT, max_tokens=20)
    recorder = runner.add(request)
    for _ in range(num_steps):
        runner.core.step()
    runner.core.cancel(request.request_id)
    runner.assert_nothing_leaks()
    computed = min(10 * num_steps, len(PROMPT)) + max(0, num_steps - 3)
    again = [*PROMPT, *recorder.tokens(), 0]
    assert runner.generate(again, max_tokens=1).num_cached_tokens == computed


def test_prompts_in_flight_serve_others_at_once() -> None:
    """The tail of a finished prompt is found while its request still decodes."""
    runner = Runner()
    recorder = runner.add(make_request(PROMPT, max_tokens=30))
    runner.core.step()
    found = runner.add(make_request([*PROMPT, 3], max_tokens=1))
    runner.core.step()
    assert found.num_cached_tokens == len(PROMPT)
    runner.run()
    assert recorder.tokens() == greedy_continuation(PROMPT, 30)


def test_equal_prompts_that_arrive_together_are_computed_once() -> None:
    runner = Runner(
        ScriptedModel(num_blocks=200), max_num_seqs=8, max_num_batched_tokens=16, max_model_len=128
    )
    prompt = PROMPT * 4
    requests = [make_request([*prompt, i], max_tokens=3) for i in range(8)]
    found = runner.run(*requests)
    computed = len(prompt) + 8 + 8 * 2
    assert runner.model.num_rows <= computed + 8 * runner.model.block_size
    for i, recorder in enumerate(found):
        assert recorder.tokens() == greedy_continuation([*prompt, i], 3)
        assert recorder.num_cached_tokens >= len(prompt) - runner.model.block_size or i == 0


def test_equal_content_is_held_once() -> None:
    runner = Runner(ScriptedModel(num_blocks=64), max_num_seqs=8, max_num_batched_tokens=64)
    for i in range(8):
        runner.add(make_request([*PROMPT, i], max_tokens=20))
    for _ in range(6):
        runner.core.step()
    shared = len(PROMPT) // runner.model.block_size
    assert runner.core.kv.pool.num_held <= shared + 8 * 4


def test_outputs_from_bounds_the_hit_and_no_cache_means_no_hit() -> None:
    runner = Runner()
    runner.generate(PROMPT, max_tokens=1)
    found = runner.generate(PROMPT, max_tokens=1, prompt_logprobs=0, outputs_from=9)
    assert found.num_cached_tokens == 9
    off = Runner(enable_prefix_caching=False)
    off.generate(PROMPT, max_tokens=1)
    assert off.generate(PROMPT, max_tokens=1).num_cached_tokens == 0


def test_preemption_is_no_hit() -> None:
    """Tokens a request computed itself, lost and found again in the cache, were not cached for it."""
    runner = Runner(ScriptedModel(num_blocks=12), max_model_len=48)
    requests = [make_request([i] * 12, max_tokens=36) for i in range(4)]
    found = runner.run(*requests)
    assert runner.core.stats().num_preemptions > 0
    assert [recorder.num_cached_tokens for recorder in found] == [0] * 4


def test_reset_forgets_everything_even_in_the_middle_of_a_request() -> None:
    runner = Runner()
    runner.generate(PROMPT, max_tokens=1)
    running = runner.add(make_request(PROMPT[:7], max_tokens=20))
    runner.core.step()
    runner.core.kv.reset()
    assert len(runner.core.kv.tree) == 0
    runner.run()
    assert running.tokens() == greedy_continuation(PROMPT[:7], 20)
    assert len(runner.core.kv.tree) == 0, "what was computed before the reset is not recorded after it"
    runner.assert_nothing_leaks()
    assert runner.generate(PROMPT, max_tokens=1).num_cached_tokens == 0
    assert runner.generate(PROMPT, max_tokens=1).num_cached_tokens == len(PROMPT) - 1


def test_the_least_recently_used_prefix_goes_first() -> None:
    runner = Runner(ScriptedModel(num_blocks=12, block_size=4), max_model_len=48)
    first, second, third = ([i] * 16 for i in (1, 2, 3))
    for prompt in (first, second, first, third):  # 4 blocks each; the third needs what the second leaves
        runner.generate(prompt, max_tokens=1)
    assert runner.generate([*first, 9], max_tokens=1).num_cached_tokens == 16
    assert runner.generate([*second, 9], max_tokens=1).num_cached_tokens < 16
