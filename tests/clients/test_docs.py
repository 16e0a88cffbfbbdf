"""docs/clients.md tells people exactly what the tests of the clients use."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.clients.agents import CLAUDE_CODE, CODEX, OPENCLAW, OPENCODE, Coder, Server

PAGE = (Path(__file__).parents[2] / "docs" / "clients.md").read_text()
SERVER = Server("http://127.0.0.1:8000", 32_768)
FOR_TESTS_ONLY = {"IS_SANDBOX"}


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def block(title: str, language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", section(title), re.DOTALL)
    assert found, f"{title} has no {language} block"
    return found[1]


@pytest.mark.parametrize(
    ("title", "coder"), [("Claude Code", CLAUDE_CODE), ("Codex", CODEX), ("OpenCode", OPENCODE)]
)
def test_the_environment_is_the_one_tested(title: str, coder: Coder, tmp_path: Path):
    tested = coder.set_up(tmp_path, SERVER)
    written = dict(re.findall(r"^export (\w+)=(.*)$", block(title, "sh"), re.MULTILINE))
    assert written == {name: value for name, value in tested.items() if name not in FOR_TESTS_ONLY}
    assert f"| {coder.version} |" in PAGE


def test_the_files_are_the_ones_tested(tmp_path: Path):
    CODEX.set_up(tmp_path, SERVER)
    assert block("Codex", "toml") == (tmp_path / ".codex" / "config.toml").read_text()
    OPENCODE.set_up(tmp_path, SERVER)
    tested = json.loads((tmp_path / ".config" / "opencode" / "opencode.json").read_text())
    assert json.loads(block("OpenCode", "json")) == tested
    OPENCLAW.set_up(tmp_path, SERVER)
    tested = json.loads((tmp_path / ".openclaw" / "openclaw.json").read_text())
    assert json.loads(block("OpenClaw", "json")) == tested
    assert OPENCLAW.folder_variable in section("OpenClaw") and f"| {OPENCLAW.version} |" in PAGE


def test_the_headless_commands_are_the_ones_tested():
    coders = (CLAUDE_CODE, CODEX, OPENCODE, OPENCLAW)
    for title, coder in zip(("Claude Code", "Codex", "OpenCode", "OpenClaw"), coders, strict=True):
        written = re.search(rf"`{coder.command} ([^`]*TASK[^`]*)`", section(title))
        assert written, title
        words = {word for word in written[1].split() if word != '"TASK"'}
        assert words <= set(coder.first), title
