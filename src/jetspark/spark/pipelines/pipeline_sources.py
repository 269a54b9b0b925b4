"""The sources of a pipeline file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jetspark.errors import named
from jetspark.options.scopes import ConnectionScope, PayloadScope, SourceScope, parsers_of
from jetspark.spark.pipelines.table_rows import row_columns, with_json_schema
from jetspark.spark.pipelines.toml_table import TomlTable, is_list_of_texts
from jetspark.spark.source.options import SourceOptions, parse_options
from jetspark.spark.source.payload_columns import json_columns, payload_ddl

JETSTREAM = "jetstream"
"""Spark's name of the format of streams and buckets."""
_KEYS = ("format", "json_schema", "watermark", "static")
_OPTIONS = (*parsers_of(SourceScope), *parsers_of(PayloadScope), *parsers_of(ConnectionScope))


@dataclass(frozen=True)
class PipelineSource:
    """A source of a pipeline: a stream, a bucket, or something else that Spark reads. SQL finds it
    by its name in the file."""

    format: str
    """Spark's name of the format."""
    options: Mapping[str, str] = field(repr=False)
    parsed: SourceOptions | None = None
    """The options, of format jetstream."""
    json_schema: str | None = None
    """Schema of JSON payloads in Spark's DDL."""
    watermark: tuple[str, str] | None = None
    """The column of times, and how late a row may come, as `10 minutes`."""
    static: bool = False
    """Read the source once, for joins, instead of following it."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns of a stream's rows: those of the message, and the fields of its
        payload. Only for a source that is a stream or a bucket."""
        assert self.parsed is not None  # noqa: S101
        return row_columns(self.parsed, self.json_schema)

    @property
    def has_fields(self) -> bool:
        """Whether payloads are decoded into columns, and do not stay as they are."""
        return self.json_schema is not None or bool(self.parsed and self.parsed.decoding)

    @property
    def is_plain(self) -> bool:
        """Whether this is a stream whose rows can go into a table as they are read, without a
        query of Spark in between: no bucket, not static, and without a watermark."""
        if self.parsed is None or self.static or self.watermark:
            return False
        return self.parsed.bucket is None


def read_source(source: TomlTable) -> PipelineSource:
    """Read a source from its table in a pipeline file. Raises ConfigError."""
    format_ = source.take_text("format", JETSTREAM)
    watermark = source.take("watermark")
    if watermark is not None:
        if not (is_list_of_texts(watermark) and len(watermark) == 2):
            source.fail("watermark", 'watermark is ["column", "10 minutes"].')
        watermark = tuple(watermark)
    static = bool(source.check_bool("static"))
    source.take("static")
    if format_ == JETSTREAM:
        return _read_stream_source(source, watermark, static=static)
    if "json_schema" in source.keys:
        source.fail("json_schema", f"json_schema is for the format jetstream, not for {format_}.")
    options = source.options_of_spark(_KEYS)
    return PipelineSource(format_, options, watermark=watermark, static=static)


def _read_stream_source(
    source: TomlTable, watermark: tuple[str, str] | None, *, static: bool
) -> PipelineSource:
    """Read a source that is a stream or a bucket, from its table in a pipeline file. Raises
    ConfigError."""
    ddl = source.take("json_schema")
    options = source.options(_OPTIONS, _KEYS)
    if ddl is not None:
        ddl = source.text_of("json_schema", ddl)
        with source.blaming("json_schema"):
            options = with_json_schema(options, ddl)
    with source.blaming():
        parsed = parse_options(options)
        parsed = parsed.for_batch() if static else parsed.for_streaming()
    if ddl is None:
        ddl = payload_ddl(parsed.decoding)
    else:
        with source.blaming("json_schema"):
            json_columns(ddl, named("json_schema"), parsed.columns)
    return PipelineSource(
        JETSTREAM, options, parsed, json_schema=ddl, watermark=watermark, static=static
    )
