"""Generated tools, calls and values for the dialects' properties."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from edgewise.chat.dialects import ToolDialect
from edgewise.chat.dialects.braces import Braces
from edgewise.chat.dialects.elements import Elements
from edgewise.chat.dialects.tagged import Tagged
from edgewise.core.chat import ToolCall
from tests.chat.dialects.support import tool

WRITE = tool(
    "write_file",
    {
        "path": {"type": "string"},
        "text": {"type": "string"},
        "mode": {"type": "integer"},
        "ratio": {"type": "number"},
        "append": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "owner": {"$ref": "#/$defs/owner"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "limit": {"type": ["integer", "null"]},
    },
    required=["path"],
    **{
        "$defs": {
            "owner": {"type": "object", "properties": {"name": {"type": "string"}, "id": {"type": "integer"}}}
        }
    },
)
STOP = tool("stop-all")
LOOK = tool("look.up", {"q": {"type": "string"}}, required=["q"], additionalProperties=False)
TOOLS = [WRITE, STOP, LOOK]

PRINTABLE = st.characters(exclude_characters="\x7f", exclude_categories=("Cs",))
"""The grammar engine's JSON strings hold no raw delete character."""

FRAGMENTS = (
    "a",
    "é",
    "東",
    "🙂",
    " ",
    "\n",
    '"',
    "'",
    "\\",
    "\t",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "<",
    ">",
    "=",
    "</think>",
    "007",
    "null",
)


def body_of(dialect: ToolDialect) -> Any:
    return dialect.forms[0].body


def forbidden(dialect: ToolDialect) -> tuple[str, ...]:
    """What no text value of the dialect can hold: the full terminating sequence."""
    form, body = dialect.forms[0], dialect.forms[0].body
    if isinstance(body, Tagged):
        close = body._close
        return tuple(
            close + space + each
            for each in body._followers(form.end.strip())
            for space in ("", "\n", "\n\n", " ")
        )
    if isinstance(body, Braces):
        return (body.delimiter,)
    return (body.mark,) if isinstance(body, Elements) else ()


def texts(dialect: ToolDialect, *, with_markers: bool = True) -> st.SearchStrategy[str]:
    """Text values, rich in the dialect's own markers."""
    markers = (
        []
        if not with_markers
        else [m for m in dialect.markers if not (isinstance(body_of(dialect), Elements) and "]<]" in m)]
    )
    if isinstance(body_of(dialect), Braces):
        markers = [m for m in markers if m != body_of(dialect).delimiter]
    pieces = st.lists(st.sampled_from([*FRAGMENTS, *markers]), max_size=8).map("".join)
    stops = forbidden(dialect)
    return (pieces | st.text(PRINTABLE, max_size=8)).filter(
        lambda text: not _ends_early(text, stops, dialect)
    )


def _ends_early(text: str, stops: tuple[str, ...], dialect: ToolDialect) -> bool:
    body = body_of(dialect)
    squeezed = "".join(text.split()) if isinstance(body, Tagged) else text
    return any("".join(stop.split()) in squeezed for stop in stops) or (
        # a value that ends like the beginning of its own closing tag runs into it
        isinstance(body, Tagged)
        and "".join(body._close.split()) in squeezed
        and squeezed.endswith(body._close)
    )


def arguments(dialect: ToolDialect, *, with_markers: bool = True) -> st.SearchStrategy[dict[str, Any]]:
    text = texts(dialect, with_markers=with_markers)
    plain = text.filter(lambda value: value.strip() not in ("null", "None"))
    nothing = st.nothing() if isinstance(body_of(dialect), Elements) else st.none()
    integers = st.integers(-(10**9), 10**9)
    return st.fixed_dictionaries(
        {"path": text},
        optional={
            "text": text,
            "mode": integers,
            "ratio": st.floats(allow_nan=False, allow_infinity=False) | integers,
            "append": st.booleans(),
            "tags": st.lists(text, max_size=3),
            "owner": st.fixed_dictionaries({}, optional={"name": text, "id": integers}),
            "note": plain | nothing,
            "limit": integers | nothing,
        },
    )


def calls(dialect: ToolDialect, *, with_markers: bool = True) -> st.SearchStrategy[list[ToolCall]]:
    write = arguments(dialect, with_markers=with_markers).map(lambda value: ToolCall("", "write_file", value))
    stop = st.just(ToolCall("", "stop-all", {}))
    look = texts(dialect, with_markers=with_markers).map(lambda value: ToolCall("", "look.up", {"q": value}))
    several = not dialect.forms[0].single
    return st.lists(write | stop | look, min_size=1, max_size=3 if several else 1)


def chunked(text: str) -> st.SearchStrategy[list[str]]:
    """The text cut anywhere."""
    cuts = st.lists(st.integers(0, len(text)), max_size=12).map(
        lambda places: sorted({0, *places, len(text)})
    )
    return cuts.map(lambda places: [text[a:b] for a, b in pairwise(places)])


CONTENT = st.lists(
    st.sampled_from(["Look", " ", "\n", "[", "{", "<", "</", "<|", "é", "to", "=", "`"]), max_size=8
).map("".join)
