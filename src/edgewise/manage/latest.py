"""The newest chat models that somebody has made GGUF files of and that fit this machine: asked of the hub, and kept for when it cannot be.

Source: the hub's public HTTP interface, `/api/models` with `author`, `filter`, `sort` and `expand`.
"""

from __future__ import annotations

import json
import re
import struct
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from edgewise.architectures import FAMILIES
from edgewise.checkpoints.http import describe, open_client
from edgewise.checkpoints.pull_hub import HubFile, choose_files, list_hub_files
from edgewise.checkpoints.settings import StoreSettings
from edgewise.checkpoints.sources import HubSource
from edgewise.core.errors import DownloadError, EdgewiseError, ModelNotFoundError, UnsupportedModelError
from edgewise.manage.need import WHOLE, WORKING_BYTES, CacheForm, gguf_need

PUBLISHERS = ("ggml-org", "unsloth", "bartowski", "lmstudio-community")
QUANTS = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "MXFP4")
"""From the best to the smallest that is still worth it."""

MOST = 12
_LOOKED_AT = 40  # repositories of a publisher, newest first
_HEAD_BYTES = 256 << 10  # the shape of a model comes before its vocabulary
_NO_CHAT = re.compile(r"embed|rerank|mmproj|whisper|tts|-base\b|vae|diffusion", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Latest:
    """A model that fits. `source`: what `edgewise pull` takes. `need_bytes`: with its cache at the context that was asked for."""

    source: str
    created: str
    quant: str
    file_bytes: int
    need_bytes: int
    architecture: str
    engine: str  # what runs it here: edgewise, or llama-server


@dataclass(frozen=True, slots=True)
class Answer:
    """`asked_s`: when, in seconds since 1970. `problem`: why it is an old answer, or ""."""

    models: tuple[Latest, ...]
    asked_s: float
    problem: str = ""


def latest_models(settings: StoreSettings, cache: Path, *, context: int, room_bytes: int) -> Answer:
    """Asked anew, or the last answer where the hub cannot be reached. Raises DownloadError where there is none either."""
    try:
        if settings.offline:
            raise DownloadError("the network is forbidden (EDGEWISE_OFFLINE)")
        with open_client(settings) as client:
            found = tuple(_newest(client, settings, context, room_bytes))
    except EdgewiseError as error:
        return _kept(cache, error)
    answer = Answer(found, time.time())
    cache.parent.mkdir(parents=True, exist_ok=True)
    written = cache.with_suffix(".new")
    written.write_text(json.dumps(asdict(answer)), encoding="utf-8")
    written.replace(cache)
    return answer


def _kept(cache: Path, error: EdgewiseError) -> Answer:
    try:
        kept = json.loads(cache.read_text(encoding="utf-8"))
        return Answer(tuple(Latest(**one) for one in kept["models"]), kept["asked_s"], error.message)
    except (OSError, ValueError, KeyError, TypeError):
        raise error from None


def _newest(client: httpx.Client, settings: StoreSettings, context: int, room_bytes: int) -> list[Latest]:
    """One a model, the newest first, whoever published it."""
    entries = sorted(
        (entry for author in PUBLISHERS for entry in _listed(client, settings, author)),
        key=lambda entry: str(entry["createdAt"]),
        reverse=True,
    )
    found: dict[str, Latest] = {}
    for entry in entries:
        model = str(entry["id"]).rpartition("/")[2].lower()
        if model in found or entry.get("gated") or _NO_CHAT.search(model):
            continue
        fits = _that_fits(client, settings, entry, context, room_bytes)
        if fits is not None:
            found[model] = fits
        if len(found) == MOST:
            break
    return list(found.values())


def _listed(client: httpx.Client, settings: StoreSettings, author: str) -> list[dict[str, Any]]:
    """Raises DownloadError."""
    params: list[tuple[str, str | int | float | bool | None]] = [
        ("author", author),
        ("filter", "gguf"),
        ("limit", _LOOKED_AT),
    ]
    params += [("sort", "createdAt"), ("direction", -1)]
    params += [("expand[]", name) for name in ("createdAt", "gguf", "gated")]
    try:
        response = client.get(f"{settings.hub_url}/api/models", params=params)
        response.raise_for_status()
        return [
            one for one in response.json() if isinstance(one, dict) and "id" in one and "createdAt" in one
        ]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, TypeError) as error:
        raise DownloadError(f"{settings.hub_url} cannot be asked: {describe(error)}") from error


