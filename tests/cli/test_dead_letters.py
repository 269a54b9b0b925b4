"""`jetspark dead-letters`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.blocking.eventually import eventually
from tests.support.processes import end, finish, jetspark

from jetspark import blocking
from jetspark.cli import app

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.server import NatsServer

Capture = pytest.CaptureFixture[str]


def test_dead_letters_are_made_moved_listed_and_replayed(
    shared_server: NatsServer, unique: Callable[[str], str], capsys: Capture
) -> None:
    name = unique("ORDERS")
    dead = f"{name}_DEAD"

    def command(verb: str, *more: str) -> list[str]:
        arguments = ["dead-letters", verb, dead, *more, "--server", shared_server.url]
        assert app.run(arguments) == app.DONE, capsys.readouterr().err
        return capsys.readouterr().out.splitlines()

    with blocking.connect(shared_server.url) as nc:
        js = nc.jetstream(timeout=20)
        js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
        consumer = js.create_consumer(name, durable_name="worker")
        (said,) = command("create", "--stream", name)
        assert f"{dead}_ADVISORIES" in said
        letters = js.dead_letters(dead)

        def give_up(data: bytes) -> None:
            js.publish(f"{name}.eu", data)
            consumer.next(timeout=20).term("broken\x1b")
            eventually(lambda: letters.waiting() == 1)

        give_up(b"a vase")
        assert command("run", "--once") == ["1 moved"]
        give_up(b"\xff")
        with jetspark("dead-letters", "run", dead, "--server", shared_server.url) as process:
            eventually(lambda: letters.waiting() == 0, within=60)
            assert end(process)[0] == app.DONE
        head, *rows = command("ls")
        assert head.split()[:3] == ["letter", "reason", "stream"]
        assert len(rows) == 2
        assert "\x1b" not in rows[0]
        first, second = map(json.loads, command("ls", "--json"))
        assert (first["data"], first["stream_seq"], first["text"]) == ("a vase", 1, "broken\x1b")
        assert second["data_base64"] == "/w=="
        replay = ("replay", "--reason", "terminated", "--to", f"{name}.again")
        assert command(*replay, "--keep") == ["2 replayed · 0 without payload"]
        replayed, again = command(*replay)
        assert replayed == "0 replayed · 0 without payload"
        assert again.startswith("The stream has 2 messages already, from a replay within its")
        assert js.stream_info(name).state.messages == 4
        assert len(command("ls")) == 1
        js.delete_dead_letters(dead)
        js.delete_stream(name)


def test_what_is_no_longer_watched_is_told(
    shared_server: NatsServer, unique: Callable[[str], str], capsys: Capture
) -> None:
    name = unique("ORDERS")

    def create(*arguments: str) -> tuple[int, list[str]]:
        server = ("--server", shared_server.url)
        code = app.run(["dead-letters", "create", f"{name}_DEAD", *arguments, *server])
        captured = capsys.readouterr()
        return code, (captured.out + captured.err).splitlines()[1:]

    with blocking.connect(shared_server.url) as nc:
        js = nc.jetstream(timeout=20)
        for stream in (f"{name}_A", f"{name}_B"):
            js.create_stream(name=stream, storage="memory")
        assert create("--stream", f"{name}_A") == (0, [])
        dropped = f"No longer watched: {name}_A. To watch all, name each with --stream."
        assert create("--stream", f"{name}_B") == (0, [dropped])
        assert create("--stream", f"{name}_A", "--stream", f"{name}_B") == (0, [])
        assert create("--stream", f"{name}_A", "--replicas", "0")[0] == app.FAILED
        assert create("--stream", f"{name}_A", "--stream", f"{name}_A")[0] == app.DONE
        js.delete_dead_letters(f"{name}_DEAD")
        for stream in (f"{name}_A", f"{name}_B"):
            js.delete_stream(stream)


def test_a_wrong_name_is_told_as_it_was_typed(shared_server: NatsServer, capsys: Capture) -> None:
    create = ["dead-letters", "create", "a b", "--stream", "X", "--server", shared_server.url]
    assert app.run(create) == app.FAILED
    assert capsys.readouterr().err.startswith("Bad stream name 'a b': ")


def test_a_misspelt_stream_is_not_watched(
    shared_server: NatsServer, unique: Callable[[str], str], capsys: Capture
) -> None:
    name = unique("ORDERS")
    with blocking.connect(shared_server.url) as nc:
        js = nc.jetstream(timeout=20)
        js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
        streams = ["--stream", name, "--stream", f"{name}X"]
        create = ["dead-letters", "create", f"{name}_DEAD", *streams]
        assert app.run([*create, "--server", shared_server.url]) == app.FAILED
        said = " ".join(capsys.readouterr().err.split())
        assert f'Stream "{name}X" not found on' in said
        assert f'(did you mean "{name}"?)' in said
        js.delete_stream(name)


def test_what_is_missing_or_cannot_be_taken_is_told_with_its_name(
    nats_server: NatsServer, capsys: Capture
) -> None:
    def said(*arguments: str) -> str:
        code = app.run(["dead-letters", *arguments, "--server", nats_server.url])
        assert code == app.FAILED
        return capsys.readouterr().err

    with blocking.connect(nats_server.url) as nc:
        js = nc.jetstream()
        js.create_stream(name="ORDERS", subjects=["orders"])
        js.create_dead_letters("DEAD", "ORDERS")
        js.delete_stream("DEAD_ADVISORIES")
        for run in (["run", "DEAD", "--once"], ["run", "DEAD"]):
            assert said(*run) == (
                'Stream "DEAD_ADVISORIES" not found: create_dead_letters, or `jetspark '
                "dead-letters create DEAD --stream …`, makes it again.\n"
            )
        js.create_stream(name="DEAD_ADVISORIES", subjects=["x"])
        assert said("create", "DEAD", "--stream", "ORDERS") == (
            'Stream "DEAD_ADVISORIES" is not one of dead letters, and these would need it: '
            "take another name.\n"
        )
        assert "cannot watch" in said("create", "D", "--stream", "ORDERS", "--stream", "D")


def test_a_message_that_is_no_advisory_is_told_and_kept(nats_server: NatsServer) -> None:
    with blocking.connect(nats_server.url) as nc:
        js = nc.jetstream()
        js.create_stream(name="ORDERS", subjects=["orders"])
        js.create_dead_letters("DEAD", "ORDERS")
        js.publish("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.ORDERS.c", b"hello")
        # In a process of its own: pytest would take the log.
        run = ("dead-letters", "run", "DEAD", "--once", "--server", nats_server.url)
        with jetspark(*run) as process:
            code, out, err = finish(process)
        assert (code, out) == (app.DONE, "1 moved\n")
        assert err.startswith('Message 1 of "DEAD_ADVISORIES" is no advisory')
        assert [letter.data for letter in js.dead_letters("DEAD").letters()] == [b"hello"]


@pytest.mark.parametrize("command", [["ls"], ["run"], ["run", "--once"], ["replay"]])
def test_a_misspelt_name_is_told_with_those_that_there_are(
    nats_server: NatsServer, capsys: Capture, command: list[str]
) -> None:
    arguments = ["dead-letters", command[0], "NONE", *command[1:], "--server", nats_server.url]
    assert app.run(arguments) == app.FAILED
    assert capsys.readouterr().err == 'There are no dead letters "NONE".\n'
    with blocking.connect(nats_server.url) as nc:
        nc.jetstream().create_stream(name="ORDERS", subjects=["orders"])
        nc.jetstream().create_dead_letters("DEAD", "ORDERS")
    assert app.run(arguments) == app.FAILED
    assert capsys.readouterr().err == 'There are no dead letters "NONE"; there are DEAD.\n'
