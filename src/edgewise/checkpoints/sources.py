"""The names people give to models, parsed: `hf:` repositories and files, `wheel:` members, bare hub ids."""

from __future__ import annotations

import re
from dataclasses import dataclass

from edgewise.core.errors import ModelNotFoundError

HUB_ID = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+?)(?:/(?P<file>[^:]+\.gguf)|:(?P<quant>[\w.-]+))?", re.ASCII)
WHEEL = re.compile(
    r"(?P<before>[A-Za-z0-9._-]+)(?:\{(?P<first>\d+)\.\.(?P<last>\d+)\}(?P<after>[A-Za-z0-9._-]*))?"
    r"==(?P<version>[^/#]+)/(?P<member>[^#]+)(?:#sha256=(?P<sha256>[0-9a-f]{64}))?"
)
MAX_WHEELS = 1000


@dataclass(frozen=True, slots=True)
class HubSource:
    """A model file of a Hugging Face repository. Without `file`, one is chosen, of the quantisation `quant` if given."""

    repo: str
    file: str | None = None
    quant: str | None = None

    def __str__(self) -> str:
        return f"hf:{self.repo}" + (f"/{self.file}" if self.file else f":{self.quant}" if self.quant else "")


@dataclass(frozen=True, slots=True)
class WheelSource:
    """The member that matches the glob `member` of each wheel, one after the other."""

    distributions: tuple[str, ...]  # names, in order
    version: str
    member: str
    sha256: str | None  # of the joined file
    text: str

    def __str__(self) -> str:
        return self.text


Source = HubSource | WheelSource


def parse_source(text: str) -> Source | None:
    """The source a name means, None for one that is neither a hub id nor has a source's prefix.

    Raises ModelNotFoundError for a prefix followed by something unreadable.
    """
    if text.startswith("wheel:"):
        return _parse_wheel(text)
    match = HUB_ID.fullmatch(text.removeprefix("hf:"))
    if match:
        return HubSource(match["repo"], match["file"], match["quant"])
    if text.startswith("hf:"):
        raise ModelNotFoundError(
            f"{text!r} is not a hub source", hint="write hf:OWNER/REPO/FILE.gguf or hf:OWNER/REPO"
        )
    return None


def _parse_wheel(text: str) -> WheelSource:
    match = WHEEL.fullmatch(text.removeprefix("wheel:"))
    first, last = (int(match["first"] or 0), int(match["last"] or 0)) if match else (0, 0)
    if match is None or not first <= last < first + MAX_WHEELS:
        raise ModelNotFoundError(
            f"{text!r} is not a wheel source",
            hint="write wheel:NAME==VERSION/MEMBER or wheel:NAME{1..6}==VERSION/MEMBER",
        )
    numbers = [str(number) for number in range(first, last + 1)] if match["first"] else [""]
    names = tuple(f"{match['before']}{number}{match['after'] or ''}" for number in numbers)
    return WheelSource(names, match["version"], match["member"], match["sha256"], text)
