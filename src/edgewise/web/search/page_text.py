"""The text of a page, and where it leads: HTML without its scripts, menus and markup.

Pages are anybody's, so reading one takes time in proportion to its length, whatever it holds. The standard library's parser does not promise
that (`<!--` repeated takes time in the square of the length up to Python 3.13), hence a scanner of our own: each step looks ahead for an end,
goes on behind it, and where there is none the page is over, as in HTML's own rules (WHATWG HTML, section 13.2.5).
"""

from __future__ import annotations

import html as entities
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urldefrag, urljoin

_SKIPPED = {"template", "svg", "nav", "header", "footer", "aside", "form"}
_RAW = {"script", "style", "noscript", "iframe", "textarea", "xmp", "noembed", "noframes"}
"""What is inside of these is no markup, and no text of the page."""
_BLOCKS = {"p", "div", "section", "article", "li", "tr", "table", "ul", "ol", "pre", "blockquote", "dd", "dt"}
_BLOCKS |= {"h1", "h2", "h3", "h4", "h5", "h6", "br", "hr", "main", "figure"}
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}

_MAX_LINKS = 1000

# Possessive throughout: what a quantifier took it never gives back, so no input makes it try twice.
_VALUE = r"""\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s"'>][^\s>]*+|(?=>))"""
_ATTRIBUTE = rf"[^\s/>][^\s/>=]*+(?:{_VALUE})?+"
_TAG = re.compile(rf"<([a-zA-Z][^\s/>]*+)((?:[\s/]++|{_ATTRIBUTE})*+)>")
_HREF = re.compile(r"""(?i:(?<![^\s/"'])href)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'>][^\s>]*+))""")
_END_TAG = re.compile(r"</([a-zA-Z][^\s/>]*+)")
_RAW_ENDS = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in (*_RAW, "title")}


@dataclass(frozen=True, slots=True)
class Page:
    """`links`: absolute addresses without fragments, in order, each once."""

    title: str
    text: str
    links: tuple[str, ...] = ()


def read_html(html: str, base_url: str) -> Page:
    reader = _Reader()
    for piece in _pieces(html):
        reader.take(piece)
    links = []
    for target in reader.links:
        try:
            links.append(urldefrag(urljoin(base_url, target)).url)
        except ValueError:
            continue
    return Page(" ".join(reader.title.split()), tidy("".join(reader.text)), tuple(dict.fromkeys(links)))


def tidy(text: str) -> str:
    """Runs of blanks as one, lines trimmed, at most one empty line in a row."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


@dataclass(frozen=True, slots=True)
class _Text:
    text: str


@dataclass(frozen=True, slots=True)
class _Start:
    """`inside`: what stands in an element that holds no markup."""

    name: str
    attributes: str
    inside: str = ""


@dataclass(frozen=True, slots=True)
class _End:
    name: str


_Piece = _Text | _Start | _End


def _pieces(html: str) -> Iterator[_Piece]:
    at = 0
    while (opened := html.find("<", at)) >= 0:
        if opened > at:
            yield _Text(html[at:opened])
        if html.startswith("<!--", opened):
            at = _behind(html, "-->", opened + 2)  # `<!-->` is a comment too
        elif html.startswith(("<!", "<?"), opened):
            at = _behind(html, ">", opened)
        elif end := _END_TAG.match(html, opened):
            yield _End(end[1].lower())
            at = _behind(html, ">", end.end())
        elif not html[opened + 1 : opened + 2].isalpha():
            yield _Text("<")
            at = opened + 1
        elif tag := _TAG.match(html, opened):
            start, at = _start(html, tag)
            yield start
        else:
            return
    yield _Text(html[at:])


def _behind(html: str, mark: str, at: int) -> int:
    found = html.find(mark, at)
    return len(html) if found < 0 else found + len(mark)


def _start(html: str, tag: re.Match[str]) -> tuple[_Start, int]:
    """A start tag, with all up to its end tag if no markup is in between; and where it ends."""
    name = tag[1].lower()
    if name not in _RAW_ENDS:
        return _Start(name, tag[2]), tag.end()
    end = _RAW_ENDS[name].search(html, tag.end())
    until = end.start() if end else len(html)
    return _Start(name, tag[2], html[tag.end() : until]), until


class _Reader:
    """Gathers text and links outside of what is skipped; what is not closed ends with the page."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.title = ""
        self.links: list[str] = []
        self._open: list[str] = []  # elements that are skipped
        self._num_open: Counter[str] = Counter()

    def take(self, piece: _Piece) -> None:
        match piece:
            case _Text(text):
                if not self._open:
                    self.text.append(_unescaped(text))
            case _Start():
                self._start(piece)
            case _End(name):
                self._end(name)

    def _start(self, tag: _Start) -> None:
        if tag.name in _SKIPPED and not tag.attributes.endswith("/"):
            self._open.append(tag.name)
            self._num_open[tag.name] += 1
        if tag.name == "title" and not self._open:
            self.title = self.title or _unescaped(tag.inside)
        if tag.name == "a" and len(self.links) < _MAX_LINKS and (href := _HREF.search(tag.attributes)):
            self.links.append(_unescaped(href[1] or href[2] or href[3] or "").strip())
        if tag.name in _BLOCKS and not self._open:
            self.text.append("\n" + ("- " if tag.name == "li" else _HEADINGS.get(tag.name, "")))

    def _end(self, name: str) -> None:
        if self._num_open[name]:
            while (closed := self._open.pop()) != name:
                self._num_open[closed] -= 1
            self._num_open[name] -= 1
        if name in _BLOCKS and not self._open:
            self.text.append("\n")


def _unescaped(text: str) -> str:
    try:
        return entities.unescape(text)
    except ValueError:  # a character's number of more digits than Python reads
        return text
