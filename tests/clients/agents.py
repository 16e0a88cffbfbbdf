"""How each coding agent is pointed at a server and run headless. `docs/clients.md` tells people the same settings."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clients.installing import installed

KEY = "sk-local"
MODEL = "local"


@dataclass(frozen=True)
class Start:
    """Arguments after the command, and variables of its environment."""

    arguments: Sequence[str]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Coder:
    """A coding agent. `configure` gets the server's address, a fresh home folder, the task and the server's window."""

    name: str
    package: str
    version: str
    command: str
    configure: Callable[[str, Path, str, int], Start]


@dataclass(frozen=True)
class Run:
    """What a finished client left: exit status (None: it ran out of time), its texts, its folder."""

    status: int | None
    output: str
    errors: str
    folder: Path
    took_s: float


def claude_code(url: str, home: Path, task: str, window: int) -> Start:
    environment = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": KEY,
        "ANTHROPIC_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "API_TIMEOUT_MS": "3000000",
        "IS_SANDBOX": "1",
    }
    arguments = ["-p", task, "--permission-mode", "acceptEdits", "--allowedTools", "Write,Bash,Read,Edit"]
    return Start([*arguments, "--max-turns", "8"], environment)


def codex(url: str, home: Path, task: str, window: int) -> Start:
    folder = home / ".codex"
    folder.mkdir()
    (folder / "config.toml").write_text(
        f"""\
model = "{MODEL}"
model_provider = "edgewise"
model_context_window = {window}

[model_providers.edgewise]
name = "Edgewise"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "EDGEWISE_API_KEY"
"""
    )
    arguments = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", task]
    return Start(arguments, {"EDGEWISE_API_KEY": KEY})


def opencode(url: str, home: Path, task: str, window: int) -> Start:
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True)
    provider: dict[str, Any] = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Edgewise",
        "options": {"baseURL": f"{url}/v1", "apiKey": KEY},
        "models": {MODEL: {"name": "Edgewise", "limit": {"context": window, "output": 4096}}},
    }
    config = {
        "$schema": "https://opencode.ai/config.json",
        "model": f"edgewise/{MODEL}",
        "provider": {"edgewise": provider},
    }
    (folder / "opencode.json").write_text(json.dumps(config, indent=2))
    environment = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    return Start(["run", task], environment)


CLAUDE_CODE = Coder("claude code", "@anthropic-ai/claude-code", "2.1.197", "claude", claude_code)
CODEX = Coder("codex", "@openai/codex", "0.171.0", "codex", codex)
OPENCODE = Coder("opencode", "opencode-ai", "1.18.33", "opencode", opencode)
CODERS = (CLAUDE_CODE, CODEX, OPENCODE)


def run_coder(coder: Coder, url: str, task: str, place: Path, *, window: int, timeout_s: float) -> Run:
    """Run a client on a task in an empty git folder below `place`, with a home of its own and nothing of this process's environment."""
    command = installed(coder.package, coder.version, coder.command)
    home, folder = place / "home", place / "project"
    home.mkdir()
    folder.mkdir()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    start = coder.configure(url, home, task, window)
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    environment = {**kept, "HOME": str(home), "TERM": "dumb", "NO_COLOR": "1", **start.environment}
    began_s = time.monotonic()
    process = subprocess.Popen(
        [str(command), *start.arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that its own children can be ended with it
    )
    status: int | None = None
    try:
        output, errors = process.communicate(timeout=timeout_s)
        status = process.returncode
    except subprocess.TimeoutExpired:
        _end(process)
        output, errors = process.communicate()
    finally:
        _end(process)
    return Run(status, output, errors, folder, time.monotonic() - began_s)


def _end(process: subprocess.Popen[str]) -> None:
    """End a client and whatever it started and left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
