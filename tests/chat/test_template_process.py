"""Templates from strangers: no end of time, no end of memory, no way out; and the process that holds them."""

from __future__ import annotations

import concurrent.futures
import os
import time

import pytest

from edgewise.chat import ChatTemplate
from edgewise.chat.template_process import Result, TemplateOverrunError, TemplateProcess
from edgewise.core.errors import InvalidRequestError, ModelError
from tests.chat.conversations import CHATML, make_template, say

LOOPS = "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}"
SILENT_LOOPS = LOOPS.replace("x", "")


def render_once(source: str, deadline_s: float = 1.0) -> Result:
    process = TemplateProcess(source, deadline_s=deadline_s)
    try:
        return process.render([{"x": "hi"}])[0]
    finally:
        process.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        SILENT_LOOPS,
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100) }}",
        "{{ (x | length + 1) ** (10 ** 9) }}",
    ],
)
def test_a_template_without_end_is_ended(source: str) -> None:
    started = time.monotonic()
    with pytest.raises(TemplateOverrunError, match="did not end within 1 s"):
        render_once(source)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("source", ["{{ 'x' * 10 ** 11 }}", "{{ '%99999999999d' % 1 }}"])
def test_a_template_that_wants_all_memory_fails(source: str) -> None:
    result = render_once(source, deadline_s=20.0)
    assert result.error == "failed"
    assert "memory" in result.message


def test_output_without_end_is_cut_short() -> None:
    result = render_once("{% for i in range(9999) %}" + "x" * 4096 + "{% endfor %}", deadline_s=30.0)
    assert result.error == "failed"
    assert "longer than" in result.message


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ strftime_now.__globals__.items() }}",
        "{{ self._TemplateReference__context }}{{ lipsum.__globals__['os'] }}",
    ],
)
def test_there_is_no_way_to_pythons_insides(source: str) -> None:
    result = render_once(source)
    assert result.error == "failed"
    assert "Error" in result.message


@pytest.mark.slow
def test_the_next_request_gets_a_new_process() -> None:
    process = TemplateProcess("{% if x == 'loop' %}" + SILENT_LOOPS + "{% endif %}{{ x }}", deadline_s=1.0)
    with pytest.raises(TemplateOverrunError):
        process.render([{"x": "loop"}])
    assert process.render([{"x": "one"}, {"x": "\ud800é"}]) == [Result("one"), Result("\ud800é")]
    process.close()
    assert process.render([{"x": "again"}]) == [Result("again")]
    process.close()


def test_a_killed_process_fails_one_request() -> None:
    process = TemplateProcess("{{ x }}", deadline_s=5.0)
    process.render([{"x": "1"}])
    pid = process._process.pid  # type: ignore[union-attr]
    os.kill(pid, 9)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert process.render([{"x": "2"}]) == [Result("2")]
    process.close()


def test_many_threads_get_their_own_answers() -> None:
    template = make_template(CHATML)
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        texts = list(threads.map(lambda n: template.render([say("user", f"number {n}")]).text, range(100)))
    assert all(f"number {n}<" in text for n, text in enumerate(texts))
    template.close()


def test_a_long_history_passes_through() -> None:
    template = make_template(CHATML)
    text = "word " * 400_000
    assert text in template.render([say("user", text)]).text
    template.close()


@pytest.mark.slow
def test_an_endless_template_cannot_be_loaded() -> None:
    with pytest.raises(ModelError, match="did not end within"):
        make_template(SILENT_LOOPS, deadline_s=1.0)


@pytest.mark.slow
def test_a_template_that_loops_for_some_messages_is_the_requests_fault() -> None:
    template = make_template(
        "{% if messages[0].content == 'loop' %}" + SILENT_LOOPS + "{% endif %}{{ messages[0].content }}",
        deadline_s=1.0,
    )
    assert isinstance(template, ChatTemplate)
    with pytest.raises(InvalidRequestError, match="did not end within"):
        template.render([say("user", "loop")])
    assert template.render([say("user", "fine")]).text == "fine"
    template.close()
