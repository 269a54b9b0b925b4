"""A streaming query without Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from jetspark.errors import JetsparkError
from jetspark.spark.source.options import SourceOptions, parse_options
from jetspark.spark.source.stream_reader import JetStreamStreamReader


class Query:
    """It calls the reader as Spark does, with two logs, and a sink that writes a batch once.

    In its options S stands for the stream.
    """

    def __init__(self, stream: str, options: dict[str, str]) -> None:
        self.stream = stream
        self.options = options
        self.logged: list[str] = []
        self.committed = 0
        self.table: dict[int, list[tuple[int, str]]] = {}
        self.said: JetsparkError | None = None
        self.consumer: str | None = None
        """Its `interestConsumer` when its first offset was logged, which is where it began."""

    @property
    def rows(self) -> list[tuple[int, str]]:
        """Those of committed batches."""
        return [row for batch in range(self.committed) for row in self.table[batch]]

    def parsed(self, **changed: str) -> SourceOptions:
        return parse_options(_named(self.stream, self.options | changed))

    def steps(self, changed: dict[str, str], batches: int = 99) -> Iterator[str]:
        """A process; it dies when this is not continued."""
        options = self.parsed(**changed)
        reader = JetStreamStreamReader(options)
        if len(self.logged) > self.committed:
            before = self.logged[self.committed - 1 : self.committed] if self.committed else []
            start = json.loads(before[0]) if before else reader.initialOffset()
            yield "begun"
            yield from self._batch(reader, start)
        start = json.loads(self.logged[-1]) if self.logged else reader.initialOffset()
        yield "begun"
        for _ in range(batches):
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            yield "planned"
            if end == start:
                return
            if not self.logged:
                self.consumer = options.interest_consumer
            self.logged.append(json.dumps(end))
            yield "logged"
            if self.committed:
                reader.commit(json.loads(self.logged[self.committed - 1]))
            yield "released"
            yield from self._batch(reader, start)
            start = json.loads(self.logged[-1])

    def _batch(self, reader: JetStreamStreamReader, start: dict[str, Any]) -> Iterator[str]:
        rows: list[tuple[int, str]] = []
        parts = reader.partitions(start, json.loads(self.logged[self.committed]))
        yield "claimed"
        for part in parts:
            for batch in reader.read(part):
                columns = batch.column("seq").to_pylist(), batch.column("subject").to_pylist()
                rows += zip(*columns, strict=True)
            yield "reading"
        self.table[self.committed] = rows
        yield "written"
        self.committed += 1
        yield "committed"


def _named(stream: str, options: dict[str, str]) -> dict[str, str]:
    """The options for a stream, which they call S, by one way to name it."""
    chosen = [name for name in ("streamPattern", "streams", "stream") if name in options]
    return {
        name: re.sub(r"\bS\b", stream, value)
        for name, value in options.items()
        if name not in chosen[1:]
    }
