"""The models known by name: catalog.toml, read once."""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from edgewise.checkpoints.sources import Source, parse_source


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """A published model file and where it can be had."""

    name: str
    aliases: tuple[str, ...]
    summary: str
    licence: str
    file: str
    bytes: int
    sha256: str
    sources: tuple[Source, ...]


@cache
def catalog() -> dict[str, CatalogModel]:
    """All models by name, in the catalog's order."""
    text = files("edgewise.checkpoints").joinpath("catalog.toml").read_text(encoding="utf-8")
    models = [_model(entry) for entry in tomllib.loads(text)["model"]]
    return {model.name: model for model in models}


def find(name: str) -> CatalogModel | None:
    """The model of a name or alias, ignoring case."""
    wanted = name.lower()
    for model in catalog().values():
        if wanted == model.name or wanted in model.aliases:
            return model
    return None


def similar(name: str) -> list[str]:
    """Catalog names that a mistyped one may have meant, best first."""
    return difflib.get_close_matches(name.lower(), list(catalog()), n=3, cutoff=0.5)


def _model(entry: dict[str, object]) -> CatalogModel:
    fields = dict(entry)
    aliases, texts = fields.pop("aliases", []), fields.pop("sources")
    assert isinstance(aliases, list) and isinstance(texts, list)
    sources = tuple(source for text in texts if (source := parse_source(text)))
    return CatalogModel(aliases=tuple(aliases), sources=sources, **fields)  # type: ignore[arg-type]
