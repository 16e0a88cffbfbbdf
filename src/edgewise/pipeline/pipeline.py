"""The way of a request inside the process: prepare (blocking), start, consume events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgewise.chat import ChatTemplate
from edgewise.config import ChatOptions, ResolvedConfig
from edgewise.pipeline.chat_style import chat_style_for
from edgewise.pipeline.prepare import Prepared, Preparer
from edgewise.pipeline.stream import Stream, StreamGroup, Wakers
from edgewise.text import Tokenizer

if TYPE_CHECKING:
    from edgewise.engine import Engine


class Pipeline:
    """One model, ready to answer. Thread-safe.

    `prepare_chat` and `prepare_prompt` (see `Preparer`) block and belong in an executor; `start` and consuming do not.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        *,
        max_model_len: int,
        max_input_len: int | None = None,
        template: ChatTemplate | None = None,
        template_fault: str = "",
        generation_config: Mapping[str, Any] | None = None,
        eos_token_ids: frozenset[int] = frozenset(),
        vocab_size: int | None = None,
        model_name: str = "",
        chat: ChatOptions | None = None,
        resolved: ResolvedConfig | None = None,
    ) -> None:
        """`eos_token_ids` are added to the tokenizer's own. `template_fault`: why there is no template though the model has one.

        The pipeline owns engine and template.
        """
        self.engine = engine
        self.tokenizer = tokenizer
        self.template = template
        self.generation_config = dict(generation_config or {})
        self.model_name = model_name
        self.max_model_len = max_model_len
        self.max_input_len = min(max_input_len or max_model_len, max_model_len)
        self.resolved = resolved
        self.chat_style = chat_style_for(
            tokenizer, template, chat or ChatOptions(), vocab_size=vocab_size or tokenizer.vocab_size
        )
        self._wakers = Wakers()
        preparer = Preparer(
            tokenizer=tokenizer,
            template=template,
            template_fault=template_fault,
            max_model_len=self.max_model_len,
            max_input_len=self.max_input_len,
            vocab_size=vocab_size or tokenizer.vocab_size,
            style=self.chat_style,
            generation_config=self.generation_config,
            eos_token_ids=eos_token_ids,
        )
        self.rendered = preparer.rendered
        self.prepare_chat = preparer.prepare_chat
        self.prepare_prompt = preparer.prepare_prompt

    def start(self, prepared: Prepared) -> Stream:
        """Submit a request. Raises OverloadedError, InvalidRequestError, EngineDeadError."""
        return Stream(prepared, self.engine, self.tokenizer, self._wakers)

    def start_all(self, prepared: Sequence[Prepared]) -> StreamGroup:
        """Many requests for one consuming thread; they are submitted when the group is iterated."""
        return StreamGroup(prepared, self.engine, self.tokenizer)

    def close(self) -> None:
        """Cancel everything, end the engine thread, release the model. Safe to call twice."""
        self.engine.close()
        if self.template is not None:
            self.template.close()
