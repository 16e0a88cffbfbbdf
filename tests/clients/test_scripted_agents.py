"""Claude Code, Codex and OpenCode work with a scripted model: each creates a file with its own tool, runs it and reports.

The clients are the real ones, and so is everything between them and the model's logits: HTTP, protocol, template, grammar, engine,
parser, stream.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.agents import CLAUDE_CODE, CODEX, OPENCODE, Coder, Desk, Server
from tests.clients.checks import check_cache_is_whole, check_protocol, steps_of_the_loop
from tests.clients.scripted_agent import FILE, OUTPUT, REPORT, SOURCE, WINDOW, Agent, agent_pipeline
from tests.clients.serving import serving
from tests.clients.wire import history

pytestmark = pytest.mark.slow

TASK = f"Create a file {FILE} that prints what six times seven is, run it, and report what it printed."
RUN = f"python3 {FILE}"

# Arguments in the order of the tool's schema: the grammar keeps it.
AGENTS = {
    CLAUDE_CODE: Agent(
        (
            ("Write", {"file_path": FILE, "content": SOURCE}),
            ("Bash", {"command": RUN, "description": "Run the new file"}),
        )
    ),
    CODEX: Agent(
        (
            ("exec_command", {"cmd": f"cat > {FILE} <<'END'\n{SOURCE}END"}),
            ("exec_command", {"cmd": RUN}),
        )
    ),
    OPENCODE: Agent(
        (
            ("write", {"content": SOURCE, "filePath": FILE}),
            ("bash", {"command": RUN, "description": "Run the new file"}),
        )
    ),
}


@pytest.mark.parametrize("coder", AGENTS, ids=lambda coder: coder.name)
def test_a_file_is_created_run_and_reported(coder: Coder, tmp_path: Path):
    agent = AGENTS[coder]
    pipeline = agent_pipeline(agent)
    with serving(pipeline) as served:
        desk = Desk(coder, tmp_path, Server(served.url, WINDOW))
        run = desk.run(TASK, timeout_s=150)
    pipeline.close()
    said = "\n".join(map(str, (run, *served.exchanges)))
    assert run.status == 0, said
    assert (desk.folder / FILE).read_text() == SOURCE, said
    assert REPORT in run.output, said
    steps = steps_of_the_loop(served)
    calls = [(turn.name, turn.kind) for turn in history(steps[-1]) if turn.kind == "call"]
    assert calls == [(name, "call") for name, _ in agent.steps]
    assert OUTPUT in steps[-1].body.decode(), "the command ran, and its output came back"
    check_protocol(served)
    check_cache_is_whole(steps)
