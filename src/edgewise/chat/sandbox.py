"""The program that renders a chat template, run as a process of its own: `python -I -S sandbox.py SEARCH_PATH...`.

A template is a program from whoever made the model file. The jinja2 sandbox keeps it from Python's internals; the process
keeps it from time and memory without end, which no check inside an interpreter can promise ("x" * 10**10 is one bytecode).
It imports the standard library and jinja2 only, never this package. `template_process.py` is the other side.

Messages are JSON objects with a 4-byte big-endian length before them. First {"source", "memory_bytes", "deadline_s"}, answered by {} or
an error; then any number of {"contexts", "max_chars", "deadline_s"}, answered by {"results": one object a context}. A result is
{"text"} or {"error": kind, "message"}: kind "raised" for the template's own raise_exception, "failed" for anything else.
"""

from __future__ import annotations

import json
import signal
import struct
import sys
import types
from datetime import datetime
from typing import Any, BinaryIO

LENGTH = struct.Struct(">I")


class TemplateRaisedError(Exception):
    """The template called raise_exception."""


def main(search_path: list[str]) -> None:
    """Serve requests from standard input until it closes."""
    sys.path.extend(search_path)
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    opening = receive(incoming)
    if opening is None:
        return
    limit_memory(opening["memory_bytes"])
    limit_time(opening["deadline_s"])
    try:
        template = compile_template(opening["source"])
    except Exception as error:
        send(outgoing, describe(error))
        return
    send(outgoing, {})
    while (request := receive(incoming)) is not None:
        limit_time(request["deadline_s"])
        results = [render(template, context, request["max_chars"]) for context in request["contexts"]]
        limit_time(0.0)
        send(outgoing, {"results": results})


def receive(stream: BinaryIO) -> dict[str, Any] | None:
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    message: dict[str, Any] = json.loads(stream.read(LENGTH.unpack(head)[0]))
    return message


def send(stream: BinaryIO, message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    stream.write(LENGTH.pack(len(body)) + body)
    stream.flush()


def limit_memory(num_bytes: int) -> None:
    """Make allocation beyond `num_bytes` of address space fail. Not every system has this limit."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (num_bytes, num_bytes))
    except (ImportError, OSError, ValueError):
        pass


def limit_time(seconds: float) -> None:
    """End the process, in the middle of anything, once it has computed for `seconds`; 0: no longer.

    Computing time, so that a busy machine fails nobody: a template cannot wait for anything.
    """
    signal.setitimer(signal.ITIMER_PROF, seconds)


def compile_template(source: str) -> Any:
    """Set up jinja2 as Hugging Face's apply_chat_template does, which is what published templates are written for.

    But lists may be appended to, as some templates do: every rendering has its own copy of the data.
    """
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import SandboxedEnvironment

    class GenerationTag(Extension):
        """{% generation %}: marks the assistant's text for training. Its body renders as if it were not there."""

        tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return nodes.Scope(body, lineno=line)

    environment = SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment.from_string(source)


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models saw it in training: characters as themselves, nothing escaped for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
        default=_generated,
    )


def _generated(value: Any) -> list[Any]:
    """Filters such as map give generators."""
    if isinstance(value, types.GeneratorType):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def raise_exception(message: str) -> None:
    raise TemplateRaisedError(message)


def strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def render(template: Any, context: dict[str, Any], max_chars: int) -> dict[str, str]:
    """Render once, giving up when the output grows past `max_chars`."""
    pieces, num_chars = [], 0
    try:
        for piece in template.generate(context):
            num_chars += len(piece)
            if num_chars > max_chars:
                return {"error": "failed", "message": f"its output is longer than {max_chars} characters"}
            pieces.append(piece)
        return {"text": "".join(pieces)}
    except Exception as error:
        return describe(error)


def describe(error: Exception) -> dict[str, str]:
    if isinstance(error, TemplateRaisedError):
        return {"error": "raised", "message": str(error)}
    if isinstance(error, MemoryError):
        return {"error": "failed", "message": "it needs too much memory"}
    line = getattr(error, "lineno", None)
    where = f" (line {line})" if line else ""
    return {"error": "failed", "message": f"{type(error).__name__}: {error}{where}"}


if __name__ == "__main__":
    main(sys.argv[1:])
