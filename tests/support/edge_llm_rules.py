"""The HTTP rules of TensorRT Edge-LLM 0.11 as switches, and the faults of other servers in the same form.

`Rules()` is 0.11.0 as it is started by default with `--enable-auto-tool-choice`; `Rules.none()` is a server without a fault, and
`Rules.none().with_(several_system_raises=True)` one with exactly one.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Rules:
    # Requests.
    unknown_fields_refused: bool = True  # schema with additionalProperties false: 400 naming the field
    model_name_checked: bool = True  # any other than the served name: 404
    penalties_refused: bool = True  # non-zero frequency_penalty, presence_penalty: 400 unsupported_feature
    only_one_choice: bool = True  # n must be 1
    arguments_must_be_json: bool = True  # text arguments in history that do not parse: 400
    string_arguments_render_empty: bool = (
        True  # text arguments reach the template as text; it walks a mapping
    )
    late_system_raises: bool = True  # the template raises: 500 engine_error
    several_system_raises: bool = True  # likewise
    developer_role_raises: bool = True  # "Unexpected message role.": 500
    dangling_results_refused: bool = True  # a tool message needs a call with its id before it
    auto_choice_needs_flag: bool = (
        False  # started without --enable-auto-tool-choice: auto and required are 400
    )
    local_media_refused: bool = True  # file: and paths: 403; remote media would be fetched, and is noted
    overlong_is_413: bool = True  # else 400 context_length_exceeded
    default_limit_2048: bool = True  # answers end there when no limit is given

    # Choices of tools.
    required_ignored: bool = True  # passed to the template, decoding is free
    named_ignored: bool = True
    parallel_ignored: bool = True  # parallel_tool_calls false is only passed to the template

    # Replies.
    null_keys_in_chunks: bool = True  # every chunk has all keys
    content_omitted_with_calls: bool = True  # null keys are left out of whole answers
    length_hidden_by_calls: bool = True  # a whole answer cut by length says tool_calls
    leaked_end_tokens: bool = True  # only the literal <|im_end|> is removed; the model's own end mark stays
    no_cached_tokens: bool = True  # usage does not tell
    no_prefix_cache: bool = True  # context reuse is off by default
    silent_prefill: bool = True  # nothing is sent before the first token

    # Overload.
    retry_after_on_429: bool = True  # on OpenAI's routes; Anthropic's has 529 without it

    # /v1/messages.
    messages_roles_checked: bool = True  # only user and assistant: 400 messages[i].role
    tool_input_as_string: bool = True  # tool_use input goes to the template as text
    messages_template_kwargs_ignored: bool = True  # only thinking {"type": "enabled"} switches it on
    messages_errors_untyped: bool = True  # 401, 403 and 404 are invalid_request_error there
    count_tokens_takes_slot: bool = True  # waits behind a running answer
    count_tokens_refuses_media: bool = True

    # Faults of other servers.
    object_arguments_refused: bool = False
    choice_refused: bool = False  # required and named tools: 400
    none_ignored: bool = False  # calls although tool_choice is none
    unstable_indices: bool = False  # streamed calls are all index 0, their ids missing
    no_stream_usage: bool = False
    stop_ignored: bool = False
    limit_refused: bool = False  # max_tokens above the room left: 400
    overlong_cut: bool = False  # a prompt too long is cut silently
    schema_ignored: bool = False  # response_format is accepted and not enforced
    never_cancels: bool = False
    leaked_tool_markup: bool = False  # calls come as text
    thinking_in_text: bool = False  # <think> ... </think> stays in the content
    always_thinks: bool = False
    thinks_by_default: bool = False  # unless a request switches it off
    string_errors: bool = False  # {"error": "text"}
    input_errors_are_500: bool = False
    late_system_dropped: bool = False  # only a first message counts as one
    arguments_dropped: bool = False  # in either form
    finish_hides_calls: bool = False  # an answer with calls ends in "stop"
    call_ids_empty: bool = False  # of answers in one piece
    limit_ignored: bool = False
    end_mark_missing: bool = False  # no [DONE]
    streams_leak_end_tokens: bool = False  # answers in one piece do not
    open_door: bool = False  # a wrong key is taken
    count_tokens_differs: bool = False
    no_messages: bool = False  # no /v1/messages at all
    message_stop_missing: bool = False  # streamed messages end without their last event

    def with_(self, **changes: bool) -> Rules:
        return dataclasses.replace(self, **changes)

    @classmethod
    def none(cls) -> Rules:
        return cls(**{field.name: False for field in dataclasses.fields(cls)})


CHAT_FIELDS = frozenset(
    [
        "add_generation_prompt",
        "apply_chat_template",
        "audio",
        "cache_generated_tokens",
        "chat_template_kwargs",
        "disable_spec_decode",
        "enable_thinking",
        "frequency_penalty",
        "guided_decoding",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "min_p",
        "modalities",
        "model",
        "n",
        "parallel_tool_calls",
        "presence_penalty",
        "reasoning_effort",
        "repetition_penalty",
        "response_format",
        "reuse_context",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "temperature",
        "tool_choice",
        "tools",
        "top_k",
        "top_logprobs",
        "top_p",
    ]
)


class RefusedError(Exception):
    """A request refused with an error object."""

    def __init__(
        self, status: int, kind: str, message: str, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.param, self.code = status, kind, message, param, code


def invalid(message: str, param: str | None = None) -> RefusedError:
    return RefusedError(400, "invalid_request_error", message, param)


def unsupported(message: str, param: str) -> RefusedError:
    return RefusedError(400, "unsupported_feature", message, param)


_NUMBERS: dict[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (1e-9, 1),
    "top_k": (-1, 2**31),
    "min_p": (0, 1),
    "repetition_penalty": (1e-9, 1e9),
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
    "seed": (0, 2**64 - 1),
    "top_logprobs": (0, 50),
}
_BOOLEANS = (
    "stream",
    "logprobs",
    "enable_thinking",
    "apply_chat_template",
    "add_generation_prompt",
    "disable_spec_decode",
    "reuse_context",
    "cache_generated_tokens",
    "parallel_tool_calls",
)


def check_chat(body: dict[str, Any], rules: Rules, model: str) -> None:
    """The checks of a chat body, in the server's order. Raises RefusedError."""
    _check_schema(body, rules)
    name = body.get("model")
    if rules.model_name_checked and name and name != model:
        raise RefusedError(404, "not_found_error", f"The model '{name}' does not exist.", "model")
    _check_media(body["messages"], rules)
    if rules.penalties_refused and any(body.get(one) for one in ("frequency_penalty", "presence_penalty")):
        raise unsupported("Penalties are not supported.", "frequency_penalty")
    _check_tools(body, rules)
    _check_history(body["messages"], rules)


