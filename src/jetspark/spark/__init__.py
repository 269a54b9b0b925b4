"""PySpark with JetStream: the data source `format("jetstream")`, tables, and whole jobs.

The names below are imported when they are first used, so that a Spark worker loads only what its
task needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jetspark.options.scopes import TableOptions as TableOptions
    from jetspark.spark.data_source import JetStreamDataSource as JetStreamDataSource
    from jetspark.spark.pipelines.ingest import Ingest as Ingest
    from jetspark.spark.pipelines.pipeline import start_pipeline as start_pipeline
    from jetspark.spark.pipelines.pipeline_file import read_pipeline as read_pipeline
    from jetspark.spark.queries.metrics import QueryMetrics as QueryMetrics
    from jetspark.spark.queries.progress import LagListener as LagListener
    from jetspark.spark.queries.progress import QueryLag as QueryLag
    from jetspark.spark.queries.progress import lag_by_stream as lag_by_stream
    from jetspark.spark.queries.start import start_query as start_query
    from jetspark.spark.session.session import close_session as close_session
    from jetspark.spark.session.session import local_session as local_session
    from jetspark.spark.table_sink.data_sources import DeltaDataSource as DeltaDataSource
    from jetspark.spark.table_sink.data_sources import IcebergDataSource as IcebergDataSource

_MODULES = {
    "TableOptions": "jetspark.options.scopes",
    "JetStreamDataSource": "jetspark.spark.data_source",
    "DeltaDataSource": "jetspark.spark.table_sink.data_sources",
    "IcebergDataSource": "jetspark.spark.table_sink.data_sources",
    "Ingest": "jetspark.spark.pipelines.ingest",
    "read_pipeline": "jetspark.spark.pipelines.pipeline_file",
    "start_pipeline": "jetspark.spark.pipelines.pipeline",
    "LagListener": "jetspark.spark.queries.progress",
    "QueryLag": "jetspark.spark.queries.progress",
    "lag_by_stream": "jetspark.spark.queries.progress",
    "QueryMetrics": "jetspark.spark.queries.metrics",
    "start_query": "jetspark.spark.queries.start",
    "local_session": "jetspark.spark.session.session",
    "close_session": "jetspark.spark.session.session",
}
__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    """Import a public name of this package when it is first used."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
