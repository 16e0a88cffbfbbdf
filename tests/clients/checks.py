"""What must hold of everything a client and the server said to each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from tests.clients.recorder import Exchange
from tests.clients.serving import Served
from tests.clients.wire import answer_id, history, tokens_of, tool_names

FIRST_EVENT_S = 0.05  # from the tokenised prompt to the first byte
SPARE_TOKENS = 32  # a step may compute again so many tokens beside the new ones


def answers(served: Served) -> list[Exchange]:
    """The exchanges that asked for an answer."""
    return [exchange for exchange in served.exchanges if exchange.generates]


def steps_of_the_loop(served: Served) -> list[Exchange]:
    """Those of the agent's own loop: they offer tools, titles and the like do not."""
    return [exchange for exchange in answers(served) if tool_names(exchange)]


def check_protocol(served: Served) -> None:
    """No refusal, no step sent twice, every result beside its call, every stream begun soon and ended."""
    exchanges = served.exchanges
    wrong = [str(exchange) for exchange in exchanges if not 200 <= exchange.status < 400]
    assert not wrong, "\n".join(wrong)
    assert not (cut := [str(exchange) for exchange in exchanges if not exchange.whole]), "\n".join(cut)
    asked = answers(served)
    check_no_retries(asked)
    for exchange in asked:
        check_pairing(exchange)
        assert tokens_of(exchange), f"no usage: {exchange.answer[-500:]!r}"
    waits_s = [exchange.first_byte_s - served.prepared_s[answer_id(exchange)] for exchange in asked]
    assert median(waits_s) <= FIRST_EVENT_S, waits_s


def check_no_retries(asked: Sequence[Exchange]) -> None:
    """Steps of a loop are never alike; what a client asks beside it, such as whether the model is there, may be."""
    bodies = [exchange.body for exchange in asked if tool_names(exchange)]
    assert len(set(bodies)) == len(bodies), "the same request came twice"
    counts = {exchange.headers.get("x-stainless-retry-count", "0") for exchange in asked}
    assert counts <= {"0"}, "the client's package says it tried again"


def check_pairing(exchange: Exchange) -> None:
    """Each call of the conversation has one result, each result one call before it."""
    waiting: set[str] = set()
    seen: set[str] = set()
    for turn in history(exchange):
        if turn.kind == "call":
            assert turn.call_id not in seen, f"two calls have the id {turn.call_id}"
            seen.add(turn.call_id)
            waiting.add(turn.call_id)
        else:
            assert turn.call_id in waiting, f"a result for {turn.call_id}, which no call waits for"
            waiting.discard(turn.call_id)
    assert not waiting, f"calls without a result: {waiting}"


def check_cache_grows(steps: Sequence[Exchange], *, moved: int = 0) -> None:
    """Each step finds more in the cache than the one before it. `moved` as below."""
    cached = [usage.cached for step in steps if (usage := tokens_of(step))]
    assert all(later + moved > earlier for earlier, later in pairwise(cached)), cached


def check_cache_is_whole(steps: Sequence[Exchange], *, moved: int = 0) -> None:
    """Each step computes no more than what is new since the one before it: its own answer is found in the cache too.

    `moved`: tokens at a prompt's end that the client takes along to the end of the next one, so that what stood behind them, the
    answer, has to be computed again.
    """
    check_cache_grows(steps, moved=moved)
    usages = [usage for step in steps if (usage := tokens_of(step))]
    for before, usage in pairwise(usages):
        new_tokens = usage.prompt - before.prompt - (0 if moved else before.completion) + moved
        assert usage.prompt - usage.cached <= new_tokens + SPARE_TOKENS
