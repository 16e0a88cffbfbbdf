"""Locks and replacements: what holds when several processes want the same thing."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from edgewise.checkpoints.files import exclusive_lock, folder_bytes, free_bytes, replace_file


def test_one_holder_at_a_time_though_the_file_comes_and_goes(tmp_path: Path) -> None:
    path, inside, most = tmp_path / "deep" / "lock", 0, 0
    counter = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        for _ in range(20):
            with exclusive_lock(path):
                with counter:
                    inside += 1
                    most = max(most, inside)
                time.sleep(0.0005)
                with counter:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert not path.exists()


def test_waiting_is_told(tmp_path: Path) -> None:
    told = threading.Event()

    def second() -> None:
        with exclusive_lock(tmp_path / "lock", waiting=told.set):
            pass

    with exclusive_lock(tmp_path / "lock"):
        thread = threading.Thread(target=second)
        thread.start()
        assert told.wait(10)
    thread.join()


def test_replacing_leaves_one_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    replace_file(path, b"one")
    replace_file(path, b"three")
    assert path.read_bytes() == b"three"
    assert [p.name for p in tmp_path.iterdir()] == ["state"]
    assert folder_bytes(tmp_path) == 5
    assert free_bytes(tmp_path / "not" / "there") > 0
