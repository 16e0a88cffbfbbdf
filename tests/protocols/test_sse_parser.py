"""Reading event streams: any cut gives the same events."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewise.core.errors import UpstreamError
from edgewise.protocols.sse import SseEvent, SseParser

STREAM = (
    b": hello\n\nevent: ping\ndata: {}\n\r\ndata: one\r\ndata:two\r\n\r\n\rid: 7\rdata:  three\r\r"
    b"event: named\n\nretry: 10\ndata\n\ndata: last"
)
EVENTS = [
    SseEvent("ping", b"{}"),
    SseEvent("", b"one\ntwo"),
    SseEvent("", b" three"),
    SseEvent("", b""),
    SseEvent("", b"last"),
]


def parsed(pieces: list[bytes]) -> list[SseEvent]:
    parser = SseParser()
    return [event for piece in pieces for event in parser.feed(piece)] + parser.close()


def test_whole():
    assert parsed([STREAM]) == EVENTS


def test_every_byte_for_itself():
    assert parsed([STREAM[i : i + 1] for i in range(len(STREAM))]) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=8).map(sorted))
def test_any_cut(cuts: list[int]):
    ends = [*cuts, len(STREAM)]
    pieces = [STREAM[a:b] for a, b in zip([0, *cuts], ends, strict=True)]
    assert parsed(pieces) == EVENTS


def test_an_event_leaves_as_soon_as_its_blank_line_is_there():
    parser = SseParser()
    assert parser.feed(b"data: a\n") == []
    assert parser.feed(b"\n") == [SseEvent("", b"a")]
    assert parser.close() == []


@pytest.mark.parametrize("line", [b"data: " + b"x" * 50, b"data: xxxxx\n" * 10, b"data:\n" * 50])
def test_an_event_without_end_is_refused(line: bytes):
    parser = SseParser(max_event_bytes=40)
    with pytest.raises(UpstreamError, match="more than 40 bytes"):
        for at in range(0, len(line), 7):
            parser.feed(line[at : at + 7])


def test_many_events_may_be_large_together():
    parser = SseParser(max_event_bytes=40)
    assert len(parser.feed(b"data: 1234567890\n\n" * 100)) == 100


def test_a_long_line_in_many_pieces_takes_time_by_its_length():
    parser = SseParser()
    began_s = time.process_time()
    for _ in range(20_000):
        parser.feed(b"x" * 400)
    assert time.process_time() - began_s < 2  # joined anew with each piece it was 80 GB to copy
