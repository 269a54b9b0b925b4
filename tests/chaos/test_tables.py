"""The campaign "tables" in small. And it can fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import SparkSession
from tests.chaos.tables import Commands, play, scene

from jetspark.server import NatsServer


def test_random_commands_on_a_table_lose_no_row_silently(
    spark: SparkSession, shared_server: NatsServer
) -> None:
    with scene(spark, shared_server) as one:
        figures = play(one, 4, 3)
    assert figures.wrong == []
    assert figures.runs >= 4
    assert figures.done
    assert figures.rows


@pytest.fixture
def commands(spark: SparkSession, shared_server: NatsServer) -> Iterator[Commands]:
    """A sequence to be given by hand."""
    with scene(spark, shared_server) as one:
        machine: Commands = type("Commands", (Commands,), {"scene": one})()
        machine.begin()
        yield machine
        machine.teardown()


def test_rows_that_are_there_twice_are_seen(commands: Commands) -> None:
    options: dict[str, Any] = {"name": "A", "to": "X", "json": False, "parts": False, "kill": None}
    commands.ingest(checkpoint=None, **options)
    command = commands.scene.command
    with mock.patch.object(commands.scene, "command", lambda *given: command(*given, "--adopt")):
        commands.ingest(checkpoint="one", **options)
    (failure,) = commands.scene.figures.wrong
    assert "rows too many" in failure
