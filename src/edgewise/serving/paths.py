"""Paths below a prefix that a proxy in front puts before them (`--root-path`), whether it takes the prefix off again or not."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class RootPathMiddleware:
    """Tells the application its prefix. Belongs outermost."""

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self._app = app
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            scope = {**scope, "root_path": self._root_path}
        await self._app(scope, receive, send)


def route_path(scope: Scope) -> str:
    """A request's path without the prefix."""
    path: str = scope["path"]
    prefix = scope.get("root_path", "")
    return path.removeprefix(prefix) if path == prefix or path.startswith(prefix + "/") else path
