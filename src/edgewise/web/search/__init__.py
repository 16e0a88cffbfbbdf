"""Web search for an answer: `search_routes` is the endpoint behind the page's Web switch.

routes -> loop (rounds of the model) -> tools (web_search, fetch_page) -> searxng, fetching -> sources
"""

from edgewise.web.search.routes import SearchSettings as SearchSettings
from edgewise.web.search.routes import search_routes as search_routes
