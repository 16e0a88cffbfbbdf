"""The command line's manners: what people can get wrong is one line and a status, never a traceback."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import pytest

from edgewise import cli
from edgewise.cli import main
from edgewise.core.errors import EdgewiseError
from tests.support.tiny_gguf import write_tiny_gguf


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """Runs `edgewise ARGUMENTS`; its status, output and error output."""

    def call(*arguments: str | Path) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["edgewise", *map(str, arguments)])
        try:
            main()
        except SystemExit as end:
            status = end.code
        else:
            status = 0
        out, err = capfd.readouterr()
        return status, out, err

    return call


def one_line(err: str) -> str:
    lines = [line for line in err.splitlines() if not line.startswith("  hint: ")]
    assert len(lines) == 1 and lines[0].startswith("edgewise: "), err
    return lines[0]


def test_an_unknown_log_level(run) -> None:
    status, _, err = run("serve", "m", "--log-level", "loud")
    assert status == 2
    assert one_line(err).endswith("debug, info, warning, error; got 'loud'")


def test_more_threads_than_the_pool_has(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEWISE_HOME", str(tmp_path / "home"))
    status, _, err = run("run", write_tiny_gguf(tmp_path / "m.gguf"), "--prompt", "a", "--threads", 300)
    assert (status, one_line(err)) == (2, "edgewise: threads must be at most 256, got 300")


def test_a_template_that_is_no_text(run, tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_bytes(b"caf\xe9")
    status, _, err = run("serve", "m", "--chat-template", tmp_path / "t.jinja")
    assert status == 2
    assert "t.jinja is not UTF-8 text" in one_line(err)


def test_an_unknown_generation_config(run) -> None:
    status, _, err = run("serve", "m", "--generation-config", "mine")
    assert (status, "must be 'auto' or 'none', got 'mine'" in one_line(err)) == (2, True)


def test_what_the_file_system_refuses(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    model = write_tiny_gguf(tmp_path / "m.gguf")
    monkeypatch.setenv("EDGEWISE_CACHE_DIR", str(tmp_path / "file" / "engines"))
    status, _, err = run("run", model, "--prompt", "a")
    assert status == 1
    assert "Not a directory" in one_line(err)


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt(), 130), (OSError(errno.EIO, "bad", "disk"), 1)]
)
def test_what_ends_a_command_anywhere(run, monkeypatch: pytest.MonkeyPatch, error, status: int) -> None:
    def broken() -> None:
        raise error

    monkeypatch.setattr(cli, "make_app", broken)
    got, _, err = run("list")
    assert (got, err) == (status, "edgewise: disk: bad\n" if status == 1 else "")


def test_tokenize_counts_line_ends_as_they_are(run, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_bytes(b"Hello world\r\nHello\r\n")
    status, out, _ = run("tokenize", write_tiny_gguf(tmp_path / "m.gguf"), tmp_path / "corpus.txt")
    assert status == 0
    assert "characters: 20\n" in out


def test_tokenize_opens_the_file_that_was_named(run, tmp_path: Path) -> None:
    from edgewise.checkpoints import open_checkpoint
    from edgewise.text import Tokenizer

    metadata = open_checkpoint(write_tiny_gguf(tmp_path / "m.gguf")).metadata
    Tokenizer.from_gguf(metadata).save(tmp_path)
    (tmp_path / "tokenizer.json").rename(tmp_path / "mine.json")
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "corpus.txt").write_text("Hello world")
    status, out, err = run("tokenize", tmp_path / "mine.json", tmp_path / "corpus.txt")
    assert (status, err) == (0, "")
    assert "tokens: 2\n" in out
    (tmp_path / "bad.json").write_text("[]")
    status, _, err = run("tokenize", tmp_path / "bad.json", tmp_path / "corpus.txt")
    assert (status, one_line(err)) == (1, f"edgewise: {tmp_path / 'bad.json'} is damaged: not a JSON object")


def test_a_local_path_is_not_pulled(run, tmp_path: Path) -> None:
    status, _, err = run("pull", tmp_path)
    assert (status, "nothing to pull" in one_line(err)) == (2, True)


def test_a_link_to_an_engine_directory_stays_one(run, tmp_path: Path) -> None:
    model, real, link = write_tiny_gguf(tmp_path / "m.gguf"), tmp_path / "real", tmp_path / "link"
    assert run("build", model, "-o", real)[0] == 0
    link.symlink_to(real)
    assert run("build", model, "-o", link, "--force")[0] == 0
    assert link.is_symlink() and sorted(path.name for path in tmp_path.iterdir() if path.name[0] != ".") == [
        "link",
        "m.gguf",
        "real",
    ]


def test_a_model_s_words_cannot_redraw_the_terminal(run, tmp_path: Path) -> None:
    keys = {"general.name": "\x1b[2Jgone", "general.description": "\x1b]0;title\x07"}
    status, out, _ = run("inspect", write_tiny_gguf(tmp_path / "m.gguf", extra_keys=keys))
    assert status == 0 and "\\x1b[2Jgone" in out
    assert "\x1b" not in out and "\x07" not in out


def test_a_failed_request_is_an_error(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEWISE_HOME", str(tmp_path / "home"))
    failure = EdgewiseError("the model's output is not a number")
    monkeypatch.setattr("edgewise.engine.sampler._results", lambda choices, rows: [failure])
    model = write_tiny_gguf(tmp_path / "m.gguf")
    for stream in ((), ("--stream",)):
        status, _, err = run("run", model, "--prompt", "a", *stream)
        assert (status, one_line(err)) == (1, "edgewise: the model's output is not a number")


def test_a_broken_template_takes_the_chats_and_leaves_the_completions(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEWISE_HOME", str(tmp_path / "home"))
    model = write_tiny_gguf(tmp_path / "m.gguf", template="{% if %}")
    assert run("run", model, "--prompt", "a", "--max-tokens", 2)[0] == 0
    status, _, err = run("run", model, "--prompt", "a", "--chat")
    assert status == 1 and "chat template cannot be used" in err
