"""The chat page and its web search.

`page_routes` serves the page, `search.search_routes` the loop behind its Web switch. Both are plain Starlette routes, so that
`edgewise serve` and the gateway mount the same ones.
"""

from edgewise.web.page import page_routes as page_routes
