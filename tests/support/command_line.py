"""The command line in the test's own process."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from edgewise.cli import main

Run = Callable[..., tuple[object, str, str]]
"""Arguments -> exit status, output, errors."""


def command_line(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["edgewise", *arguments])
        status: object = 0
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
        return status, *capfd.readouterr()

    return call
