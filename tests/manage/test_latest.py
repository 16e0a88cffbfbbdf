"""The newest models that fit, from a stand-in of the hub; and what is shown where it cannot be reached."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from edgewise.checkpoints.gguf import open_gguf
from edgewise.checkpoints.settings import StoreSettings
from edgewise.core.errors import DownloadError
from edgewise.manage.latest import MOST, latest_models, metadata_of_head
from tests.support.tiny_gguf import write_tiny_gguf

pytestmark = pytest.mark.http

GB = 10**9


class Hub(ThreadingHTTPServer):
    """Repositories by publisher: (name, created, {file: size}). Every file begins like `head`."""

    def __init__(self, head: bytes) -> None:
        self.head = head
        self.repos: dict[str, list[tuple[str, str, dict[str, int]]]] = {}
        self.gated: set[str] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/api/models":
            author = parse_qs(parts.query)["author"][0]
            entries = [
                {"id": f"{author}/{name}", "createdAt": created, "gated": name in self.server.gated}
                for name, created, _ in self.server.repos.get(author, ())
            ]
            self._json(entries)
        elif parts.path.startswith("/api/models/"):
            author, name = parts.path.split("/")[3:5]
            files = next(files for repo, _, files in self.server.repos[author] if repo == name)
            self._json({"siblings": [{"rfilename": file, "size": size} for file, size in files.items()]})
        else:
            self.send_response(206)
            self.end_headers()
            self.wfile.write(self.server.head)

    def _json(self, value: Any) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    path = write_tiny_gguf(tmp_path / "head.gguf")
    server = Hub(path.read_bytes()[: 64 << 10])
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def ask(hub: Hub, tmp_path: Path, room: int = 20 * GB, **changes: Any) -> Any:
    settings = StoreSettings(data_dir=tmp_path, hub_url=hub.url, timeout_s=5, **changes)
    return latest_models(settings, tmp_path / "latest.json", context=4096, room_bytes=room)


def test_the_newest_first_each_in_the_best_form_that_fits(hub: Hub, tmp_path: Path):
    hub.repos["unsloth"] = [
        ("Old-GGUF", "2026-01-01", {"Old-Q8_0.gguf": 2 * GB, "Old-Q4_K_M.gguf": GB}),
        ("Huge-GGUF", "2026-11-01", {"Huge-Q4_K_M.gguf": 60 * GB}),
        (
            "New-GGUF",
            "2026-11-20",
            {"New-Q8_0.gguf": 30 * GB, "New-Q6_K.gguf": 19 * GB, "New-Q4_K_M.gguf": 9 * GB},
        ),
        ("Split-GGUF", "2026-11-10", {f"Split-Q8_0-0000{n}-of-00002.gguf": 5 * GB for n in (1, 2)}),
    ]
    found = ask(hub, tmp_path).models
    assert [(one.source, one.file_bytes) for one in found] == [
        ("hf:unsloth/New-GGUF:Q6_K", 19 * GB),
        ("hf:unsloth/Split-GGUF:Q8_0", 10 * GB),
        ("hf:unsloth/Old-GGUF:Q8_0", 2 * GB),
    ]
    assert all(one.need_bytes > one.file_bytes and one.engine == "edgewise" for one in found)


def test_what_is_no_chat_model_or_somebody_else_s_too(hub: Hub, tmp_path: Path):
    hub.gated = {"Closed-GGUF"}
    files = {"m-Q8_0.gguf": GB, "mmproj-Q8_0.gguf": GB}
    hub.repos["bartowski"] = [
        ("Same-GGUF", "2026-05-02", files),
        ("An-Embedding-GGUF", "2026-05-03", files),
        ("Closed-GGUF", "2026-05-04", files),
    ]
    hub.repos["ggml-org"] = [("Same-GGUF", "2026-05-01", files)]
    (only,) = ask(hub, tmp_path).models
    assert (only.source, only.file_bytes) == ("hf:bartowski/Same-GGUF:Q8_0", GB)


def test_there_are_never_more_than_a_page_of_them(hub: Hub, tmp_path: Path):
    hub.repos["unsloth"] = [(f"M{n}-GGUF", f"2026-01-{n + 1:02}", {"m-Q8_0.gguf": GB}) for n in range(20)]
    assert len(ask(hub, tmp_path).models) == MOST


def test_the_context_counts(hub: Hub, tmp_path: Path):
    hub.repos["unsloth"] = [("M-GGUF", "2026-01-01", {"m-Q8_0.gguf": GB})]
    (fits,) = ask(hub, tmp_path).models
    assert not ask(hub, tmp_path, room=fits.need_bytes - 1).models
    assert ask(hub, tmp_path, room=fits.need_bytes).models


def test_without_the_hub_the_last_answer_is_shown(hub: Hub, tmp_path: Path):
    with pytest.raises(DownloadError, match="EDGEWISE_OFFLINE"):
        ask(hub, tmp_path, offline=True)
    hub.repos["unsloth"] = [("M-GGUF", "2026-01-01", {"m-Q8_0.gguf": GB})]
    asked = ask(hub, tmp_path)
    kept = ask(hub, tmp_path, offline=True)
    assert (
        kept.models == asked.models and kept.asked_s == asked.asked_s and "EDGEWISE_OFFLINE" in kept.problem
    )
    (tmp_path / "latest.json").write_text("{")
    with pytest.raises(DownloadError):
        ask(hub, tmp_path, offline=True)


@pytest.mark.parametrize("cut", [0, 3, 24, 40, 200, 1000, 5000])
def test_a_head_that_is_cut_gives_what_lies_before(tmp_path: Path, cut: int):
    path = write_tiny_gguf(tmp_path / "m.gguf")
    whole = open_gguf(path).metadata
    for key, value in metadata_of_head(path.read_bytes()[:cut]):
        assert whole[key] == value or list(whole[key]) == value
    assert dict(metadata_of_head(path.read_bytes()[:5000]))["general.architecture"] == "llama"
