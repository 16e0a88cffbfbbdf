"""What the commands share: errors as one line, the environment's settings, progress bars, the model argument."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from edgewise.checkpoints.progress import Progress, ProgressCallback, silent
from edgewise.checkpoints.settings import StoreSettings, settings_from_environment
from edgewise.core.errors import ConfigError, EdgewiseError

LOG_LEVELS = ("debug", "info", "warning", "error")

ModelArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="catalog name, hf:OWNER/REPO/FILE, GGUF file, checkpoint folder or engine directory",
        show_default=False,
    ),
]
ModelOption = Annotated[
    str | None, typer.Option("--model", help="the same as the argument MODEL", show_default=False)
]


def fail(error: EdgewiseError) -> int:
    """Print an expected error and its hint; returns the exit status."""
    print("edgewise: " + "\n".join(map(printable, error.message.split("\n"))), file=sys.stderr)
    if error.hint:
        print(f"  hint: {printable(error.hint)}", file=sys.stderr)
    return 2 if isinstance(error, ConfigError) else 1


def printable(text: str) -> str:
    """A model's or a server's words for a terminal: control characters, which could redraw it, are written as escapes."""
    return "".join(char if char.isprintable() or char == " " else ascii(char)[1:-1] for char in text)


def one_model(argument: str | None, option: str | None) -> str:
    """The model named by argument or option. Raises ConfigError for none or two different ones."""
    if argument and option and argument != option:
        raise ConfigError(f"two models given: {argument!r} and --model {option!r}")
    model = argument or option
    if not model:
        raise ConfigError("no model given", hint="for example: smollm2-135m-instruct (see `edgewise list`)")
    return model


def environment_path(name: str) -> Path | None:
    """A folder named by an environment variable, or None."""
    value = os.environ.get(name)
    return Path(value).expanduser() if value else None


def setup_logging(level: str) -> None:
    """Log to stderr, one line a record. Raises ConfigError for an unknown level."""
    if level.lower() not in LOG_LEVELS:
        raise ConfigError(f"--log-level must be one of {', '.join(LOG_LEVELS)}; got {level!r}")
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    for noisy in ("httpx", "httpcore", "filelock", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


@contextmanager
def progress_bar(quiet: bool = False) -> Iterator[ProgressCallback]:
    """A callback that draws one bar per stage on stderr; it draws nothing when stderr is not a terminal."""
    if quiet or not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def report(progress: Progress) -> None:
            total = progress.total_bytes or None
            if progress.stage not in tasks:
                tasks[progress.stage] = bars.add_task(progress.stage, total=total)
            text = f"{progress.stage} {progress.detail}".strip()
            bars.update(tasks[progress.stage], completed=progress.done_bytes, total=total, description=text)

        yield report


def profiles_folder() -> Path:
    """Where the doctor keeps what it found of the gateway's upstreams."""
    return store_settings().data_dir / "profiles"


def store_settings() -> StoreSettings:
    """Where models are kept and fetched from, as the environment says."""
    return settings_from_environment(os.environ)


def checked_search_url(url: str | None) -> str | None:
    """What --search-url says. Raises ConfigError for what is no address."""
    if url is not None and not url.startswith(("http://", "https://")):
        raise ConfigError(
            f"--search-url must be an http address, got {url!r}", hint="for example http://127.0.0.1:8888"
        )
    return url
