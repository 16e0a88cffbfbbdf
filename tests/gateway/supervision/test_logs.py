"""Log files: begun, emptied in place, read from their ends; and the arithmetic of room."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgewise.core.engines import Ran
from edgewise.gateway.supervision.errors import NoRoomError
from edgewise.gateway.supervision.logs import EngineLog, clean_lines, tail
from edgewise.gateway.supervision.memory import check_floor, check_room
from edgewise.gateway.supervision.process import adopt, read_process


def test_the_last_lines_are_those_of_the_latest_start(tmp_path: Path):
    log = EngineLog(tmp_path / "logs" / "a.log")
    for text in ("first\nrun\n", "second\n\x1b[31mrun\x1b[0m\r\n\n"):
        with log.opened("starting a") as handle:
            os.write(handle, text.encode())
    assert log.last_lines() == ["second", "run"] and log.last_lines(1) == ["run"]
    assert (tmp_path / "logs" / "a.log").stat().st_mode & 0o777 == 0o600
    assert "first" in log.path.read_text(), "earlier starts stay"


def test_a_writer_goes_on_in_a_log_that_was_emptied(tmp_path: Path):
    log = EngineLog(tmp_path / "a.log", limit_bytes=100)
    with log.opened("starting a") as handle:
        os.write(handle, b"x" * 200 + b"\n")
        log.rotate()
        os.write(handle, b"after\n")
        log.rotate()
    assert log.path.read_bytes() == b"after\n", "at the end of the file, which is its start now"
    assert (tmp_path / "a.log.1").read_bytes().endswith(b"x\n")


def test_only_the_end_of_a_large_log_is_read(tmp_path: Path):
    path = tmp_path / "a.log"
    path.write_bytes(b"begin\n" + b"y" * 100_000 + b"\nend\n")
    assert len(tail(path)) == 16 << 10 and clean_lines(tail(path))[-1] == "end"
    assert tail(path, since=10**9) == tail(path), "it was emptied since"
    assert tail(tmp_path / "none") == b"" and EngineLog(tmp_path / "none").last_lines() == []


@pytest.mark.parametrize(
    ("need", "keep", "free", "fits"),
    [(5, 5, 10, True), (6, 5, 10, False), (0, 10, 10, True), (0, 11, 10, False)],
)
def test_room_is_what_it_needs_and_what_must_stay(need: int, keep: int, free: int, fits: bool):
    sizes = {"need_bytes": need * 10**9, "keep_free_bytes": keep * 10**9, "free_bytes": free * 10**9}
    if fits:
        check_room("a", **sizes)
        return
    with pytest.raises(NoRoomError) as caught:
        check_room("a", **sizes)
    assert all(f"{size} GB" in caught.value.message for size in (need, keep, free))


def test_the_floor_itself_is_enough():
    check_floor("a", keep_free_bytes=8, free_bytes=8)
    with pytest.raises(NoRoomError):
        check_floor("a", keep_free_bytes=8, free_bytes=7)


async def test_a_process_that_is_not_the_one_is_not_adopted():
    own = read_process(os.getpid())
    assert own is not None and own.rss_bytes > 1 << 20 and not own.dead
    assert adopt(Ran(os.getpid(), own.start_ticks + 1, "d")) is None, "its number was given to another"
    if own.session != os.getpid():
        assert adopt(Ran(os.getpid(), own.start_ticks, "d")) is None, "it leads no session, as engines do"
    assert adopt(Ran(2**22 - 1, 5, "d")) is None and read_process(2**22 - 1) is None
