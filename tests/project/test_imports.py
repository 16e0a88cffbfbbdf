"""The rooms' import rules, as docs/architecture.md lists them, and what must work without the native module."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "edgewise"

MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "text": {"core"},
    "chat": {"core", "text"},
    "grammar": {"core", "text"},
    "protocols": {"core", "chat"},
    "checkpoints": {"core"},
    "architectures": {"core", "checkpoints"},
    "kernels": {"core"},
    "build": {"core", "checkpoints", "architectures", "kernels", "text"},
    "decoder": {"core", "kernels", "build"},
    "engine": {"core", "decoder", "kernels"},
    "serving": {"core", "protocols"},
    "server": {"core", "config", "text", "chat", "protocols", "serving", "engine", "pipeline", "web"},
    "manage": {"core", "checkpoints", "architectures", "build", "config", "hardware"},
    "web": {"core", "protocols", "serving"},
    "gateway": {"core", "chat", "protocols", "serving"},
}
"""Room -> rooms it may import. Those not named here (pipeline, config, llm, bench, cli) may import everything below them."""

NATIVE_FREE = (
    "edgewise.core",
    "edgewise.protocols",
    "edgewise.serving",
    "edgewise.gateway",
    "edgewise.chat",
    "edgewise.text",
    "edgewise.config",
)


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(), str(path))))


def imported_rooms(path: Path) -> Iterator[tuple[str, int]]:
    """(room, line) of every import of ours in a file, also inside functions and under TYPE_CHECKING."""
    for node in nodes_of(path):
        match node:
            case ast.Import():
                names = [alias.name for alias in node.names]
            case ast.ImportFrom(module="edgewise", level=0):
                names = [f"edgewise.{alias.name}" for alias in node.names]
            case ast.ImportFrom(level=0):
                names = [node.module or ""]
            case ast.ImportFrom():
                raise AssertionError(f"{path}:{node.lineno}: relative import; write the whole name")
            case _:
                continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "edgewise" and len(parts) > 1:
                yield parts[1], node.lineno


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_it_may(room: str):
    allowed = MAY_IMPORT[room] | {room, "__version__", "_native"}
    files = [*(PACKAGE / room).rglob("*.py")]
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {other}"
        for path in files
        for other, line in imported_rooms(path)
        if other not in allowed
    ]
    assert not wrong, "\n".join(wrong)


def test_only_the_rooms_of_arithmetic_touch_the_native_module():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in PACKAGE.rglob("*.py")
        for room, line in imported_rooms(path)
        if room == "_native"
        and path.relative_to(PACKAGE).parts[0] not in ("kernels", "decoder", "engine", "bench")
    ]
    assert not wrong, "\n".join(wrong)


READERS = ("cli/", "bench/peer_runner.py", "chat/sandbox.py", "pipeline/load.py")
"""Who may read argv or the environment: the command line, programs run in processes of their own, the Python API's entry."""


def reads_surroundings(node: ast.AST) -> bool:
    names = {("sys", "argv"), ("os", "environ"), ("os", "getenv")}
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) in names
    )


def test_only_entry_points_read_argv_and_the_environment():
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"  # type: ignore[attr-defined]
        for path in PACKAGE.rglob("*.py")
        if not str(path.relative_to(PACKAGE)).startswith(READERS)
        for node in nodes_of(path)
        if reads_surroundings(node)
    ]
    assert not wrong, "\n".join(wrong)


def python(code: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


HIDE_NATIVE = """
import importlib.abc, importlib, pkgutil, sys
class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == 'edgewise._native':
            raise ModuleNotFoundError(f'No module named {name!r} (hidden)', name=name)
sys.meta_path.insert(0, Hide())
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", NATIVE_FREE)
def test_imports_whole_without_the_native_module(name: str):
    if (
        not any((PACKAGE / name.split(".")[1]).rglob("*.py"))
        and not (PACKAGE / f"{name.split('.')[1]}.py").exists()
    ):
        pytest.skip(f"{name} has no modules yet")
    out = python(
        HIDE_NATIVE
        + f"""
room = importlib.import_module({name!r})
found = [m.name for m in pkgutil.walk_packages(getattr(room, '__path__', []), {name!r} + '.')]
for module in found:
    importlib.import_module(module)
print(len(found))
"""
    )
    assert int(out) >= 0


def test_importing_edgewise_loads_nothing_heavy():
    out = python("import sys, edgewise; print(edgewise.__version__); print(*sorted(sys.modules))")
    version, modules = out.splitlines()
    assert version
    heavy = {"edgewise._native", "numpy", "tokenizers", "jinja2", "fastapi", "edgewise.llm"} & set(
        modules.split()
    )
    assert not heavy


def test_finding_a_model_that_is_here_loads_no_http_client():
    out = python("import sys, edgewise.checkpoints, edgewise.manage.store; print(*sys.modules)")
    assert not {"httpx", "rich", "edgewise.checkpoints.pull"} & set(out.split())
