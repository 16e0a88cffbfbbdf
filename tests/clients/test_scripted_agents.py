"""Claude Code, Codex, OpenCode and OpenClaw work with a scripted model: each creates a file with its own tool, runs it and reports.

The clients are the real ones, and so is everything between them and the model's logits: HTTP, protocol, template, grammar, engine,
parser, stream.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.agents import CLAUDE_CODE, CODEX, OPENCLAW, OPENCODE, Coder, Desk, Server
from tests.clients.checks import check_cache_is_whole, check_protocol, steps_of_the_loop
from tests.clients.recorder import Exchange
from tests.clients.scripted_agent import FILE, OUTPUT, REPORT, SOURCE, WINDOW, Agent, Steps, agent_pipeline
from tests.clients.serving import serving
from tests.clients.wire import history

pytestmark = pytest.mark.slow

TASK = f"Create a file {FILE} that prints what six times seven is, run it, and report what it printed."
RUN = f"python3 {FILE}"

# Arguments in the order of the tool's schema: the grammar keeps it.
WRITE = ("Write", {"file_path": FILE, "content": SOURCE})
BASH = ("Bash", {"command": RUN, "description": "Run the new file"})
DELEGATE = ("Agent", {"description": "Greet", "prompt": "Greet in two words.", "run_in_background": False})
STEPS = {
    CLAUDE_CODE: (WRITE, BASH),
    CODEX: (
        ("exec_command", {"cmd": f"cat > {FILE} <<'END'\n{SOURCE}END"}),
        ("exec_command", {"cmd": RUN}),
    ),
    OPENCODE: (
        ("write", {"content": SOURCE, "filePath": FILE}),
        ("bash", {"command": RUN, "description": "Run the new file"}),
    ),
    OPENCLAW: (
        ("write", {"path": FILE, "content": SOURCE}),
        ("exec", {"command": RUN}),
    ),
}


def work(coder: Coder, steps: Steps, place: Path) -> list[Exchange]:
    """Let a client do the task, check all that must hold, and give the exchanges of its loop."""
    pipeline = agent_pipeline(Agent(TASK, steps))
    with serving(pipeline) as served:
        desk = Desk(coder, place, Server(served.url, WINDOW))
        run = desk.run(TASK, timeout_s=150)
    pipeline.close()
    said = "\n".join(map(str, (run, *served.exchanges)))
    assert run.status == 0, said
    assert (desk.folder / FILE).read_text() == SOURCE, said
    assert REPORT in run.output, said
    asked = [exchange for exchange in steps_of_the_loop(served) if TASK in exchange.body.decode()]
    calls = [turn.name for turn in history(asked[-1]) if turn.kind == "call"]
    assert calls == [name for name, _ in steps]
    assert OUTPUT in asked[-1].body.decode(), "the command ran, and its output came back"
    check_protocol(served)
    check_cache_is_whole(asked, moved=coder.moved_tokens)
    return steps_of_the_loop(served)


@pytest.mark.parametrize("coder", STEPS, ids=lambda coder: coder.name)
def test_a_file_is_created_run_and_reported(coder: Coder, tmp_path: Path):
    work(coder, STEPS[coder], tmp_path)


def test_a_sub_agent_in_between_leaves_the_cache_alone(tmp_path: Path):
    asked = work(CLAUDE_CODE, (WRITE, DELEGATE, BASH), tmp_path)
    assert any(TASK not in exchange.body.decode() for exchange in asked), "the sub-agent asked"
