"""`jetspark group`."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.cli.conftest import Run

from jetspark import blocking
from jetspark.cli import app


@pytest.fixture
def stream(url: str, unique: Callable[[str], str], needs_server: Callable[[str], None]) -> str:
    """With an elastic group of two members and a static group of one."""
    needs_server("2.11")
    name = unique("S")
    with blocking.connect(url) as nc:
        js = nc.jetstream()
        js.create_stream(name=name, subjects=[f"{name}.*"], storage="memory")
        workers = js.consumer_groups(name).create_elastic("workers", max_members=3)
        workers.add_members(["ann", "bob"])
        js.consumer_groups(name).create_static(
            "fixed", max_members=2, filters=["x.*"], members=["cy"]
        )
    return name


def test_ls_and_info_show_members_and_partitions(url: str, run: Run, stream: str) -> None:
    assert [line.split() for line in run("group", "ls", stream)[1].splitlines()] == [
        ["group", "kind", "partitions", "members", "active"],
        ["fixed", "static", "2", "1", "0"],
        ["workers", "elastic", "3", "2", "0"],
    ]
    with blocking.connect(url) as nc:
        group = nc.jetstream().consumer_groups(stream).elastic("workers")
        with group.consume("ann"):
            code, shown, _ = run("group", "info", stream, "workers")
    rows = [line.split(maxsplit=2) for line in shown.splitlines()]
    assert code == app.SUCCEEDED
    assert ["kind", "elastic"] in rows
    assert ["ann", "yes", "0, 2"] in rows
    assert ["bob", "no", "1"] in rows
    (document,) = json.loads(run("group", "info", stream, "fixed", "--json")[1])
    assert document == {
        "group": "fixed", "kind": "static", "stream": stream, "subjects": ["x.*"],
        "partitions": 2,
        "members": [{"member": "cy", "active": False, "partitions": [0, 1]}],
    }  # fmt: skip


def test_what_is_not_there_is_one_sentence(url: str, run: Run, stream: str) -> None:
    missing = f'Consumer group "worker" of stream "{stream}" not found on {url} '
    said = missing + '(did you mean "workers"?).\n'
    assert run("group", "info", stream, "worker") == (app.FAILED, "", said)
    assert run("group", "ls", "NO_SUCH")[2].startswith('Stream "NO_SUCH" not found on ')
