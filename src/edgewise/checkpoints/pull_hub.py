"""Fetches model files of Hugging Face repositories: asks the hub what there is, then downloads like anything else.

Source: the hub's public HTTP interface (`/api/models/REPO?blobs=true` lists files with sizes and hashes, `/REPO/resolve/main/FILE`
redirects to the bytes). One client for hub and index means one set of certificates, proxies, retries and errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import quote

import httpx

from edgewise.checkpoints.gguf import SPLIT_NAME
from edgewise.checkpoints.http import Received, check_room, describe, fetch
from edgewise.checkpoints.settings import StoreSettings
from edgewise.checkpoints.sources import HubSource
from edgewise.core.errors import DownloadError, EdgewiseError, ModelNotFoundError, UnsupportedModelError

# What to take from a repository that offers several: the usual compromise first, then up, then down.
PREFERENCE = (
    *("Q4_K_M", "Q4_K_S", "Q4_0", "Q4_1", "IQ4_NL", "IQ4_XS"),
    *("Q5_K_M", "Q5_K_S", "Q5_0", "Q6_K", "Q8_0"),
    *("Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K", "F16", "BF16", "F32"),
)


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file as the hub describes it. `sha256` is None for small files outside large-file storage."""

    name: str
    size: int
    sha256: str | None


def list_hub_files(client: httpx.Client, settings: StoreSettings, repo: str) -> list[HubFile]:
    """The files of a repository. Raises ModelNotFoundError or DownloadError."""
    url = f"{settings.hub_url}/api/models/{repo}"
    try:
        response = client.get(url, params={"blobs": "true"}, headers=_headers(settings))
        if response.status_code in (401, 403):
            raise DownloadError(
                f"hf:{repo}: no such repository, or one that asks to accept its terms first",
                hint="check the name; for a gated one accept its terms on the hub and set HF_TOKEN",
            )
        if response.status_code == 404:
            raise ModelNotFoundError(f"hf:{repo}: no such repository on {settings.hub_url}")
        response.raise_for_status()
        files = response.json()["siblings"]
        return [
            HubFile(f["rfilename"], f.get("size") or 0, (f.get("lfs") or {}).get("sha256")) for f in files
        ]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
        raise DownloadError(f"hf:{repo}: {settings.hub_url} cannot be asked: {describe(error)}") from error


def _headers(settings: StoreSettings) -> dict[str, str]:
    return {"Authorization": f"Bearer {settings.hub_token}"} if settings.hub_token else {}


def choose_files(source: HubSource, files: list[HubFile]) -> list[HubFile]:
    """The file that a source means, or all parts of a split one.

    Raises ModelNotFoundError naming what there is instead.
    """
    if source.file:
        chosen = next((file for file in files if file.name == source.file), None)
        return _with_parts(chosen, files) if chosen else _nothing(source, files)
    firsts = [file for file in files if _starts_model(file.name)]
    for quant in (source.quant,) if source.quant else PREFERENCE:
        for file in firsts:
            if _has_quant(file.name, quant):
                return _with_parts(file, files)
    if len(firsts) == 1 and not source.quant:
        return _with_parts(firsts[0], files)
    return _nothing(source, files)


def _nothing(source: HubSource, files: list[HubFile]) -> list[HubFile]:
    names = [file.name for file in files if file.name.endswith(".gguf")]
    if not names and any(file.name.endswith(".safetensors") for file in files):
        raise UnsupportedModelError(
            f"{source}: holds safetensors only; GGUF files can be read so far",
            hint="look for a repository of the same model whose name ends in -GGUF",
        )
    there = f"it has {', '.join(names[:8])}" if names else "it has no .gguf file"
    raise ModelNotFoundError(f"{source}: no such model file in the repository; {there}")


def _starts_model(name: str) -> bool:
    base = PurePosixPath(name).name
    match = SPLIT_NAME.match(base)
    return (
        base.endswith(".gguf")
        and "mmproj" not in base.lower()
        and (match is None or int(match["number"]) == 1)
    )


def _has_quant(name: str, quant: str) -> bool:
    """Whether a file name carries a quantisation's name as a word of its own."""
    words = PurePosixPath(name).name.upper().replace(".", "-").split("-")
    return quant.upper() in words


def _with_parts(first: HubFile, files: list[HubFile]) -> list[HubFile]:
    path = PurePosixPath(first.name)
    match = SPLIT_NAME.match(path.name)
    if match is None:
        return [first]
    count = int(match["count"])
    names = [str(path.with_name(f"{match['stem']}-{n:05d}-of-{count:05d}.gguf")) for n in range(1, count + 1)]
    by_name = {file.name: file for file in files}
    missing = [name for name in names if name not in by_name]
    if missing:
        raise ModelNotFoundError(f"the repository lacks {missing[0]}, a part of {first.name}")
    return [by_name[name] for name in names]


def pull_hub(
    client: httpx.Client,
    settings: StoreSettings,
    repo: str,
    files: list[HubFile],
    folder: Path,
    *,
    received: Received,
) -> None:
    """Download files into `folder`, keeping their base names. Raises DownloadError; what has arrived is kept."""
    headers = _headers(settings)
    there = sum(path.stat().st_size for path in folder.glob("*.gguf*"))
    check_room(folder, sum(file.size for file in files) - there)
    for file in files:
        target = folder / PurePosixPath(file.name).name
        if target.exists():
            received(file.size)
            continue
        url = f"{settings.hub_url}/{repo}/resolve/main/{quote(file.name)}"
        try:
            fetch(
                client,
                url,
                target,
                size=file.size or None,
                sha256=file.sha256,
                received=received,
                headers=headers,
            )
        except EdgewiseError as error:
            raise DownloadError(f"hf:{repo}/{file.name}: {error.message}", hint=error.hint) from error
