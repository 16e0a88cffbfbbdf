"""Every script in examples/ runs: over a scripted model always, and over the real one where it can be had."""

from __future__ import annotations

import asyncio
import inspect
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import edgewise
from tests.support.models import model_path
from tests.support.pipelines import make_pipeline

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))


def scripted(kind: type[Any]) -> Any:
    def load(model: str) -> Any:
        assert model == "smollm2-135m-instruct"
        return kind.from_pipeline(make_pipeline({}, model={"step_delay_s": 0.001}))

    return load


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_runs_over_a_scripted_model(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for name in ("LLM", "AsyncLLM"):
        monkeypatch.setattr(edgewise, name, scripted(getattr(edgewise, name)))
    main = runpy.run_path(str(script))["main"]
    result = main()
    if inspect.iscoroutine(result):
        asyncio.run(result)
    assert "." in capsys.readouterr().out  # what the scripted model says


@pytest.mark.model
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_runs_over_a_real_model(script: Path):
    run = subprocess.run(
        [sys.executable, script, str(model_path())],
        capture_output=True,
        text=True,
        timeout=180,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()
    assert "Traceback" not in run.stderr


def test_there_are_examples():
    assert len(SCRIPTS) >= 5
