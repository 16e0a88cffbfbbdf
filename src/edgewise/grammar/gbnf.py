"""llama.cpp's GBNF as Lark."""

from __future__ import annotations

from llguidance import gbnf_to_lark as converter

from edgewise.core.errors import InvalidRequestError


def gbnf_to_lark(source: str) -> str:
    """A grammar with its own `start`. Raises InvalidRequestError naming the reason."""
    try:
        return converter.gbnf_to_lark(source)
    except RecursionError:
        raise InvalidRequestError("the GBNF grammar is nested too deeply") from None
    except Exception as error:  # the converter raises plain exceptions
        raise InvalidRequestError(f"the GBNF grammar cannot be read: {error}") from None
