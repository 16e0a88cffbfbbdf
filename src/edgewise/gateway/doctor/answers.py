"""Probes of answers: calls, streams, stops, counts, structured output."""

from __future__ import annotations

import json
import re
from typing import Any

from edgewise.gateway.doctor.history import WRITE
from edgewise.gateway.doctor.patient import Answer, Patient
from edgewise.gateway.doctor.probe import Finding, Probe, found, not_measured, passed
from edgewise.gateway.profile import Api, Fault

_CALL = "Create the file a.txt with the text abc."
_GREET = "Say hello to me in one short sentence. Do not use any tool."
_THANKS = "Thank you, that is all."
_QUESTION = "What is the capital of France?"
_COUNT = "Count from one to ten in words, separated by commas."
_SCHEMA = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": ["teal", "ochre"]}},
    "required": ["colour"],
    "additionalProperties": False,
}
_MARKS = re.compile(r"<\|[^|<>]{2,30}\|>|</s>|<end_of_turn>")
_CALL_MARKUP = re.compile(r'<tool_call>|<function=|\[TOOL_CALLS\]|"name"\s*:\s*"(write_file|read_clock)"')
_CALL_TOKENS = 96
_OTHER = {"type": "function", "function": {"name": "read_clock", "description": "Tells the time.", "parameters": {"type": "object", "properties": {}}}}  # fmt: skip


def _clean(text: str) -> str:
    """Text without end marks, which have a probe of their own."""
    return _MARKS.sub("", text).strip()


def _names(answer: Answer) -> list[str]:
    return [(call.get("function") or {}).get("name") or "" for call in answer.calls]


def _finish_of(body: dict[str, Any]) -> Any:
    """Of the first choice of an answer or a chunk."""
    choices = body.get("choices") or [{}]
    return choices[0].get("finish_reason")


def _is_cut(answer: Answer) -> bool:
    return bool(_finish_of(answer.body) == "length")


async def required(patient: Patient) -> Finding:
    """A call where the model makes none of its own accord: one that it would make anyhow shows nothing."""
    for ask in (_THANKS, _QUESTION, _GREET):
        answer = await patient.chat(ask, tools=[WRITE], tool_choice="required", max_tokens=_CALL_TOKENS)
        if not answer.ok:
            return found(Fault.CHOICE_REFUSED, f"{answer.status} {answer.error}")
        written = bool(_CALL_MARKUP.search(answer.text))
        if not (answer.calls or written):
            if _is_cut(answer) and not answer.text.strip():
                return not_measured("the answer was cut before it said anything")
            return found(Fault.REQUIRED_CHOICE, f"answered in text: {answer.text[:60]!r}")
        free = await patient.chat(ask, tools=[WRITE], max_tokens=_CALL_TOKENS)
        if free.ok and not free.calls and not _CALL_MARKUP.search(free.text):
            return passed("the call came as text" if written else "")
    return not_measured("the model calls whether it must or not")


async def named(patient: Patient) -> Finding:
    choice = {"type": "function", "function": {"name": "read_clock"}}
    answer = await patient.chat(_GREET, tools=[WRITE, _OTHER], tool_choice=choice, max_tokens=_CALL_TOKENS)
    if not answer.ok:
        return found(Fault.CHOICE_REFUSED, f"{answer.status} {answer.error}")
    names = _names(answer)
    if not names and "read_clock" in answer.text:
        return passed("the call came as text")
    return passed() if names == ["read_clock"] else found(Fault.NAMED_CHOICE, f"called {names or 'nothing'}")


async def none(patient: Patient) -> Finding:
    answer = await patient.chat(_CALL, tools=[WRITE], tool_choice="none", max_tokens=_CALL_TOKENS)
    if not answer.ok:
        return found(Fault.NONE_CHOICE, f"{answer.status} {answer.error}")
    return found(Fault.NONE_CHOICE, f"called {_names(answer)}") if answer.calls else passed()


async def free_call(patient: Patient) -> Finding:
    """A call of the model's own accord: read as one, with arguments that are JSON."""
    answer = await patient.chat(_CALL, tools=[WRITE], max_tokens=_CALL_TOKENS)
    if not answer.ok:
        return not_measured(f"{answer.status} {answer.error}")
    if not answer.calls:
        if _CALL_MARKUP.search(answer.text):
            return found(Fault.LEAKED_TOOL_MARKUP, f"the call came as text: {answer.text[:60]!r}")
        return not_measured("the model made no call")
    arguments = (answer.calls[0].get("function") or {}).get("arguments")
    try:
        whole = isinstance(json.loads(arguments or ""), dict)
    except (TypeError, ValueError):
        whole = False
    if not all(isinstance(call.get("id"), str) and call["id"] for call in answer.calls):
        return found(Fault.CALL_IDS, f"a call has the id {answer.calls[0].get('id')!r}")
    if _finish_of(answer.body) == "stop":
        return found(Fault.FINISH_REASON, "an answer with a call ends in stop")
    if whole or _is_cut(answer):
        return passed()
    return found(Fault.LEAKED_TOOL_MARKUP, f"arguments that are no JSON object: {str(arguments)[:60]!r}")


