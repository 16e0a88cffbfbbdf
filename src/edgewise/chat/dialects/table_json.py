"""The dialects whose arguments are JSON. Wire formats as the models' own chat templates render them."""

from __future__ import annotations

from edgewise.chat.dialects.dialect import ToolDialect
from edgewise.chat.dialects.form import Form
from edgewise.chat.dialects.json_bodies import JsonObject, KeyedObject, NamedJson
from edgewise.chat.dialects.parser import Noise

ARGUMENTS = JsonObject()
PARAMETERS = JsonObject(argument_key="parameters")
BARE_LIST = Form(ARGUMENTS, bracketed=True, bare=True)

OBJECT_IN_TAGS = Form(ARGUMENTS, begin="<tool_call>\n", end="\n</tool_call>")
LIST_IN_TAGS = Form(ARGUMENTS, open="<tool_calls>", close="</tool_calls>", bracketed=True)
LINES_IN_TAGS = Form(ARGUMENTS, open="<tool_calls>\n", close="\n</tool_calls>", joint="\n")
HARMONY_HEADER = (
    r"(?:<\|start\|>assistant)?(?:<\|channel\|>\w+)?\s*to=(?:functions\.)?(?P<name>[^\s<]+)[^\n]*"
)


def _deepseek(body: NamedJson, joint: str) -> Form:
    return Form(
        body,
        open="<｜tool▁calls▁begin｜>",
        close="<｜tool▁calls▁end｜>",
        begin="<｜tool▁call▁begin｜>",
        end="<｜tool▁call▁end｜>",
        joint=joint,
    )


