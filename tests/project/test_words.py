"""The tree speaks of the project alone: no paths or names of the machines and folders it was written on."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Written in pieces, so that this file does not hold what it looks for.
FORBIDDEN = {
    "a private path": re.compile(r"(?<![\w.\-/])/" + r"(?:work|opt/" + r"ew)/"),
    "a folder beside the checkout": re.compile(r"(?<![\w.\-])(?:\.\./)?shared" + r"/"),
}
EXEMPT = {"tests/support/shared.py", "tests/project/test_words.py"}


def tracked_files() -> list[Path]:
    run = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if run.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in run.stdout.decode().split("\0") if name]


def test_nothing_names_the_place_it_was_written_in():
    found = []
    for path in tracked_files():
        name = str(path.relative_to(ROOT))
        if name in EXEMPT or not path.is_file():
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for what, pattern in FORBIDDEN.items():
            found += [
                f"{name}:{text.count(chr(10), 0, match.start()) + 1} {what}: {match.group()}"
                for match in pattern.finditer(text)
            ]
    assert not found, "\n".join(found)


def test_no_unfinished_marks():
    marks = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    found = [
        f"{path.relative_to(ROOT)}"
        for path in tracked_files()
        if path.suffix in {".py", ".cpp", ".h", ".md", ".toml"}
        and path.is_file()
        and marks.search(path.read_text())
    ]
    assert not found, "\n".join(found)
