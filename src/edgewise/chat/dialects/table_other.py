"""The dialects whose arguments are not JSON: tags, Python calls, braces, elements. Wire formats as the models' templates render them."""

from __future__ import annotations

from edgewise.chat.dialects.braces import Braces
from edgewise.chat.dialects.dialect import ToolDialect
from edgewise.chat.dialects.elements import Elements
from edgewise.chat.dialects.form import Form
from edgewise.chat.dialects.json_bodies import JsonObject
from edgewise.chat.dialects.parser import Noise
from edgewise.chat.dialects.pythonic import Pythonic
from edgewise.chat.dialects.tagged import Tagged, string_or_not

OBJECT_IN_TAGS = Form(JsonObject(), begin="<tool_call>\n", end="\n</tool_call>", written=False)

FUNCTION_TAGS = Tagged(
    "<function={name}>\n{parameters}</function>", "<parameter={key}>\n{value}\n</parameter>\n"
)
FUNCTION_FORMS = (
    Form(FUNCTION_TAGS, begin="<tool_call>\n", end="\n</tool_call>"),
    Form(FUNCTION_TAGS, written=False),
    OBJECT_IN_TAGS,
)
SEED_TAGS = Tagged("<function={name}>\n{parameters}</function>", "<parameter={key}>{value}</parameter>\n")
ARG_KEYS = "<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n"
ARG_KEY_TAGS = Tagged("{name}\n{parameters}", ARG_KEYS, lines_optional=True)
ARG_KEY_FORMS = (Form(ARG_KEY_TAGS, begin="<tool_call>", end="</tool_call>"), OBJECT_IN_TAGS)
DSML_TAGS = Tagged(
    '<｜DSML｜invoke name="{name}">\n{parameters}</｜DSML｜invoke>',
    '<｜DSML｜parameter name="{key}" string="{type}">{value}</｜DSML｜parameter>\n',
    type_of=string_or_not,
)
KIMI_K3_TAGS = Tagged(
    '<|open|>call tool="{name}" index="{index}"<|sep|>{parameters}<|close|>call<|sep|>',
    '<|open|>argument key="{key}" type="{type}"<|sep|>{value}<|close|>argument<|sep|>',
)
STEP3_TAGS = Tagged(
    'function<｜tool_sep｜><steptml:invoke name="{name}">{parameters}</steptml:invoke>',
    '<steptml:parameter name="{key}">{value}</steptml:parameter>',
)
SOLAR_TAGS = Tagged(
    "{name}\n{parameters}", "<|tool_arg:start|>{key}<|tool_arg:value|>{value}<|tool_arg:end|>\n"
)
ATEM_TAGS = Tagged(
    '<atem:invoke name="{name}">\n{parameters}</atem:invoke>',
    '<atem:parameter name="{key}">{value}</atem:parameter>\n',
)
MINIMAX_MARK = "]<]minimax[>["


def _dsml(name: str, section: str) -> ToolDialect:
    form = Form(DSML_TAGS, open=f"<｜DSML｜{section}>\n", close=f"\n</｜DSML｜{section}>", joint="\n")
    return ToolDialect(name, (form,), content="{content}\n\n")


def _hy_v3(suffix: str) -> Form:
    """Every tag of this family may carry the tokenizer's suffix."""
    return Form(
        Tagged(f"{{name}}<tool_sep{suffix}>\n{{parameters}}", ARG_KEYS.replace(">", f"{suffix}>")),
        open=f"<tool_calls{suffix}>\n",
        close=f"\n</tool_calls{suffix}>",
        begin=f"<tool_call{suffix}>",
        end=f"</tool_call{suffix}>",
        joint="\n",
    )


