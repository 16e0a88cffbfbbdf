"""`edgewise chat`: a conversation in the terminal. Ctrl-C stops the answer, Ctrl-D or /exit leaves."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated, Any

import typer

from edgewise.cli.common import ModelArgument, ModelOption, one_model, progress_bar, setup_logging

HELP = "/new forgets the conversation, /system TEXT sets the system message, /exit leaves; Ctrl-C stops an answer"


def command(
    model: ModelArgument = None,
    model_option: ModelOption = None,
    system: Annotated[str | None, typer.Option(help="system message", show_default=False)] = None,
    max_tokens: Annotated[int, typer.Option(min=1)] = 2048,
    temperature: Annotated[float, typer.Option(min=0.0)] = 0.7,
    seed: Annotated[int | None, typer.Option(show_default=False)] = None,
    threads: Annotated[int | None, typer.Option(min=1, show_default="auto")] = None,
) -> None:
    from edgewise import LLM

    setup_logging("warning")
    with progress_bar() as report:
        llm = LLM(one_model(model, model_option), threads=threads, progress=report)
    sampling = {"temperature": temperature, "max_tokens": max_tokens, "seed": seed}
    with llm:
        print(f"{llm.model_name} ({llm.max_model_len} tokens). {HELP}", file=sys.stderr)
        converse(llm, system, {k: v for k, v in sampling.items() if v is not None})


def converse(llm: Any, system: str | None, sampling: dict[str, Any]) -> None:
    """Read turns until the end of input. An interrupted answer stays in the history as far as it went."""
    messages = start(system)
    while (line := read_turn()) is not None:
        if line in ("/exit", "/quit"):
            return
        if line == "/new":
            messages = start(system)
        elif line.startswith("/system "):
            system = line.removeprefix("/system ")
            messages = start(system)
        elif line.startswith("/"):
            print(HELP, file=sys.stderr)
        elif line.strip():
            messages.append({"role": "user", "content": line})
            messages.append({"role": "assistant", "content": answer(llm, messages, sampling)})


def start(system: str | None) -> list[dict[str, str]]:
    return [{"role": "system", "content": system}] if system else []


def read_turn() -> str | None:
    """One line, with editing and history where there is a terminal; None at the end of input."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  line editing of input()
    while True:
        try:
            return input("> " if sys.stdin.isatty() else "")
        except EOFError:
            return None
        except KeyboardInterrupt:
            print("\n(Ctrl-D leaves)", file=sys.stderr)


def answer(llm: Any, messages: list[dict[str, str]], sampling: dict[str, Any]) -> str:
    """Print one answer as it comes and return it; Ctrl-C ends this answer only."""
    text, deltas = "", llm.generate_stream(messages, sampling)
    try:
        for delta in deltas:
            text += delta.text
            print(delta.text, end="", flush=True)
    except KeyboardInterrupt:
        print(" [stopped]", end="")
    finally:
        deltas.close()
    print()
    return text
