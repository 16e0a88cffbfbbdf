"""The systemd unit: what is written, when the gateway is started anew, and that systemd itself can read it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from edgewise.core.errors import ConfigError, EdgewiseError
from edgewise.manage.units import MARK, UNIT, Service, Systemd, assigned, quoted, unit_text

SERVICE = Service(
    ("/usr/bin/python3", "-m", "edgewise.cli", "gateway", "--port", "8080"), {"PATH": "/usr/bin"}, "48G"
)


class Recorder:
    """A systemctl and loginctl that write down what they are asked. `refuses`: words of a call that fails."""

    def __init__(self, *, running: bool = False, refuses: str = "") -> None:
        self.asked: list[str] = []
        self.running = running
        self.refuses = refuses

    def __call__(self, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        line = " ".join(argv)
        self.asked.append(line)
        failed = bool(self.refuses) and self.refuses in line
        if "is-active" in line:
            failed = not self.running
        if " restart " in line or "--now" in line:
            self.running = " restart " in line
        return subprocess.CompletedProcess(
            argv, int(failed), "", "Failed to connect to bus\n" if failed else ""
        )


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., tuple[Systemd, Recorder]]:
    def make(**how: object) -> tuple[Systemd, Recorder]:
        recorder = Recorder(**how)  # type: ignore[arg-type]
        return Systemd(tmp_path / "user", "ada", recorder), recorder

    return make


Made = Callable[..., tuple[Systemd, Recorder]]


def nothing() -> None:
    pass


def test_it_is_enabled_lingers_and_starts(made: Made, tmp_path: Path):
    systemd, recorder = made()
    assert systemd.install(SERVICE, before_restart=lambda: pytest.fail("nothing ran"))
    assert (tmp_path / "user" / UNIT).read_text() == unit_text(SERVICE)
    asked = [line for line in recorder.asked if "daemon-reload" not in line and "is-active" not in line]
    assert asked == [
        "loginctl enable-linger ada",
        f"systemctl --user restart {UNIT}",
        f"systemctl --user enable {UNIT}",
    ]


def test_one_engine_that_the_kernel_kills_does_not_end_the_others():
    """systemd's own default ends the whole unit, and engines live in the gateway's."""
    lines = unit_text(SERVICE).splitlines()
    assert {"OOMPolicy=continue", "KillMode=process", "MemoryMax=48G", "MemorySwapMax=0"} <= set(lines)
    assert not any(line.startswith("MemoryMax") for line in unit_text(Service(("x",))).splitlines())


def test_what_did_not_change_is_not_started_again(made: Made):
    systemd, recorder = made()
    systemd.install(SERVICE, before_restart=nothing)
    recorder.asked.clear()
    assert not systemd.install(SERVICE, before_restart=lambda: pytest.fail("it goes on"))
    assert not any("restart" in line for line in recorder.asked)


def test_a_gateway_that_changes_leaves_its_engines_first(made: Made):
    systemd, recorder = made()
    systemd.install(SERVICE, before_restart=nothing)
    recorder.asked.clear()
    left: list[int] = []
    changed = Service((*SERVICE.argv, "--host", "0.0.0.0"), SERVICE.env)
    assert systemd.install(changed, before_restart=lambda: left.append(len(recorder.asked)))
    (at,) = left
    assert any(" restart " in line for line in recorder.asked[at:])
    assert not any(" restart " in line for line in recorder.asked[:at])


def test_a_gateway_that_does_not_answer_keeps_its_unit(made: Made, tmp_path: Path):
    """Else the next install would find the unit as it should be, and the old gateway running."""
    systemd, _ = made(running=True)
    systemd.install(SERVICE, before_restart=nothing)

    def hangs() -> None:
        raise EdgewiseError("no answer")

    changed = Service((*SERVICE.argv, "--port", "1"))
    with pytest.raises(EdgewiseError, match="no answer"):
        systemd.install(changed, before_restart=hangs)
    assert (tmp_path / "user" / UNIT).read_text() == unit_text(SERVICE)
    assert systemd.install(changed, before_restart=nothing)


def test_one_that_was_stopped_is_started(made: Made):
    systemd, recorder = made()
    systemd.install(SERVICE, before_restart=nothing)
    recorder.running = False
    assert systemd.install(SERVICE, before_restart=lambda: pytest.fail("nothing ran"))
    assert recorder.running


def test_a_machine_without_systemd(tmp_path: Path):
    def absent(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        raise FileNotFoundError(argv[0])

    with pytest.raises(EdgewiseError, match="systemctl is not on this machine") as caught:
        Systemd(tmp_path / "user", "ada", absent).install(SERVICE, before_restart=nothing)
    assert caught.value.hint is not None and caught.value.hint.endswith(" ".join(SERVICE.argv))
    assert not (tmp_path / "user").exists(), "nothing was written"


def test_a_systemd_that_refuses(made: Made, tmp_path: Path):
    systemd, _ = made(refuses="daemon-reload")
    with pytest.raises(EdgewiseError, match="Failed to connect to bus"):
        systemd.install(SERVICE, before_restart=nothing)
    assert not (tmp_path / "user" / UNIT).exists()


def test_somebody_else_s_unit_is_left_alone(made: Made, tmp_path: Path):
    systemd, _ = made()
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / UNIT).write_text("[Service]\nExecStart=/bin/true\n")
    with pytest.raises(ConfigError, match="is not ours"):
        systemd.install(SERVICE, before_restart=nothing)
    assert not systemd.uninstall()
    assert "/bin/true" in (tmp_path / "user" / UNIT).read_text()


def test_uninstall_removes_what_was_written_also_of_an_older_name(made: Made, tmp_path: Path):
    systemd, recorder = made()
    systemd.install(SERVICE, before_restart=nothing)
    (tmp_path / "user" / "edgewise-old.service").write_text(MARK + "\n[Service]\n")
    (tmp_path / "user" / "other.service").write_text("[Service]\n")
    assert systemd.uninstall()
    assert [path.name for path in (tmp_path / "user").iterdir()] == ["other.service"]
    assert f"systemctl --user disable --now {UNIT}" in recorder.asked
    assert "systemctl --user disable --now edgewise-old.service" in recorder.asked
    assert not systemd.uninstall()


@pytest.mark.parametrize(
    "word", ["plain", "with space", 'say "hi"', "100%", "$HOME", "a\\b", "", "tab\there", "ü"]
)
def test_words_arrive_as_they_were(word: str):
    """Undone as systemd does it: quotes as in a shell, then doubled signs."""
    (read,) = shlex.split(quoted(word).replace("\\t", "\t"))
    assert read.replace("%%", "%").replace("$$", "$") == word
    (read,) = shlex.split(assigned("NAME", word).replace("\\t", "\t"))
    assert read.replace("%%", "%") == f"NAME={word}"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on this machine")
def test_systemd_reads_it(tmp_path: Path):
    unit = tmp_path / UNIT
    odd = Service(("/bin/sh", "-c", 'echo "50%" $HOME'), {"A": "x y", "B": '"'}, "80%")
    unit.write_text(unit_text(odd))
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(unit)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and UNIT not in done.stderr, done.stderr
