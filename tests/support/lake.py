"""A stream, and tables that runs make of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.support.ingest_job import ingest_job
from tests.support.streams import Admin
from tests.support.table_readers import rows_of

from jetspark.spark.pipelines.ingest import Ingest
from jetspark.spark.queries.progress import QueryProgress
from jetspark.tables.formats import Format


class Lake:
    """A stream that takes what is under its name, and tables in a folder.

    `how`: of runs that do not say otherwise.
    """

    def __init__(self, spark: SparkSession, admin: Admin, folder: Path) -> None:
        self.spark, self.admin, self.folder = spark, admin, folder
        self.stream = admin.stream(under=".>")
        self.options = {"servers": admin.url, "stream": self.stream, "startingOffsets": "earliest"}
        self.how: dict[str, Any] = {}

    def fill(self, *messages: tuple[str, bytes]) -> None:
        self.admin.fill([(f"{self.stream}.{rest}", data) for rest, data in messages])

    def job(self, to: str, options: Mapping[str, str] | None = None, **how: Any) -> Ingest:
        source = {**self.options, **(options or {})}
        job = ingest_job(options=source, to=str(self.folder / to), **self.how | how)
        job.check()
        job.check_preconditions()
        return job

    def ingest(
        self, to: str, options: Mapping[str, str] | None = None, **how: Any
    ) -> QueryProgress:
        """Until the end of the stream."""
        job = self.job(to, options, **how)
        query = job.start(self.spark)
        query.awaitTermination(120)
        done = QueryProgress()
        done.update(query)
        return done

    def grow(self, job: Ingest) -> int:
        """How often the query was started until the stream's end."""
        for started in count(1):
            query = job.start(self.spark)
            with suppress(StreamingQueryException):
                query.awaitTermination(120)
            if not job.has_evolved(query):
                assert query.exception() is None
                return started
        raise AssertionError

    def rows(self, to: str, format_: Format = Format.DELTA) -> list[dict[str, Any]]:
        return rows_of(self.folder / to, format_)
