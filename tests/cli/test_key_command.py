"""`edgewise key`, and a gateway that hears of it while it runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import httpx
import pytest

from edgewise.cli import main
from edgewise.manage.keys import KeyBook
from tests.support.gateway_parts import gateway, upstream
from tests.support.scripted_upstream import json_answer, scripted


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path):
    monkeypatch.setenv("EDGEWISE_HOME", str(tmp_path))

    def call(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["edgewise", "key", *arguments])
        status: object = 0
        try:
            main()
        except SystemExit as end:
            status = end.code
        return status, *capfd.readouterr()

    return call


def test_create_list_revoke(run):
    status, secret, _ = run("create", "ada", "--max-concurrent", "2")
    assert not status and secret.startswith("ew-")
    _, listed, _ = run("list", "--json")
    (key,) = map(json.loads, listed.splitlines())
    assert (key["name"], key["max_concurrent"], key["revoked"]) == ("ada", 2, None)
    assert secret.strip() not in listed
    _, table, _ = run("list")
    assert "ada" in table and "2 at a time" in table and "active" in table
    _, said, _ = run("revoke", "ada")
    assert key["id"] in said
    assert run("list", "--json")[1] == ""
    assert "revoked" in run("list", "--revoked")[1]


def test_mistakes_are_one_line(run):
    run("create", "ada")
    for arguments in (("create", "ada"), ("revoke", "eve")):
        status, _, err = run(*arguments)
        assert status == 2 and err.startswith("edgewise: ") and "Traceback" not in err


@pytest.mark.http
def test_a_running_gateway_hears_of_it(run, tmp_path: Path):
    answer = json_answer({"id": "x", "object": "chat.completion", "choices": []})
    with scripted(lambda call: answer) as server:
        one = upstream(server.url)
        with gateway(one, keys=KeyBook(tmp_path)) as url:

            def ask(key: str | None) -> int:
                headers = {} if key is None else {"authorization": f"Bearer {key}"}
                body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
                return httpx.post(url + "/v1/chat/completions", json=body, headers=headers).status_code

            assert ask(None) == 200, "no key was ever made"
            secret = run("create", "ada")[1].strip()
            assert (ask(None), ask("wrong"), ask(secret)) == (401, 401, 200)
            run("revoke", "ada")
            assert (ask(secret), ask(None)) == (401, 401)