JSON_DIALECTS: tuple[ToolDialect, ...] = (
    ToolDialect("hermes", (OBJECT_IN_TAGS,), aliases=("qwen3",), content="{content}\n", between="\n"),
    ToolDialect("granite4", (OBJECT_IN_TAGS,), content="{content}\n", between="\n"),
    ToolDialect("ernie45", (OBJECT_IN_TAGS,), content="{content}\n", between="\n"),
    ToolDialect(
        "longcat",
        (Form(ARGUMENTS, begin="<longcat_tool_call>\n", end="\n</longcat_tool_call>"),),
        content="{content}\n",
        between="\n",
    ),
    ToolDialect(
        "deepseek_v3",
        (
            _deepseek(
                NamedJson(
                    "function<｜tool▁sep｜>{name}\n```json\n",
                    head_ends=("```json", "{"),
                    pattern=r"\s*(?:function)?\s*<｜tool▁sep｜>\s*(?P<name>[^\s<{]+)\s*",
                    tail="\n```",
                ),
                joint="\n",
            ),
        ),
        content="{content}\n",
    ),
    ToolDialect(
        "deepseek_v31",
        (_deepseek(NamedJson("{name}<｜tool▁sep｜>", head_ends=("<｜tool▁sep｜>",)), joint=""),),
    ),
    ToolDialect(
        "mistral",
        (
            Form(
                NamedJson(
                    "{name}",
                    head_ends=("[ARGS]", "{"),
                    pattern=r"\s*(?P<name>[^\s\[\]{}\"']+)\s*(?:\[CALL_ID\](?P<id>\w+)\s*)?",
                ),
                begin="[TOOL_CALLS]",
            ),
            Form(
                NamedJson("{name}[ARGS]", head_ends=("[ARGS]",)),
                begin="[TOOL_CALLS]",
            ),
            Form(JsonObject(id_key="id"), open="[TOOL_CALLS]", bracketed=True),
        ),
    ),
    ToolDialect(
        "granite",
        (
            Form(ARGUMENTS, open="<|tool_call|>", also=("<tool_call>",), bracketed=True),
            BARE_LIST,
        ),
    ),
    ToolDialect(
        "granite-20b-fc",
        (Form(ARGUMENTS, begin="<function_call> "),),
        content="{content}\n",
        between="\n",
    ),
    ToolDialect(
        "llama3_json",
        (
            Form(PARAMETERS, joint="; ", bare=True),
            Form(PARAMETERS, open="<|python_tag|>", joint="; "),
            Form(PARAMETERS, bracketed=True, bare=True, written=False),
        ),
        aliases=("llama4_json",),
    ),
    ToolDialect(
        "xlam",
        (
            BARE_LIST,
            Form(ARGUMENTS, open="```json\n", close="\n```", bracketed=True, written=False),
            Form(ARGUMENTS, open="[TOOL_CALLS]", bracketed=True, written=False),
            Form(ARGUMENTS, open="<tool_call>", close="</tool_call>", bracketed=True, written=False),
        ),
    ),
    ToolDialect(
        "phi4_mini_json", (Form(ARGUMENTS, open="functools", bracketed=True, written_marker="functools["),)
    ),
    ToolDialect(
        "internlm",
        (Form(PARAMETERS, begin="<|action_start|><|plugin|>\n", end="\n<|action_end|>", single=True),),
        content="{content}\n",
        between="\n",
    ),
    ToolDialect("jamba", (LIST_IN_TAGS, LINES_IN_TAGS), content="{content}\n"),
    ToolDialect("hunyuan_a13b", (LIST_IN_TAGS, LINES_IN_TAGS), content="{content}\n"),
    ToolDialect("minimax_m1", (LINES_IN_TAGS, LIST_IN_TAGS), content="{content}\n"),
    ToolDialect("nemotron_json", (Form(ARGUMENTS, open="<TOOLCALL>", close="</TOOLCALL>", bracketed=True),)),
    ToolDialect(
        "apertus",
        (Form(KeyedObject(), open="<|tools_prefix|>", close="<|tools_suffix|>", bracketed=True),),
    ),
    ToolDialect(
        "gigachat3",
        (
            Form(ARGUMENTS, begin="<|function_call|>", single=True),
            Form(ARGUMENTS, begin="function call<|role_sep|>\n", single=True),
        ),
    ),
    ToolDialect(
        "kimi_k2",
        (
            Form(
                NamedJson(
                    "functions.{name}:{index}<|tool_call_argument_begin|>",
                    head_ends=("<|tool_call_argument_begin|>",),
                    pattern=r"\s*(?P<id>(?:functions\.)?(?P<name>[^\s:<]+):\d+)\s*",
                ),
                open="<|tool_calls_section_begin|>",
                close="<|tool_calls_section_end|>",
                begin="<|tool_call_begin|>",
                end="<|tool_call_end|>",
            ),
        ),
    ),
    ToolDialect(
        "solar_open",
        (
            Form(
                NamedJson(
                    "{index}<|tool_call:name|>{name}<|tool_call:args|>",
                    head_ends=("<|tool_call:args|>",),
                    pattern=r"(?P<id>[^<]*)<\|tool_call:name\|>(?P<name>[^\s<]+)",
                ),
                open="<|tool_calls|>",
                begin="<|tool_call:begin|>",
                end="<|tool_call:end|>",
            ),
        ),
        noise=(Noise("<|calls|>"), Noise("<|content|>"), Noise("<|end|>"), Noise("<|begin|>assistant")),
        content="<|content|>{content}<|end|><|begin|>assistant",
        leads=("<|begin|>assistant",),
    ),
    ToolDialect(
        "cohere_command",
        (
            Form(
                JsonObject(name_key="tool_name", argument_key="parameters", index_key="tool_call_id"),
                open="<|START_ACTION|>",
                close="<|END_ACTION|>",
                joint=",\n    ",
                brackets=("[\n    ", "\n]"),
                bracketed=True,
            ),
        ),
        aliases=("cohere_command3", "cohere_command4"),
    ),
    ToolDialect(
        "functionary_v3_1",
        (
            Form(
                NamedJson(
                    "<function={name}>",
                    head_ends=(">",),
                    pattern="<function=(?P<name>[^\\s>]+)",
                    opening="<function=",
                ),
                end="</function>",
            ),
        ),
    ),
    ToolDialect(
        "openai",
        (
            Form(
                NamedJson(
                    "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>",
                    head_ends=("<|message|>",),
                    pattern=HARMONY_HEADER,
                    opening="<|channel|>commentary to=",
                ),
                also=("<|channel|>", "<|start|>"),
                single=True,
            ),
            Form(
                NamedJson(
                    " to=functions.{name}<|channel|>commentary <|constrain|>json<|message|>",
                    head_ends=("<|message|>",),
                    pattern=HARMONY_HEADER,
                    opening=" to=",
                ),
                bare=True,
                single=True,
            ),
        ),
        aliases=("gpt_oss",),
        noise=(
            Noise("<|start|>assistant<|channel|>final", "<|message|>"),
            Noise("<|start|>assistant<|channel|>commentary", "<|message|>"),
            Noise("<|channel|>final", "<|message|>"),
            Noise("<|channel|>commentary", "<|message|>"),
            Noise("<|call|>"),
            Noise("<|end|>"),
            Noise("<|return|>"),
        ),
        content="<|channel|>commentary<|message|>{content}<|end|><|start|>assistant",
        between="<|call|><|start|>assistant",
        leads=("<|start|>assistant",),
    ),
)
