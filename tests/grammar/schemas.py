"""The collection of schemas, and how answers are checked against them: by the `jsonschema` package, formats included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

SCHEMAS: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "schemas.json").read_text("utf-8"))


def validate(schema: Any, text: str) -> None:
    """Raises ValidationError or ValueError."""
    validator = jsonschema.Draft202012Validator(
        schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )
    validator.validate(json.loads(text))