OTHER_DIALECTS: tuple[ToolDialect, ...] = (
    _dsml("deepseek_v32", "function_calls"),
    _dsml("deepseek_v4", "tool_calls"),
    ToolDialect(
        "qwen3_coder",
        FUNCTION_FORMS,
        aliases=("qwen3_xml", "mimo"),
        content="{content}\n",
        between="\n",
    ),
    ToolDialect("step3p5", FUNCTION_FORMS, content="{content}\n", between="\n"),
    ToolDialect(
        "seed_oss",
        (
            Form(SEED_TAGS, begin="<seed:tool_call>\n", end="\n</seed:tool_call>"),
            Form(SEED_TAGS, written=False),
        ),
        content="{content}\n",
        between="\n",
    ),
    ToolDialect("glm47", ARG_KEY_FORMS, aliases=("glm45",), content="{content}\n", between="\n"),
    ToolDialect("poolside_v1", ARG_KEY_FORMS, content="{content}\n", between="\n"),
    ToolDialect("hy_v3", (_hy_v3(""), _hy_v3(":opensource")), content="{content}\n"),
    ToolDialect(
        "minimax_m2",
        (
            Form(
                Tagged(
                    '<invoke name="{name}">\n{parameters}</invoke>',
                    '<parameter name="{key}">{value}</parameter>\n',
                ),
                open="<minimax:tool_call>\n",
                close="\n</minimax:tool_call>",
                joint="\n",
            ),
        ),
        content="{content}\n",
    ),
    ToolDialect(
        "minicpm5",
        (
            Form(
                Tagged(
                    '<function name="{name}">{parameters}</function>', '<param name="{key}">{value}</param>'
                )
            ),
        ),
        content="{content}\n",
        between="\n",
    ),
    ToolDialect(
        "step3",
        (
            Form(
                STEP3_TAGS,
                open="<｜tool_calls_begin｜>",
                close="<｜tool_calls_end｜>",
                begin="<｜tool_call_begin｜>",
                end="<｜tool_call_end｜>",
                joint="\n",
            ),
        ),
        content="{content}\n",
    ),
    ToolDialect(
        "solar_open2",
        (Form(SOLAR_TAGS, begin="<|tool_call:start|>", end="<|tool_call:end|>"),),
        content="{content}\n",
        between="\n",
    ),
    ToolDialect(
        "kimi_k3",
        (Form(KIMI_K3_TAGS, open="<|open|>tools<|sep|>", close="<|close|>tools<|sep|>"),),
        noise=(
            Noise('<|open|>message role="assistant"<|sep|>'),
            Noise("<|open|>response<|sep|>"),
            Noise("<|close|>response<|sep|>"),
            Noise("<|close|>message<|sep|>"),
            Noise("<|end_of_msg|>"),
        ),
        content="{content}<|close|>response<|sep|>",
        leads=("<|close|>response<|sep|>",),
    ),
    ToolDialect(
        "muse_glimmer",
        (
            Form(
                ATEM_TAGS,
                prelude=" to={name}<|message|>",
                begin="<atem:function_calls>\n",
                end="\n</atem:function_calls>",
            ),
        ),
        noise=(
            Noise("<|start|>assistant", "<|message|>"),
            Noise(" to=", "<|message|>", bare=True),
            Noise("<|eom|>"),
            Noise("<|eot|>"),
        ),
        content=" to=user<|message|>{content}<|eom|><|start|>assistant",
        between="<|eom|><|start|>assistant",
        leads=("<|start|>assistant",),
    ),
    ToolDialect(
        "minimax_m3",
        (
            Form(
                Elements(MINIMAX_MARK),
                open=f"{MINIMAX_MARK}<tool_call>\n",
                close=f"\n{MINIMAX_MARK}</tool_call>",
                joint="\n",
            ),
        ),
    ),
    ToolDialect("pythonic", (Form(Pythonic(), bracketed=True, bare=True),)),
    ToolDialect(
        "llama4_pythonic",
        (
            Form(Pythonic(), open="<|python_start|>", close="<|python_end|>", bracketed=True),
            Form(Pythonic(), bracketed=True, bare=True, written=False),
        ),
    ),
    ToolDialect(
        "olmo3",
        (Form(Pythonic(), open="<function_calls>", close="</function_calls>", joint="\n"),),
        content="{content}\n",
    ),
    ToolDialect(
        "lfm2",
        (
            Form(Pythonic('"'), open="<|tool_call_start|>", close="<|tool_call_end|>", bracketed=True),
            Form(
                JsonObject(),
                open="<|tool_call_start|>",
                close="<|tool_call_end|>",
                bracketed=True,
                written=False,
            ),
        ),
    ),
    ToolDialect("gemma4", (Form(Braces('<|"|>'), begin="<|tool_call>", end="<tool_call|>"),)),
    ToolDialect(
        "functiongemma",
        (Form(Braces("<escape>"), begin="<start_function_call>", end="<end_function_call>"),),
        content="{content}\n",
    ),
)
