"""The HTTP server: routes, admission, keys, errors, metrics and the event streams. Formats of bodies are `protocols`."""

from __future__ import annotations

from edgewise.server.app import create_app
from edgewise.server.options import ServerOptions
from edgewise.server.run import serve

__all__ = ["ServerOptions", "create_app", "serve"]
