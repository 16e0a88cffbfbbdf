"""The coding agents with a real model: three tasks in one conversation, and not one protocol error.

Whether the 0.5B does what it is told is not asked. Claude Code's first prompt has 19,000 tokens, which take minutes on a small
processor; `EDGEWISE_REAL_CLIENTS` names which agents to run (`all`, or names separated by commas; `make clients` runs all), none where it is not set,
and `EDGEWISE_REAL_CLIENTS_S` the seconds each may take (with pytest's `faulthandler_timeout` raised to match).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.clients.agents import CLAUDE_CODE, CODEX, OPENCLAW, OPENCODE, Coder, Desk, Server
from tests.clients.checks import answers, check_cache_grows, check_protocol, steps_of_the_loop
from tests.clients.conftest import coder_pipeline
from tests.clients.serving import Served, serving
from tests.clients.wire import history, tokens_of

pytestmark = [pytest.mark.model, pytest.mark.slow]

WINDOW = 32_768
MAX_OUTPUT_TOKENS = 128
TASKS = (
    "Create a file hello.py that prints hello, then say done.",
    "Which file did you create?",
    "Thank you. Say goodbye.",
)
BUDGET_S = float(os.environ.get("EDGEWISE_REAL_CLIENTS_S", "540"))  # below what pytest lets one test take
CHOSEN = os.environ.get("EDGEWISE_REAL_CLIENTS", "").split(",")


@pytest.mark.parametrize("coder", [CLAUDE_CODE, CODEX, OPENCODE, OPENCLAW], ids=lambda coder: coder.name)
def test_three_turns_without_a_protocol_error(coder: Coder, tmp_path: Path):
    if not {"all", coder.name} & set(CHOSEN):
        pytest.skip(f"EDGEWISE_REAL_CLIENTS does not name {coder.name}")
    pipeline = coder_pipeline(WINDOW, temperature=0, max_new_tokens=MAX_OUTPUT_TOKENS)
    with serving(pipeline) as served:
        desk = Desk(coder, tmp_path, Server(served.url, WINDOW, MAX_OUTPUT_TOKENS))
        until_s = time.monotonic() + BUDGET_S
        runs = [desk.run(task, timeout_s=until_s - time.monotonic()) for task in TASKS]
    pipeline.close()
    said = "\n".join(map(str, (*runs, *described(served))))
    print(said)
    assert all(run.status is not None for run in runs), said
    steps = [step for step in steps_of_the_loop(served) if TASKS[0] in step.body.decode()]
    assert len(steps) >= 3, said
    check_protocol(served)
    check_cache_grows(steps, moved=coder.moved_tokens)


def described(served: Served) -> list[str]:
    """A line of figures for each answer."""
    lines = []
    for exchange in answers(served):
        calls = [turn.name for turn in history(exchange) if turn.kind == "call"]
        took_s = exchange.ended_s - exchange.began_s
        lines.append(
            f"{exchange.path} {exchange.status}: {tokens_of(exchange)}, {took_s:.1f} s, calls so far: {calls}"
        )
    return lines
