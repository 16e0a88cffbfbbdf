"""An HTTP server for download tests: files with ranges, a package index, a model hub, and faults on request."""

from __future__ import annotations

import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Served:
    """What the server answers, and what it was asked. `drop_after` bytes of a body the connection is cut, once per entry."""

    url: str = ""
    bodies: dict[str, tuple[str, bytes]] = field(default_factory=dict)  # path to (content type, body)
    status: dict[str, int] = field(default_factory=dict)
    drop_after: list[int] = field(default_factory=list)
    ranges: bool = True
    requests: list[tuple[str, str | None]] = field(default_factory=list)  # (path, Range)
    authorizations: list[str | None] = field(default_factory=list)

    def add(self, path: str, body: bytes, kind: str = "application/octet-stream") -> str:
        """Serve a body; returns its URL."""
        self.bodies[path] = (kind, body)
        return self.url + path

    def add_wheel(self, name: str, version: str, members: dict[str, bytes], *, as_json: bool = True) -> bytes:
        """A wheel in the simple index, listed as JSON (PEP 691) or HTML (PEP 503). Returns its bytes."""
        filename = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        data = wheel_bytes(members)
        digest = hashlib.sha256(data).hexdigest()
        url = self.add(f"/files/{filename}", data)
        if as_json:
            file = {"filename": filename, "url": url, "hashes": {"sha256": digest}, "size": len(data)}
            self.add(
                f"/simple/{name}/",
                json.dumps({"files": [file]}).encode(),
                "application/vnd.pypi.simple.v1+json",
            )
        else:
            page = f'<html><a href="../../files/{filename}#sha256={digest}">{filename}</a></html>'
            self.add(f"/simple/{name}/", page.encode(), "text/html")
        return data

    def add_repo(self, repo: str, files: dict[str, bytes]) -> None:
        """A repository of the hub, with sizes and hashes."""
        siblings = [
            {"rfilename": name, "size": len(data), "lfs": {"sha256": hashlib.sha256(data).hexdigest()}}
            for name, data in files.items()
        ]
        self.add(f"/api/models/{repo}", json.dumps({"siblings": siblings}).encode(), "application/json")
        for name, data in files.items():
            self.add(f"/{repo}/resolve/main/{name}", data)

    def asked_for(self, part: str) -> list[str | None]:
        """The Range headers of the requests whose path holds `part`."""
        return [header for path, header in self.requests if part in path]


def wheel_bytes(members: dict[str, bytes]) -> bytes:
    """A zip archive with these members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


@contextmanager
def serving() -> Iterator[Served]:
    """A running server on a free port of this machine."""
    served = Served()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self, served)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()


def answer(handler: BaseHTTPRequestHandler, served: Served) -> None:
    path = handler.path.partition("?")[0]
    header = handler.headers.get("Range")
    served.requests.append((path, header))
    served.authorizations.append(handler.headers.get("Authorization"))
    status = served.status.get(path, 200 if path in served.bodies else 404)
    kind, body = served.bodies.get(path, ("text/plain", b"")) if status == 200 else ("text/plain", b"")
    if header and served.ranges and status == 200:
        status, body = 206, body[int(header.removeprefix("bytes=").rstrip("-")) :]
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if served.drop_after and "/files/" in path:
        handler.wfile.write(body[: served.drop_after.pop(0)])
        handler.close_connection = True
        return
    handler.wfile.write(body)
