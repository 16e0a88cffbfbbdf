"""A whole pipeline without a model: ScriptedModel, the real engine, ByteTokenizer, a ChatML template."""

from __future__ import annotations

import atexit
import functools
from collections.abc import Callable, Mapping
from typing import Any

from edgewise.chat import ChatTemplate
from edgewise.engine import Engine, EngineConfig
from edgewise.pipeline import Pipeline
from tests.support.byte_tokenizer import ByteTokenizer
from tests.support.scripted_model import ScriptedModel

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% if not (loop.last and continue_final_message) %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
END_OF_TURN = "<|im_end|>"

Script = Callable[[tuple[int, ...]], int | None]


def says(answers: Mapping[str, str], *, tokenizer: ByteTokenizer | None = None) -> Script:
    """A script: after a prompt that ends with a key, its value, one byte a token. Control tokens in both count.

    Without an entry for a prompt the model writes "." for ever.
    """
    tokenizer = tokenizer or ByteTokenizer()
    encoded = [
        (
            tuple(tokenizer.encode(prompt, parse_special=True)),
            tuple(tokenizer.encode(answer, parse_special=True)),
        )
        for prompt, answer in answers.items()
    ]

    def script(prefix: tuple[int, ...]) -> int | None:
        for prompt, answer in encoded:
            for done in range(len(answer)):
                if (
                    prefix[len(prefix) - done - len(prompt) : len(prefix) - done] == prompt
                    and prefix[len(prefix) - done :] == answer[:done]
                ):
                    return answer[done]
        return ord(".")

    return script


@functools.cache
def make_template(source: str) -> ChatTemplate:
    """A template over ByteTokenizer. Starting its process takes long, so all tests of a run share it and none closes it."""
    template = ChatTemplate(
        source, bos_token="<s>", eos_token="</s>", control_tokens=ByteTokenizer().control_tokens
    )
    atexit.register(template.close)
    template.close = lambda: None  # type: ignore[method-assign]
    return template


def make_pipeline(
    answers: Mapping[str, str] | None = None,
    *,
    script: Script | None = None,
    max_model_len: int = 512,
    num_blocks: int = 512,
    max_num_seqs: int = 16,
    max_num_batched_tokens: int = 64,
    template: str | None = CHATML,
    model: Mapping[str, Any] | None = None,
    **options: Any,
) -> Pipeline:
    """`answers` as for `says`; `model` are further fields of ScriptedModel, `options` of Pipeline. The caller closes it."""
    tokenizer = ByteTokenizer()
    decoder = ScriptedModel(
        vocab_size=tokenizer.vocab_size,
        num_blocks=num_blocks,
        script=script or (says(answers) if answers is not None else None),
        **(model or {}),
    )
    config = EngineConfig(
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
    )
    return Pipeline(
        Engine(decoder, config),
        tokenizer,  # type: ignore[arg-type]
        template=None if template is None else make_template(template),
        max_model_len=max_model_len,
        model_name="scripted",
        **options,
    )
