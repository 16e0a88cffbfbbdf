"""POST /v1/completions: raw prompts, as text or token ids, one or many; the reply in one piece and as chunks.

Choices of several prompts are numbered prompt by prompt: choice i belongs to prompt i // n.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from edgewise.core.chat import ChatEvent, Failed, Finish, PartDelta
from edgewise.core.grammar import OutputFormat
from edgewise.core.requests import TokenLogprob, Usage
from edgewise.core.sampling import MAX_LOGPROBS
from edgewise.protocols import sse
from edgewise.protocols.errors import encode_error
from edgewise.protocols.fields import Fields, is_token_id, read_cache_salt
from edgewise.protocols.logprobs import LogprobWriter
from edgewise.protocols.reply import (
    Choice,
    PromptEcho,
    Reply,
    ReplyHead,
    ReplyOptions,
    add_usage,
    encode_timings,
    encode_usage,
    read_reply_options,
)
from edgewise.protocols.sampling import check_sampling, read_max_tokens, read_sampling, refuse_unavailable
from edgewise.protocols.stream import DeltaMerger
from edgewise.protocols.structured import ignored_options, read_output_format

DEFAULT_MAX_TOKENS = 16
MAX_PROMPTS = 2048

Prompt = str | tuple[int, ...]

_SIGN_OF_LIFE = sse.comment("working")


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """What a completions request asks. `prompts` are text or token ids; `suffix` asks for the text between."""

    prompts: tuple[Prompt, ...]
    reply: ReplyOptions
    model: str = ""
    suffix: str | None = None
    sampling: dict[str, Any] = field(default_factory=dict)
    output_format: OutputFormat | None = None
    add_special_tokens: bool = True
    priority: int = 0
    cache_salt: str = ""
    ignored_fields: tuple[str, ...] = ()


def parse_request(body: object) -> CompletionRequest:
    """A decoded JSON body -> what it asks. Raises InvalidRequestError with the dotted `param`."""
    fields = Fields.of(body, "")
    refuse_unavailable(fields)
    prompts = _read_prompts(fields)
    sampling = read_sampling(fields)
    echo = fields.boolean("echo")
    limit = read_max_tokens(fields, "max_tokens", low=0 if echo else 1)
    sampling["max_tokens"] = DEFAULT_MAX_TOKENS if limit is None else limit
    logprobs = fields.integer("logprobs", low=0, high=MAX_LOGPROBS)
    reply = replace(read_reply_options(fields, sampling), logprobs=logprobs)
    sampling |= _engine_logprobs(reply)
    if sampling["max_tokens"] < sampling.get("min_tokens", 0) and limit is None:
        sampling["max_tokens"] = sampling["min_tokens"]
    check_sampling(sampling)
    suffix = fields.string("suffix") or None
    if suffix is not None and (echo or not all(isinstance(prompt, str) for prompt in prompts)):
        raise fields.fail("suffix", "needs text prompts and no echo")
    request = CompletionRequest(
        prompts=prompts,
        reply=reply,
        model=fields.string("model") or "",
        suffix=suffix,
        sampling=sampling,
        output_format=read_output_format(fields),
        add_special_tokens=fields.boolean("add_special_tokens", True),
        priority=fields.integer("priority", low=-(2**63), high=2**63 - 1) or 0,
        cache_salt=read_cache_salt(fields),
    )
    return replace(request, ignored_fields=(*ignored_options(fields), *fields.unread()))


def _engine_logprobs(reply: ReplyOptions) -> dict[str, int]:
    """What the engine has to compute: what is shown (of the prompt too when it is echoed), and what ranking needs."""
    if reply.logprobs is not None:
        shown = {"logprobs": reply.logprobs}
        return (
            {**shown, "prompt_logprobs": reply.logprobs}
            if reply.echo and not reply.prompt_logprobs
            else shown
        )
    return {"logprobs": 0} if reply.best_of > reply.num_choices else {}


def _read_prompts(fields: Fields) -> tuple[Prompt, ...]:
    """A string, a list of strings, a list of ids, or a list that mixes strings and lists of ids."""
    prompt = fields.require("prompt")
    if isinstance(prompt, str):
        return (prompt,)
    if not isinstance(prompt, list) or not prompt:
        raise fields.fail("prompt", "must be a string, or a non-empty array of strings or token ids", prompt)
    if is_token_id(prompt[0]):
        return (_read_ids(prompt, "prompt", fields),)
    if len(prompt) > MAX_PROMPTS:
        raise fields.fail("prompt", f"must hold at most {MAX_PROMPTS} prompts, got {len(prompt)}")
    return tuple(_read_prompt(item, f"prompt[{i}]", fields) for i, item in enumerate(prompt))


def _read_prompt(item: object, name: str, fields: Fields) -> Prompt:
    if isinstance(item, str):
        return item
    if isinstance(item, list) and item:
        return _read_ids(item, name, fields)
    raise fields.fail(name, "must be a string or a non-empty array of token ids", item)


def _read_ids(ids: list[Any], name: str, fields: Fields) -> tuple[int, ...]:
    for i, value in enumerate(ids):
        if not is_token_id(value):
            raise fields.fail(f"{name}[{i}]", "must be a token id", value)
    return tuple(ids)


def encode_response(
    head: ReplyHead,
    options: ReplyOptions,
    replies: Sequence[Reply],
    writer: LogprobWriter,
    prompts: Sequence[PromptEcho],
) -> dict[str, Any]:
    """The `text_completion` object for one reply per prompt."""
    choices: list[dict[str, Any]] = []
    usage = Usage()
    for reply, prompt in zip(replies, prompts, strict=True):
        usage = add_usage(usage, reply.usage)
        for choice in reply.best(options.num_choices):
            choices.append(_encode_choice(len(choices), choice, options, writer, prompt))
    return {
        "id": head.id,
        "object": "text_completion",
        "created": head.created,
        "model": head.model,
        "choices": choices,
        "usage": encode_usage(usage),
        **(encode_timings(replies[0].timings, usage) if len(replies) == 1 else {}),
    }


def _encode_choice(
    index: int, choice: Choice, options: ReplyOptions, writer: LogprobWriter, prompt: PromptEcho
) -> dict[str, Any]:
    encoded: dict[str, Any] = {
        "index": index,
        "text": (prompt.text if options.echo else "") + choice.text_of("text"),
        "logprobs": _encode_logprobs(choice, options, writer, prompt),
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.matched_stop,
    }
    if options.prompt_logprobs and prompt.logprobs is not None:
        encoded["prompt_logprobs"] = writer.prompt(prompt.logprobs)
    if options.token_ids:
        encoded |= {"prompt_token_ids": list(prompt.token_ids), "token_ids": choice.token_ids}
    return encoded


def _encode_logprobs(
    choice: Choice, options: ReplyOptions, writer: LogprobWriter, prompt: PromptEcho
) -> dict[str, Any] | None:
    if options.logprobs is None:
        return None
    entries: list[TokenLogprob | None] = list(choice.logprobs)
    ids = list(choice.token_ids)
    if options.echo:
        ids, entries = _with_prompt(prompt, ids, entries)
    return writer.completion(entries, ids, 0)


def _with_prompt(
    prompt: PromptEcho, ids: list[int], entries: list[TokenLogprob | None]
) -> tuple[list[int], list[TokenLogprob | None]]:
    """The prompt's tokens before the answer's, where their log probabilities are known."""
    if prompt.logprobs is None:
        return ids, entries
    return [*prompt.token_ids, *ids], [*prompt.logprobs, *entries]


class CompletionStreamEncoder:
    """StreamEncoder of /v1/completions, over the choices of all prompts."""

    def __init__(
        self, head: ReplyHead, options: ReplyOptions, writer: LogprobWriter, prompts: Sequence[PromptEcho]
    ) -> None:
        self._options = options
        self._writer = writer
        self._prompts = prompts
        self._counts = [Usage(prompt_tokens=len(prompt.token_ids)) for prompt in prompts]
        self._offsets = [0] * (options.num_choices * len(prompts))
        self._unsent_prompt = [options.echo or options.token_ids] * len(self._offsets)
        self._merger = DeltaMerger(options.stream_interval) if options.stream_interval > 1 else None
        self._constant: dict[str, Any] = {
            "id": head.id,
            "object": "text_completion",
            "created": head.created,
            "model": head.model,
        }
        if options.include_usage and not options.continuous_usage:
            self._constant["usage"] = None
        self._plain = (
            options.logprobs is None
            and not options.token_ids
            and not options.continuous_usage
            and not options.echo
        )
        self._frames: dict[int, tuple[bytes, bytes]] = {}

    def opening(self) -> bytes:
        """Completions have no opening event; the first bytes after the headers are a comment."""
        return _SIGN_OF_LIFE

    def encode(self, events: Iterable[ChatEvent]) -> bytes:
        if self._merger is not None:
            events = self._merger.merge(events)
        return b"".join(map(self._encode_event, events))

    def _encode_event(self, event: ChatEvent) -> bytes:
        match event:
            case PartDelta():
                return self._encode_delta(event)
            case Finish():
                return self._encode_finish(event)
            case Failed():
                return self.failure(event.error)
            case _:
                return b""

    def _encode_delta(self, event: PartDelta) -> bytes:
        if not self._plain:
            return self._encode_rich_delta(event)
        if not event.text:
            return b""
        before, after = self._frame(event.choice)
        return before + orjson.dumps(event.text) + after

    def _frame(self, index: int) -> tuple[bytes, bytes]:
        """What stands before and after the text of a plain delta, made once a choice."""
        if (frame := self._frames.get(index)) is None:
            mark = "\x00"
            before, after = self._chunk(index, mark).split(orjson.dumps(mark))
            frame = self._frames[index] = before, after
        return frame

    def _chunk(self, index: int, text: str, **more: Any) -> bytes:
        choice = {"index": index, "text": text, "logprobs": None, "finish_reason": None, **more}
        body = {**self._constant, "choices": [choice]}
        if self._options.continuous_usage:
            body["usage"] = encode_usage(self._usage())
        return sse.data(body)

    def _usage(self) -> Usage:
        total = Usage()
        for counts in self._counts:
            total = add_usage(total, counts)
        return total

    def _prompt_of(self, choice: int) -> int:
        return choice // self._options.num_choices

    def _encode_rich_delta(self, event: PartDelta) -> bytes:
        self._counts[self._prompt_of(event.choice)].completion_tokens += len(event.token_ids)
        text, ids, entries = (
            event.text,
            list(event.token_ids),
            list[TokenLogprob | None](event.logprobs or ()),
        )
        more: dict[str, Any] = {}
        if self._options.token_ids:
            more["token_ids"] = ids
        if self._unsent_prompt[event.choice]:
            self._unsent_prompt[event.choice] = False
            prompt = self._prompts[self._prompt_of(event.choice)]
            if self._options.token_ids:
                more["prompt_token_ids"] = list(prompt.token_ids)
            if self._options.echo:
                text = prompt.text + text
                ids, entries = _with_prompt(prompt, ids, entries)
        if self._options.logprobs is not None and entries:
            more["logprobs"] = self._writer.completion(entries, ids, self._offsets[event.choice])
        self._offsets[event.choice] += len(text)
        return self._chunk(event.choice, text, **more)

    def _encode_finish(self, event: Finish) -> bytes:
        self._counts[self._prompt_of(event.choice)] = event.usage
        echo = (
            self._encode_rich_delta(PartDelta(event.choice, "")) if self._unsent_prompt[event.choice] else b""
        )
        choice = {"index": event.choice, "text": "", "logprobs": None, "finish_reason": event.reason}
        body = {**self._constant, "choices": [{**choice, "stop_reason": event.matched_stop}]}
        if self._options.continuous_usage:
            body["usage"] = encode_usage(self._usage())
        return echo + sse.data(body | encode_timings(event.timings, event.usage))

    def keepalive(self) -> bytes:
        return _SIGN_OF_LIFE

    def closing(self) -> bytes:
        if not self._options.include_usage:
            return sse.DONE
        return sse.data({**self._constant, "choices": [], "usage": encode_usage(self._usage())}) + sse.DONE

    def failure(self, error: Exception) -> bytes:
        return sse.data(encode_error(error)) + sse.DONE
