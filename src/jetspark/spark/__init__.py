"""PySpark with JetStream: the data source `format("jetstream")`, tables, and whole jobs.

The names below are imported when they are first used, so that a Spark worker loads only what its
task needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jetspark.options.scopes import TableOptions
    from jetspark.spark.data_source import JetStreamDataSource
    from jetspark.spark.pipelines.ingest import Ingest
    from jetspark.spark.pipelines.pipeline import start_pipeline
    from jetspark.spark.pipelines.pipeline_file import read_pipeline
    from jetspark.spark.queries.lag import LagListener, QueryLag, lag_by_stream
    from jetspark.spark.queries.metrics import QueryMetrics
    from jetspark.spark.queries.start import start_query
    from jetspark.spark.session.session import close_session, local_session
    from jetspark.spark.table_sink.data_sources import DeltaDataSource, IcebergDataSource

_MODULES = {
    "TableOptions": "jetspark.options.scopes",
    "JetStreamDataSource": "jetspark.spark.data_source",
    "DeltaDataSource": "jetspark.spark.table_sink.data_sources",
    "IcebergDataSource": "jetspark.spark.table_sink.data_sources",
    "Ingest": "jetspark.spark.pipelines.ingest",
    "read_pipeline": "jetspark.spark.pipelines.pipeline_file",
    "start_pipeline": "jetspark.spark.pipelines.pipeline",
    "LagListener": "jetspark.spark.queries.lag",
    "QueryLag": "jetspark.spark.queries.lag",
    "lag_by_stream": "jetspark.spark.queries.lag",
    "QueryMetrics": "jetspark.spark.queries.metrics",
    "start_query": "jetspark.spark.queries.start",
    "local_session": "jetspark.spark.session.session",
    "close_session": "jetspark.spark.session.session",
}
__all__ = [
    "DeltaDataSource",
    "IcebergDataSource",
    "Ingest",
    "JetStreamDataSource",
    "LagListener",
    "QueryLag",
    "QueryMetrics",
    "TableOptions",
    "close_session",
    "lag_by_stream",
    "local_session",
    "read_pipeline",
    "start_pipeline",
    "start_query",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
