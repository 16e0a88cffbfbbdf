"""Tools and the choice among them: what reaches the model, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from edgewise.core.chat import CUSTOM_SCHEMA, ToolChoice
from edgewise.core.errors import InvalidRequestError
from edgewise.protocols.fields import Fields
from edgewise.protocols.tools import MAX_TOOLS, ToolRequest, read_tools

SCHEMA = {
    "properties": {
        "ids": {"type": ["array", "null"], "items": {"anyOf": [{"type": "integer"}, {"const": "all"}]}},
        "any": True,
        "never": False,
    },
    "$defs": {"x": {"title": "kept"}},
    "additionalProperties": False,
}


def tool(name: Any = "put", **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


def custom(name: str = "patch", **more: Any) -> dict[str, Any]:
    return {"type": "custom", "custom": {"name": name, **more}}


def read(**body: Any) -> ToolRequest:
    return read_tools(Fields(body))


def test_a_schema_reaches_the_model_word_for_word():
    (found,) = read(tools=[tool(parameters=SCHEMA, description="d", strict=True)]).tools
    assert found.parameters == SCHEMA and list(found.parameters) == list(SCHEMA)
    assert (found.name, found.description, found.strict) == ("put", "d", True)
    assert found.path == "tools[0].function", "errors in the schema are named by its place"


@pytest.mark.parametrize(
    "parameters", [None, {}, {"type": "object"}, {"type": ["object", "null"]}, {"$ref": "#/$defs/a"}]
)
def test_schemas_that_mean_an_object_are_legal(parameters: Any):
    assert read(tools=[tool(parameters=parameters)]).tools[0].parameters == parameters


def test_a_freeform_tool_is_a_function_of_one_text_whose_grammar_the_model_reads():
    grammar = {"syntax": "lark", "definition": "start: /a+/"}
    first, second = read(
        tools=[
            custom(description="Edits.", format={"type": "grammar", "grammar": grammar}),
            custom("say", format={"type": "text"}),
        ]
    ).tools
    assert first.kind == "custom" and first.parameters == CUSTOM_SCHEMA
    assert first.custom_format == {"type": "grammar", **grammar}
    assert first.description is not None and "start: /a+/" in first.description
    assert second.custom_format is None and second.description is None


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": {}}, "tools"),
        ({"tools": ["put"]}, "tools[0]"),
        ({"tools": [{}]}, "tools[0].type"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": "put"}]}, "tools[0].function"),
        ({"tools": [tool(None)]}, "tools[0].function.name"),
        ({"tools": [tool("")]}, "tools[0].function.name"),
        ({"tools": [tool(7)]}, "tools[0].function.name"),
        ({"tools": [tool("two words")]}, "tools[0].function.name"),
        ({"tools": [tool("a<b>")]}, "tools[0].function.name"),
        ({"tools": [tool("x" * 129)]}, "tools[0].function.name"),
        ({"tools": [tool("a"), tool("b"), tool("a")]}, "tools[2].function.name"),
        ({"tools": [tool("a"), custom("a")]}, "tools[1].custom.name"),
        ({"tools": [tool(str(i)) for i in range(MAX_TOOLS + 1)]}, "tools"),
        ({"tools": [tool(description=1)]}, "tools[0].function.description"),
        ({"tools": [tool(strict="yes")]}, "tools[0].function.strict"),
        ({"tools": [tool(parameters=[])]}, "tools[0].function.parameters"),
        ({"tools": [tool(parameters=True)]}, "tools[0].function.parameters"),
        ({"tools": [tool(parameters={"type": "string"})]}, "tools[0].function.parameters.type"),
        ({"tools": [tool(parameters={"type": None})]}, "tools[0].function.parameters.type"),
        ({"tools": [tool(parameters={"type": ["string"]})]}, "tools[0].function.parameters.type"),
        ({"tools": [tool(parameters={"properties": []})]}, "tools[0].function.parameters.properties"),
        ({"tools": [custom(format={"type": "poem"})]}, "tools[0].custom.format.type"),
        ({"tools": [custom(format={"type": "grammar"})]}, "tools[0].custom.format.syntax"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": "get"}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": 3}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": {"type": "poem"}}, "tool_choice.type"),
        ({"tools": [tool()], "tool_choice": {"type": "function"}}, "tool_choice.function"),
        ({"tools": [tool()], "tool_choice": tool(None)}, "tool_choice.function.name"),
        ({"tools": [tool()], "tool_choice": tool("get")}, "tool_choice.function.name"),
        ({"tool_choice": tool("put")}, "tool_choice.function.name"),
        ({"tools": [tool()], "tool_choice": {"type": "allowed_tools"}}, "tool_choice.tools"),
        (
            {
                "tools": [tool()],
                "tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": [tool("get")]}},
            },
            "tool_choice.allowed_tools.tools[0].function.name",
        ),
        ({"tools": [tool()], "parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"tools": [tool()], "functions": [{"name": "put"}]}, "functions"),
        ({"functions": [{"name": "a"}, {"name": "a"}]}, "functions[1].name"),
        ({"functions": [{"name": "a"}], "function_call": {"name": "b"}}, "function_call.name"),
        ({"functions": [{"name": "a"}], "function_call": "auto", "tool_choice": "auto"}, "function_call"),
    ],
)
def test_what_cannot_be_called_is_refused_by_name(body: dict[str, Any], param: str):
    with pytest.raises(InvalidRequestError) as caught:
        read(**body)
    assert caught.value.param == param and caught.value.message.startswith(param)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ToolChoice("auto")),
        ("auto", ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ("any", ToolChoice("required")),
        ("put", ToolChoice("required", ("put",), named=True)),
        (tool("put"), ToolChoice("required", ("put",), named=True)),
        (custom("patch"), ToolChoice("required", ("patch",), named=True)),
        ({"type": "function", "name": "put"}, None),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [tool(), tool()]}},
            ToolChoice("auto", ("put",)),
        ),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [tool(), custom()]}},
            ToolChoice("required", ("put", "patch")),
        ),
    ],
)
def test_choices(choice: Any, expected: ToolChoice | None):
    body = {"tools": [tool(), custom(), tool("get")], "tool_choice": choice}
    if expected is None:
        with pytest.raises(InvalidRequestError):
            read(**body)
    else:
        assert read(**body).choice == expected


@pytest.mark.parametrize("choice", [None, "auto", "none"])
def test_without_tools_nothing_can_be_called(choice: str | None):
    assert read(tool_choice=choice).choice == ToolChoice("none")
    assert read(tools=[], tool_choice=choice).choice == ToolChoice("none")


def test_one_call_at_a_time_where_the_request_says_so():
    assert read(tools=[tool()], parallel_tool_calls=False).choice == ToolChoice("auto", parallel=False)
    assert read(tools=[tool()], parallel_tool_calls=None).choice.parallel


def test_functions_are_tools_called_one_at_a_time_and_answered_in_kind():
    asked = read(functions=[{"name": "put", "parameters": SCHEMA}], function_call={"name": "put"})
    assert asked.legacy and asked.tools[0].parameters == SCHEMA and asked.tools[0].path == "functions[0]"
    assert asked.choice == ToolChoice("required", ("put",), named=True, parallel=False)
    assert read(functions=[{"name": "put"}]).choice == ToolChoice("auto", parallel=False)
    assert read(functions=[{"name": "put"}], function_call="none").choice.mode == "none"
    assert not read(tools=[tool()], function_call="auto").legacy
