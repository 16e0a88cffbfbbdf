"""Three hundred forced tool calls by a small model at temperature 1: every one parses and fits its schema."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from edgewise.config import Config, EngineOptions, ModelOptions
from edgewise.core.chat import ChatRequest, Message, TextPart, ToolChoice, ToolDefinition
from edgewise.pipeline import load_pipeline
from edgewise.pipeline.collect import Collector
from tests.support.models import model_path

pytestmark = [pytest.mark.model, pytest.mark.slow]

SHORT: dict[str, Any] = {"type": "string", "maxLength": 12}
SCHEMAS: dict[str, dict[str, Any]] = {
    "turn_lamp": {"on": {"type": "boolean"}, "room": SHORT},
    "set_oven": {"degrees": {"type": "integer", "minimum": 30, "maximum": 280}, "mode": {"enum": ["fan", "grill"]}},
    "plant_seed": {"kind": SHORT, "rows": {"type": "array", "items": {"type": "integer", "maximum": 99, "minimum": 0}, "maxItems": 3}},
    "book_seat": {"train": {"type": "string", "pattern": "^[A-Z]{2}[0-9]{3}$"}, "window": {"type": ["boolean", "null"]}},
    "mix_paint": {"parts": {"type": "object", "properties": {"red": {"enum": [1, 2]}, "blue": {"enum": [1, 2]}}, "required": ["red", "blue"], "additionalProperties": False}},
    "note": {"text": {"anyOf": [SHORT, {"type": "null"}]}, "level": {"const": 3}},
}  # fmt: skip
TOOLS = tuple(
    ToolDefinition(
        name,
        f"Does {name}.",
        {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False},
        path=f"tools[{i}].function",
    )
    for i, (name, fields) in enumerate(SCHEMAS.items())
)
REQUIRED = ToolChoice("required", parallel=False)
NUM_CALLS = 300


def request(number: int) -> ChatRequest:
    name = TOOLS[number % len(TOOLS)].name
    choice = REQUIRED if number % 2 else ToolChoice("required", (name,), named=True, parallel=False)
    question = Message("user", (TextPart(f"Please {name.replace('_', ' ')} number {number}."),))
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "seed": number, "max_tokens": 300}
    return ChatRequest(messages=(question,), tools=TOOLS, tool_choice=choice, sampling=sampling)


def test_every_forced_call_parses_and_fits_its_schema():
    engine = EngineOptions(max_model_len=2048, max_num_seqs=16)
    pipeline = load_pipeline(Config(model=ModelOptions(model=str(model_path())), engine=engine))
    try:
        prepared = [pipeline.prepare_chat(request(i), request_id=str(i)) for i in range(NUM_CALLS)]
        collectors = [Collector(one) for one in prepared]
        group = pipeline.start_all(prepared)
        for index, event in group:
            collectors[index].add(event)
    finally:
        pipeline.close()
    schemas = {tool.name: tool.parameters for tool in TOOLS}
    for number, (collector, answer) in enumerate(zip(collectors, group.answers, strict=True)):
        output = collector.output(usage=answer.usage, timings=None, prompt_logprobs=None)
        (call,) = output.tool_calls
        assert output.text.strip() == "", number
        assert isinstance(call.arguments, str)
        jsonschema.validate(json.loads(call.arguments), schemas[call.name])
        if number % 2 == 0:
            assert call.name == TOOLS[number % len(TOOLS)].name
        assert output.finish_reason == ("tool_calls" if number % 2 else "stop"), number