async def parallel(patient: Patient) -> Finding:
    """Two things are asked for; with parallel calls refused there may be one call."""
    ask = "Create a.txt with the text one and b.txt with the text two. Make both calls now."
    free = await patient.chat(ask, tools=[WRITE], max_tokens=2 * _CALL_TOKENS)
    if not free.ok or len(free.calls) < 2:
        return not_measured("the model makes no two calls at once")
    bound = await patient.chat(ask, tools=[WRITE], max_tokens=2 * _CALL_TOKENS, parallel_tool_calls=False)
    if bound.ok and len(bound.calls) > 1:
        return found(Fault.PARALLEL_CALLS, f"{len(bound.calls)} calls at once")
    return passed()


async def call_stream(patient: Patient) -> Finding:
    """The pieces of a streamed call have an index, its head an id and a name."""
    body = patient.chat_body(_CALL, tools=[WRITE], max_tokens=_CALL_TOKENS)
    streamed = await patient.stream(Api.CHAT.value, body)
    if not streamed.ok:
        return not_measured(f"{streamed.status} {streamed.error[:100]}")
    pieces = [
        piece
        for event in streamed.events
        for choice in event.get("choices") or ()
        for piece in (choice.get("delta") or {}).get("tool_calls") or ()
    ]
    if not pieces:
        return not_measured("the model made no call")
    heads = {piece.get("index"): piece for piece in reversed(pieces) if piece.get("id")}
    indices = {piece.get("index") for piece in pieces}
    if None in indices or indices != set(heads):
        return found(
            Fault.CALL_INDICES, f"indices {sorted(map(str, indices))}, ids for {sorted(map(str, heads))}"
        )
    if "stop" in map(_finish_of, streamed.events):
        return found(Fault.FINISH_REASON, "a stream with a call ends in stop")
    return passed()


async def stream_usage(patient: Patient) -> Finding:
    body = patient.chat_body(_GREET, stream_options={"include_usage": True})
    streamed = await patient.stream(Api.CHAT.value, body)
    if not streamed.ok:
        return found(Fault.STREAM_USAGE, f"{streamed.status} {streamed.error[:100]}")
    told = any((event.get("usage") or {}).get("prompt_tokens") for event in streamed.events)
    return passed() if told else found(Fault.STREAM_USAGE, "no event of the stream has usage")


