"""check_request: what can never run is refused before it is queued. Pure; any thread."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from edgewise.core.errors import ContextLengthError, InvalidRequestError
from edgewise.core.requests import GenerationRequest


def check_request(request: GenerationRequest, vocab_size: int, max_model_len: int) -> None:
    """Raises ContextLengthError (with both numbers) or InvalidRequestError naming the field."""
    prompt = request.prompt_token_ids
    if prompt.ndim != 1 or prompt.dtype != np.int32:
        raise InvalidRequestError("prompt_token_ids must be a list of token ids", param="prompt_token_ids")
    if not len(prompt):
        raise InvalidRequestError("the prompt is empty", param="prompt_token_ids")
    sampling = request.sampling
    num_generated = 0 if sampling.max_tokens == 0 or request.pooling is not None else 1  # at least
    if len(prompt) + num_generated > max_model_len:
        raise ContextLengthError(prompt_tokens=len(prompt), max_model_len=max_model_len)
    low, high = int(prompt.min()), int(prompt.max())
    _check_ids("prompt_token_ids", (low, high), vocab_size)
    _check_ids("stop_token_ids", sampling.stop_token_ids, vocab_size)
    _check_ids("logit_bias", sampling.logit_bias, vocab_size)
    _check_ids("allowed_token_ids", sampling.allowed_token_ids or (), vocab_size)
    for word in request.bad_word_ids:
        _check_ids("bad_words", word, vocab_size)
    if request.pooling is not None and (sampling.n != 1 or sampling.prompt_logprobs is not None):
        raise InvalidRequestError("an embedding has one choice and no log probabilities", param="pooling")
    if request.outputs_from is not None and not 0 <= request.outputs_from < len(prompt):
        raise InvalidRequestError(
            f"outputs_from must be a position of the prompt, 0 to {len(prompt) - 1}; got {request.outputs_from}",
            param="outputs_from",
        )


def _check_ids(param: str, ids: Iterable[int], vocab_size: int) -> None:
    for token in ids:
        if not 0 <= token < vocab_size:
            raise InvalidRequestError(
                f"{param} has token id {token}, but the model's ids are 0 to {vocab_size - 1}", param=param
            )
