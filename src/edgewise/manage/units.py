"""The gateway as a service of this person's systemd: one unit, since the gateway looks after every other process.

Source: systemd.service(5), systemd.exec(5), systemd.resource-control(5), loginctl(1).
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgewise.core.errors import ConfigError, EdgewiseError

UNIT = "edgewise-gateway.service"
MARK = "# Written by `edgewise install`; `edgewise uninstall` removes it. What is changed here is lost when it is written again."
_STOP_S = 120  # engines finish their answers first

Runner = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


def run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Raises FileNotFoundError for a program that is not there."""
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@dataclass(frozen=True, slots=True)
class Service:
    """What the unit runs. `memory_max`: of the gateway and its engines together, as systemd writes sizes; None: no limit."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    memory_max: str | None = None


def unit_text(service: Service) -> str:
    """Engines outlive a gateway that is killed or started again, so only its own process is ended with it; it ends them itself when it stops.

    They share its limits. One that the kernel kills for memory is the gateway's to start again: systemd must not end the others for it. Nothing
    here needs a mount or user namespace, which many machines do not give to user units, nor forbids what compilers of GPU kernels do.
    """
    lines = [
        MARK,
        "[Unit]",
        "Description=Edgewise: one address for the models of this machine",
        "Documentation=https://github.com/edgewise/edgewise",
        "StartLimitIntervalSec=300",
        "StartLimitBurst=10",
        "",
        "[Service]",
        "Type=exec",
        f"ExecStart={' '.join(quoted(word) for word in service.argv)}",
        "ExecReload=/bin/kill -HUP $MAINPID",
        *(f"Environment={assigned(name, value)}" for name, value in sorted(service.env.items())),
        "Restart=on-failure",
        "RestartSec=2",
        "KillMode=process",
        "OOMPolicy=continue",
        f"TimeoutStopSec={_STOP_S}",
        "LimitNOFILE=65536",
        "NoNewPrivileges=yes",
        "LockPersonality=yes",
        "RestrictSUIDSGID=yes",
        "SystemCallArchitectures=native",
        "UMask=0077",
        *([f"MemoryMax={service.memory_max}"] if service.memory_max else []),
        "MemorySwapMax=0",
        "",
        "[Install]",
        "WantedBy=default.target",
        "",
    ]
    return "\n".join(lines)


def quoted(word: str) -> str:
    """One word of a command line as a unit file has it: no specifier and no variable is expanded in it."""
    return _quoted(word.replace("$", "$$"))


def assigned(name: str, value: str) -> str:
    """A variable of the environment; there, unlike in command lines, a dollar is a dollar."""
    return _quoted(f"{name}={value}")


def _quoted(text: str) -> str:
    for sign, written in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("\n", "\\n"), ("\t", "\\t")):
        text = text.replace(sign, written)
    plain = text and all(c.isalnum() or c in "-_./=:,@+%" for c in text)
    return text if plain else f'"{text}"'


@dataclass(frozen=True, slots=True)
class Systemd:
    """This person's systemd. `folder`: where its units lie. `runner` runs its programs."""

    folder: Path
    user: str
    runner: Runner = run

    def install(self, service: Service, *, before_restart: Callable[[], None]) -> bool:
        """Write the unit, have it run now and at every boot. Whether it had to be started anew: it is not where nothing changed.

        `before_restart` runs before a gateway that is running is ended. Raises EdgewiseError where systemd refuses.
        """
        self._look_for_systemd(service)
        unit, text = self.folder / UNIT, unit_text(service)
        there = unit.read_text(encoding="utf-8") if unit.exists() else None
        if there is not None and not there.startswith(MARK):
            raise ConfigError(f"{unit} is not ours", hint="move it away first")
        self._call("loginctl", "enable-linger", self.user)
        running = self.is_running()
        if there != text:
            if running:
                before_restart()
            self._write(unit, text)
        if there != text or not running:
            # the next thing after the unit: should one of these calls fail, an install that finds it unchanged would not start it anew
            self._call("systemctl", "--user", "restart", UNIT)
        self._call("systemctl", "--user", "enable", UNIT)
        return there != text or not running

    def _write(self, unit: Path, text: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        written = unit.with_suffix(".new")
        written.write_text(text, encoding="utf-8")
        written.replace(unit)
        self._call("systemctl", "--user", "daemon-reload")

    def _look_for_systemd(self, service: Service) -> None:
        """Before anything is written. Raises EdgewiseError saying what else would run the gateway."""
        try:
            self._call("systemctl", "--user", "daemon-reload")
        except EdgewiseError as error:
            command = " ".join(quoted(word) for word in service.argv)
            raise EdgewiseError(
                error.message, hint=f"without it, have whatever starts programs here run: {command}"
            ) from error

    def uninstall(self) -> bool:
        """Stop the gateway, which ends its engines, and remove what `install` wrote. Whether there was anything."""
        found = [path for path in sorted(self.folder.glob("*.service")) if _is_ours(path)]
        for unit in found:
            self._call("systemctl", "--user", "disable", "--now", unit.name)
            self._run(
                "systemctl", "--user", "kill", unit.name
            )  # engines that a gateway which died left behind
            unit.unlink()
        if found:
            self._call("systemctl", "--user", "daemon-reload")
        return bool(found)

    def is_running(self) -> bool:
        return self._run("systemctl", "--user", "is-active", "--quiet", UNIT).returncode == 0

    def _call(self, *argv: str) -> None:
        done = self._run(*argv)
        if done.returncode != 0:
            reason = (done.stderr or done.stdout).strip().splitlines()
            raise EdgewiseError(
                f"`{' '.join(argv)}` failed: {reason[-1] if reason else f'status {done.returncode}'}"
            )

    def _run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        try:
            return self.runner(argv)
        except FileNotFoundError:
            raise EdgewiseError(f"{argv[0]} is not on this machine") from None


def _is_ours(unit: Path) -> bool:
    try:
        return unit.read_text(encoding="utf-8").startswith(MARK)
    except (OSError, UnicodeDecodeError):
        return False
