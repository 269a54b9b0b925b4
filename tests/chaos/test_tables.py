"""The short form; `python -m tests.chaos.tables 500 --seed 1` is the long one. And it can fail."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import mock

import pytest
from tests.chaos.tables import Commands, campaign, scene

from jetspark.spark import table
from jetspark.spark.table_rules import Step, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from jetspark.server import NatsServer


def test_random_commands_on_a_table_lose_no_row_silently(
    spark: SparkSession, shared_server: NatsServer
) -> None:
    figures = campaign(spark, shared_server, 6, 1)
    assert figures.failures == []
    assert figures.sequences >= 6
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


def ingest(commands: Commands, name: str, checkpoint: str | None = None) -> None:
    commands.ingest(
        name=name, to="X", checkpoint=checkpoint, json=False, parts=False, adopt=False, kill=None,
        moment=1,
    )  # fmt: skip


def test_without_the_rules_a_loss_is_seen(commands: Commands) -> None:
    def anything_goes(*_: object) -> Step:
        return Step.BEGIN

    def nothing_known(_: Wanted) -> None:
        return None

    ingest(commands, "A")
    with (
        mock.patch.object(table, "next_step", anything_goes),
        mock.patch.object(table, "look_ahead", nothing_known),
    ):
        ingest(commands, "B", "one")
    (failure,) = commands.scene.figures.failures
    assert "silent loss" in failure
