"""Stop strings in answers that have parts: text only, whatever the chunks."""

from __future__ import annotations

import pytest

from edgewise.core.chat import ChatEvent, PartDelta, PartEnd, PartStart
from edgewise.pipeline.answer import Logprobs, TextWriter
from edgewise.pipeline.content_stops import ContentStops


class Scripted:
    """Writes reasoning until a bar, then text."""

    matched_stop = None
    hidden_reasoning_tokens = 0

    def __init__(self) -> None:
        self._open = ""

    def push(self, text: str, token_ids: tuple[int, ...], logprobs: Logprobs) -> list[ChatEvent]:
        events: list[ChatEvent] = []
        for char in text:
            kind = "text" if self._open == "text" or char == "|" else "reasoning"
            if kind != self._open:
                events += [PartEnd(0)] if self._open else []
                events.append(PartStart(0, kind, kind))
                self._open = kind
            if char != "|":
                events.append(PartDelta(0, char, token_ids))
                token_ids = ()
        return events

    def finish(self, reason: str) -> tuple[list[ChatEvent], str]:
        return [PartEnd(0)], reason


def run(writer: ContentStops, pieces: list[str]) -> tuple[str, list[int], list[ChatEvent]]:
    events: list[ChatEvent] = []
    for i, piece in enumerate(pieces):
        events += writer.push(piece, (i,), None)
        if writer.matched_stop is not None:
            break
    closing, _ = writer.finish("stop")
    events += closing
    text = "".join(e.text for e in events if isinstance(e, PartDelta))
    ids = [i for e in events if isinstance(e, PartDelta) for i in e.token_ids]
    return text, ids, events


@pytest.mark.parametrize("cut", range(1, 8))
def test_the_match_and_what_follows_are_dropped_wherever_it_is_cut(cut: int):
    text = "say banana split"
    pieces = [text[i : i + cut] for i in range(0, len(text), cut)]
    writer = ContentStops(TextWriter(0), ["anan", "zz"])
    said, _, events = run(writer, pieces)
    assert said == "say b"
    assert writer.matched_stop == "anan"
    assert [type(e) for e in events if not isinstance(e, PartDelta)] == [PartStart, PartEnd]


def test_text_that_only_begins_like_a_stop_is_written_and_no_token_is_lost():
    writer = ContentStops(TextWriter(0), ["banks"])
    said, ids, _ = run(writer, ["a ", "ban", "k", "!", " ban"])
    assert said == "a bank! ban"
    assert sorted(ids) == [0, 1, 2, 3, 4]
    assert writer.matched_stop is None


def test_the_match_stays_where_it_is_included():
    said, _, _ = run(ContentStops(TextWriter(0), ["END"], include=True), ["one E", "ND two"])
    assert said == "one END"


def test_stops_do_not_count_in_reasoning():
    writer = ContentStops(Scripted(), ["no"])
    said, _, _ = run(writer, ["I know ", "not|well ", "no", "w"])
    assert said == "I know notwell "
    assert writer.matched_stop == "no"


def test_stops_do_not_count_before_min_tokens():
    writer = ContentStops(TextWriter(0), ["x"], min_tokens=2)
    said, _, _ = run(writer, ["x", "x", "ab", "x"])
    assert said == "xxab"
