"""`jetspark stream`."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest
from tests.support.ports import free_port
from tests.support.processes import finish, jetspark

from jetspark import blocking
from jetspark.cli import app
from jetspark.cli.console import limit, size, span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import MakeServer

    from jetspark.blocking.jetstream import JetStream
    from jetspark.server import NatsServer


@pytest.fixture
def js(shared_server: NatsServer) -> Iterator[JetStream]:
    with blocking.connect(shared_server.url) as nc:
        yield nc.jetstream()


@pytest.fixture
def orders(js: JetStream, unique: Callable[[str], str]) -> str:
    """A stream of 3 messages."""
    name = unique("ORDERS")
    js.create_stream(name=name, subjects=[f"{name}.>"], max_bytes=1 << 20, description="old")
    for number in range(3):
        js.publish(f"{name}.{number}", b"x" * 100)
    return name


def test_ls_is_a_table_and_with_json_an_array(
    shared_server: NatsServer, js: JetStream, orders: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ["--server", shared_server.url]
    assert app.run(["stream", "ls", *server]) == app.DONE
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["stream", "messages", "size", "first"]
    (row,) = [row.split() for row in rows if row.startswith(orders)]
    assert row[1] == "3"
    assert row[4:7] == ["1", "3", "0"]
    assert app.run(["stream", "ls", "--json", *server]) == app.DONE
    documents = json.loads(capsys.readouterr().out)
    (document,) = [one for one in documents if one["config"]["name"] == orders]
    assert document["state"]["messages"] == 3


def test_info_is_for_people_and_with_json_for_programs(
    shared_server: NatsServer, orders: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ["--server", shared_server.url]
    assert app.run(["stream", "info", orders, *server]) == app.DONE
    shown = capsys.readouterr().out
    assert f"subjects         {orders}.>\n" in shown
    assert "sequences        1 to 3, 0 deleted\n" in shown
    assert "max size         1.0 MiB\n" in shown
    assert "max age          unlimited\n" in shown
    assert app.run(["stream", "info", orders, "--json", *server]) == app.DONE
    document = json.loads(capsys.readouterr().out)
    assert document["config"]["subjects"] == [f"{orders}.>"]
    assert document["state"]["last_seq"] == 3


def test_a_stream_is_backed_up_and_restored(
    shared_server: NatsServer,
    make_server: MakeServer,
    orders: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    there, folder = make_server().url, tmp_path / "b"
    assert app.run(["stream", "backup", orders, str(folder), "--server", shared_server.url]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"Saved: stream {orders}, 3 messages (")
    assert said.out.endswith(f" in {folder}.\n")
    assert said.err == ""
    assert app.run(["stream", "verify", str(folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["stream"], document["state"]["messages"]) == (orders, 3)
    config = tmp_path / "config.json"
    config.write_text('{"description": "new"}')
    restore = ["stream", "restore", str(folder), "--server", there]
    assert app.run([*restore, "--config", str(config), "--replicas", "1"]) == 0
    assert capsys.readouterr().out.startswith(f"Restored stream {orders}: 3 messages (")
    with blocking.connect(there) as nc:
        info = nc.jetstream().stream_info(orders)
        assert (info.config.description, info.state.last_seq) == ("new", 3)
    restore += ["--config", str(config)]
    assert app.run(restore) == 0
    assert capsys.readouterr().out == (
        f'Stream "{orders}" exists already, and has all 3 messages of the backup: nothing needs to '
        "be done.\n"
    )
    assert app.run([*restore, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["config"]["description"] == "new"
    again = ["stream", "restore", str(folder), "--server", make_server().url]
    assert app.run([*again, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["config"]["description"] == "old"


def test_mistakes_are_one_sentence(
    shared_server: NatsServer, orders: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, folder = shared_server.url, str(tmp_path / "b")
    typo = orders[:-1]
    meant = f'Stream "{typo}" not found on {url} (did you mean "{orders}"?).'
    assert app.run(["stream", "backup", orders, folder, "--server", url]) == 0
    capsys.readouterr()
    gone = f"nats://127.0.0.1:{free_port()}"
    for arguments, sentence in {
        ("info", typo, "--server", url): meant,
        ("backup", typo, str(tmp_path / "c"), "--server", url): meant,
        ("info", "a.b", "--server", url): "Bad stream name 'a.b': white space and the characters "
        ". * > / \\ are not allowed.",
        ("backup", orders, folder, "--server", url): (
            f"{folder} exists already: name a new folder for the backup."
        ),
        ("restore", str(tmp_path), "--server", url): (
            f"{tmp_path} is no backup of a stream: there is no backup.json in it."
        ),
        ("verify", str(tmp_path)): (
            f"{tmp_path} is no backup of a stream: there is no backup.json in it."
        ),
        ("ls", "--server", gone): f"No server at {gone}: Connection refused.",
        ("ls", "--server", url, "--context", "x"): "Give either --server or --context.",
    }.items():
        assert app.run(["stream", *arguments]) == app.FAILED
        captured = capsys.readouterr()
        assert (captured.out, captured.err) == ("", sentence + "\n")
    assert app.run(["stream", "bogus"]) == app.WRONG_USAGE
    assert sorted(one.name for one in tmp_path.iterdir()) == ["b"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_backup_that_is_interrupted_leaves_nothing(
    number: int, shared_server: NatsServer, js: JetStream, unique: Callable[[str], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    name = unique("LARGE")
    js.create_stream(name=name, subjects=[name])
    for _ in range(300):
        js.publish(name, os.urandom(200_000))
    arguments = ["stream", "backup", name, str(tmp_path / "b"), "--server", shared_server.url]
    with jetspark(*arguments) as command:
        while not any(tmp_path.iterdir()):
            assert command.poll() is None
        command.send_signal(number)
        code, out, err = finish(command)
    if code == 0:  # it was quicker
        assert [one.name for one in tmp_path.iterdir()] == ["b"]
        return
    assert (code, out, err) == (128 + number, "", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_restore_that_is_interrupted_leaves_no_part_of_the_stream(
    number: int,
    shared_server: NatsServer,
    js: JetStream,
    unique: Callable[[str], str],
    make_server: MakeServer,
    tmp_path: Path,
    needs_server: Callable[[str], None],
) -> None:
    needs_server("2.15")  # older ones have no stream before the end
    name = unique("LARGE")
    js.create_stream(name=name, subjects=[name])
    for _ in range(200):
        js.publish(name, os.urandom(200_000))
    js.backup_stream(name, tmp_path / "b")
    with blocking.connect(make_server().url) as nc:
        there = nc.jetstream()
        arguments = ["stream", "restore", str(tmp_path / "b"), "--server", str(nc.current_server)]
        with jetspark(*arguments) as command:
            while not there.stream_names().all():
                assert command.poll() is None
            command.send_signal(number)
            code, _, err = finish(command)
        if code == 0:  # it was quicker
            assert there.stream_info(name).state.messages == 200
            return
        assert (code, err) == (128 + number, "")
        assert there.stream_names().all() == []


def test_what_is_not_found_is_told_to_a_user_who_may_not_list_names(
    make_server: MakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    denied = 'publish: { deny: ["$JS.API.STREAM.NAMES", "$JS.API.CONSUMER.NAMES.>"] }'
    users = f"{{ user: a, password: b, permissions: {{ {denied} }} }}"
    port = make_server(f"authorization {{ users: [{users}] }}").port
    url = f"nats://a:b@127.0.0.1:{port}"
    with blocking.connect(url) as nc:
        nc.jetstream().create_stream(name="S", subjects=["s"])
    for arguments in (["consumer", "info", "S", "w"], ["stream", "info", "T"]):
        assert app.run([*arguments, "--server", url]) == app.FAILED
        assert " not found on " in capsys.readouterr().err


def test_sizes_and_limits_are_written_for_people() -> None:
    assert [size(n) for n in (0, 1023, 1024, 5 << 30, 1 << 60)] == [
        "0 B", "1023 B", "1.0 KiB", "5.0 GiB", "1048576.0 TiB",
    ]  # fmt: skip
    assert [limit(n) for n in (-1, 0, None, 1000)] == ["unlimited"] * 3 + ["1,000"]
    assert span(None) == "unlimited"
