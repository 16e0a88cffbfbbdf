"""Short ways to write conversations, and the templates the tests here use."""

from __future__ import annotations

from typing import Any

from edgewise.chat import ChatTemplate
from edgewise.core.chat import Message, Role, TextPart
from edgewise.text import Tokenizer
from tests.support.byte_tokenizer import ByteTokenizer

TOKENIZER = ByteTokenizer()

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
STRICT = (  # like Gemma's: no system role, turns alternate, content is trimmed
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}"
    "{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
    "<|im_start|>{{ message.role }}\n{{ message.content | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_template(
    source: str, tokenizer: ByteTokenizer | Tokenizer = TOKENIZER, **options: Any
) -> ChatTemplate:
    return ChatTemplate(
        source,
        bos_token=tokenizer.bos_token,
        eos_token=tokenizer.eos_token,
        control_tokens=tokenizer.control_tokens,
        **options,
    )


def say(role: Role, *texts: str, **more: Any) -> Message:
    return Message(role, tuple(map(TextPart, texts)), **more)
