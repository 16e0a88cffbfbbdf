"""The page itself: `/` and its files, read once; nothing else of the folder's neighbours is ever served.

What a model writes is shown by this page, so the page's policy lets nothing but its own files run: no inline script, no other
origin, and no way to turn text into HTML (`require-trusted-types-for` makes even a slip in the page's own code an error).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

_STATIC = files("edgewise.web") / "static"
_INDEX = "index.html"

FILES = tuple(sorted(file.name for file in _STATIC.iterdir() if file.name != _INDEX))
"""Everything the page loads beside itself."""

PATHS = frozenset({"/", *(f"/page/{name}" for name in FILES)})
"""What answers without a key."""

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",  # kept, and asked for again: a new version shows at once
}

_KINDS = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_SEARCH_MARK = b'name="edgewise-search" content="off"'

Greeting = Callable[[Request], str]


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file of the page as it is sent."""

    body: bytes
    media_type: str
    tag: str  # of its contents, quoted as in ETag

    @classmethod
    def of(cls, name: str, body: bytes) -> PageFile:
        digest = hashlib.sha256(body).hexdigest()[:20]
        return cls(body, _KINDS[name.rpartition(".")[2]], f'"{digest}"')

    def answer(self, request: Request) -> Response:
        headers = {**HEADERS, "etag": self.tag}
        if self.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(self.body, headers=headers, media_type=self.media_type)


def page_routes(greeting: Greeting, *, search: bool = False) -> list[BaseRoute]:
    """`/` and `/page/FILE`, without a key. `search`: the page offers its Web switch.

    Only browsers get HTML at `/`: everybody else gets `greeting`, one line of text, since clients probe the address.
    """
    known = {name: PageFile.of(name, (_STATIC / name).read_bytes()) for name in FILES}
    html = (_STATIC / _INDEX).read_bytes()
    if search:
        html = html.replace(_SEARCH_MARK, _SEARCH_MARK.replace(b"off", b"on"))
    index = PageFile.of(_INDEX, html)

    async def root(request: Request) -> Response:
        answer = index.answer(request) if wants_html(request) else PlainTextResponse(greeting(request))
        answer.headers["vary"] = "accept"
        return answer

    def serving(file: PageFile) -> Callable[[Request], object]:
        async def answer(request: Request) -> Response:
            return file.answer(request)

        return answer

    return [
        Route("/", root, methods=["GET", "HEAD"]),
        *(Route(f"/page/{name}", serving(file), methods=["GET", "HEAD"]) for name, file in known.items()),
    ]


def wants_html(request: Request) -> bool:
    """Browsers name HTML in Accept; clients of APIs send `*/*` or nothing."""
    return "text/html" in request.headers.get("accept", "")
