"""`edgewise serve`: flags become options; what cannot be had is refused at start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import edgewise.server
from edgewise.cli import make_app
from edgewise.config import ChatOptions, Config
from edgewise.core.errors import ConfigError
from edgewise.server import ServerOptions

Started = tuple[Config, ServerOptions]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command with these flags; what it would have served with."""
    started: list[Started] = []
    monkeypatch.setattr(
        edgewise.server, "serve", lambda config, options, **_: started.append((config, options))
    )

    def run(*flags: str) -> Started:
        result = CliRunner().invoke(make_app(), ["serve", "some-model", *flags])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return started.pop()

    return run


def test_parsers_come_from_the_template_unless_named(serve: Any):
    config, options = serve()
    assert config.chat == ChatOptions()
    assert (config.chat.tool_call_parser, config.chat.reasoning_parser) == ("auto", "auto")
    assert config.chat.bare_calls and config.chat.reasoning_budget is None
    assert not options.trust_request_chat_template


def test_flags_of_tools_and_thinking(serve: Any):
    flags = [
        "--tool-call-parser",
        "hermes",
        "--reasoning-parser",
        "none",
        "--no-bare-calls",
        "--reasoning-budget",
        "300",
    ]
    config, options = serve(*flags, "--trust-request-chat-template", "--enable-auto-tool-choice")
    assert config.chat == ChatOptions("hermes", "none", bare_calls=False, reasoning_budget=300)
    assert options.trust_request_chat_template


def test_aliases_are_repeatable(serve: Any):
    _, options = serve("--alias", "gpt-4o", "--alias", "claude-x")
    assert options.model_aliases == ("gpt-4o", "claude-x")


def test_a_template_file_replaces_the_model_s(serve: Any, tmp_path: Path):
    (tmp_path / "t.jinja").write_text("{{ messages }}")
    config, _ = serve("--chat-template", str(tmp_path / "t.jinja"))
    assert config.model.chat_template == "{{ messages }}"


def test_what_is_missing_is_refused(serve: Any):
    with pytest.raises(ConfigError, match="--speculative-config"):
        serve("--speculative-config", "{}")


def test_flags_of_what_stands_round_the_server(serve: Any):
    _, options = serve("--root-path", "/models/a", "--drain-timeout-s", "5", "--keep-alive-s", "3")
    assert (options.root_path, options.drain_timeout_s, options.keep_alive_s) == ("/models/a", 5.0, 3.0)
