"""Reads and checks a pipeline file, TOML with sources, views and sinks, without Spark.

Every mistake is reported with the file's name and the line.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jetspark.options.parsers import parse_duration
from jetspark.spark.pipelines.pipeline_sinks import PipelineSink, check_sinks_apart, read_sink
from jetspark.spark.pipelines.pipeline_sources import PipelineSource, read_source
from jetspark.spark.pipelines.toml_table import KeyLines, TomlTable

_KEYS = {
    "name": str,
    "checkpoint": str,
    **dict.fromkeys(("trigger", "spark", "sources", "views", "sinks"), dict),
}
_REQUIRED_KEYS = {
    "checkpoint": "the folder that keeps the progress",
    "sources": "what to read, as [sources.<name>]",
    "sinks": "what to write, as [sinks.<name>]",
}


@dataclass(frozen=True)
class PipelineFile:
    """A pipeline: sources to read, views in SQL, and sinks, each of which is written by a streaming
    query. It is what a pipeline file has, read and checked without Spark."""

    name: str
    checkpoint: str
    sources: Mapping[str, PipelineSource]
    views: Mapping[str, str]
    """The SQL of views, by their names."""
    sinks: Mapping[str, PipelineSink]
    follow: bool = False
    interval: float = 5.0
    """Seconds from one batch to the next when following."""
    adopt: bool = False
    """Add rows to tables that these queries have not written."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """Settings of the session."""
    key_lines: KeyLines = field(default_factory=KeyLines, repr=False)

    def checkpoint_of(self, sink: str) -> str:
        """The folder of the checkpoint of the sink of this name."""
        return f"{self.checkpoint.rstrip('/')}/{sink}"

    def stream_of(self, sink: PipelineSink) -> PipelineSource | None:
        """The stream that a sink writes into its table without a query of Spark in between; None
        for a sink that is no table, and for rows of a view, a bucket, a static source, or a source
        with a watermark."""
        source = self.sources.get(sink.rows)
        return source if source and source.is_plain and sink.table is not None else None


def read_pipeline(path: str | Path, environment: Mapping[str, str] = os.environ) -> PipelineFile:
    """Read and check a pipeline file. `environment`: variables for `${NAME}` in its texts. Raises
    ConfigError, which names the file and the line."""
    path = Path(path)
    file = TomlTable.read(path, environment)
    file.check_keys(_KEYS)
    for key, purpose in _REQUIRED_KEYS.items():
        if not file.keys.get(key):
            file.fail(key, f"{key} is missing: {purpose}.")
    name = file.take_text("name", path.stem)
    sources = {source: read_source(keys) for source, keys in file.take_tables("sources").items()}
    views = {view: _read_view(keys, sources) for view, keys in file.take_tables("views").items()}
    sinks = {
        sink: read_sink(keys, sources, views, name)
        for sink, keys in file.take_tables("sinks").items()
    }
    check_sinks_apart(file.key_lines, sinks)
    trigger = file.inner("trigger", file.take("trigger", {}))
    trigger.check_keys({"follow": bool, "interval": object})
    with trigger.blaming("interval"):
        interval = parse_duration("interval", str(trigger.take("interval", "5s")))
    return PipelineFile(
        name=name,
        checkpoint=file.take_text("checkpoint"),
        sources=sources,
        views=views,
        sinks=sinks,
        follow=bool(trigger.take("follow", False)),
        interval=interval,
        spark=file.inner("spark", file.take("spark", {})).texts(),
        key_lines=file.key_lines,
    )


def _read_view(view: TomlTable, sources: Mapping[str, PipelineSource]) -> str:
    """Read the SQL of a view from its table in the pipeline file. Raises ConfigError, also if a
    source has the view's name."""
    view.check_keys({"sql": str})
    if "sql" not in view.keys:
        view.fail(None, "sql is missing: the SELECT that makes the view.")
    if view.name in sources:
        view.fail(None, f"there is a source {view.name!r} already.")
    return view.take_text("sql")
