"""The text of a page, and where it leads: HTML without its scripts, menus and markup."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import urldefrag, urljoin

_SKIPPED = {
    "script",
    "style",
    "noscript",
    "template",
    "svg",
    "nav",
    "header",
    "footer",
    "aside",
    "form",
    "iframe",
}
_VOID = {"br", "hr", "img", "input", "link", "meta", "source", "wbr", "area", "base", "col", "embed", "track"}
_BLOCKS = {"p", "div", "section", "article", "li", "tr", "table", "ul", "ol", "pre", "blockquote", "dd", "dt"}
_BLOCKS |= {"h1", "h2", "h3", "h4", "h5", "h6", "br", "hr", "main", "figure"}


@dataclass(frozen=True, slots=True)
class Page:
    """`links`: absolute addresses without fragments, in order, each once."""

    title: str
    text: str
    links: tuple[str, ...] = ()


def read_html(html: str, base_url: str) -> Page:
    reader = _Reader()
    reader.feed(html)
    reader.close()
    links = []
    for target in reader.links:
        try:
            links.append(urldefrag(urljoin(base_url, target)).url)
        except ValueError:
            continue
    return Page(
        " ".join("".join(reader.title).split()), tidy("".join(reader.text)), tuple(dict.fromkeys(links))
    )


def tidy(text: str) -> str:
    """Runs of blanks as one, lines trimmed, at most one empty line in a row."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


class _Reader(HTMLParser):
    """Never fails: what is not closed ends with the page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text: list[str] = []
        self.title: list[str] = []
        self.links: list[str] = []
        self._skipping: list[str] = []
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SKIPPED:
            self._skipping.append(tag)
        if tag == "title" and not self._skipping:
            self._in_title = True
        if tag == "a" and (target := dict(attrs).get("href")):
            self.links.append(target.strip())
        if tag in _BLOCKS:
            self.text.append("\n")
        if tag == "li":
            self.text.append("- ")
        if re.fullmatch("h[1-6]", tag):
            self.text.append("#" * int(tag[1]) + " ")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _VOID:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._skipping:
            while self._skipping.pop() != tag:
                pass
        if tag == "title":
            self._in_title = False
        if tag in _BLOCKS:
            self.text.append("\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
        elif not self._skipping:
            self.text.append(data)
