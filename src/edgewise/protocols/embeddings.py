"""POST /v1/embeddings: the request as OpenAI clients send it, and the vectors as they read them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from edgewise.core.requests import Pooling
from edgewise.protocols.fields import Fields, is_token_id, read_cache_salt

MAX_INPUTS = 2048

Encoding = Literal["float", "base64"]
Text = str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """Texts, or token ids, to embed. `pooling` None: as the server is set; `dimensions` None: all."""

    inputs: tuple[Text, ...]
    model: str = ""
    encoding: Encoding = "float"
    dimensions: int | None = None
    pooling: Pooling | None = None
    add_special_tokens: bool = True
    cache_salt: str = ""
    ignored_fields: tuple[str, ...] = ()


def parse_request(body: object) -> EmbeddingRequest:
    """A decoded JSON body -> what it asks. Raises InvalidRequestError with the dotted `param`."""
    fields = Fields.of(body, "")
    request = {
        "inputs": _read_inputs(fields),
        "model": fields.string("model") or "",
        "encoding": _one_of(fields, "encoding_format", get_args(Encoding)) or "float",
        "dimensions": fields.integer("dimensions", low=1),
        "pooling": _one_of(fields, "pooling", get_args(Pooling)),
        "add_special_tokens": fields.boolean("add_special_tokens", True),
        "cache_salt": read_cache_salt(fields),
    }
    return EmbeddingRequest(**request, ignored_fields=fields.unread())


def _one_of(fields: Fields, key: str, allowed: tuple[Any, ...]) -> Any:
    value = fields.string(key)
    if value is not None and value not in allowed:
        raise fields.fail(key, f"must be {' or '.join(allowed)}", value)
    return value


def _read_inputs(fields: Fields) -> tuple[Text, ...]:
    """One text, texts, one list of token ids, or lists of them. None may be empty."""
    given = fields.require("input")
    if not isinstance(given, list) or (given and is_token_id(given[0])):
        return (_read_input(fields, "input", given),)
    if not 1 <= len(given) <= MAX_INPUTS:
        raise fields.fail("input", f"must hold 1 to {MAX_INPUTS} texts, got {len(given)}")
    return tuple(_read_input(fields, f"input[{i}]", one) for i, one in enumerate(given))


def _read_input(fields: Fields, name: str, value: object) -> Text:
    if value in ("", []):
        raise fields.fail(name, "must not be empty")
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise fields.fail(name, "must be text or an array of token ids", value)
    for i, token in enumerate(value):
        if not is_token_id(token):
            raise fields.fail(f"{name}[{i}]", "must be a token id", token)
    return tuple(value)


def encode_response(
    request: EmbeddingRequest, model: str, vectors: Sequence[npt.NDArray[np.float32]], num_tokens: int
) -> dict[str, Any]:
    """The list of embeddings, in the order of the inputs. `num_tokens`: of all inputs together."""
    data = [
        {"object": "embedding", "index": i, "embedding": _encode(finished(vector, request), request.encoding)}
        for i, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage}


def finished(vector: npt.NDArray[np.float32], request: EmbeddingRequest) -> npt.NDArray[np.float32]:
    """The first `dimensions` components at length one, as OpenAI's vectors are: a dot product is the cosine."""
    kept = vector[: request.dimensions].astype(np.float64)
    length = np.sqrt(kept @ kept)
    scaled: npt.NDArray[np.float32] = (kept / length if length > 0 else kept).astype(np.float32)
    return scaled


def _encode(vector: npt.NDArray[np.float32], encoding: Encoding) -> str | list[float]:
    """Numbers, or the little-endian float32 bytes in base64."""
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    numbers: list[float] = vector.tolist()
    return numbers
