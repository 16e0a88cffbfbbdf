"""Who gets a request: names, aliases, loaded models in order, the default; replicas by affinity and load; what is down is left out."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise.core.errors import InvalidRequestError, OverloadedError
from edgewise.gateway.config import GatewayConfig, UpstreamConfig
from edgewise.gateway.profile import Kind, ModelCard, Profile
from edgewise.gateway.routing import Router
from edgewise.gateway.upstream import CircuitBreaker, Upstream
from tests.support.examples import examples

CONVERSATIONS = [f"conversation {i}" for i in range(2000)]


def upstream(
    name: str, *cards: ModelCard | str, up: bool = True, weight: float = 1.0, kind: Kind = Kind.OPENAI
) -> Upstream:
    made = Upstream(UpstreamConfig(name, f"http://{name}", kind, weight=weight), CircuitBreaker(1, 1000.0))
    made.profile = Profile(kind, models=tuple(ModelCard(c) if isinstance(c, str) else c for c in cards))
    made.known = made.answers = up
    made.trouble = "" if up else "refused"
    return made


def router(*upstreams: Upstream, **settings: object) -> Router:
    config = GatewayConfig(tuple(one.config for one in upstreams)).replace(**settings)
    return Router(config, upstreams)


def found(table: Router, name: str, affinity: str = "") -> list[tuple[str, str]]:
    return [(route.upstream.name, route.model) for route in table.routes(name, affinity=affinity)]


LLAMA = upstream(
    "llama",
    ModelCard("gemma", ("g",), loaded=True),
    ModelCard("nemotron", ("n", "qwen3"), loaded=False),
    ModelCard("phi", loaded=True),
    kind=Kind.LLAMA,
)
EDGE = upstream("edge", "qwen3", kind=Kind.EDGE_LLM)


def test_names_in_order_of_precedence():
    table = router(LLAMA, EDGE, aliases={"small": "phi", "edge-too": "edge"})
    assert found(table, "edge") == [("edge", "qwen3")], "an upstream's own name"
    assert found(table, "small") == [("llama", "phi")], "an alias of the configuration"
    assert found(table, "edge-too") == [("edge", "qwen3")]
    assert found(table, "phi") == [("llama", "phi")], "a model's id"
    assert found(table, "g") == [("llama", "gemma")], "a model's alias"
    assert found(table, "qwen3") == [("edge", "qwen3")], "the alias of a model that is not loaded is nobody's"
    assert found(table, "gpt-4o") == [("llama", "gemma")], "the first upstream's first loaded model"
    assert found(table, "") == [("llama", "gemma")]
    assert found(table, "nemotron") == [("llama", "gemma")], "one that is not loaded is as good as unknown"


def test_an_alias_cannot_hide_an_upstreams_own_name():
    table = router(LLAMA, EDGE, aliases={"edge": "phi"})
    assert found(table, "edge") == [("edge", "qwen3")]


def test_the_default_may_be_another_than_the_first():
    assert found(router(LLAMA, EDGE, default="edge"), "gpt-4o") == [("edge", "qwen3")]


def test_a_default_without_a_loaded_model_leaves_it_to_the_next():
    empty = upstream("empty", ModelCard("m", loaded=False), kind=Kind.LLAMA)
    assert found(router(empty, EDGE), "gpt-4o") == [("edge", "qwen3")]


def test_strict_names_are_refused_and_an_absent_name_is_not():
    table = router(LLAMA, EDGE, strict_model_names=True)
    for name, said in (("gpt-4o", "is not served here"), ("nemotron", "is not loaded")):
        with pytest.raises(InvalidRequestError, match=said) as caught:
            table.routes(name)
        assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    assert found(table, "") == [("llama", "gemma")]


def test_an_unknown_name_is_looked_for_again():
    one = upstream("one", "m")
    one.wanted.clear()
    router(one).routes("new")
    assert one.wanted.is_set()


def test_while_an_upstream_has_never_answered_a_strict_name_may_be_its_own():
    table = router(EDGE, upstream("late", up=False), strict_model_names=True)
    with pytest.raises(OverloadedError, match="late"):
        table.routes("gpt-4o")


def test_what_is_down_is_left_out_and_the_reason_told():
    down, other = upstream("down", "m", up=False), upstream("other", "m")
    assert found(router(down, other), "m") == [("other", "m")]
    assert found(router(down, other), "down") == [("other", "m")], "named, but its replica answers"
    with pytest.raises(OverloadedError, match="down: refused"):
        router(down, upstream("else", "k")).routes("m")


def test_an_open_breaker_leaves_an_upstream_out_at_once():
    one, other = upstream("one", "m"), upstream("other", "m")
    table = router(one, other)
    assert len(table.routes("m")) == 2
    one.failed()
    assert found(table, "m") == [("other", "m")]
    assert one.wanted.is_set(), "and it is looked at soon"


def test_no_upstream_at_all():
    with pytest.raises(OverloadedError, match="no engine is loaded"):
        router().routes("m")


def test_replicas_may_know_the_model_by_different_names():
    a = upstream("a", ModelCard("qwen3", ("q",)))
    b = upstream("b", ModelCard("Qwen/Qwen3", ("qwen3",)))
    assert sorted(found(router(a, b), "qwen3")) == [("a", "qwen3"), ("b", "Qwen/Qwen3")]
    assert sorted(found(router(a, b), "q")) == [("a", "qwen3"), ("b", "Qwen/Qwen3")]


def test_a_replica_that_is_named_answers_itself_while_it_can():
    a, b = upstream("a", "m"), upstream("b", "m")
    table = router(a, b, aliases={"second": "b"})
    for conversation in CONVERSATIONS[:20]:
        assert found(table, "a", conversation) == [("a", "m"), ("b", "m")]
        assert found(table, "second", conversation) == [("b", "m"), ("a", "m")]
    a.answers = False
    assert found(table, "a") == [("b", "m")]


def first_choices(replicas: Sequence[Upstream]) -> dict[str, str]:
    table = router(*replicas)
    return {one: table.routes("m", affinity=one)[0].upstream.name for one in CONVERSATIONS}


def test_a_conversation_stays_with_its_replica_and_all_replicas_have_their_share():
    replicas = [upstream(name, "m") for name in "abcd"]
    first = first_choices(replicas)
    assert first == first_choices(replicas[::-1]), "the order of the command line is no matter"
    shares = Counter(first.values())
    assert all(400 < shares[name] < 600 for name in "abcd"), shares


def test_when_a_replica_dies_only_its_conversations_move_and_evenly_and_they_come_back():
    replicas = [upstream(name, "m") for name in "abcd"]
    before = first_choices(replicas)
    replicas[1].answers = False
    after = first_choices(replicas)
    moved = {one for one in CONVERSATIONS if before[one] != after[one]}
    assert moved == {one for one in CONVERSATIONS if before[one] == "b"}
    homes = Counter(after[one] for one in moved)
    assert all(homes[name] > len(moved) / 4.5 for name in "acd"), homes
    second = {route[0] for one in list(moved)[:1] for route in found(router(*replicas), "m", one)[:1]}
    replicas[1].answers = True
    assert second == {found(router(*replicas), "m", next(iter(moved)))[1][0]}, "its second choice took it"
    assert first_choices(replicas) == before


def test_weights_are_shares_and_zero_is_a_spare():
    replicas = [
        upstream("a", "m", weight=3.0),
        upstream("b", "m", weight=1.0),
        upstream("c", "m", weight=0.0),
    ]
    shares = Counter(first_choices(replicas).values())
    assert shares["c"] == 0
    assert 1400 < shares["a"] < 1600, shares
    assert found(router(*replicas), "m", "x")[-1] == ("c", "m")
    replicas[0].answers = replicas[1].answers = False
    assert found(router(*replicas), "m", "x") == [("c", "m")]


def test_without_a_conversation_the_least_busy_replica_is_first():
    a, b, c = (upstream(name, "m") for name in "abc")
    with contextlib.ExitStack() as held:
        for one in (a, a, b):
            held.enter_context(one.lease())
        assert [name for name, _ in found(router(a, b, c), "m")] == ["c", "b", "a"]


def test_a_busy_replica_hands_conversations_over_before_it_has_much_more_than_its_share():
    replicas = [upstream(name, "m") for name in "abc"]
    table = router(*replicas)
    with contextlib.ExitStack() as held:
        for _ in range(30):  # one conversation, thirty requests at once
            held.enter_context(table.routes("m", affinity="same")[0].upstream.lease())
        assert max(one.in_flight for one in replicas) <= 13  # 1.25 shares of 30, rounded up
        assert sum(one.in_flight for one in replicas) == 30


cards = st.builds(
    ModelCard,
    st.sampled_from("abcdef"),
    st.lists(st.sampled_from("abcdefgh"), max_size=2).map(tuple),
    st.booleans(),
)


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(st.lists(cards, max_size=3), st.booleans()), min_size=1, max_size=4),
    st.sampled_from([*"abcdefgh", "u0", "u1", "other", ""]),
    st.booleans(),
)
def test_whatever_the_names_only_loaded_models_of_upstreams_that_answer_are_asked(
    fleet: list[tuple[list[ModelCard], bool]], name: str, strict: bool
):
    upstreams = [upstream(f"u{i}", *models, up=up) for i, (models, up) in enumerate(fleet)]
    for one in upstreams:
        one.known = True
    try:
        routes = router(*upstreams, strict_model_names=strict).routes(name, affinity="x")
    except (InvalidRequestError, OverloadedError):
        return
    assert routes
    for route in routes:
        assert route.upstream.answers
        assert route.model in {card.id for card in route.upstream.profile.models if card.loaded}
    assert len({route.upstream.name for route in routes}) == len(routes)
