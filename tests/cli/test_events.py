"""`jetspark events`."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest
from tests.support.processes import end, finish, first_line, jetspark
from tests.support.raw_client import RawClient

from jetspark.cli import app

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from tests.cli.conftest import Run
    from tests.conftest import MakeServer
    from tests.support.streams import Admin


def listening(command: subprocess.Popen[bytes]) -> None:
    assert command.stderr is not None
    assert command.stderr.readline().startswith(b"Listening for events")


def test_one_line_for_each_event(url: str, unique: Callable[[str], str]) -> None:
    name = unique("S")
    with RawClient(url) as raw:
        raw.api(f"STREAM.CREATE.{name}", {"name": name, "storage": "memory"})
        with jetspark("events", "--stream", name, "--count", "3", "--server", url) as command:
            listening(command)
            raw.api(f"STREAM.UPDATE.{name}", {"name": name, "storage": "memory"})
            raw.api(f"CONSUMER.INFO.{name}.absent")
            # Nothing more: the server tells of these two in no certain order.
            code, out, err = finish(command)
        raw.api(f"STREAM.DELETE.{name}")
    assert (code, err) == (0, "")
    lines = [line.split("  ", 1) for line in sorted(out.splitlines(), key=lambda line: line[14:])]
    assert all(len(time) == len("14:20:41.123") for time, _ in lines)
    said = "\n".join(rest for _, rest in lines)
    assert f"stream_action  {name}  action=modify" in said
    assert f"api_audit  {name} > absent  " in said
    assert f"subject=$JS.API.CONSUMER.INFO.{name}.absent" in said
    assert "error=consumer not found" in said
    assert "@$G" in said


def test_lines_of_json_hold_all(url: str, unique: Callable[[str], str]) -> None:
    name = unique("S")
    arguments = ["--kind", "stream_action", "--kind", "api_audit", "--json", "--count", "2"]
    with RawClient(url) as raw:
        raw.api(f"STREAM.CREATE.{name}", {"name": name, "storage": "memory"})
        with jetspark("events", "--stream", name, *arguments, "--server", url) as command:
            listening(command)
            raw.api(f"STREAM.UPDATE.{name}", {"name": name, "storage": "memory"})
            code, out, _ = finish(command)
        raw.api(f"STREAM.DELETE.{name}")
    assert code == 0
    found = [json.loads(line) for line in out.splitlines()]
    audit = next(event for event in found if event["type"].endswith("api_audit"))
    assert json.loads(audit["request"])["name"] == name
    assert json.loads(audit["response"])["config"]["name"] == name
    assert {event.get("stream", name) for event in found} == {name}


def test_a_signal_is_the_ordinary_end(url: str, unique: Callable[[str], str]) -> None:
    name = unique("S")
    arguments = ["--consumer", name, "--server", url]
    with RawClient(url) as raw:
        raw.api(f"STREAM.CREATE.{name}", {"name": name, "storage": "memory"})
        consumer = {"stream_name": name, "config": {"durable_name": name}}
        raw.api(f"CONSUMER.DURABLE.CREATE.{name}.{name}", consumer)
        with jetspark("events", *arguments) as command:
            listening(command)
            # What would command a terminal is shown as text.
            event = {"type": "io.x.v1.\x1b[2Jnew", "level": 9, "more": {"a": [1]}}
            raw.publish(f"$JS.EVENT.ADVISORY.CONSUMER.NEW.S.{name}", json.dumps(event).encode())
            assert first_line(command).strip() == r'\x1b[2Jnew    level=9  more={"a": [1]}'
            assert end(command, signal.SIGTERM) == (0, "", "")
        raw.api(f"STREAM.DELETE.{name}")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--kind", "max_delivery"], "did you mean 'max_deliver'?"),
        (["--kind", "server_removed", "--stream", "S"], "do not name a stream"),
    ],
)
def test_wrong_arguments_print_one_sentence(
    arguments: list[str], sentence: str, admin: Admin, unique: Callable[[str], str], run: Run
) -> None:
    name = unique("S")
    admin.create(name, name)
    code, _, err = run("events", *(name if one == "S" else one for one in arguments))
    assert (code, sentence in err.replace("\n", " ")) == (app.FAILED, True)


def test_names_of_nothing_are_refused(
    url: str, unique: Callable[[str], str], admin: Admin, run: Run
) -> None:
    name = unique("S")
    admin.create(name, name)
    for arguments, said in (
        (["--stream", f"{name}x"], f'Stream "{name}x" not found on {url} (did you mean "{name}"?)'),
        (["--stream", name, "--consumer", "c"], f'Consumer "c" of stream "{name}" not found on '),
        (["--consumer", f"{name}c"], f'Consumer "{name}c" not found on {url}'),
    ):
        code, out, err = run("events", *arguments)
        assert (code, out) == (app.FAILED, "")
        assert err.startswith(said)


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
