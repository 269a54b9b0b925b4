"""`jetspark group`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from jetspark import blocking
from jetspark.cli import app

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.server import NatsServer


@pytest.fixture
def stream(
    shared_server: NatsServer, unique: Callable[[str], str], needs_server: Callable[[str], None]
) -> str:
    """With an elastic group of two members and a static group of one."""
    needs_server("2.11")
    name = unique("S")
    with blocking.connect(shared_server.url) as nc:
        js = nc.jetstream()
        js.create_stream(name=name, subjects=[f"{name}.*"], storage="memory")
        workers = js.create_elastic_group(name, "workers", max_members=3)
        workers.add_members(["ann", "bob"])
        js.create_static_group(name, "fixed", max_members=2, filters=["x.*"], members=["cy"])
    return name


def run(server: NatsServer, *arguments: str) -> int | None:
    return app.run(["group", *arguments, "--server", server.url])


def test_ls_and_info_show_members_and_partitions(
    shared_server: NatsServer, stream: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(shared_server, "ls", stream) == app.DONE
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["group", "kind", "partitions", "members", "active"],
        ["fixed", "static", "2", "1", "0"],
        ["workers", "elastic", "3", "2", "0"],
    ]
    with blocking.connect(shared_server.url) as nc:
        group = nc.jetstream().elastic_group(stream, "workers")
        with group.consume("ann"):
            assert run(shared_server, "info", stream, "workers") == app.DONE
    shown = capsys.readouterr().out
    rows = [line.split(maxsplit=2) for line in shown.splitlines()]
    assert ["kind", "elastic"] in rows
    assert ["ann", "yes", "0, 2"] in rows
    assert ["bob", "no", "1"] in rows
    assert run(shared_server, "info", stream, "fixed", "--json") == app.DONE
    (document,) = json.loads(capsys.readouterr().out)
    assert document == {
        "group": "fixed", "kind": "static", "stream": stream, "subjects": ["x.*"],
        "partitions": 2,
        "members": [{"member": "cy", "active": False, "partitions": [0, 1]}],
    }  # fmt: skip


def test_what_is_not_there_is_one_sentence(
    shared_server: NatsServer, stream: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(shared_server, "info", stream, "worker") != app.DONE
    said = capsys.readouterr().err
    assert said == (
        f'Consumer group "worker" of stream "{stream}" not found on {shared_server.url} '
        '(did you mean "workers"?).\n'
    )
    assert run(shared_server, "ls", "NO_SUCH") != app.DONE
    assert capsys.readouterr().err.startswith('Stream "NO_SUCH" not found on ')
