"""`jetspark dead-letters`."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.request import urlopen

import pytest
from tests.blocking.eventually import eventually
from tests.cli.conftest import Run
from tests.support.ports import free_port
from tests.support.processes import end, jetspark

from jetspark import blocking
from jetspark.cli import app
from jetspark.dead_letters import DeadLetter, DeadLetters
from jetspark.server import NatsServer


@pytest.mark.full
def test_dead_letters_are_made_moved_listed_and_replayed(
    url: str, unique: Callable[[str], str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = unique("ORDERS")
    dead = f"{name}_DEAD"

    def command(verb: str, *more: str) -> list[str]:
        code, out, err = run("dead-letters", verb, dead, *more)
        assert code == app.SUCCEEDED, err
        return out.splitlines()

    with blocking.connect(url) as nc:
        js = nc.jetstream(timeout=20)
        js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
        consumer = js.stream(name).create_consumer(durable_name="worker")
        (said,) = command("create", "--stream", name)
        assert f"{dead}_ADVISORIES" in said
        made = {"name": dead, "advisories": f"{dead}_ADVISORIES", "streams": [name], "dropped": []}
        assert json.loads("\n".join(command("create", "--stream", name, "--json"))) == made
        letters = js.dead_letters(dead)

        def give_up(data: bytes) -> None:
            js.publish(f"{name}.eu", data)
            consumer.next(timeout=20).term("broken\x1b")
            eventually(lambda: letters.waiting() == 1)

        give_up(b"a vase")
        moved = json.loads("\n".join(command("run", "--once", "--json")))
        assert moved == {"moved": 1, "waiting": 0}
        give_up(b"\xff")
        with jetspark("dead-letters", "run", dead, "--server", url) as process:
            eventually(lambda: letters.waiting() == 0, within=60)
            assert end(process)[0] == app.SUCCEEDED
        head, *rows = command("ls")
        assert head.split()[:3] == ["letter", "reason", "stream"]
        assert len(rows) == 2
        assert "\x1b" not in rows[0]
        first, second = map(json.loads, command("ls", "--json"))
        assert (first["data"], first["stream_seq"], first["text"]) == ("a vase", 1, "broken\x1b")
        assert second["data_base64"] == "/w=="
        replay = ("replay", "--reason", "terminated", "--to", f"{name}.again")
        address = f"127.0.0.1:{free_port()}"
        replay_letter, seen = DeadLetters.replay_letter, []

        async def replay_and_look(dead: DeadLetters, letter: DeadLetter, **more: Any) -> bool:
            stored = await replay_letter(dead, letter, **more)
            with await asyncio.to_thread(urlopen, f"http://{address}/metrics") as answer:
                seen.append(answer.read().decode())
            return stored

        with monkeypatch.context() as patch:
            patch.setattr(DeadLetters, "replay_letter", replay_and_look)
            document = command(*replay, "--keep", "--json", "--metrics", address)
        counts = {"replayed": 2, "skipped": 0, "unproven": 0, "duplicates": 0}
        assert json.loads("\n".join(document)) == counts
        ours = r'(?=.*client_id="")(?=.*error_type="").*"request".*'
        count = rf"^messaging_client_operation_duration_seconds_count{{{ours}}} (\d+)"
        first_count, second_count = (re.findall(count, text, re.MULTILINE) for text in seen)
        assert int(second_count[0]) - int(first_count[0]) == 1
        replayed, again = command(*replay)
        assert replayed == "0 replayed · 0 without payload"
        assert again.startswith("The stream already has 2 messages from a replay within its")
        assert js.stream(name).info().state.messages == 4
        assert len(command("ls")) == 1
        js.delete_dead_letters(dead)
        js.delete_stream(name)


def test_what_is_watched_is_told_and_a_misspelt_stream_is_not_watched(
    url: str, unique: Callable[[str], str], run: Run
) -> None:
    name = unique("ORDERS")
    a, b = f"{name}_A", f"{name}_B"

    def create(*streams: str, replicas: int = 1, dead: str = f"{name}_DEAD") -> tuple[int, str]:
        named = [word for stream in streams for word in ("--stream", stream)]
        code, out, err = run("dead-letters", "create", dead, *named, "--replicas", str(replicas))
        return code, err or "".join(out.splitlines()[1:])

    with blocking.connect(url) as nc:
        js = nc.jetstream(timeout=20)
        for stream in (a, b):
            js.create_stream(name=stream, storage="memory")
        assert create(a) == (0, "")
        dropped = f"No longer watched: {a}. To watch all, name each with --stream."
        assert create(b) == (0, dropped)
        assert create(a, b) == (0, "")
        assert create(a, a)[0] == app.SUCCEEDED
        assert create(a, replicas=0)[0] == app.FAILED
        assert create(a, dead="a b")[1].startswith("Bad stream name 'a b': ")
        code, said = create(a, f"{b}X")
        assert (code, f'Stream "{b}X" not found on' in said) == (app.FAILED, True)
        assert f'(did you mean "{b}"?)' in said
        js.delete_dead_letters(f"{name}_DEAD")
        for stream in (a, b):
            js.delete_stream(stream)


def test_a_misspelt_name_is_told_with_those_that_there_are(
    nats_server: NatsServer, run: Run
) -> None:
    with blocking.connect(nats_server.url) as nc:
        for there in ("", "; there are DEAD"):
            for command in (["ls"], ["run"], ["run", "--once"], ["replay"]):
                arguments = ("dead-letters", command[0], "NONE", *command[1:])
                said = f'There are no dead letters "NONE"{there}.\n'
                assert run(*arguments, server=nats_server.url) == (app.FAILED, "", said)
            nc.jetstream().create_stream(name="ORDERS", subjects=["orders"])
            nc.jetstream().create_or_update_dead_letters("DEAD", "ORDERS")


def test_what_is_missing_or_cannot_be_taken_is_told_with_its_name(
    nats_server: NatsServer, run: Run
) -> None:
    def dead_letters(*arguments: str) -> tuple[int, str, str]:
        return run("dead-letters", *arguments, server=nats_server.url)

    with blocking.connect(nats_server.url) as nc:
        js = nc.jetstream()
        js.create_stream(name="ORDERS", subjects=["orders"])
        js.create_or_update_dead_letters("DEAD", "ORDERS")
        js.publish("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.ORDERS.c", b"hello")
        code, out, err = dead_letters("run", "DEAD", "--once")
        assert (code, out) == (app.SUCCEEDED, "1 moved\n")
        assert err.startswith('Message 1 of "DEAD_ADVISORIES" is not an advisory')
        assert [letter.data for letter in js.dead_letters("DEAD").letters()] == [b"hello"]
        js.delete_stream("DEAD_ADVISORIES")
        gone = 'Stream "DEAD_ADVISORIES" not found.\n'
        for arguments in (["run", "DEAD", "--once"], ["run", "DEAD"]):
            assert dead_letters(*arguments) == (app.FAILED, "", gone)
        js.create_stream(name="DEAD_ADVISORIES", subjects=["x"])
        assert dead_letters("create", "DEAD", "--stream", "ORDERS")[2] == (
            'There is another stream "DEAD_ADVISORIES", whose name would be needed: '
            "take another name.\n"
        )
        err = dead_letters("create", "D", "--stream", "ORDERS", "--stream", "D")[2]
        assert "cannot watch" in err
