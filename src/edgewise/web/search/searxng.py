"""Searching by a SearXNG's JSON. Source: SearXNG's search API, `/search?format=json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

from edgewise.core.errors import EdgewiseError
from edgewise.web.search.sources import Result

_TIMEOUT_S = 15.0
_ANGLES = {
    "general": ("{}",),
    "jobs": ("{}", "{} jobs openings", "{} careers"),
    "people": ("{}", "{} profile biography", "{} interview"),
}
"""By what is looked for: the queries that are made of one."""

KINDS = tuple(_ANGLES)
TIME_RANGES = ("day", "week", "month", "year")


class SearchError(EdgewiseError):
    """The search engine gave no results that can be read; the message says what to set where that helps."""


@dataclass(frozen=True, slots=True)
class Found:
    """`silent`: engines behind the SearXNG that gave no answer, each with its reason."""

    results: tuple[Result, ...]
    silent: tuple[str, ...] = ()


def angles(query: str, kind: str) -> list[str]:
    return [form.format(query) for form in _ANGLES.get(kind, _ANGLES["general"])]


async def search(
    client: httpx.AsyncClient, url: str, query: str, *, time_range: str | None, most: int, snippet_chars: int
) -> Found:
    """Raises SearchError."""
    params = {"q": query, "format": "json"} | ({"time_range": time_range} if time_range else {})
    try:
        response = await client.get(f"{url.rstrip('/')}/search", params=params, timeout=_TIMEOUT_S)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise SearchError(
            f"the search engine at {url} (--search-url) does not answer ({type(error).__name__})"
        ) from error
    if response.status_code == 403:
        raise SearchError(
            f"the search engine at {url} refuses JSON; its settings.yml needs json under search: formats:"
        )
    if response.status_code != 200:
        raise SearchError(f"the search engine at {url} (--search-url) answered {response.status_code}")
    try:
        body = response.json()
        entries = [one for one in body["results"] if isinstance(one, dict)]
    except (ValueError, KeyError, TypeError) as error:
        raise SearchError(
            f"what is at {url} (--search-url) answered something else than a SearXNG's JSON"
        ) from error
    results = [_result(one, snippet_chars) for one in entries if str(one.get("url", "")).startswith("http")]
    return Found(tuple(results[:most]), tuple(_silent(body)))


def _result(entry: dict[str, Any], snippet_chars: int) -> Result:
    return Result(
        title=_line(entry.get("title"))[:200],
        url=str(entry["url"]),
        snippet=_line(entry.get("content"))[:snippet_chars],
        published=str(entry.get("publishedDate") or "")[:10],
    )


def _line(value: Any) -> str:
    return " ".join(str(value or "").split())


def _silent(body: dict[str, Any]) -> list[str]:
    """`unresponsive_engines` is a list of (name, reason)."""
    engines = body.get("unresponsive_engines")
    if not isinstance(engines, list):
        return []
    return [" ".join(map(str, one)) if isinstance(one, list) else str(one) for one in engines][:5]
