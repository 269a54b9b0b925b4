"""`jetspark events`."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest
from tests.cli.conftest import Run
from tests.conftest import MakeServer
from tests.support.processes import end, finish, first_line, jetspark
from tests.support.raw_client import RawClient
from tests.support.streams import Admin

from jetspark.cli import app


def listening(command: subprocess.Popen[bytes]) -> None:
    assert command.stderr is not None
    assert command.stderr.readline().startswith(b"Listening for events")


@pytest.fixture
def stream(admin: Admin) -> str:
    return admin.stream(storage="memory")


def update(admin: Admin, stream: str) -> None:
    admin.call(f"STREAM.UPDATE.{stream}", {"name": stream, "storage": "memory"})


def test_one_line_for_each_event(url: str, admin: Admin, stream: str) -> None:
    with jetspark("events", "--stream", stream, "--count", "3", "--server", url) as command:
        listening(command)
        update(admin, stream)
        admin.link.request(f"$JS.API.CONSUMER.INFO.{stream}.absent", b"", 10)
        # Nothing more: the server tells of these two in no certain order.
        code, out, err = finish(command)
    assert (code, err) == (0, "")
    lines = [line.split("  ", 1) for line in sorted(out.splitlines(), key=lambda line: line[14:])]
    assert all(len(time) == len("14:20:41.123") for time, _ in lines)
    said = "\n".join(rest for _, rest in lines)
    assert f"stream_action  {stream}  action=modify" in said
    assert f"api_audit  {stream} > absent  " in said
    assert f"subject=$JS.API.CONSUMER.INFO.{stream}.absent" in said
    assert "error=consumer not found" in said
    assert "@$G" in said


def test_lines_of_json_hold_all(url: str, admin: Admin, stream: str) -> None:
    arguments = ["--kind", "stream_action", "--kind", "api_audit", "--json", "--count", "2"]
    with jetspark("events", "--stream", stream, *arguments, "--server", url) as command:
        listening(command)
        update(admin, stream)
        code, out, _ = finish(command)
    assert code == 0
    found = [json.loads(line) for line in out.splitlines()]
    audit = next(event for event in found if event["type"].endswith("api_audit"))
    assert json.loads(audit["request"])["name"] == stream
    assert json.loads(audit["response"])["config"]["name"] == stream
    assert {event.get("stream", stream) for event in found} == {stream}


def test_a_signal_is_the_ordinary_end(url: str, admin: Admin, stream: str) -> None:
    consumer = {"stream_name": stream, "config": {"durable_name": stream}}
    admin.call(f"CONSUMER.DURABLE.CREATE.{stream}.{stream}", consumer)
    with jetspark("events", "--consumer", stream, "--server", url) as command:
        listening(command)
        # What would command a terminal is shown as text.
        event = {"type": "io.x.v1.\x1b[2Jnew", "level": 9, "more": {"a": [1]}}
        subject = f"$JS.EVENT.ADVISORY.CONSUMER.NEW.S.{stream}"
        with RawClient(url) as raw:
            raw.publish(subject, json.dumps(event).encode())
        assert first_line(command).strip() == r'\x1b[2Jnew    level=9  more={"a": [1]}'
        assert end(command, signal.SIGTERM) == (0, "", "")


def test_wrong_arguments_and_names_of_nothing_are_refused(url: str, stream: str, run: Run) -> None:
    near = f'Stream "{stream}x" not found on {url} (did you mean "{stream}"?)'
    for arguments, said in (
        (["--kind", "max_delivery"], "did you mean 'max_deliver'?"),
        (["--kind", "server_removed", "--stream", stream], "do not name a stream"),
        (["--stream", f"{stream}x"], near),
        (["--stream", stream, "--consumer", "c"], f'Consumer "c" of stream "{stream}" not found'),
        (["--consumer", f"{stream}c"], f'Consumer "{stream}c" not found on {url}'),
    ):
        code, out, err = run("events", *arguments)
        assert (code, out) == (app.FAILED, "")
        assert said in err.replace("\n", " ")


def test_who_may_not_look_up_names_listens_anyway(make_server: MakeServer) -> None:
    server = make_server(
        "authorization { users = [{ user: u, password: p, permissions: { "
        'publish: { deny: "$JS.>" } } }] }'
    )
    with jetspark("events", "--stream", "S", "--server", f"nats://u:p@127.0.0.1:{server.port}") as (
        command
    ):
        listening(command)
        assert end(command, signal.SIGTERM)[0] == 0
