"""An `Ingest` whose options of all scopes stand side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from jetspark.options.scopes import TableOptions, parsers_of
from jetspark.options.spark_options import read_options
from jetspark.spark.pipelines.ingest import Ingest

_OF_TABLE = {one.name for one in fields(TableOptions)}


def ingest_job(*, table_options: Mapping[str, str] | None = None, **options: Any) -> Ingest:
    """`table_options`: further options of the table, as Spark takes them."""
    texts = dict(table_options or {})
    storage = {name: texts.pop(name) for name in list(texts) if "." in name}
    table = TableOptions(**read_options(texts, parsers_of(TableOptions), elsewhere={}))
    given = {name: options.pop(name) for name in list(options) if name in _OF_TABLE}
    if "keys" in given:
        given["keys"] = tuple(given["keys"])
    return Ingest(table_options=replace(table, **given), storage=storage, **options)


def with_table_options(job: Ingest, **options: Any) -> Ingest:
    """The job with other options of its table."""
    return replace(job, table_options=replace(job.table_options, **options))
