"""How models write thinking: one description a dialect, from which come the splitter and what a grammar must let pass first.

Whether an answer begins inside a thought is read off the prompt's end, never off a setting: templates open thoughts, close them at
once, or leave it to the model. A closing mark that no opening belongs to is text, since what came before it has been sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from edgewise.chat.splitter import Marks, ReasoningSplitter
from edgewise.core.chat import ReasoningOptions
from edgewise.core.errors import ConfigError
from edgewise.core.grammar import Repeat, Rule, Sequence, Text, Thinking

__all__ = ["ReasoningDialect", "ReasoningSplitter", "reasoning_dialect", "reasoning_names"]


@dataclass(frozen=True, slots=True)
class ReasoningDialect:
    """How a family of models thinks aloud. The first of `starts` and `ends` is what the model itself writes; all are read.

    `closing` is how a thought is ended for the model when its budget is spent. Where messages have channels `turn` comes between a
    thought's end and the next message, and `content_open` and `content_close` stand round content. `as_content`: thinking stays in the
    content, its opening mark restored. The rest is as in `Marks`.
    """

    name: str
    starts: tuple[str, ...] = ("<think>",)
    ends: tuple[str, ...] = ("</think>",)
    closing: str = ""
    turn: str = ""
    content_open: str = ""
    content_close: str = ""
    frames: tuple[str, ...] = ()
    opens: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()
    interrupts: tuple[str, ...] = ()
    reopens: bool = False
    as_content: bool = False

    @property
    def start(self) -> str:
        return self.starts[0]

    @property
    def end(self) -> str:
        return self.ends[0]

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts whose control tokens must stay visible in what the splitter is given."""
        groups = (self.starts, self.ends, self.frames, self.opens, self.closes, self.interrupts)
        return tuple(dict.fromkeys(literal.strip() for group in groups for literal in group))

    def is_open(self, prompt: str, continued: str = "") -> bool:
        """Whether an answer to `prompt` begins inside a thought. `continued`: the text of the turn that the answer goes on with."""
        tail = prompt.rstrip()
        if any(tail.endswith(start.rstrip()) for start in self.starts):
            return True
        opened = max(continued.rfind(start) for start in self.starts)
        return opened > max(continued.rfind(end) for end in self.ends)

    def splitter(self, is_open: bool) -> ReasoningSplitter:
        """A splitter of one answer."""
        marks = Marks(
            self.starts, self.ends, self.interrupts, self.frames, self.opens, self.closes, self.reopens
        )
        restored = self.start if self.as_content and is_open else ""
        return ReasoningSplitter(marks, is_open=is_open, whole=self.as_content, restored=restored)

    def constraint(self, is_open: bool, options: ReasoningOptions) -> Thinking:
        """What may come before that which a grammar binds."""
        return Thinking(
            start=self.start,
            end=self.end + self.turn,
            already_open=is_open,
            budget_tokens=options.budget_tokens,
            closing=(self.closing or self.end) + self.turn,
        )

    def framed(self, rule: Rule, prompt: str) -> Rule:
        """A rule for content, such as a JSON schema's, as this dialect's message: channel headers round it where it has any."""
        if not self.content_open or prompt.endswith(self.content_open):
            opening: tuple[Rule, ...] = ()
        else:
            opening = (Text(self.content_open),)
        closing = (Repeat(Text(self.content_close), 0, 1),) if self.content_close else ()
        return Sequence((*opening, rule, *closing)) if opening or closing else rule


def _family(description: ReasoningDialect, *names: str) -> Iterable[ReasoningDialect]:
    return (replace(description, name=name) for name in (description.name, *names))