def _that_fits(
    client: httpx.Client, settings: StoreSettings, entry: dict[str, Any], context: int, room_bytes: int
) -> Latest | None:
    """The best quantisation of a model that there is room for, as `edgewise pull` would take it."""
    repo = str(entry["id"])
    try:
        files = list_hub_files(client, settings, repo)
    except ModelNotFoundError:  # taken away since it was listed
        return None
    for quant in QUANTS:
        source = HubSource(repo, quant=quant)
        try:
            parts = choose_files(source, files)
        except (ModelNotFoundError, UnsupportedModelError):
            continue
        size = sum(file.size for file in parts)
        if size + WORKING_BYTES > room_bytes:
            continue
        metadata = _metadata(client, settings, repo, parts[0])
        found = _fitting(source, entry, size, metadata, context, room_bytes)
        if found is not None:
            return found
    return None


def _fitting(
    source: HubSource,
    entry: dict[str, Any],
    size: int,
    metadata: dict[str, Any],
    context: int,
    room_bytes: int,
) -> Latest | None:
    """None for a model that does not fit with its cache, or whose file does not say what it is."""
    architecture = str(metadata.get("general.architecture", ""))
    ours = architecture in FAMILIES
    try:
        need = gguf_need(size, metadata).total_bytes(context, 1, WHOLE if ours else CacheForm(forgets=True))
    except (KeyError, ValueError, TypeError):
        return None
    if need > room_bytes:
        return None
    engine = "edgewise" if ours else "llama-server"
    return Latest(str(source), str(entry["createdAt"]), str(source.quant), size, need, architecture, engine)


def _metadata(client: httpx.Client, settings: StoreSettings, repo: str, first: HubFile) -> dict[str, Any]:
    """As far as it stands at the beginning of a model's first file; nothing for a file that the hub does not give. Raises DownloadError."""
    url = f"{settings.hub_url}/{repo}/resolve/main/{quote(first.name)}"
    try:
        with client.stream("GET", url, headers={"Range": f"bytes=0-{_HEAD_BYTES - 1}"}) as response:
            if response.is_client_error:
                return {}
            response.raise_for_status()
            head = b""
            for chunk in response.iter_bytes():
                head += chunk
                if len(head) >= _HEAD_BYTES:
                    break
    except httpx.HTTPError as error:
        raise DownloadError(f"hf:{repo}: {describe(error)}") from error
    return dict(metadata_of_head(head))


_SIZES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


def metadata_of_head(head: bytes) -> Iterator[tuple[str, Any]]:
    """The keys and values of a GGUF file that lie whole in its first bytes, arrays of text left out."""
    if head[:4] != b"GGUF" or len(head) < 24:
        return
    (count,) = struct.unpack_from("<Q", head, 16)
    at = 24

    def text() -> str:
        nonlocal at
        (length,) = struct.unpack_from("<Q", head, at)
        at += 8 + length
        if at > len(head):
            raise struct.error
        return head[at - length : at].decode(errors="replace")

    def value(kind: int) -> Any:
        nonlocal at
        if kind == _STRING:
            return text()
        if kind == _ARRAY:
            inner, length = struct.unpack_from("<IQ", head, at)
            at += 12
            return [value(inner) for _ in range(length)]
        (found,) = struct.unpack_from(f"<{_SIZES[kind]}", head, at)
        at += struct.calcsize(f"<{_SIZES[kind]}")
        return found

    for _ in range(count):
        try:
            key = text()
            (kind,) = struct.unpack_from("<I", head, at)
            at += 4
            found = value(kind)
        except (struct.error, KeyError):
            return
        yield key, found
