"""How far one answer's research may go."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Counts are of one answer unless something else is said."""

    tool_rounds: int = 8
    answer_rounds: int = 3  # without tools
    idle_rounds: int = (
        2  # in a row, of calls that were made before or make no sense; small models go on for ever
    )
    calls_per_round: int = 8
    searches: int = 16
    reads: int = 12
    queries_per_call: int = 4
    query_chars: int = 400
    results_per_query: int = 6
    snippet_chars: int = 400
    page_chars: int = 12_000
    all_page_chars: int = 24_000  # of one fetch with the pages it leads to
    linked_pages: int = 6
    links_per_page: int = 24
    hops: int = 2
    page_bytes: int = 2 << 20  # also once it is decompressed
    page_timeout_s: float = 10.0
    redirects: int = 3
    round_bytes: int = 48 << 10  # of text that a round may write
    sources: int = 40
