"""The chat page and its web search, as plain Starlette routes: `edgewise serve` and the gateway mount the same ones."""

from __future__ import annotations

from starlette.routing import BaseRoute

from edgewise.web.page import Greeting, page_routes
from edgewise.web.search import SearchSettings, search_routes

__all__ = ["SearchSettings", "page_routes", "search_routes", "web_routes"]


def web_routes(greeting: Greeting, search: SearchSettings, *, page: bool = True) -> list[BaseRoute]:
    """The page, which offers the Web switch where there is a search, and the search. The application they are part of is what they ask
    for answers; it has to be in the scope, as `app`.
    """
    pages = page_routes(greeting, search=search.url is not None) if page else []
    return [*pages, *search_routes(search)]
