"""`jetspark consumer`."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from tests.cli.conftest import Run
from tests.support.processes import jetspark

from jetspark import blocking
from jetspark.cli import app


@pytest.fixture
def stream(url: str, unique: Callable[[str], str]) -> str:
    """Five messages; a pull consumer got two of them and a push consumer delivers to nobody."""
    name = unique("S")
    with blocking.connect(url) as nc:
        js = nc.jetstream()
        js.create_stream(name=name, subjects=[name], storage="memory")
        for _ in range(5):
            js.publish(name, b"x")
        worker = js.stream(name).create_consumer(durable_name="worker", description="works")
        first, _ = worker.fetch(2, timeout=5)
        first.ack_sync()
        js.stream(name).create_push_consumer(durable_name="pushed", deliver_subject=f"{name}-to")
    return name


def test_ls_is_a_table_and_with_json_an_array(run: Run, stream: str) -> None:
    head, pushed, worker = run("consumer", "ls", stream)[1].splitlines()
    assert head.split()[:3] == ["consumer", "kind", "delivered"]
    assert pushed.split()[:2] == ["pushed", "push"]
    assert worker.split() == ["worker", "pull", "2", "1", "1", "3", "0"]
    documents = json.loads(run("consumer", "ls", stream, "--json")[1])
    assert [one["name"] for one in documents] == ["pushed", "worker"]


def test_info_is_for_people_and_with_json_for_programs(run: Run, stream: str) -> None:
    _, shown, _ = run("consumer", "info", stream, "worker")
    assert "description      works\n" in shown
    assert "to be delivered  3\n" in shown
    assert "acknowledged     up to sequence 1\n" in shown
    document = json.loads(run("consumer", "info", stream, "worker", "--json")[1])
    assert (document["stream_name"], document["num_pending"]) == (stream, 3)


def test_mistakes_are_one_sentence(url: str, run: Run, stream: str) -> None:
    for arguments, sentence in {
        ("info", stream, "wroker"): (
            f'Consumer "wroker" of stream "{stream}" not found on {url} (did you mean "worker"?).'
        ),
        ("info", stream, "x"): f'Consumer "x" of stream "{stream}" not found on {url}; '
        f"`jetspark consumer ls {stream}` shows the consumers.",
        ("ls", stream + "0"): (
            f'Stream "{stream}0" not found on {url} (did you mean "{stream}"?).'
        ),
        ("info", stream, "a b"): "Bad consumer name 'a b': white space and the characters "
        ". * > / \\ are not allowed.",
    }.items():
        assert run("consumer", *arguments) == (app.FAILED, "", sentence + "\n")


def _acknowledged(url: str, stream: str, name: str = "worker") -> tuple[int, int]:
    """The acknowledgement floor of a consumer, and the number of its unacknowledged messages."""
    with blocking.connect(url) as nc:
        info = nc.jetstream().stream(stream).consumer(name).info()
    return info.ack_floor.stream_seq, info.num_ack_pending


@pytest.mark.parametrize(
    ("answer", "after"), [(None, (1, 2)), ("ack", (3, 0)), ("nak", (1, 2)), ("term", (3, 0))]
)
def test_next_answers_what_it_has_printed_as_it_is_told(
    url: str, run: Run, stream: str, answer: str | None, after: tuple[int, int]
) -> None:
    with blocking.connect(url) as nc:
        other = nc.jetstream().stream(stream).create_consumer(durable_name="other")
        first, second = other.fetch(2, timeout=5)
        first.ack_sync()
        second.nak()  # it comes again
    extra = () if answer is None else ("--answer", answer)
    count = "1" if answer == "nak" else "2"
    code, out, _ = run("consumer", "next", stream, "other", "--count", count, "--json", *extra)
    messages = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert {"subject": stream, "data": "x"}.items() <= messages[0].items()
    if answer != "nak":
        assert sorted(one["seq"] for one in messages) == [2, 3]
        assert max(one["deliveries"] for one in messages) == 2
        assert _acknowledged(url, stream, "other") == after


def test_next_never_acknowledges_what_nobody_got(url: str, stream: str) -> None:
    """The output's reader has gone before the message comes."""
    wanted = ("consumer", "next", stream, "worker", "--count", "3", "--answer", "ack")
    with jetspark(*wanted, "--server", url) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(60) == 141
    assert _acknowledged(url, stream)[0] == 1


def test_next_says_when_there_is_no_message(run: Run, url: str, stream: str) -> None:
    wanted = ("consumer", "next", stream, "worker", "--timeout", "0.3")
    assert run(*wanted, "--count", "3", "--answer", "ack")[0] == 0
    code, out, err = run(*wanted)
    assert (code, out) == (1, "")
    assert err == "0 of 1 messages from consumer 'worker', within 0.3 s.\n"


def test_next_refuses_answers_that_would_be_for_other_messages(
    run: Run, url: str, stream: str
) -> None:
    with blocking.connect(url) as nc:
        for policy in ("all", "none"):
            nc.jetstream().stream(stream).create_consumer(name=policy, ack_policy=policy)
    for policy in ("all", "none"):
        code, out, err = run("consumer", "next", stream, policy, "--answer", "ack")
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert "Leave --answer out" in err
        assert run("consumer", "next", stream, policy)[0] == 0
    code, _, err = run("consumer", "next", stream, "pushed")
    assert code == 1
    assert f"`jetspark sub {stream}-to` shows" in err


def test_a_paused_consumer_delivers_again_when_it_is_resumed(run: Run, stream: str) -> None:
    code, out, _ = run("consumer", "pause", stream, "worker", "30m")
    assert code == 0
    assert f"Consumer worker of {stream} is paused until 20" in out
    code, _, err = run("consumer", "next", stream, "worker", "--timeout", "0.3")
    assert code == 1
    assert "is paused until 20" in err
    assert run("consumer", "resume", stream, "worker") == (
        0, f"Consumer worker of {stream} is not paused.\n", "",
    )  # fmt: skip
    assert run("consumer", "next", stream, "worker")[0] == 0
    later = (datetime.now(UTC) + timedelta(hours=2)).replace(microsecond=0)
    document = json.loads(
        run("consumer", "pause", stream, "worker", later.isoformat(), "--json")[1]
    )
    assert document["paused"]
    assert datetime.fromisoformat(document["pause_until"]) == later


@pytest.mark.parametrize("until", ["soon", "-5m", "2020-01-01T00:00:00Z", "99999999999d", "0"])
def test_a_time_to_pause_until_that_makes_no_sense_is_refused(
    run: Run, stream: str, until: str
) -> None:
    code, out, err = run("consumer", "pause", stream, "worker", until)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert repr(until) in err
