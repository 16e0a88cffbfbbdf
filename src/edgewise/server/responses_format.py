"""/v1/responses as the generating route sees it: the format, with the store of what it answered."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from edgewise.core.errors import ContextLengthError, InvalidRequestError
from edgewise.pipeline import RESPONSES, Pipeline, Prepared
from edgewise.protocols import responses
from edgewise.protocols.logprobs import LogprobWriter
from edgewise.protocols.reply import PromptEcho, Reply, ReplyHead, ReplyOptions
from edgewise.protocols.responses import ParsedResponse, ResponseOptions
from edgewise.protocols.responses_input import EARLIER_INDEX, INSTRUCTIONS_INDEX
from edgewise.protocols.responses_stream import ResponsesStreamEncoder, encode_response
from edgewise.protocols.stream import StreamEncoder
from edgewise.server.formats import refuse_hopeless
from edgewise.serving.response_store import OwnResponses

_PLACES = {EARLIER_INDEX: "previous_response_id", INSTRUCTIONS_INDEX: "instructions"}
_MESSAGE = re.compile(r"\bmessages(?:\[(-?\d+)\](?:\.content)?)?(?![\w\[])")


StreamedResponses = WeakValueDictionary[tuple[str, str], ResponsesStreamEncoder]
"""Responses that are being streamed, by owner and id."""


class ResponsesFormat:
    """One owner's, over the store of all. `parse` runs on any thread, the rest on the event loop, except `prepare`."""

    id_prefix = "resp_"

    def __init__(self, store: OwnResponses, streamed: StreamedResponses) -> None:
        self.store = store
        self._streamed = streamed

    def in_progress(self, response_id: str) -> dict[str, Any] | None:
        """A response that is being streamed, as far as it has come."""
        encoder = self._streamed.get((self.store.owner, response_id))
        return None if encoder is None or encoder.ended else encoder.response()

    def parse(self, body: object) -> ParsedResponse:
        return responses.parse_request(body, self.store)

    def model_of(self, parsed: ParsedResponse) -> str:
        return parsed.chat.model

    def ignored_fields_of(self, parsed: ParsedResponse) -> tuple[str, ...]:
        return parsed.chat.ignored_fields

    def options_of(self, parsed: ParsedResponse) -> ReplyOptions:
        return parsed.reply

    def prepare(self, pipeline: Pipeline, parsed: ParsedResponse, request_id: str) -> list[Prepared]:
        try:
            refuse_hopeless(pipeline, parsed.chat)
            return [pipeline.prepare_chat(parsed.chat, request_id=request_id, defaults=RESPONSES)]
        except InvalidRequestError as error:
            error.message = _in_words_of_input(error.message)
            error.param = None if error.param is None else _in_words_of_input(error.param)
            raise

    def count(self, pipeline: Pipeline, parsed: ParsedResponse) -> int:
        """The tokens of a prompt, also of one that does not fit. Blocking. Raises InvalidRequestError."""
        try:
            return len(self.prepare(pipeline, parsed, "count")[0].request.prompt_token_ids)
        except ContextLengthError as error:
            if error.at_least:
                raise
            return error.prompt_tokens

    def echoes(
        self, pipeline: Pipeline, parsed: ParsedResponse, prepared: Sequence[Prepared]
    ) -> list[PromptEcho]:
        return [PromptEcho("", prepared[0].request.prompt_token_ids.tolist())]

    def encode_response(
        self,
        head: ReplyHead,
        options: ReplyOptions,
        replies: Sequence[Reply],
        writer: LogprobWriter,
        echoes: Sequence[PromptEcho],
    ) -> Mapping[str, Any]:
        assert isinstance(options, ResponseOptions)
        response = encode_response(head, options, replies[0], writer)
        self._keep(response, options)
        return response

    def stream_encoder(
        self, head: ReplyHead, options: ReplyOptions, writer: LogprobWriter, echoes: Sequence[PromptEcho]
    ) -> StreamEncoder:
        assert isinstance(options, ResponseOptions)
        encoder = ResponsesStreamEncoder(
            head, options, writer, on_end=lambda response: self._keep(response, options)
        )
        self._streamed[self.store.owner, head.id] = encoder
        return encoder

    def _keep(self, response: dict[str, Any], options: ResponseOptions) -> None:
        if options.store:
            self.store.put(response, options.items)


def _in_words_of_input(text: str) -> str:
    """Names of messages as names of the request's own fields."""

    def place(match: re.Match[str]) -> str:
        if match[1] is None:
            return "input"
        return _PLACES.get(int(match[1]), f"input[{match[1]}]")

    return _MESSAGE.sub(place, text.replace("max_tokens", "max_output_tokens"))
