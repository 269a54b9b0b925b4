"""The streaming sources of a DataFrame, from Spark's plan."""

from __future__ import annotations

from collections.abc import Iterator

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from jetspark.spark.options import SourceOptions, parse_options


def streaming_sources(rows: DataFrame) -> Iterator[SourceOptions | str]:
    """Each source in Spark's order: our options, or the name of a source of another format.

    A source that is used twice is one (UNION), but two in a join with itself: equal leaves are read
    once.
    """
    leaves = rows._jdf.queryExecution().analyzed().collectLeaves().distinct()
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        if not leaf.isStreaming():
            continue
        try:
            name = str(leaf.sourceName())
        except Py4JError:
            name = str(leaf.getClass().getSimpleName())
        if name == "jetstream":
            yield parse_options(dict(leaf.extraOptions().asCaseSensitiveMap()))
        else:
            yield name
