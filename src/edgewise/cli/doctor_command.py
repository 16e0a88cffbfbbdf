"""`edgewise doctor URL`: what is wrong with a server for agent use, and what the gateway would mend."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli.common import profiles_folder
from edgewise.cli.serve_command import environment_keys

if TYPE_CHECKING:
    from edgewise.gateway.doctor.examination import Report, Row


def command(
    url: Annotated[str, typer.Argument(help="the server's address, with or without /v1")],
    api_key: Annotated[str | None, typer.Option(help="sent as Bearer and x-api-key; also EDGEWISE_API_KEY", show_default=False)] = None,
    model: Annotated[str | None, typer.Option(help="the model to ask", show_default="the first that is loaded")] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="PROBE", help="run only this probe (repeatable)", show_default=False)] = None,
    timeout: Annotated[float, typer.Option(min=1.0, help="seconds for each request")] = 60.0,
    strict: Annotated[bool, typer.Option("--strict", help="exit with 1 also for what works only after shaping")] = False,
    for_: Annotated[str | None, typer.Option("--for", metavar="NAME", help="keep what was found for the gateway's upstream of this name", show_default=False)] = None,
    profile: Annotated[Path | None, typer.Option(help="write what was found here", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:  # fmt: skip
    from edgewise.gateway.doctor.examination import examine
    from edgewise.gateway.profiles import FileProfiles

    if "://" not in url:
        url = f"http://{url}"
    key = api_key or next(iter(environment_keys()), None)
    quiet = as_json or not sys.stderr.isatty()

    def progress(row: Row) -> None:
        if not quiet:
            print(f"{row.probe.name}: {row.verdict}", file=sys.stderr)

    report = asyncio.run(
        examine(url, key=key, model=model, only=only or (), timeout_s=timeout, progress=progress)
    )
    if profile is not None:
        profile.write_text(json.dumps(report.profile.to_json(), indent=2) + "\n")
    if for_ is not None:
        kept = FileProfiles(profiles_folder()).save(for_, report.profile)
        print(f"The gateway's upstream {for_} is shaped by {kept} from now on", file=sys.stderr)
    if as_json:
        print(json.dumps(_as_json(report), indent=2))
    else:
        _print(report)
    if report.broken or (strict and report.shaped):
        raise typer.Exit(1)


def _as_json(report: Report) -> dict[str, Any]:
    rows = [
        {
            "probe": row.probe.name,
            "about": row.probe.about,
            "verdict": row.verdict.value,
            "faults": [fault.value for fault in row.finding.faults],
            "note": row.finding.note,
        }
        for row in report.rows
    ]
    return {
        "url": report.url,
        "model": report.model,
        "requests": report.num_requests,
        "seconds": round(report.took_s, 2),
        "rows": rows,
        "profile": report.profile.to_json(),
    }


_COLOURS = {"pass": "green", "works after shaping": "yellow", "broken": "red", "not measured": "dim"}


def _print(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for title in ("PROBE", "RESULT", "WHAT IS RIGHT", "FOUND"):
        table.add_column(title)
    for row in report.rows:
        verdict = Text(row.verdict.value, style=_COLOURS[row.verdict.value])
        table.add_row(row.probe.name, verdict, row.probe.about, Text(row.finding.note))
    console = Console()
    console.print(f"{report.model} at {report.url}, a server of kind {report.profile.kind.value}")
    console.print(table)
    console.print(f"{report.num_requests} requests in {report.took_s:.1f} s")
