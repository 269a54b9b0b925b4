"""`jetspark trace`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from jetspark import blocking
from jetspark.cli import app
from jetspark.tracing.tree import MessageTrace, MissingServer

if TYPE_CHECKING:
    from jetspark.full_client import Client
    from jetspark.server import NatsServer

Capture = pytest.CaptureFixture[str]


def test_trace_draws_a_tree_and_with_json_gives_the_reports(
    shared_server: NatsServer,
    needs_server: Callable[[str], None],
    unique: Callable[[str], str],
    capsys: Capture,
) -> None:
    needs_server("2.11")
    subject = unique("traced")
    with blocking.connect(shared_server.url, name="billing") as nc, nc.subscribe(subject) as sub:
        nc.flush()
        arguments = ["trace", subject, "42", "--timeout", "30", "--server", shared_server.url]
        assert app.run(arguments) == app.DONE
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == f"{subject} (only traced, not delivered)"
        assert any(f'"billing", subscription {subject}' in line for line in lines)
        assert lines[-1] == "└─ 1 server, 1 client; complete"
        assert app.run([*arguments, "--json", "--deliver", "-H", "k:v"]) == app.DONE
        document = json.loads(capsys.readouterr().out)
        assert (document["complete"], document["missing"]) == (True, [])
        assert document["servers"][0]["request"]["header"]["k"] == ["v"]
        message = sub.next(30)
        assert message.data == b"42"


def test_a_trace_says_that_nobody_is_there(
    shared_server: NatsServer,
    needs_server: Callable[[str], None],
    unique: Callable[[str], str],
    capsys: Capture,
) -> None:
    needs_server("2.11")
    arguments = ["trace", unique("nobody"), "--timeout", "30", "--server", shared_server.url]
    assert app.run(arguments) == app.DONE
    (*_, last) = capsys.readouterr().out.splitlines()
    assert last == "└─ 1 server; complete: nobody subscribes to it, and no stream stores it"


def test_a_trace_without_every_report_is_not_done(
    shared_server: NatsServer, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    async def trace(self: Client, subject: str, payload: bytes, **options: object) -> MessageTrace:
        return MessageTrace(subject, False, None, (MissingServer("", "", ""),))

    monkeypatch.setattr("jetspark.full_client.Client.trace", trace)
    assert app.run(["trace", "x", "--server", shared_server.url]) == app.FAILED
    assert "INCOMPLETE" in capsys.readouterr().out
