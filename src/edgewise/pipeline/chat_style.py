"""How one model's chat answers are written and bound: its tool dialect, its reasoning dialect, its grammars.

From a ChatRequest and its rendered prompt come the writer that turns text into parts and the constraint the engine samples
under. Made once per model; blocking (grammars are compiled here); any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgewise.chat import ChatTemplate
from edgewise.chat.bare_call_rules import bare_call_regions
from edgewise.chat.bare_calls import new_call_id
from edgewise.chat.custom_formats import unbound
from edgewise.chat.decoder import ChatDecoder
from edgewise.chat.detection import detect
from edgewise.chat.dialects import ToolDialect, dialect
from edgewise.chat.reasoning import ReasoningDialect, reasoning_dialect
from edgewise.config import ChatOptions
from edgewise.core.chat import ChatRequest, ReasoningOptions, ToolDefinition
from edgewise.core.errors import InvalidRequestError
from edgewise.core.grammar import Constraint, FreeText, OneOf, OutputFormat, Rule, Thinking
from edgewise.core.requests import TokenConstraint
from edgewise.core.sampling import SamplingParams
from edgewise.grammar import GrammarCompiler, rule_of
from edgewise.pipeline.answer import AnswerStyle, PartWriter
from edgewise.pipeline.content_stops import ContentStops
from edgewise.text import Tokenizer

logger = logging.getLogger("edgewise.pipeline")

NO_THINKING = ("none", "off")


@dataclass(frozen=True, slots=True)
class Bound:
    """What a request's answer is: how it is written, what it is bound by, what could not be bound wholly."""

    style: AnswerStyle
    constraint: Callable[[], TokenConstraint] | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChatStyle:
    """Immutable; shared by all threads. `tools` or `reasoning` None: switched off."""

    tokenizer: Tokenizer
    compiler: GrammarCompiler
    tools: ToolDialect | None = None
    reasoning: ReasoningDialect | None = None
    bare_calls: bool = True
    reasoning_budget: int | None = None  # tokens of thinking where the request names none

    def template_variables(
        self, request: ChatRequest, sampling: SamplingParams | None = None
    ) -> dict[str, Any]:
        """The variables that switch thinking in templates; they differ in its name."""
        options = self.reasoning_options(request, sampling)
        variables: dict[str, Any] = {"enable_thinking": options.enabled, "thinking": options.enabled}
        if options.effort is not None and options.enabled:
            variables["reasoning_effort"] = options.effort
        return variables

    def reasoning_options(
        self, request: ChatRequest, sampling: SamplingParams | None = None
    ) -> ReasoningOptions:
        """What the request wants of thinking; `enabled` is decided: off unless asked for."""
        options = request.reasoning
        asked = options.effort is not None and options.effort not in NO_THINKING
        asked = asked or bool(options.budget_tokens) or (sampling is not None and sampling.enable_thinking)
        enabled = asked if options.enabled is None else options.enabled
        budget = options.budget_tokens if options.budget_tokens is not None else self.reasoning_budget
        return replace(options, enabled=enabled, budget_tokens=budget if enabled else 0)

    def bind(self, request: ChatRequest, sampling: SamplingParams, prompt: str) -> Bound:
        """Writer and constraint for an answer that follows `prompt`. Raises InvalidRequestError for what cannot be enforced."""
        tools = self._callable_tools(request)
        options = self.reasoning_options(request, sampling)
        continued = request.messages[-1].text if request.continue_final_message else ""
        thinking = self._thinking(options, prompt, continued)
        body = self._body(request, tools, prompt)
        if body is None and thinking is not None and thinking.budget_tokens is not None:
            body = FreeText()
        style = self._style(request, sampling, tools, options, thinking)
        if body is None:
            return Bound(style, None)
        param = "tools" if request.output_format is None else request.output_format.param
        try:
            compiled = self.compiler.compile(Constraint(body, thinking, param))
        except InvalidRequestError:
            if not self._may_call_bare(request):
                raise
            # Every schema stands in them again: without them more tools fit. Bare calls are then read, but not bound.
            body = self._body(request, tools, prompt, bare=False)
            assert body is not None
            compiled = self.compiler.compile(Constraint(body, thinking, param))
        return Bound(style, compiled.make, (*compiled.warnings, *unbound_inputs(tools)))

    def _may_call_bare(self, request: ChatRequest) -> bool:
        """Whether a call without the dialect's marks is one."""
        wanted = self.bare_calls and self.tools is not None and bool(request.tools)
        return wanted and request.tool_choice.mode == "auto" and request.output_format is None

    def bind_text(
        self, output_format: OutputFormat | None
    ) -> tuple[Callable[[], TokenConstraint] | None, tuple[str, ...]]:
        """The constraint of a raw prompt's continuation, and warnings. Raises InvalidRequestError."""
        if output_format is None:
            return None, ()
        compiled = self.compiler.compile(Constraint(rule_of(output_format), param=output_format.param))
        return compiled.make, compiled.warnings

    def _callable_tools(self, request: ChatRequest) -> tuple[ToolDefinition, ...]:
        names = request.tool_choice.names
        if request.tool_choice.mode == "none":
            return ()
        return tuple(tool for tool in request.tools if names is None or tool.name in names)

    def _thinking(self, options: ReasoningOptions, prompt: str, continued: str) -> Thinking | None:
        """What may come before the answer proper. A prompt that opens a thought nobody asked for has it closed at once."""
        if self.reasoning is None:
            return None
        is_open = self.reasoning.is_open(prompt, continued)
        if not options.enabled and not is_open:
            return None
        return self.reasoning.constraint(is_open, options)

    def _body(
        self, request: ChatRequest, tools: tuple[ToolDefinition, ...], prompt: str, *, bare: bool = True
    ) -> Rule | FreeText | None:
        """The rule for what follows the thinking; None: free text that nothing can end in a call."""
        choice = request.tool_choice
        formatted = None if request.output_format is None else self._formatted(request.output_format, prompt)
        if not request.tools or self.tools is None:
            if choice.mode == "required":
                raise InvalidRequestError(
                    "tool_choice asks for a call, but tool calls are switched off on this server",
                    param="tool_choice",
                )
            return formatted
        if choice.mode == "required":
            return self.tools.forced(tools, choice)
        if formatted is not None:
            if not tools or isinstance(formatted, FreeText):
                return formatted
            return OneOf((self.tools.forced(tools, choice), formatted))
        free = self.tools.free_text(request.tools if choice.mode == "none" else tools, choice)
        if not (bare and self._may_call_bare(request)):
            return free
        return replace(free, regions=(*free.regions, *bare_call_regions(tools, choice)))

    def _formatted(self, output_format: OutputFormat, prompt: str) -> Rule | FreeText:
        rule = rule_of(output_format)
        if self.reasoning is None or isinstance(rule, FreeText):
            return rule
        return self.reasoning.framed(rule, prompt)

    def _style(
        self,
        request: ChatRequest,
        sampling: SamplingParams,
        tools: tuple[ToolDefinition, ...],
        options: ReasoningOptions,
        thinking: Thinking | None,
    ) -> AnswerStyle:
        reasoning, calls = self.reasoning, self.tools if tools else None
        is_open = thinking is not None and thinking.already_open
        bare = self._may_call_bare(request)

        def make_writer(choice: int) -> PartWriter:
            decoder = ChatDecoder(
                choice,
                tools=tools,
                choice_mode=request.tool_choice,
                parser=None if calls is None else calls.parser(tools, new_id=new_call_id),
                splitter=None if reasoning is None else reasoning.splitter(is_open),
                bare_calls=bare,
                show_reasoning=options.show,
            )
            if not sampling.stop:
                return decoder
            return ContentStops(
                decoder,
                sampling.stop,
                include=sampling.include_stop_str_in_output,
                min_tokens=sampling.min_tokens,
            )

        return AnswerStyle(make_writer, self._visible_tokens, writer_finds_stops=True)

    @property
    def _visible_tokens(self) -> frozenset[int]:
        """Control tokens whose text the writers look for."""
        markers = (
            *(self.tools.markers if self.tools else ()),
            *(self.reasoning.markers if self.reasoning else ()),
        )
        return frozenset(
            token
            for text, token in self.tokenizer.special_tokens.items()
            if any(text in marker for marker in markers)
        )


