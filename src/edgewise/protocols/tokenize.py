"""POST /tokenize and /detokenize, in vLLM's shape; llama-server's field names are read too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgewise.core.chat import ChatRequest
from edgewise.protocols.chat import read_template_kwargs
from edgewise.protocols.fields import Fields
from edgewise.protocols.messages import read_messages, trailing_turn
from edgewise.protocols.reasoning_fields import read_reasoning
from edgewise.protocols.tools import read_tools


@dataclass(frozen=True, slots=True)
class TokenizeRequest:
    """A raw prompt or a conversation, exactly one, and how the reply is to look."""

    model: str = ""
    prompt: str | None = None
    chat: ChatRequest | None = None
    add_special_tokens: bool = False
    return_token_strs: bool = False
    ignored_fields: tuple[str, ...] = ()


def parse_tokenize(body: object) -> TokenizeRequest:
    fields = Fields.of(body, "")
    prompt = fields.string("prompt")
    prompt = fields.string("content") if prompt is None else prompt
    has_messages = fields.get("messages") is not None
    if has_messages == (prompt is not None):
        raise fields.fail("prompt", "or messages must be given, and not both")
    special = fields.boolean("add_special", not has_messages)
    wants_strs = fields.boolean("with_pieces")
    return TokenizeRequest(
        model=fields.string("model") or "",
        prompt=prompt,
        chat=_read_chat(fields) if has_messages else None,
        add_special_tokens=fields.boolean("add_special_tokens", special),
        return_token_strs=fields.boolean("return_token_strs", wants_strs),
        ignored_fields=fields.unread(),
    )


def _read_chat(fields: Fields) -> ChatRequest:
    messages, opens, continues = trailing_turn(read_messages(fields), fields)
    return ChatRequest(
        messages=messages,
        tools=read_tools(fields).tools,
        reasoning=read_reasoning(fields),
        add_generation_prompt=opens,
        continue_final_message=continues,
        template_kwargs=read_template_kwargs(fields),
    )


def encode_tokenize(ids: Sequence[int], strs: Sequence[str] | None, max_model_len: int) -> dict[str, Any]:
    return {"count": len(ids), "max_model_len": max_model_len, "tokens": list(ids), "token_strs": strs}


def parse_detokenize(body: object) -> list[int]:
    fields = Fields.of(body, "")
    fields.require("tokens")
    return fields.token_ids("tokens") or []


def encode_detokenize(text: str) -> dict[str, Any]:
    """vLLM's field is `prompt`, llama-server's `content`."""
    return {"prompt": text, "content": text}
