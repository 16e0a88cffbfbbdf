"""The clients' APIs as translation needs them: a body read into a ChatRequest, and chat events written as the client expects them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, assert_never

from edgewise.core.chat import ChatRequest, Message, TextPart
from edgewise.core.errors import InvalidRequestError
from edgewise.gateway.profile import Api
from edgewise.protocols import anthropic, chat, completions, responses, responses_stream
from edgewise.protocols.anthropic_stream import AnthropicStreamEncoder
from edgewise.protocols.chat_stream import ChatStreamEncoder
from edgewise.protocols.logprobs import LogprobWriter
from edgewise.protocols.reply import PromptEcho, Reply, ReplyHead, ReplyOptions
from edgewise.protocols.responses import ResponseOptions
from edgewise.protocols.stream import StreamEncoder
from edgewise.serving.response_store import OwnResponses

_NOTHING = PromptEcho()


class _NoNames:
    """Token ids mean nothing here: upstreams have their own."""

    def token_text(self, token_id: int, /) -> str:
        return ""

    def token_bytes(self, token_id: int, /) -> bytes:
        return b""


WRITER = LogprobWriter(_NoNames())


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a client asked, and how its reply has to look. `unmet`: fields whose wish translation cannot carry."""

    chat: ChatRequest
    options: ReplyOptions
    unmet: tuple[str, ...] = ()


class ClientDialect(Protocol):
    """One API of clients."""

    id_prefix: str

    def read(self, body: object) -> Wanted:
        """Raises InvalidRequestError in the API's own words."""
        ...

    def encoder(self, head: ReplyHead, wanted: Wanted) -> StreamEncoder: ...

    def encode(self, head: ReplyHead, wanted: Wanted, reply: Reply) -> Any: ...


def without_tokens(options: ReplyOptions) -> tuple[ReplyOptions, tuple[str, ...]]:
    """Options without what only an upstream's own tokenizer can tell, and the names of what is left out."""
    asked = {
        "logprobs": options.logprobs is not None,
        "prompt_logprobs": options.prompt_logprobs,
        "return_token_ids": options.token_ids,
        "stream_options.continuous_usage_stats": options.continuous_usage,
    }
    plain = replace(
        options,
        logprobs=None,
        prompt_logprobs=False,
        token_ids=False,
        continuous_usage=False,
        stream_interval=1,
    )
    return plain, tuple(name for name, wanted in asked.items() if wanted)


def _wanted(request: ChatRequest, options: ReplyOptions) -> Wanted:
    """An upstream's stream always tells its counts, whether the client is shown them or not."""
    options, unmet = without_tokens(options)
    sampling = {
        name: value for name, value in request.sampling.items() if name not in ("logprobs", "prompt_logprobs")
    }
    return Wanted(replace(request, sampling=sampling, include_usage=request.stream), options, unmet)


class ChatDialect:
    id_prefix = "chatcmpl-"

    def read(self, body: object) -> Wanted:
        parsed = chat.parse_request(body)
        return _wanted(parsed.chat, parsed.reply)

    def encoder(self, head: ReplyHead, wanted: Wanted) -> StreamEncoder:
        return ChatStreamEncoder(head, wanted.options, WRITER, _NOTHING)

    def encode(self, head: ReplyHead, wanted: Wanted, reply: Reply) -> Any:
        return chat.encode_response(head, wanted.options, reply, WRITER, _NOTHING)


class CompletionDialect:
    """A prompt becomes the one user message of a conversation, rendered as it stands where the upstream can do that."""

    id_prefix = "cmpl-"

    def read(self, body: object) -> Wanted:
        parsed = completions.parse_request(body)
        prompt = parsed.prompts[0]
        if len(parsed.prompts) != 1 or not isinstance(prompt, str):
            raise InvalidRequestError(
                "prompt must be one text: this model's server offers chats only", param="prompt"
            )
        if parsed.suffix is not None:
            raise InvalidRequestError(
                "suffix is not available: this model's server offers chats only", param="suffix"
            )
        request = ChatRequest(
            messages=(Message("user", (TextPart(prompt),)),),
            model=parsed.model,
            sampling=parsed.sampling,
            output_format=parsed.output_format,
            stream=parsed.reply.stream,
            apply_chat_template=False,
            priority=parsed.priority,
            cache_salt=parsed.cache_salt,
            ignored_fields=parsed.ignored_fields,
        )
        return _wanted(request, replace(parsed.reply, echo=False))

    def encoder(self, head: ReplyHead, wanted: Wanted) -> StreamEncoder:
        return completions.CompletionStreamEncoder(head, wanted.options, WRITER, [_NOTHING])

    def encode(self, head: ReplyHead, wanted: Wanted, reply: Reply) -> Any:
        return completions.encode_response(head, wanted.options, [reply], WRITER, [_NOTHING])


class MessagesDialect:
    id_prefix = "msg_"

    def read(self, body: object) -> Wanted:
        parsed = anthropic.parse_request(body)
        return _wanted(parsed.chat, parsed.reply)

    def encoder(self, head: ReplyHead, wanted: Wanted) -> StreamEncoder:
        return AnthropicStreamEncoder(head, _NOTHING)

    def encode(self, head: ReplyHead, wanted: Wanted, reply: Reply) -> Any:
        return anthropic.encode_response(head, reply)


class ResponsesDialect:
    """`store` keeps what was answered, for requests of the same key that come back to it."""

    id_prefix = "resp_"

    def __init__(self, store: OwnResponses) -> None:
        self._store = store

    def read(self, body: object) -> Wanted:
        parsed = responses.parse_request(body, self._store)
        return _wanted(parsed.chat, parsed.reply)

    def encoder(self, head: ReplyHead, wanted: Wanted) -> StreamEncoder:
        return responses_stream.ResponsesStreamEncoder(
            head, self._options(wanted), WRITER, on_end=self._keeper(wanted)
        )

    def encode(self, head: ReplyHead, wanted: Wanted, reply: Reply) -> Any:
        response = responses_stream.encode_response(head, self._options(wanted), reply, WRITER)
        self._keeper(wanted)(response)
        return response

    def _options(self, wanted: Wanted) -> ResponseOptions:
        assert isinstance(wanted.options, ResponseOptions)
        return wanted.options

    def _keeper(self, wanted: Wanted) -> Callable[[dict[str, Any]], None]:
        options = self._options(wanted)

        def keep(response: dict[str, Any]) -> None:
            if options.store:
                self._store.put(response, options.items)

        return keep


def client_dialect(api: Api, store: OwnResponses) -> ClientDialect | None:
    """None for an API that is not translated."""
    match api:
        case Api.CHAT:
            return ChatDialect()
        case Api.COMPLETIONS:
            return CompletionDialect()
        case Api.MESSAGES:
            return MessagesDialect()
        case Api.RESPONSES:
            return ResponsesDialect(store)
        case Api.COUNT_TOKENS | Api.EMBEDDINGS:
            return None
        case _:
            assert_never(api)


def gathered(events: Sequence[Any], num_choices: int) -> Reply:
    """Chat events as a reply in one piece."""
    reply = Reply.empty(num_choices)
    reply.add(events)
    return reply
