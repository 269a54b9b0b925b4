"""`jetspark trace`."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.cli.conftest import Run

from jetspark import blocking
from jetspark.cli import app
from jetspark.full_client import Client
from jetspark.tracing.tree import MessageTrace, MissingServer


def test_trace_draws_a_tree_and_with_json_gives_the_reports(
    url: str, needs_server: Callable[[str], None], unique: Callable[[str], str], run: Run
) -> None:
    needs_server("2.11")
    subject = unique("traced")
    with blocking.connect(url, name="billing") as nc, nc.subscribe(subject) as sub:
        nc.flush()
        arguments = ["trace", subject, "42", "--timeout", "30"]
        code, out, _ = run(*arguments)
        lines = out.splitlines()
        assert code == app.SUCCEEDED
        assert lines[0] == f"{subject} (only traced, not delivered)"
        assert any(f'"billing", subscription {subject}' in line for line in lines)
        assert lines[-1] == "└─ 1 server, 1 client; complete"
        document = json.loads(run(*arguments, "--json", "--deliver", "-H", "k:v")[1])
        assert (document["complete"], document["missing"]) == (True, [])
        assert document["servers"][0]["request"]["header"]["k"] == ["v"]
        assert sub.next(30).data == b"42"
    last = run("trace", unique("nobody"), "--timeout", "30")[1].splitlines()[-1]
    assert last == "└─ 1 server; complete: nobody subscribes to it, and no stream stores it"


def test_a_trace_without_every_report_is_not_done(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def trace(self: Client, subject: str, payload: bytes, **options: object) -> MessageTrace:
        return MessageTrace(subject, False, None, (MissingServer("", "", ""),))

    monkeypatch.setattr("jetspark.full_client.Client.trace", trace)
    code, out, _ = run("trace", "x")
    assert (code, "INCOMPLETE" in out) == (app.FAILED, True)
