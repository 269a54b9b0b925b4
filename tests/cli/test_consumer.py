"""`jetspark consumer`."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.cli.conftest import Run

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
