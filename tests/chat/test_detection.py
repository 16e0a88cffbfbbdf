"""The dialects of every published template of the data folder, and what names and doubts do."""

from __future__ import annotations

import contextlib

import pytest

from edgewise.chat.detection import REASONING_MARKS, TOOL_MARKS, Detection, detect
from edgewise.chat.dialects import dialect
from edgewise.chat.reasoning import reasoning_dialect
from tests.chat.conversations import CHATML, STRICT, make_template
from tests.support.shared import SHARED, shared_data

DIALECTS = {
    "Apertus-8B-Instruct": ("apertus", "none"),
    "Apriel-1.6-15b-Thinker-fixed": ("jamba", "apriel"),
    "ByteDance-Seed-OSS": ("seed_oss", "seed_oss"),
    "Cohere2MoE": ("cohere_command", "cohere_command3"),
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": ("cohere_command", "cohere_command3"),
    "GLM-4.6": ("glm47", "glm47"),
    "GigaChat3-10B-A1.8B": ("gigachat3", "none"),
    "GigaChat3.1-10B-A1.8B": ("gigachat3", "none"),
    "Kimi-K2-Instruct": ("kimi_k2", "none"),
    "Kimi-K2-Thinking": ("kimi_k2", "kimi_k2"),
    "LFM2-8B-A1B": ("lfm2", "none"),
    "LFM2.5-8B-A1B": ("lfm2", "think_auto"),
    "MiMo-VL": ("hermes", "none"),
    "MiniMax-M1": ("minimax_m1", "none"),
    "MiniMax-M3": ("minimax_m3", "minimax_m3"),
    "Mistral-Small-3.2-24B-Instruct-2506": ("mistral", "none"),
    "NVIDIA-Nemotron-Nano-v2": ("nemotron_json", "think_auto"),
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": ("hermes", "none"),
    "Qwen-QwQ-32B": ("hermes", "think_auto"),
    "Qwen-Qwen2.5-7B-Instruct": ("hermes", "none"),
    "Qwen3-Coder": ("qwen3_coder", "none"),
    "Qwen3.5-4B": ("qwen3_coder", "think_auto"),
    "Spark2.5": ("glm47", "glm47"),
    "StepFun3.5-Flash": ("qwen3_coder", "think_auto"),
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": ("deepseek_v3", "deepseek_v3"),
    "deepseek-ai-DeepSeek-V3.1": ("deepseek_v31", "deepseek_v3"),
    "deepseek-ai-DeepSeek-V4-Flash-0731": ("deepseek_v4", "deepseek_v4"),
    "deepseek-ai-DeepSeek-V4": ("deepseek_v4", "deepseek_v4"),
    "google-gemma-2-2b-it": ("hermes", "none"),
    "google-gemma-4-31B-it-interleaved": ("gemma4", "gemma4"),
    "ibm-granite-granite-3.3-2B-Instruct": ("granite", "granite_think"),
    "ibm-granite-granite-4.0": ("hermes", "none"),
    "inclusionai-ling-3.0-flash": ("glm47", "glm47"),
    "llama-cpp-deepseek-r1": ("deepseek_v3", "deepseek_v3"),
    "meetkai-functionary-medium-v3.1": ("functionary_v3_1", "none"),
    "meetkai-functionary-medium-v3.2": ("hermes", "none"),
    "meta-llama-Llama-3.2-3B-Instruct": ("llama3_json", "none"),
    "meta-llama-Llama-3.3-70B-Instruct": ("llama3_json", "none"),
    "mistralai-Ministral-3-14B-Reasoning-2512": ("mistral", "mistral"),
    "mistralai-Mistral-Nemo-Instruct-2407": ("mistral", "none"),
    "muse-glimmer": ("muse_glimmer", "muse_glimmer"),
    "openai-gpt-oss-120b": ("openai", "openai_gptoss"),
    "poolside-Laguna-S-2.1": ("poolside_v1", "poolside_v1"),
    "poolside-Laguna-XS-2.1": ("poolside_v1", "poolside_v1"),
    "tencent-Hy3": ("hy_v3", "hy_v3"),
    "unsloth-Apriel-1.5": ("jamba", "none"),
    "upstage-Solar-Open-100B": ("solar_open", "solar_open"),
}
UNSURE = ("meetkai-functionary-medium-v3.2",)  # ">>>name" and a line of JSON: no dialect of ours
QUICK = ("Qwen-Qwen2.5-7B-Instruct", "Qwen-QwQ-32B", "google-gemma-2-2b-it", "openai-gpt-oss-120b")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in DIALECTS]
)
def test_published_templates(name: str) -> None:
    source = shared_data(f"chat_templates/{name}.jinja").read_text()
    with contextlib.closing(make_template(source)) as template:
        found = detect(template)
    assert (found.tools, found.reasoning) == DIALECTS[name]
    assert found.sure is (name not in UNSURE)


def test_every_template_has_its_answer() -> None:
    shared_data("chat_templates")
    assert {path.stem for path in (SHARED / "data" / "chat_templates").glob("*.jinja")} == set(DIALECTS)


def test_the_marks_name_dialects_that_exist() -> None:
    for _, name in TOOL_MARKS:
        dialect(name)
    for _, name in REASONING_MARKS:
        reasoning_dialect(name)


def test_names_stand_and_none_switches_off() -> None:
    with contextlib.closing(make_template(CHATML)) as template:
        assert detect(template, tools="mistral", reasoning="none") == Detection(
            "mistral", "none", "named explicitly", sure=True
        )
        found = detect(template, tools="none")
    assert (found.tools, found.reasoning) == ("none", "none")


def test_a_template_without_tools_gets_instructions() -> None:
    with contextlib.closing(make_template(STRICT)) as template:
        found = detect(template)
    assert (found.tools, found.sure) == ("hermes", True)
    assert "instructions" in found.why


def test_tools_in_a_shape_nobody_knows_are_doubtful() -> None:
    odd = (
        "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}"
        "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}"
        "!{{ c.function.name }}!{{ c.function.arguments | tojson }}!{% endfor %}\n{% endfor %}"
    )
    with contextlib.closing(make_template(odd)) as template:
        found = detect(template)
    assert (found.tools, found.sure) == ("hermes", False)
    assert "guess" in found.why


def test_the_table_decides_where_calls_are_not_rendered() -> None:
    source = (
        CHATML
        + "{# write <|tool_call_start|>[...]<|tool_call_end|> #}{{ tools[0].function.name if tools else '' }}"
    )
    with contextlib.closing(make_template(source)) as template:
        found = detect(template)
    assert (found.tools, found.sure) == ("lfm2", True)
