"""The dialects, each described once. The wire formats are those the models' own chat templates render."""

from __future__ import annotations

from edgewise.chat.dialects.dialect import ToolDialect
from edgewise.chat.dialects.form import Form
from edgewise.chat.dialects.json_bodies import JsonObject, NamedJson
from edgewise.chat.dialects.tagged import Tagged

NAME_AND_ARGUMENTS = JsonObject()
NAME_AND_PARAMETERS = JsonObject(argument_key="parameters")

FUNCTION_TAGS = Tagged(
    "<function={name}>\n{parameters}</function>", "<parameter={key}>\n{value}\n</parameter>\n"
)

DIALECTS: tuple[ToolDialect, ...] = (
    ToolDialect(
        "hermes",
        (Form(NAME_AND_ARGUMENTS, begin="<tool_call>\n", end="\n</tool_call>"),),
        aliases=("qwen3",),
        between="\n",
    ),
    ToolDialect(
        "mistral",
        (
            Form(NamedJson("{name}", head_ends=("[ARGS]", "{")), begin="[TOOL_CALLS]"),
            Form(JsonObject(id_key="id"), open="[TOOL_CALLS]", bracketed=True, written=False),
        ),
    ),
    ToolDialect(
        "llama3_json",
        (
            Form(NAME_AND_PARAMETERS, joint="; ", bare=True),
            Form(NAME_AND_PARAMETERS, open="<|python_tag|>", joint="; "),
            Form(NAME_AND_PARAMETERS, bracketed=True, bare=True, written=False),
        ),
        aliases=("llama4_json",),
    ),
    ToolDialect(
        "qwen3_coder",
        (
            Form(FUNCTION_TAGS, begin="<tool_call>\n", end="\n</tool_call>"),
            Form(FUNCTION_TAGS, written=False),
        ),
        aliases=("qwen3_xml", "mimo"),
        between="\n",
    ),
)