_DIALECTS = (
    # Tags on lines of their own. The model opens the thought, or the prompt does.
    *_family(
        ReasoningDialect("think_auto", closing="\n</think>"),
        *("qwen3", "deepseek_r1", "holo2", "mimo", "minimax_m2", "nemotron_v3", "step3", "step3p5"),
    ),
    # The same tags with nothing round them.
    *_family(ReasoningDialect("deepseek_v3"), "deepseek_v4", "glm45", "glm47", "poolside_v1", "olmo3"),
    ReasoningDialect("kimi_k2", interrupts=("<|tool_calls_section_begin|>",)),
    # Its tokens may carry the name of the tokenizer.
    ReasoningDialect("hy_v3", ("<think>", "<think:opensource>"), ("</think>", "</think:opensource>")),
    ReasoningDialect("minimax_m2_append_think", closing="\n</think>", as_content=True),
    ReasoningDialect("minimax_m3", ("<mm:think>",), ("</mm:think>",)),
    ReasoningDialect("seed_oss", ("<seed:think>",), ("</seed:think>",), closing="\n</seed:think>"),
    ReasoningDialect("mistral", ("[THINK]",), ("[/THINK]",)),
    ReasoningDialect(
        "gemma4", ("<|channel>thought\n", "<|channel>thought"), ("<channel|>",), closing="\n<channel|>"
    ),
    ReasoningDialect("solar_open2", ("<|think:start|>",), ("<|think:end|>",)),
    ReasoningDialect(
        "solar_open",
        ("<|think|>", "<|begin|>assistant<|think|>"),
        ("<|end|>",),
        turn="<|begin|>assistant",
        content_open="<|content|>",
        content_close="<|end|>",
        frames=("<|begin|>assistant<|content|>", "<|content|>", "<|end|>"),
        reopens=True,
    ),
    *_family(
        ReasoningDialect(
            "openai_gptoss",
            ("<|channel|>analysis<|message|>", "<|start|>assistant<|channel|>analysis<|message|>"),
            ("<|end|>",),
            turn="<|start|>assistant",
            content_open="<|channel|>final<|message|>",
            frames=(
                *(
                    f"{turn}<|channel|>{channel}<|message|>"
                    for turn in ("", "<|start|>assistant")
                    for channel in ("final", "final <|constrain|>json", "final json", "commentary")
                ),
                *("<|end|>", "<|return|>"),
            ),
            reopens=True,
        ),
        *("gpt_oss", "openai", "harmony"),
    ),
    *_family(
        ReasoningDialect(
            "cohere_command3",
            ("<|START_THINKING|>",),
            ("<|END_THINKING|>",),
            content_open="<|START_RESPONSE|>",
            content_close="<|END_RESPONSE|>",
            frames=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
        ),
        "cohere_command4",
    ),
    ReasoningDialect(
        "kimi_k3",
        ("<|open|>think<|sep|>",),
        ("<|close|>think<|sep|>",),
        content_open="<|open|>response<|sep|>",
        content_close="<|close|>response<|sep|>",
        frames=(
            *("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
            *("<|close|>message<|sep|>", "<|end_of_msg|>"),
        ),
    ),
    ReasoningDialect(
        "muse_glimmer",
        (" to=self<|message|>", "<|start|>assistant to=self<|message|>"),
        ("<|eom|>",),
        turn="<|start|>assistant",
        content_open=" to=user<|message|>",
        frames=(
            *(" to=user<|message|>", "<|start|>assistant to=user<|message|>"),
            *("<|start|>assistant<|message|>", "<|eom|>", "<|eot|>"),
        ),
        reopens=True,
    ),
    ReasoningDialect(
        "inkling",
        ("<|content_thinking|>", "<|message_model|><|content_thinking|>"),
        ("<|end_message|>",),
        turn="<|message_model|>",
        content_open="<|content_text|>",
        content_close="<|end_message|>",
        frames=(
            *("<|message_model|><|content_text|>", "<|content_text|>"),
            *("<|end_message|>", "<|content_model_end_sampling|>"),
        ),
        reopens=True,
    ),
    ReasoningDialect(
        "hunyuan_a13b",
        closing="\n</think>",
        content_open="\n<answer>\n",
        content_close="\n</answer>",
        opens=("<answer>",),
        closes=("\n</answer>", "</answer>"),
    ),
    *_family(
        ReasoningDialect(
            "ernie45",
            closing="\n</think>",
            content_open="\n\n<response>\n",
            content_close="\n</response>\n",
            opens=("<response>",),
            closes=("\n</response>\n", "\n</response>", "</response>"),
        ),
        "granite_think",
    ),
    ReasoningDialect(
        "granite",
        ("Here is my thought process:", "Here's my thought process:"),
        ("Here is my response:", "Here's my response:"),
        closing="\n\nHere is my response:",
    ),
    ReasoningDialect(
        "apriel",
        ("Here are my reasoning steps:",),
        ("[BEGIN FINAL RESPONSE]",),
        closing="\n[BEGIN FINAL RESPONSE]",
        frames=("[END FINAL RESPONSE]",),
        interrupts=("<tool_calls>",),
    ),
)
_BY_NAME = {dialect.name: dialect for dialect in _DIALECTS}


def reasoning_names() -> tuple[str, ...]:
    """Every name that `reasoning_dialect` knows."""
    return tuple(sorted(_BY_NAME))


def reasoning_dialect(name: str) -> ReasoningDialect:
    """The dialect of a name. Raises ConfigError, which lists every name."""
    if name not in _BY_NAME:
        raise ConfigError(f"unknown reasoning dialect {name!r}; known: {', '.join(reasoning_names())}")
    return _BY_NAME[name]
