"""A streaming query without Spark: its calls, its checkpoint, restarts after every run."""

from __future__ import annotations

import json
from dataclasses import replace

from jetspark.connection.options import ConnectOptions
from jetspark.spark.source.options import parse_options
from jetspark.spark.source.stream_reader import JetStreamStreamReader
from jetspark.spark.versions import limits


class DrivenQuery:
    """Calls a reader in the order in which Spark does; the checkpoint is text, as Spark's."""

    def __init__(self, url: str, stream: str, **options: str) -> None:
        self.options = {"servers": url, "stream": stream, "startingOffsets": "earliest", **options}
        self.connection: ConnectOptions | None = None
        self.checkpoint: str | None = None
        self.sequences: list[int] = []

    def run(self, *, batches: int = 1, limit: int | None = None, **options: str) -> None:
        """So many batches at most, in a process of their own."""
        if limit is not None:
            options["maxOffsetsPerTrigger"] = str(limit)
        parsed = parse_options(self.options | options)
        if self.connection is not None:
            parsed = replace(parsed, connection=self.connection)
        reader = JetStreamStreamReader(parsed)
        start = json.loads(self.checkpoint) if self.checkpoint else reader.initialOffset()
        # Spark commits the last batch of the run before, too.
        committed = start if self.checkpoint else None
        for _ in range(batches):
            how = limits.ReadAllAvailable() if limit is None else reader.getDefaultReadLimit()
            end = reader.latestOffset(start, how)
            if end == start:
                break
            if committed is not None:
                reader.commit(committed)
            for partition in reader.partitions(start, end):
                for rows in reader.read(partition):
                    column = "revision" if "bucket" in self.options else "seq"
                    self.sequences += rows.column(column).to_pylist()
            self.checkpoint = json.dumps(end)
            start = committed = end
