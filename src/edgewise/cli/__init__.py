"""The command line: one thin module per command. Only this room reads argv and the environment.

Commands import what they run when they run, so that `edgewise --help` is quick.
"""

from __future__ import annotations

import importlib
import sys

import typer

from edgewise.cli.common import fail
from edgewise.core.errors import EdgewiseError

COMMANDS = {
    "serve": "serve a model over HTTP (OpenAI API)",
    "gateway": "one address in front of several engines",
    "doctor": "find out what is wrong with a server for agent use",
    "run": "complete one prompt and exit",
    "chat": "talk to a model in the terminal",
    "bench": "measure speed, beside the machine's limits and a peer engine",
    "tokenize": "count and check the tokens of a file",
    "pull": "download a model",
    "load": "start an engine under the gateway",
    "unload": "stop an engine",
    "ps": "show the engines that run",
    "logs": "show what engines wrote",
    "context": "show or set how long conversations may be and how many at once",
    "install": "have the gateway run now and after every boot",
    "uninstall": "take back what install did",
    "list": "list the models on this machine and in the catalog",
    "list-latest": "the newest models that others have published and that fit this machine",
    "rm": "remove a downloaded model",
    "build": "turn a checkpoint into an engine directory",
    "inspect": "show what a model file or engine directory holds",
}

GROUPS = {"key": "who may use the gateway: create, list and revoke keys"}
"""Commands with commands of their own; each is `app` of its module."""

INTERRUPTED = 130  # what shells say of a program that SIGINT ended


def make_app() -> typer.Typer:
    """The whole command tree; each command's function is `command` of its module."""
    app = typer.Typer(
        help="Edgewise: a model server for small machines.",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    for name, summary in COMMANDS.items():
        module = importlib.import_module(f"edgewise.cli.{name.replace('-', '_')}_command")
        app.command(name, help=summary[0].upper() + summary[1:] + ".", short_help=summary)(module.command)
    for name, summary in GROUPS.items():
        module = importlib.import_module(f"edgewise.cli.{name}_command")
        app.add_typer(module.app, name=name, help=summary[0].upper() + summary[1:] + ".", short_help=summary)
    app.command("download", hidden=True, help="Alias of pull.")(
        importlib.import_module("edgewise.cli.pull_command").command
    )

    @app.callback(invoke_without_command=True)
    def _root(version: bool = typer.Option(False, "--version", help="print the version and exit")) -> None:
        if version:
            from edgewise import __version__

            typer.echo(f"edgewise {__version__}")
            raise typer.Exit

    return app


def main() -> None:
    """Entry point. An expected error is one line on stderr and its hint; the exit status is 1 (2 for bad usage, 130 for Ctrl-C)."""
    try:
        make_app()()
    except EdgewiseError as error:
        sys.exit(fail(error))
    except BrokenPipeError:  # `edgewise list | head`
        sys.exit(0)
    except OSError as error:  # what the file system or the network refuses, wherever that was
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        sys.exit(fail(EdgewiseError(what)))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
