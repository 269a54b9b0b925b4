"""Spark 4.0 and 4.1, whose calls are made here; `scripts/matrix.py` runs the real ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition

from jetspark.spark.queries import start as queries
from jetspark.spark.versions import StreamReader, limits


class Stream:
    """A reader with a limit of 150 messages for a batch."""

    def __init__(self, messages: int = 1000) -> None:
        self.messages = messages
        self.planned: list[tuple[int, int]] = []

    def initialOffset(self) -> dict[str, Any]:
        return {"at": 600}

    def getDefaultReadLimit(self) -> limits.ReadLimit:
        return limits.ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: limits.ReadLimit) -> dict[str, Any]:
        return (
            start if start["at"] == self.messages else {"at": min(self.messages, start["at"] + 150)}
        )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self.planned.append((start["at"], end["at"]))
        return []

    def commit(self, end: dict[str, Any]) -> None: ...

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError


def batches(reader: StreamReader, position: dict[str, Any]) -> Iterator[int]:
    """What such a Spark does: the end of each batch, until there is nothing more."""
    while (end := reader.latestOffset()) != position:
        reader.partitions(position, end)
        reader.commit(position)
        position = end
        yield end["at"]


def test_a_new_query_keeps_its_limits_from_where_it_begins() -> None:
    stream = Stream()
    reader = StreamReader(stream)
    assert [*batches(reader, {"at": 600})] == [750, 900, 1000]
    assert stream.planned == [(600, 750), (750, 900), (900, 1000)]


def test_a_resumed_query_keeps_its_limits_from_where_it_was() -> None:
    reader = StreamReader(Stream())
    reader.partitions({"at": 700}, {"at": 700})
    assert [*batches(reader, {"at": 700})] == [850, 1000]
    reader = StreamReader(Stream())
    reader.partitions({"at": 800}, {"at": 800})
    reader.partitions({"at": 700}, {"at": 800})  # a batch that was not finished
    assert [*batches(reader, {"at": 800})] == [950, 1000]


def test_without_limits_of_spark_the_source_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"stream": "S"}
    monkeypatch.setattr(queries, "HAS_LIMITS", True)
    assert queries.source_options(options, follow=False) == options
    monkeypatch.setattr(queries, "HAS_LIMITS", False)
    assert queries.source_options(options, follow=True) == options
    assert queries.source_options(options, follow=False) == {**options, "availableNow": "true"}
