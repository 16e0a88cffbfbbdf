"""Tokens without generating: /tokenize for raw prompts and conversations, /detokenize. Blocking; runs in the executor."""

from __future__ import annotations

from collections.abc import Sequence

from edgewise.chat import encode_prompt
from edgewise.core.chat import ChatRequest
from edgewise.core.errors import InvalidRequestError
from edgewise.pipeline import Pipeline
from edgewise.protocols.tokenize import TokenizeRequest

_MIN_LIMIT_BYTES = 1 << 20
_MIN_LIMIT_TOKENS = 1 << 17


def tokenize(pipeline: Pipeline, request: TokenizeRequest) -> list[int]:
    """Token ids, also of what is longer than the window, within reason. Raises InvalidRequestError."""
    if request.chat is not None:
        return _tokenize_chat(pipeline, request.chat)
    text = request.prompt or ""
    _check_size(pipeline, text, "prompt")
    return pipeline.tokenizer.encode(text, add_special_tokens=request.add_special_tokens, parse_special=True)


def detokenize(pipeline: Pipeline, ids: Sequence[int]) -> str:
    """The text of token ids, control tokens included. Raises InvalidRequestError for one outside the vocabulary and for far more
    than the window holds: the answer is made and sent whole."""
    limit = max_ids(pipeline)
    if len(ids) > limit:
        raise InvalidRequestError(f"tokens has {len(ids)} ids; at most {limit} are taken", param="tokens")
    vocab_size = pipeline.tokenizer.vocab_size
    for i, token_id in enumerate(ids):
        if token_id >= vocab_size:
            rule = f"is {token_id}, outside the vocabulary (0 to {vocab_size - 1})"
            raise InvalidRequestError(f"tokens[{i}] {rule}", param=f"tokens[{i}]")
    return pipeline.tokenizer.decode(ids, skip_special_tokens=False)


def max_ids(pipeline: Pipeline) -> int:
    """How many token ids are put back into text at once."""
    return max(_MIN_LIMIT_TOKENS, pipeline.max_model_len)


def _tokenize_chat(pipeline: Pipeline, request: ChatRequest) -> list[int]:
    _check_size(pipeline, "".join(message.text for message in request.messages), "messages")
    rendered = pipeline.rendered(request)
    _check_size(pipeline, rendered.text, "messages")
    ids, _ = encode_prompt(pipeline.tokenizer, rendered)
    return list(ids)


def _check_size(pipeline: Pipeline, text: str, param: str) -> None:
    """Tokenising takes about a second for each MB, so text far beyond the window is refused."""
    limit = max(_MIN_LIMIT_BYTES, pipeline.max_model_len * pipeline.tokenizer.max_token_bytes)
    size = len(text.encode())
    if size > limit:
        raise InvalidRequestError(f"{param} has {size} bytes; at most {limit} are tokenised", param=param)
