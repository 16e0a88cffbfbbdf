"""Running a dialect's parser over text, and what came of it in a shape that is easy to compare."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgewise.chat.dialects import ArgumentPiece, CallEnd, CallStart, TextPiece, ToolDialect, ToolEvent
from edgewise.core.chat import ToolDefinition

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "tool_cases.jsonl").read_text().splitlines()
]


@dataclass
class Call:
    name: str
    text: str = ""
    complete: bool | None = None
    id: str = ""

    @property
    def arguments(self) -> Any:
        return json.loads(self.text)


@dataclass
class Outcome:
    """An answer's text, its calls, and both in the order they came."""

    content: str = ""
    calls: list[Call] = field(default_factory=list)
    order: list[str | int] = field(default_factory=list)

    def add(self, events: Iterable[ToolEvent]) -> Outcome:
        for event in events:
            match event:
                case TextPiece(text):
                    assert all(call.complete is not None for call in self.calls), "text inside a call"
                    self.content += text
                    if not self.order or isinstance(self.order[-1], int):
                        self.order.append("")
                    self.order[-1] += text  # type: ignore[operator]
                case CallStart(call_id, name):
                    self.order.append(len(self.calls))
                    self.calls.append(Call(name, id=call_id))
                case ArgumentPiece(text):
                    assert self.calls[-1].complete is None, "arguments after the end"
                    self.calls[-1].text += text
                case CallEnd(complete):
                    self.calls[-1].complete = complete
        return self


def tool(name: str, properties: dict[str, Any] | None = None, **schema: Any) -> ToolDefinition:
    parameters = {"type": "object", "properties": properties or {}, **schema}
    return ToolDefinition(name, f"Does {name}.", parameters, path="tools[0].function")


def offered(case: dict[str, Any]) -> list[ToolDefinition]:
    """The tools of a recorded case."""
    return [
        ToolDefinition(
            entry["function"]["name"],
            entry["function"].get("description"),
            entry["function"].get("parameters"),
            path=f"tools[{index}].function",
        )
        for index, entry in enumerate(case["tools"])
    ]


def parse(dialect: ToolDialect, tools: Sequence[ToolDefinition], chunks: Iterable[str]) -> Outcome:
    counter = itertools.count()
    parser = dialect.parser(tools, new_id=lambda: f"call-{next(counter)}")
    outcome = Outcome()
    for chunk in chunks:
        outcome.add(parser.push(chunk))
    return outcome.add(parser.finish())
