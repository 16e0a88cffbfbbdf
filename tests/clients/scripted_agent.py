"""A scripted model that works as an agent: it writes a file with the client's own tool, runs it, and reports what came back.

What it says depends on the rendered prompt alone: which tools are listed and how many results there are. Calls are written as
a model of the Hermes dialect writes them, so they go through grammar, parser and stream as a real model's do.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgewise.chat.dialects import dialect
from edgewise.core.chat import ToolCall
from edgewise.pipeline import Pipeline
from tests.support.byte_tokenizer import ByteTokenizer
from tests.support.pipelines import END_OF_TURN, Script, make_pipeline

WINDOW = 400_000  # bytes are tokens here, and an agent's first prompt has 80,000 of them
BLOCK = 32

TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Call a tool by writing
<tool_call>
{"name": NAME, "arguments": OBJECT}
</tool_call><|im_end|>
{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content or '' }}{% for call in m.tool_calls or [] %}{{ '\n' if m.content or not loop.first }}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

TOOL_TURN = "<|im_start|>tool\n"
SIDE_ANSWER = "Hello, file"  # to titles, sub-agents and whatever else a client asks beside its task

FILE = "hello.py"
SOURCE = 'print("six times seven is", 6 * 7)\n'
OUTPUT = "six times seven is 42"
REPORT = f"I wrote {FILE} and ran it; it printed: {OUTPUT}"


Steps = tuple[tuple[str, dict[str, Any]], ...]
"""Tools and the arguments they are called with."""


@dataclass(frozen=True)
class Agent:
    """How one client's tools are called for a task: `steps` name a tool and its arguments; after them comes the report."""

    task: str
    steps: Steps

    def says(self, prompt: str) -> str:
        """What follows a rendered prompt."""
        offered = all(f'"name": {json.dumps(name)}' in prompt for name, _ in self.steps)
        if not offered or self.task not in prompt:
            return SIDE_ANSWER
        done = prompt.count(TOOL_TURN)
        if done >= len(self.steps):
            return REPORT if OUTPUT in prompt.rpartition(TOOL_TURN)[2] else "The output is missing."
        name, arguments = self.steps[done]
        return dialect("hermes").render([ToolCall("", name, arguments)], f"Step {done + 1}.")


def script_of(says: Callable[[str], str]) -> Script:
    """`says` gives the text of a turn from its whole prompt; it is asked once for each prompt."""
    tokenizer = ByteTokenizer()
    start_turn = tokenizer.special_tokens["<|im_start|>"]
    answers: dict[int, list[int]] = {}

    def script(prefix: tuple[int, ...]) -> int | None:
        turn = len(prefix) - 1
        while prefix[turn] != start_turn:
            turn -= 1
        begin = turn + len("<|im_start|>assistant\n") - len("<|im_start|>") + 1
        prompt = prefix[:begin]
        key = hash(prompt)
        if key not in answers:
            text = says(tokenizer.decode(prompt, skip_special_tokens=False))
            answers[key] = tokenizer.encode(text + END_OF_TURN, parse_special=True)
        written, answer = list(prefix[begin:]), answers[key]
        assert written == answer[: len(written)], f"the grammar made it {tokenizer.decode(written)!r}"
        return answer[len(written)]

    return script


def agent_pipeline(agent: Agent) -> Pipeline:
    """A pipeline whose model is this agent. The caller closes it."""
    num_blocks = 2 * WINDOW // BLOCK
    return make_pipeline(
        script=script_of(agent.says),
        template=TEMPLATE,
        max_model_len=WINDOW,
        num_blocks=num_blocks,
        max_num_batched_tokens=8192,
        model={"block_size": BLOCK, "max_rows": 8192, "max_positions": WINDOW},
    )
