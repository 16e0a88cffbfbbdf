"""What an answer must look like, as plain data: `chat/` and `protocols/` write it, `grammar/` turns it into token masks.

A `Rule` describes text. `Constraint` says when a rule holds: from the first token, from a trigger on, or after thinking.
Text that the tokenizer has control tokens for (`<tool_call>`, `[TOOL_CALLS]`) is written as it looks; `grammar/` accepts the control
token and, where the token is no control token, its spelling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Text:
    """Exactly this text."""

    text: str


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON value that `schema` accepts; True: any value. `compact`: no white space between tokens.

    `path` is the schema's place in the request ("tools[3].function.parameters"), for warnings and errors. `strict`: what the grammar
    engine cannot express is an error; otherwise that keyword alone is relaxed, with a warning that names it. `refuse_broken`: a
    malformed keyword, such as a pattern that is no regular expression, is an error even then.
    """

    schema: dict[str, Any] | bool
    path: str = ""
    strict: bool = False
    compact: bool = False
    refuse_broken: bool = False


@dataclass(frozen=True, slots=True)
class Regex:
    """Text that the whole of a Rust-flavoured regular expression matches."""

    pattern: str


@dataclass(frozen=True, slots=True)
class RawText:
    """Any text, possibly none, in which none of `until` occurs, and which the whole of each of `patterns` matches.

    `path` and `strict` are what they are for `Json`, should a pattern be none that the grammar engine can express.
    """

    until: tuple[str, ...]
    patterns: tuple[str, ...] = ()
    path: str = ""
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Sequence:
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class OneOf:
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`rule`, `low` to `high` times (None: without end), with `joint` between."""

    rule: Rule
    low: int = 0
    high: int | None = None
    joint: Rule | None = None


@dataclass(frozen=True, slots=True)
class Lark:
    """A grammar in llguidance's Lark dialect with its own `start`."""

    source: str


@dataclass(frozen=True, slots=True)
class Gbnf:
    """A grammar in llama.cpp's GBNF with its own `root`."""

    source: str


@dataclass(frozen=True, slots=True)
class Relaxed:
    """No text. It tells which `keywords` of the schema at `path` the rules beside it do not hold to: a warning, or under `strict` an error."""

    path: str
    keywords: tuple[str, ...]
    reason: str
    strict: bool = False


Rule = Text | Json | Regex | RawText | Sequence | OneOf | Repeat | Lark | Gbnf | Relaxed


@dataclass(frozen=True, slots=True)
class Triggered:
    """Free text until `trigger` is written; from its first character on, `rule` (which begins with the trigger) binds.

    `at_start`: only as the first thing of the answer, white space aside; the free text is then anything that does not begin so.
    `also`: other texts that may stand in the trigger's place; what follows is the rule without its trigger.
    """

    trigger: str
    rule: Rule
    at_start: bool = False
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FreeText:
    """Free text with bound regions. After a region free text goes on, unless `max_regions` have been written: then the answer ends.

    `max_regions` 1 is how parallel calls are refused; 0 with `banned` triggers makes a call impossible.
    """

    regions: tuple[Triggered, ...] = ()
    max_regions: int | None = None
    banned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Thinking:
    """Free text up to and including `end`, before the constraint begins. `already_open`: the prompt opened it.

    When it is not open yet, the answer may open it with `start` or begin at once with what is bound.
    """

    start: str
    end: str
    already_open: bool
    budget_tokens: int | None = None  # after so many the closing text is forced
    closing: str = ""  # what is forced then, `end` included


@dataclass(frozen=True, slots=True)
class Constraint:
    """What one answer must look like. `param` names the request's field, for errors."""

    body: Rule | FreeText
    thinking: Thinking | None = None
    param: str = ""


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """The structured output a request asks for (response_format, structured_outputs, guided_*, grammar, ...)."""

    kind: Literal["json_object", "json_schema", "regex", "choice", "lark", "gbnf", "structural_tag"]
    value: Any = None  # schema object, pattern, tuple of choices, grammar text, structural tag object
    strict: bool = False
    param: str = "response_format"
    name: str = ""
    compact: bool = False  # JSON without white space between its tokens