def _check_schema(body: dict[str, Any], rules: Rules) -> None:
    if rules.unknown_fields_refused:
        for name in body:
            if name not in CHAT_FIELDS:
                raise invalid("Extra inputs are not permitted", name)
        for name in body.get("stream_options") or {}:
            if name != "include_usage":
                raise invalid("Extra inputs are not permitted", f"stream_options.{name}")
        for name in body.get("chat_template_kwargs") or {}:
            if name not in ("enable_thinking", "reasoning_effort"):
                raise invalid("Extra inputs are not permitted", f"chat_template_kwargs.{name}")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise invalid("messages must be a list of objects that is not empty", "messages")
    for name, (low, high) in _NUMBERS.items():
        value = body.get(name)
        if value is not None and (not isinstance(value, int | float) or not low <= value <= high):
            raise invalid(f"{name} must be a number of {low} to {high}", name)
    for name in _BOOLEANS:
        if not isinstance(body.get(name, False), bool):
            raise invalid("Input should be a valid boolean", name)
    _check_limits(body, rules)


def _check_limits(body: dict[str, Any], rules: Rules) -> None:
    limits = [body[name] for name in ("max_tokens", "max_completion_tokens") if body.get(name) is not None]
    if any(not isinstance(limit, int) or limit < 1 for limit in limits):
        raise invalid("Input should be greater than or equal to 1", "max_tokens")
    if len(set(limits)) > 1:
        raise invalid("max_tokens and max_completion_tokens differ", "max_tokens")
    if rules.only_one_choice and body.get("n", 1) != 1:
        raise invalid("n must be 1", "n")
    if body.get("top_logprobs") is not None and not body.get("logprobs"):
        raise invalid("top_logprobs needs logprobs", "top_logprobs")
    if body.get("guided_decoding") and body.get("response_format"):
        raise invalid("guided_decoding and response_format exclude each other", "guided_decoding")


def _check_media(messages: list[dict[str, Any]], rules: Rules) -> None:
    for url in media_urls(messages):
        if rules.local_media_refused and not url.startswith(("data:", "http:", "https:")):
            raise RefusedError(403, "invalid_request_error", "Local media are not allowed.")


def media_urls(messages: list[dict[str, Any]]) -> list[str]:
    """Of every media block."""
    urls = []
    for message in messages:
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            source = block.get(block.get("type", ""), block.get("source"))
            if isinstance(source, dict) and isinstance(source.get("url"), str):
                urls.append(source["url"])
    return urls


def _check_tools(body: dict[str, Any], rules: Rules) -> None:
    tools = body.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise invalid("tools must be a list", "tools")
    names = []
    for tool in tools or ():
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or tool.get("type") != "function" or not function.get("name"):
            raise invalid("a tool must be of type function with a name", "tools")
        names.append(function["name"])
    if len(set(names)) != len(names):
        raise invalid("tool names must be unique", "tools")
    choice = body.get("tool_choice", "auto" if tools else "none")
    if isinstance(choice, dict):
        choice = (choice.get("function") or {}).get("name")
    if choice not in ("auto", "none", "required", *names) or (choice in ("auto", "required") and not tools):
        raise invalid("tool_choice names no tool", "tools")
    if rules.choice_refused and choice not in ("auto", "none"):
        raise unsupported("tool_choice must be auto or none.", "tool_choice")
    if rules.auto_choice_needs_flag and tools and choice in ("auto", "required"):
        raise unsupported("Automatic tool choice needs --enable-auto-tool-choice.", "tool_choice")


def _check_history(messages: list[dict[str, Any]], rules: Rules) -> None:
    seen = set()
    for message in messages:
        for call in message.get("tool_calls") or ():
            if not call.get("id") or not (call.get("function") or {}).get("name"):
                raise invalid("a call needs an id and a name", "tools")
            seen.add(call["id"])
            _check_arguments(call["function"].get("arguments"), rules)
        if (
            rules.dangling_results_refused
            and message.get("role") == "tool"
            and message.get("tool_call_id") not in seen
        ):
            raise invalid(f"dangling tool_call_id {message.get('tool_call_id')!r}", "tools")


def _check_arguments(arguments: Any, rules: Rules) -> None:
    if rules.object_arguments_refused and not isinstance(arguments, str):
        raise invalid("Input should be a valid string", "messages")
    if rules.arguments_must_be_json and isinstance(arguments, str):
        try:
            json.loads(arguments)
        except ValueError:
            raise invalid("arguments must be valid JSON", "tools") from None