def unbound_inputs(tools: Sequence[ToolDefinition]) -> tuple[str, ...]:
    """A warning for each freeform tool whose grammar only the description carries."""
    return tuple(
        f"{tool.path}: the format is told to the model but not enforced: {reason}"
        for tool in tools
        if (reason := unbound(tool.custom_format))
    )


def chat_style_for(
    tokenizer: Tokenizer,
    template: ChatTemplate | None,
    options: ChatOptions,
    *,
    vocab_size: int | None = None,
) -> ChatStyle:
    """The style of a model, its dialects as the options name them or as the template shows them; logs which and why.

    `vocab_size`: the model's, where it pads the tokenizer's. Raises ConfigError for an unknown dialect.
    """
    compiler = GrammarCompiler(tokenizer, vocab_size=vocab_size)
    if template is None:
        return ChatStyle(tokenizer, compiler)
    found = detect(template, tools=options.tool_call_parser, reasoning=options.reasoning_parser)
    logger.log(
        logging.INFO if found.sure else logging.WARNING,
        "tool calls: %s, reasoning: %s (%s)%s",
        found.tools,
        found.reasoning,
        found.why,
        "" if found.sure else "; if calls come as text, name the dialect with --tool-call-parser",
    )
    return ChatStyle(
        tokenizer,
        compiler,
        None if found.tools == "none" else dialect(found.tools),
        None if found.reasoning == "none" else reasoning_dialect(found.reasoning),
        bare_calls=options.bare_calls,
        reasoning_budget=options.reasoning_budget,
    )