async def stops(patient: Patient) -> Finding:
    """An answer asked for again with a word out of its middle as the stop string."""
    free = await patient.chat(_COUNT, max_tokens=24)
    words = re.findall(r"\w{2,}|\d", _clean(free.text))
    if not free.ok or len(words) < 3:
        return not_measured(f"the model says too little: {free.text[:40]!r}")
    stop = words[len(words) // 2]
    again = await patient.chat(_COUNT, stop=[stop], max_tokens=24)
    expected = free.text[: free.text.index(stop)]
    if _clean(again.text) == _clean(expected):
        return passed()
    return found(Fault.STOP_STRINGS, f"stop {stop!r} gave {again.text[:60]!r} instead of {expected[:60]!r}")


async def stream_end(patient: Patient) -> Finding:
    streamed = await patient.stream(Api.CHAT.value, patient.chat_body("Say only: yes", max_tokens=8))
    if not streamed.ok:
        return not_measured(f"{streamed.status} {streamed.error[:100]}")
    return passed() if streamed.done else found(Fault.END_MARK, "no [DONE] comes")


async def leaked_marks(patient: Patient) -> Finding:
    """In one piece and streamed."""
    answer = await patient.chat("Say only: yes", max_tokens=24)
    if not answer.ok:
        return not_measured(f"{answer.status} {answer.error}")
    streamed = await patient.stream(Api.CHAT.value, patient.chat_body("Say only: yes", max_tokens=24))
    deltas = [choice.get("delta") or {} for event in streamed.events for choice in event.get("choices") or ()]
    if marks := _MARKS.findall(answer.text) or _MARKS.findall(
        "".join(d.get("content") or "" for d in deltas)
    ):
        return found(Fault.LEAKED_END_TOKENS, f"in the text: {', '.join(marks[:3])}")
    return passed()


async def thinking(patient: Patient) -> Finding:
    """Off unless asked for; asked for, it comes in a field of its own."""
    plain = await patient.chat("Say only: yes", max_tokens=24)
    if not plain.ok:
        return not_measured(f"{plain.status} {plain.error}")
    if _thinks(plain):
        off = await patient.chat("Say only: yes", max_tokens=24, chat_template_kwargs=_switch(False))
        if off.ok and not _thinks(off):
            return found(Fault.THINKING_SWITCH, "thinks unless a request switches it off")
        return found(Fault.ALWAYS_THINKS, "thinks although nobody asked, and cannot be switched off")
    asked = await patient.chat("Say only: yes", max_tokens=48, chat_template_kwargs=_switch(True))
    if asked.ok and "<think>" in asked.text:
        return found(Fault.REASONING_FIELD, "thinking is part of the text")
    return passed("thinks when asked" if asked.reasoning else "")


def _thinks(answer: Answer) -> bool:
    return bool(answer.reasoning) or "<think>" in answer.text


def _switch(on: bool) -> dict[str, bool]:
    """Templates' variable for it."""
    return {"enable_thinking": on}


async def json_schema(patient: Patient) -> Finding:
    envelope = {"name": "pick", "schema": _SCHEMA, "strict": True}
    answer = await patient.chat(
        "Tell a story.", response_format={"type": "json_schema", "json_schema": envelope}, max_tokens=48
    )
    if not answer.ok:
        return found(Fault.JSON_SCHEMA, f"{answer.status} {answer.error}")
    try:
        value: Any = json.loads(_clean(answer.text))
    except ValueError:
        value = None
    if isinstance(value, dict) and value.get("colour") in ("teal", "ochre"):
        return passed()
    return found(Fault.JSON_SCHEMA, f"answered {answer.text[:60]!r}")


async def cached(patient: Patient) -> Finding:
    """The same long prompt twice: the second costs less, and says so."""
    prompt = "Here is a list. " + " ".join(f"Item {i} is number {i * 7}." for i in range(60)) + " Say yes."
    first_s, first = await patient.seconds_of(prompt)
    second_s, second = await patient.seconds_of(prompt)
    if not (first.ok and second.ok):
        return not_measured(f"{second.status} {second.error}")
    if second.cached_tokens:
        return passed(f"{second.cached_tokens} of {second.prompt_tokens} tokens cached")
    times = f"{first_s:.2f} s, then {second_s:.2f} s"
    if second.cached_tokens is None:
        return found(Fault.CACHED_TOKENS, f"usage does not tell; {times}")
    return found(Fault.NO_PREFIX_CACHE, f"nothing cached; {times}")


PROBES = (
    Probe("required", "tool_choice required is enforced", (Fault.REQUIRED_CHOICE, Fault.CHOICE_REFUSED), required, with_tools=True),
    Probe("named", "a named tool is called", (Fault.NAMED_CHOICE, Fault.CHOICE_REFUSED), named),
    Probe("none", "tool_choice none is heeded", (Fault.NONE_CHOICE,), none),
    Probe("calls", "calls come as calls, with ids and their own reason to end", (Fault.LEAKED_TOOL_MARKUP, Fault.CALL_IDS, Fault.FINISH_REASON), free_call, with_tools=True),
    Probe("parallel", "parallel_tool_calls false is heeded", (Fault.PARALLEL_CALLS,), parallel, with_tools=True),
    Probe("streamed calls", "streamed calls have indices and ids", (Fault.CALL_INDICES, Fault.FINISH_REASON), call_stream, with_tools=True),
    Probe("stream usage", "include_usage gives usage", (Fault.STREAM_USAGE,), stream_usage),
    Probe("stream end", "streams end with [DONE]", (Fault.END_MARK,), stream_end),
    Probe("stops", "stop strings end the answer and are no part of it", (Fault.STOP_STRINGS,), stops),
    Probe("clean text", "no end marks in the text", (Fault.LEAKED_END_TOKENS,), leaked_marks),
    Probe("thinking", "off unless asked for, and in a field of its own", (Fault.THINKING_SWITCH, Fault.ALWAYS_THINKS, Fault.REASONING_FIELD), thinking),
    Probe("json schema", "response_format json_schema is enforced", (Fault.JSON_SCHEMA,), json_schema),
    Probe("prefix cache", "a prompt seen before costs less, and usage says so", (Fault.CACHED_TOKENS, Fault.NO_PREFIX_CACHE), cached),
)  # fmt: skip
