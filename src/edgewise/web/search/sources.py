"""The sources of one answer: each address has one number, the same whenever it comes again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

_CITED = re.compile(r"\[(\d{1,3}(?:, ?\d{1,3})*)\](?!\()")

_TITLE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Result:
    """A hit of a search."""

    title: str
    url: str
    snippet: str = ""
    published: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    n: int
    title: str
    url: str

    @property
    def domain(self) -> str:
        return host_of(self.url)


class Sources:
    """`hosts`: those that may be read, since a search returned them or the person wrote them."""

    def __init__(self) -> None:
        self._by_url: dict[str, Source] = {}
        self.hosts: set[str] = set()

    def add(self, title: str, url: str) -> Source:
        known = self._by_url.get(url)
        if known is None:
            known = self._by_url[url] = Source(len(self._by_url) + 1, (title or url)[:_TITLE_CHARS], url)
            self.hosts.add(host_of(url))
        return known

    def __iter__(self) -> Iterator[Source]:
        return iter(self._by_url.values())

    def __len__(self) -> int:
        return len(self._by_url)

    def listed(self, most: int) -> str:
        """For people: a line each."""
        return "\n".join(f"[{one.n}] {one.title} - {one.url}" for one in list(self._by_url.values())[:most])

    def hosts_listed(self, most: int) -> str:
        """For the model, where it stands in the person's own turn: nobody else's words belong there, so no titles."""
        return "\n".join(f"[{one.n}] {one.domain}" for one in list(self._by_url.values())[:most])

    def event(self, text: str) -> dict[str, Any]:
        """For the page: each one, and whether the text cites it."""
        cited = {int(number) for numbers in _CITED.findall(text) for number in numbers.split(",")}
        sources = [
            {"n": one.n, "title": one.title, "url": one.url, "domain": one.domain, "cited": one.n in cited}
            for one in self._by_url.values()
        ]
        return {"type": "sources", "sources": sources}


def host_of(url: str) -> str:
    """As it stands in the DNS, in ASCII; empty where an address has none."""
    try:
        return (urlsplit(url.strip()).hostname or "").encode("idna").decode("ascii").lower()
    except ValueError:  # UnicodeError too
        return ""
