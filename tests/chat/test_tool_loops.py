"""A tool loop over every published template of the data folder: each prompt begins with the one before, so a prefix cache holds it."""

from __future__ import annotations

import contextlib

import pytest

from edgewise.core.chat import Message, TextPart, ToolCall, ToolDefinition
from tests.chat.conversations import make_template, say
from tests.support.shared import SHARED, shared_data

NAMES = sorted(path.stem for path in (SHARED / "data" / "chat_templates").glob("*.jinja"))
QUICK = ("Qwen-Qwen2.5-7B-Instruct", "mistralai-Mistral-Nemo-Instruct-2407", "openai-gpt-oss-120b")
TOOLS = [ToolDefinition("put", "Write", {"type": "object", "properties": {"path": {"type": "string"}}})]
NUM_STEPS = 10
# Characters of an earlier prompt, before its generation prompt, that a template itself writes anew, and why.
REWRITTEN = {
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": 12,  # a result that is last has no line end after it
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": 24,  # the section of results is closed by whatever follows the last
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": 40,  # it writes a generation prompt always
}
# They leave out what is said beside a call, and refuse a turn of its own for it.
TEXT_LEFT_OUT = ("Mistral-Small-3.2-24B-Instruct-2506", "mistralai-Mistral-Nemo-Instruct-2407")


def common_len(one: str, other: str) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


@pytest.mark.slow
@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in NAMES or ["none"]],
)
def test_each_prompt_begins_with_the_one_before(name: str, thinking: bool) -> None:
    source = shared_data(f"chat_templates/{name}.jinja").read_text()
    kwargs = {"enable_thinking": thinking, "thinking": thinking}
    messages = [say("system", "Be brief."), say("user", "Do it")]
    with contextlib.closing(make_template(source)) as template:
        earlier, settled_len = "", 0
        for step in range(NUM_STEPS):
            prompt = template.render(messages, tools=TOOLS, kwargs=kwargs).text
            assert common_len(earlier, prompt) >= settled_len - REWRITTEN.get(name, 0), f"step {step}"
            history = template.render(messages, tools=TOOLS, add_generation_prompt=False, kwargs=kwargs).text
            earlier, settled_len = prompt, common_len(prompt, history)
            call_id = f"toolu_{step:020d}"
            call = ToolCall(call_id, "put", f'{{"path":"a{step}.py"}}')
            parts = (TextPart(f"step {step}"),) if step % 3 else ()
            thought = f"thought {step}" if thinking else None
            messages.append(Message("assistant", parts, (call,), reasoning=thought))
            messages.append(say("tool", f"ok {step}", tool_call_id=call_id))
        for step in range(NUM_STEPS - 1):
            assert f"a{step}.py" in prompt
            assert f"step {step}" in prompt or step % 3 == 0 or name in TEXT_LEFT_OUT
