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
class Server:
    """What a client must know of a server."""

    url: str
    window: int  # tokens of prompt and answer together
    max_output_tokens: int = 4096  # of one answer; Codex has no such setting


@dataclass(frozen=True)
class Coder:
    """A coding agent: its package and command, and how it is set up and started.

    `node`: the version of Node.js it needs where the machine's own may be too old; `folder_variable` names the folder it works in where
    that is not the current one. `moved_tokens`: at a prompt's end, those it takes along to the end of the next.
    `set_up` writes what the agent reads in a fresh home folder and returns the environment it needs. `first` and `next` are the arguments before a task: of a new conversation, and of one that goes on.
    """

    name: str
    package: str
    version: str
    command: str
    set_up: Callable[[Path, Server], Mapping[str, str]]
    first: Sequence[str]
    next: Sequence[str]
    node: str = ""
    folder_variable: str = ""
    moved_tokens: int = 0


@dataclass(frozen=True)
class Run:
    """What a client left when it ended: exit status (None: it ran out of time) and its texts."""

    status: int | None
    output: str
    errors: str
    took_s: float

    def __str__(self) -> str:
        return f"exit {self.status} after {self.took_s:.1f} s\n{self.output}\n{self.errors}"


def set_up_claude_code(home: Path, server: Server) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": server.url,
        "ANTHROPIC_AUTH_TOKEN": KEY,
        "ANTHROPIC_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL,
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(server.max_output_tokens),
        "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS": "1",  # git status in the system prompt would void the cache at each start
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "API_TIMEOUT_MS": "3000000",
        "IS_SANDBOX": "1",  # root may use it too
    }


def set_up_codex(home: Path, server: Server) -> dict[str, str]:
    folder = home / ".codex"
    folder.mkdir()
    (folder / "config.toml").write_text(
        f"""\
model = "{MODEL}"
model_provider = "edgewise"
model_context_window = {server.window}

[model_providers.edgewise]
name = "Edgewise"
base_url = "{server.url}/v1"
wire_api = "responses"
env_key = "EDGEWISE_API_KEY"
"""
    )
    return {"EDGEWISE_API_KEY": KEY}


def set_up_opencode(home: Path, server: Server) -> dict[str, str]:
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True)
    limit = {"context": server.window, "output": server.max_output_tokens}
    provider: dict[str, Any] = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Edgewise",
        "options": {"baseURL": f"{server.url}/v1", "apiKey": KEY},
        "models": {MODEL: {"name": "Edgewise", "limit": limit}},
    }
    config = {
        "$schema": "https://opencode.ai/config.json",
        "model": f"edgewise/{MODEL}",
        "provider": {"edgewise": provider},
    }
    (folder / "opencode.json").write_text(json.dumps(config, indent=2))
    return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}


def set_up_openclaw(home: Path, server: Server) -> dict[str, str]:
    folder = home / ".openclaw"
    folder.mkdir()
    model = {
        "id": MODEL,
        "name": "Edgewise",
        "reasoning": False,
        "input": ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": server.window,
        "maxTokens": server.max_output_tokens,
    }
    provider: dict[str, Any] = {
        "baseUrl": f"{server.url}/v1",
        "apiKey": KEY,
        "api": "openai-completions",
        "timeoutSeconds": 3000,
        "models": [model],
    }
    config = {
        "agents": {"defaults": {"model": {"primary": f"edgewise/{MODEL}"}, "timeoutSeconds": 3000}},
        "models": {"providers": {"edgewise": provider}},
        "update": {"checkOnStart": False},
    }
    (folder / "openclaw.json").write_text(json.dumps(config, indent=2))
    return {}


CLAUDE_OPTIONS = ("--permission-mode", "acceptEdits", "--allowedTools", "Write,Edit,Read,Bash")
CODEX_OPTIONS = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")

CLAUDE_CODE = Coder(
    name="claude code",
    package="@anthropic-ai/claude-code",
    version="2.1.197",
    command="claude",
    set_up=set_up_claude_code,
    first=(*CLAUDE_OPTIONS, "--max-turns", "8", "-p"),
    next=(*CLAUDE_OPTIONS, "--max-turns", "8", "--continue", "-p"),
)
CODEX = Coder(
    name="codex",
    package="@openai/codex",
    version="0.171.0",
    command="codex",
    set_up=set_up_codex,
    first=("exec", *CODEX_OPTIONS),
    next=("exec", "resume", "--last", *CODEX_OPTIONS),
)
OPENCODE = Coder(
    name="opencode",
    package="opencode-ai",
    version="1.18.33",
    command="opencode",
    set_up=set_up_opencode,
    first=("run",),
    next=("run", "--continue"),
)
OPENCLAW = Coder(
    name="openclaw",
    package="openclaw",
    version="2026.9.6",
    command="openclaw",
    set_up=set_up_openclaw,
    first=("agent", "--local", "--session-id", "work", "-m"),
    next=("agent", "--local", "--session-id", "work", "-m"),
    node="24.21.0",
    folder_variable="OPENCLAW_WORKSPACE_DIR",
    moved_tokens=240,
)


class Desk:
    """Where a client works: a home of its own and an empty git folder, both below `place`. Nothing of this process's environment."""

    def __init__(self, coder: Coder, place: Path, server: Server) -> None:
        """Skips the calling test where the client cannot be installed."""
        self._coder = coder
        path = os.environ.get("PATH", "")
        if coder.node:
            path = f"{installed('node', coder.node, 'node').parent}{os.pathsep}{path}"
        self._command = installed(coder.package, coder.version, coder.command, path=path)
        home = place / "home"
        self.folder = place / "project"
        home.mkdir()
        self.folder.mkdir()
        subprocess.run(["git", "init", "-q", str(self.folder)], check=True)
        kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
        own = {"PATH": path, "HOME": str(home), "TERM": "dumb", "NO_COLOR": "1"}
        if coder.folder_variable:
            own[coder.folder_variable] = str(self.folder)
        self._environment = {**kept, **own, **coder.set_up(home, server)}
        self._used = False

    def run(self, task: str, *, timeout_s: float) -> Run:
        """One task; after the first, the conversation goes on."""
        arguments = self._coder.next if self._used else self._coder.first
        self._used = True
        began_s = time.monotonic()
        process = subprocess.Popen(
            [str(self._command), *arguments, task],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that what it starts can be ended with it
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
        return Run(status, output, errors, time.monotonic() - began_s)


def _end(process: subprocess.Popen[str]) -> None:
    """End a client and whatever it started and left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
