"""HTTP for downloads: one client, and `fetch`, which resumes, hashes, and tells a full disk from a broken line.

Foreign errors end here: what leaves is DownloadError.
"""

from __future__ import annotations

import errno
import hashlib
import os
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx

from edgewise import __version__
from edgewise.checkpoints.files import free_bytes
from edgewise.checkpoints.settings import StoreSettings
from edgewise.core.errors import DownloadError

CHUNK_BYTES = 1 << 20
CONNECT_TIMEOUT_S = 10.0
MAX_ATTEMPTS = 5  # without a byte of progress between them
RETRY_PAUSE_S = 1.0
RETRY_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})

Received = Callable[[int], None]
"""Told of every number of bytes that came in (or was already there)."""


def open_client(settings: StoreSettings) -> httpx.Client:
    """A client that follows redirects and trusts the configured certificates."""
    return httpx.Client(
        follow_redirects=True,
        verify=_trust(settings.ca_file),
        timeout=httpx.Timeout(settings.timeout_s, connect=CONNECT_TIMEOUT_S),
        headers={"User-Agent": f"edgewise/{__version__}"},
    )


@cache
def _trust(ca_file: Path | None) -> ssl.SSLContext:
    """Certificates to trust; kept, since reading them takes longer than a request."""
    return ssl.create_default_context(cafile=str(ca_file)) if ca_file else httpx.create_ssl_context()


def redact(url: str) -> str:
    """A URL without the credentials it may carry, for messages."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "a URL that cannot be read"
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


@contextmanager
def disk_errors(path: Path, needed_bytes: int = 0) -> Iterator[None]:
    """Turn OSErrors of writing below `path` into DownloadError; a full disk is said with both numbers."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise DownloadError(f"{path}: {error.strerror or error}") from error
        raise _disk_full(path, needed_bytes) from error


def check_room(path: Path, needed_bytes: int) -> None:
    """Raise DownloadError unless `needed_bytes` more fit on the disk of `path`."""
    if free_bytes(path) < needed_bytes:
        raise _disk_full(path, needed_bytes)


class DiskFullError(DownloadError):
    """No room for what is fetched: another source would not change that."""


def _disk_full(path: Path, needed_bytes: int) -> DiskFullError:
    return DiskFullError(
        f"{path}: the disk is full: {needed_bytes} more bytes are needed, {free_bytes(path)} are free",
        hint="free some space and run the same command again; what has arrived is kept",
    )


def fetch(
    client: httpx.Client,
    url: str,
    target: Path,
    *,
    size: int | None,
    sha256: str | None,
    received: Received,
    headers: dict[str, str] | None = None,
) -> None:
    """Download to `target`, which appears only when complete and checked; a partial file beside it is continued.

    Without a hash to hold the result against, a partial file is not trusted and the download starts over.
    Raises DownloadError.
    """
    partial = target.with_name(target.name + ".part")
    if sha256 is None:
        partial.unlink(missing_ok=True)
    digest = hashlib.sha256()
    done = _hash_existing(partial, size, digest)
    received(done)
    if size is None or done < size:
        _download(client, url, partial, done, size, digest.update, received, headers or {})
    with disk_errors(target):
        found = partial.stat().st_size
        if (size is not None and found != size) or (sha256 is not None and digest.hexdigest() != sha256):
            partial.unlink()
            what = (
                f"{found} bytes, expected {size}"
                if found != size and size
                else f"SHA-256 {digest.hexdigest()}"
            )
            raise DownloadError(
                f"{redact(url)}: what arrived is not what was promised ({what}); it was removed"
            )
        with partial.open("rb") as file:
            os.fsync(file.fileno())  # a later run trusts the name
        partial.replace(target)


def _hash_existing(partial: Path, size: int | None, digest: hashlib._Hash) -> int:
    """Feed what is already there to the hash; a partial file longer than the whole is discarded."""
    if not partial.exists():
        return 0
    done = partial.stat().st_size
    if size is not None and done > size:
        partial.unlink()
        return 0
    with partial.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return done


def _download(
    client: httpx.Client,
    url: str,
    partial: Path,
    done: int,
    size: int | None,
    update: Callable[[bytes], None],
    received: Received,
    headers: dict[str, str],
) -> None:
    """Append to `partial` until the response ends, resuming after broken connections."""
    attempts = 0
    while True:
        before = done
        try:
            with partial.open("ab") as file:
                for chunk in _stream(client, url, done, headers):
                    with disk_errors(partial, (size or done + len(chunk)) - done):
                        file.write(chunk)
                        file.flush()
                    update(chunk)
                    done += len(chunk)
                    received(len(chunk))
            if size is None or done >= size:
                return
            problem: object = f"the connection closed after {done} of {size} bytes"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            problem = error
        attempts = 1 if done > before else attempts + 1
        if attempts >= MAX_ATTEMPTS or not _worth_retrying(problem):
            raise DownloadError(f"{redact(url)}: {describe(problem)}") from None
        time.sleep(RETRY_PAUSE_S * attempts)


def _worth_retrying(problem: object) -> bool:
    if isinstance(problem, httpx.HTTPStatusError):
        return problem.response.status_code in RETRY_STATUS
    return not isinstance(
        problem, httpx.ConnectError | httpx.ConnectTimeout | httpx.UnsupportedProtocol | httpx.InvalidURL
    )


def describe(problem: object) -> str:
    """One line on what went wrong with a request."""
    if isinstance(problem, httpx.HTTPStatusError):
        return f"the server answered {problem.response.status_code} {problem.response.reason_phrase}"
    return str(problem) or type(problem).__name__


def _stream(client: httpx.Client, url: str, start: int, headers: dict[str, str]) -> Iterator[bytes]:
    """The bytes of a resource from `start` on. A server without ranges is read from the beginning, skipping."""
    ranged = {**headers, "Range": f"bytes={start}-"} if start else headers
    with client.stream("GET", url, headers={**ranged, "Accept-Encoding": "identity"}) as response:
        if start and response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # it was complete already; the hash will tell
        response.raise_for_status()
        skip = start if start and response.status_code != httpx.codes.PARTIAL_CONTENT else 0
        for chunk in response.iter_bytes():  # as they come, so that a broken connection loses nothing
            if skip >= len(chunk):
                skip -= len(chunk)
                continue
            yield chunk[skip:]
            skip = 0
