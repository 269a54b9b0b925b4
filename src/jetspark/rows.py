"""Read a stream, a bucket or a backup as Arrow, Polars, pandas or DuckDB: `jetspark.read`.

A stream may be read together with the table that `jetspark ingest` has made of it (`tails`).

Contract: `read` checks its arguments and connects to nothing. The first use of the result asks the
stream's leader once; from then on the range is fixed, and each further use reads it again. It is
read in the calling thread, without an event loop: in asyncio use `asyncio.to_thread`. Rows are
exact as those of `format("jetstream")` (`ranges.reader`): in order, each once, and what is gone is
a DataLossError.

The libraries are imported when they are needed: none of them is part of `import jetspark`.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Unpack

from jetspark.connection.options import ConnectionOptions, make_options
from jetspark.errors import ConfigError, named
from jetspark.timestamps import Seconds, in_seconds
from jetspark.validation import check_whole, texts_of

if TYPE_CHECKING:
    from datetime import datetime

    import duckdb
    import pandas
    import polars
    import pyarrow

    from jetspark.connection.options import ConnectOptions
    from jetspark.payloads.decoding import Decoding
    from jetspark.payloads.schema import PayloadFormat, SchemaLookup
    from jetspark.ranges.read_plan import ReadPlan
    from jetspark.ranges.scan import Scan
    from jetspark.tails.read_plan import TableReadPlan, TableScan

_NOTEBOOK_ROWS = 10
_MAX_NOTEBOOK_CHARS = 100
"""Longer texts of values are cut in a notebook."""


def read(
    source: str | os.PathLike[str] | None = None,
    /,
    *,
    bucket: str | None = None,
    table: str | os.PathLike[str] | None = None,
    table_format: Literal["delta", "iceberg"] | None = None,
    storage: Mapping[str, str] | None = None,
    subjects: str | Iterable[str] = (),
    keys: str | Iterable[str] = (),
    history: bool = False,
    columns: Iterable[str] = (),
    json_schema: str | bool = False,
    decode: Literal["avro", "protobuf", "cloudevents", "debezium"] | None = None,
    schema: str | None = None,
    schema_file: str | os.PathLike[str] | None = None,
    registry: str | SchemaLookup | None = None,
    schema_name: str | None = None,
    message: str | None = None,
    fields: str | Iterable[str] = (),
    framing: Literal["none", "confluent", "apicurio", "azure", "nats"] = "none",
    compression: Literal["header", "none", "gzip", "zstd", "snappy"] = "header",
    unavailable_value: str | None = None,
    rename: Mapping[str, str] | None = None,
    start: int | datetime | timedelta | str | None = None,
    end: int | datetime | timedelta | str | None = None,
    fail_on_data_loss: bool = True,
    read_timeout: Seconds = 60.0,
    backfill: Literal["consumer", "snapshot"] | None = None,
    progress: bool = False,
    servers: str | Iterable[str] | None = None,
    **connection: Unpack[ConnectionOptions],
) -> Rows:
    """Read a stream, a bucket or a backup as Arrow, Polars, pandas or DuckDB.

    Connects to nothing yet: the rows in the result are read when they are used. `source`: a
    stream's name; or the folder of a backup as a Path, or its URI (s3://…). `bucket`: the present
    values of a Key-Value bucket instead, or with `history` every entry of it; `keys`: only of these
    keys. `subjects`: only messages under one of these. Keys and subjects may have wildcards.
    `columns`: only these columns.

    `table`: the table that `jetspark ingest` makes of the stream: a folder, a URI, or
    catalog:namespace.table. The rows are those of the table's newest version, and those of the
    messages that it does not have yet, each once, with the table's columns. The table says how
    they are decoded; only a `registry` has to be named again. `table_format`: needed for a URI;
    `storage`: options of its storage, {"AWS_REGION": "…"}.

    `start`, `end`: a sequence, a time (a datetime with a zone, or text), or how long ago (a
    timedelta, or text such as "2 hours"); from the first message stored then or later, to before
    the end. Default: all.

    `json_schema`: the fields of JSON payloads as further columns, "id STRING, at TIMESTAMP"; a
    payload that does not fit is in `_corrupt_record`, and `_corrupt_reason` says why. True: fields
    found in a sample, beside the payload.

    `decode`: the fields of payloads in another format as further columns; `schema`, `schema_file`,
    `registry` (or what `jetspark.registry.lookup` has made of one), `schema_name`, `message`,
    `fields`, `framing`, `compression`: as the options of Spark's format (docs/guide-payloads.md).
    `unavailable_value`: Debezium's unavailable.value.placeholder, if it is not the default. A
    payload that does not decode is in `_corrupt_record`, and `_corrupt_reason` says why.

    `rename`: columns with other names than their fields, {"timestamp": "sent_at"}. By default a
    field has its name, or payload_timestamp where a column of the message has that.

    `fail_on_data_loss=False`: lost messages are left out, with a warning in the log.
    `read_timeout`: seconds without progress until reading fails. `backfill`: through a consumer, or
    a snapshot of the whole stream; default: what is faster. `progress`: show a bar. `servers`,
    `connection`: as of `jetspark.connect`.

    Raises ConfigError for wrong arguments, and without pyarrow.

    Example:
        ```python
        rows = jetspark.read("ORDERS", servers="nats://127.0.0.1:4222")
        table = rows.to_arrow()
        print(table.num_rows)  # 3
        ```
    """
    library("pyarrow", "'jetspark[arrow]'")
    if table is not None:
        _check_only_table(
            stream=source, bucket=bucket, subjects=subjects, keys=keys, history=history,
            json_schema=json_schema, decode=decode, schema=schema, schema_file=schema_file,
            schema_name=schema_name, message=message, fields=fields, rename=rename,
            unavailable_value=unavailable_value, start=start, end=end, backfill=backfill,
            framing="" if framing == "none" else framing,
            compression="" if compression == "header" else compression,
        )  # fmt: skip
    elif table_format is not None or storage:
        raise ConfigError(f"{named('table_format')} and storage go with table.")
    from jetspark.ranges.scan import Scan, parse_bound

    stream, backup = _stream_and_backup(source)
    if (source is None) == (bucket is None):
        raise ConfigError(
            "Name one thing to read: a stream, read('ORDERS'); a bucket, read(bucket='prices'); or "
            "a backup, read(Path('backups/orders'))."
        )
    if backup is not None:
        for name, value in {**connection, "servers": servers, "backfill": backfill}.items():
            if value is not None:
                raise ConfigError(f"{name} is for servers; a backup is read without one.")
    options = None if backup is not None else make_options(servers, **connection)
    lookup = None
    if table is not None and registry is not None:
        lookup, registry = _lookup(registry, options), None
    decoding = _make_decoding(
        decode,
        options,
        schema=schema,
        schema_file=None if schema_file is None else os.fspath(schema_file),
        lookup=registry,
        schema_name=schema_name,
        message=message,
        fields=tuple(texts_of("fields", fields)),
        framing=framing,
        compression=compression,
        unavailable_value=unavailable_value,
        rename=rename,
    )
    if rename and not json_schema and decode is None:
        raise ConfigError("rename goes with json_schema or decode, which make columns of fields.")
    for name, texts in (("subjects", subjects), ("keys", keys), ("columns", columns)):
        if isinstance(texts, str) and "," in texts:
            raise ConfigError(f"{name} has a comma: give a list, {name}={texts.split(',')!r}.")
    scan = Scan(
        connection=options,
        stream=stream,
        bucket=bucket,
        backup=backup,
        subjects=tuple(texts_of("subjects", subjects)),
        keys=tuple(texts_of("keys", keys)),
        history=history,
        columns=() if table is not None else tuple(texts_of("columns", columns)),
        json_schema=json_schema,
        decoding=decoding,
        rename=rename or {},
        start=parse_bound("start", start),
        end=parse_bound("end", end),
        fail_on_data_loss=fail_on_data_loss,
        read_timeout=in_seconds(read_timeout),
        backfill=backfill,
    )
    if table is None:
        return Rows(scan, progress=progress)
    from jetspark.tails.read_plan import TableScan

    return Rows(
        TableScan(
            scan,
            table=os.fspath(table),
            format=table_format,
            storage={f"storage.{name}": value for name, value in (storage or {}).items()},
            columns=tuple(texts_of("columns", columns)),
            lookup=lookup,
        ),
        progress=progress,
    )


def _check_only_table(stream: object, **arguments: object) -> None:
    """Raise ConfigError for an argument that does not go with `table`, or without a stream."""
    if not isinstance(stream, str):
        raise ConfigError("table goes with a stream: read('ORDERS', table='lake/orders').")
    for name, value in arguments.items():
        if value:
            raise ConfigError(
                f"{name} does not go with table: the rows are all that the table has and gets, as "
                "its query makes them. Choose among them afterwards, or leave table out."
            )


def _stream_and_backup(source: str | os.PathLike[str] | None) -> tuple[str | None, str | None]:
    """Decide whether `source` names a stream or a backup; returns (stream, backup), one is None.

    A path or a URI is a backup, other text a stream's name. Raises ConfigError for text with a
    slash, which must be the path of a folder.
    """
    if isinstance(source, os.PathLike) or (source is not None and "://" in source):
        return None, os.fspath(source)
    if source is not None and "/" in source:
        raise ConfigError(
            f"{source!r} is not the name of a stream; if it is the folder of a backup, write "
            f"Path({source!r})."
        )
    return source, None


def _make_decoding(
    decode: PayloadFormat | None, connection: ConnectOptions | None, **arguments: Any
) -> Decoding | None:
    """Make the decoding of payloads in the format `decode`; None if there is no format.

    Raises ConfigError for other arguments without a format. `arguments`: as of `Decoding.make`;
    `lookup` may be a schema registry's address, which is asked through `connection` when it is in
    NATS.
    """
    from jetspark.payloads.decoding import Decoding

    if arguments["lookup"] is not None:
        arguments["lookup"] = _lookup(arguments["lookup"], connection)
    if decode is not None:
        return Decoding.make(decode, **arguments)
    del arguments["rename"]  # it may go with json_schema
    defaults = {"framing": "none", "compression": "header"}
    if any(value and value != defaults.get(name) for name, value in arguments.items()):
        raise ConfigError(
            f"schema, fields, framing, compression and {named('unavailable_value')} go with "
            f"{named('decode')}, the format."
        )
    return None


def _lookup(registry: str | SchemaLookup, connection: ConnectOptions | None) -> SchemaLookup:
    """The look-up of schemas in a registry, by its address or as it was given."""
    if not isinstance(registry, str):
        return registry
    from jetspark.registry.lookup import schema_lookup

    return schema_lookup(registry, connection or make_options())


class Rows:
    """The result of `read`: rows that are read when they are used, again with each use.

    Iterate for record batches in bounded memory. It has Arrow's C stream interface, so that
    `polars.DataFrame(rows)`, `duckdb.from_arrow(rows)` and others take it. Every use raises
    DataLossError, StreamRecreatedError, StreamNotFoundError; IncompleteRangeError without progress;
    ConfigError for what cannot be read; the errors of connecting; BackupError for a backup.

    Example:
        ```python
        rows = jetspark.read("ORDERS", servers="nats://127.0.0.1:4222")
        for batch in rows:
            print(batch.num_rows, batch.column("subject")[0])  # 3 orders.eu
        ```
    """

    def __init__(self, scan: Scan | TableScan, *, progress: bool = False) -> None:
        self._scan = scan
        self._progress = progress

    @cached_property
    def _plan(self) -> ReadPlan | TableReadPlan:
        """The range and how it is read, fixed by the first use, which asks the server."""
        from jetspark.ranges.read_plan import plan_read
        from jetspark.ranges.scan import Scan

        return plan_read(self._scan) if isinstance(self._scan, Scan) else self._scan.plan()

    @property
    def schema(self) -> pyarrow.Schema:
        """The columns and their types."""
        return self._plan.schema

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        """Read the rows as record batches, with a progress bar if the user wants one."""
        if not self._progress:
            yield from self._plan.batches()
            return
        with _progress_bar(f"reading {self._plan.name}", self._plan.rows) as advance:
            for batch in self._plan.batches():
                yield batch
                advance(batch.num_rows)

    def head(self, rows: int = _NOTEBOOK_ROWS) -> pyarrow.Table:
        """Read the first `rows` rows only, as a `pyarrow.Table`."""
        import pyarrow as pa

        first = self._plan.first(check_whole("rows", rows))
        return pa.Table.from_batches(list(first), schema=self.schema)

    def to_arrow(self) -> pyarrow.Table:
        """Read all rows into a `pyarrow.Table`."""
        import pyarrow as pa

        return pa.Table.from_batches(list(self), schema=self.schema)

    def to_polars(self) -> polars.DataFrame:
        """Read all rows into a `polars.DataFrame`, which shares the memory of the batches."""
        frame: polars.DataFrame = library("polars").from_arrow(self.to_arrow(), rechunk=False)
        return frame

    def to_pandas(self) -> pandas.DataFrame:
        """Read all rows into a `pandas.DataFrame`."""
        library("pandas")
        frame: pandas.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_duckdb(
        self, name: str, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyRelation:
        """Read all rows into a new table of DuckDB, in bounded memory; returns it as a relation.

        `name`: the table's. `connection`: by default the one that `duckdb.sql` uses. Raises
        DuckDB's own error if there is a table of that name.
        """
        import pyarrow as pa

        database = library("duckdb")
        if connection is None:
            connection = database.default_connection()
        reading_error: BaseException | None = None

        def batches() -> Iterator[pyarrow.RecordBatch]:
            """Read the batches for DuckDB, and remember an error, which DuckDB would replace."""
            nonlocal reading_error
            try:
                yield from self
            except BaseException as error:
                reading_error = error
                raise

        reader = pa.RecordBatchReader.from_batches(self.schema, batches())
        try:
            connection.from_arrow(reader).create(name)
        except database.Error:
            if reading_error is not None:  # DuckDB raises it as its own error, without the type
                raise reading_error from None
            raise
        return connection.table(name)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as an Arrow C stream, by which Polars, DuckDB and others read them."""
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_batches(self.schema, _until_exit(iter(self)))
        return reader.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        from jetspark.ranges.scan import Scan

        scan = self._scan
        if not isinstance(scan, Scan):
            return repr(scan)
        if scan.bucket is not None:
            return f"jetspark.read(bucket={scan.bucket!r})"
        if scan.backup is not None:
            from jetspark.backup.folder import redact_folder

            return f"jetspark.read(Path({redact_folder(scan.backup)!r}))"
        return f"jetspark.read({scan.stream!r})"

    def _repr_html_(self) -> str:
        """A table of the first rows, which notebooks show."""
        table = self.head()
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        heads = "".join(f"<th>{escape(name)}</th>" for name in table.column_names)
        lines = "".join(f"<tr>{''.join(map(_html_cell, row))}</tr>" for row in rows)
        count = table.num_rows
        extent = f"the first {count} rows" if count == _NOTEBOOK_ROWS else "all rows"
        return (
            f"<table><caption>{escape(repr(self))}: {extent}</caption>"
            f"<thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"
        )


# After a LIMIT, DuckDB goes on to read an Arrow stream in threads of its own. One that calls Python
# when the interpreter has ended aborts the process, so streams end before.

_EXIT_TIMEOUT = 2.0
"""Seconds that the interpreter's end waits for other libraries' readers."""
_exiting = threading.Event()
_stream_ends: set[threading.Event] = set()
"""An event for each Arrow stream that another library reads, set when the stream has ended."""


def _until_exit(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Pass on the batches to another library's reader, until the interpreter begins to exit.

    A thread of that library that calls Python later would abort the process.
    """
    ended = threading.Event()
    _stream_ends.add(ended)
    try:
        for batch in batches:
            if _exiting.is_set():
                return
            yield batch
    finally:
        _stream_ends.discard(ended)
        ended.set()


@atexit.register
def _end_arrow_streams() -> None:
    """End the Arrow streams that other libraries still read, when the interpreter exits.

    Waits a short time for them, since a reader's thread may be inside one.
    """
    _exiting.set()
    deadline = time.monotonic() + _EXIT_TIMEOUT
    for ended in list(_stream_ends):
        ended.wait(max(0.0, deadline - time.monotonic()))


def _html_cell(value: Any) -> str:
    """Encode a value as a cell of an HTML table, cut if it is long; an empty cell for None."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    if len(text) > _MAX_NOTEBOOK_CHARS:
        text = f"{text[: _MAX_NOTEBOOK_CHARS - 1]}…"
    return f"<td>{'' if value is None else escape(text)}</td>"


@contextmanager
def _progress_bar(description: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr during the block; yields a function that adds rows to it.

    `total`: the number of rows, if it is known.
    """
    progress = library("rich.progress", "rich")
    with progress.Progress(
        "{task.description}",
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        console=library("rich.console", "rich").Console(stderr=True),
    ) as display:
        task = display.add_task(description, total=total)
        yield lambda rows: display.advance(task, rows)


def library(name: str, install: str = "") -> Any:
    """Import an optional library. Raises ConfigError, which says how to install it.

    `install`: what `pip install` needs; by default the library's name.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        top = name.partition(".")[0]
        if (missing.name or "").partition(".")[0] != top:  # one that the library itself needs
            raise
        raise ConfigError(f"This needs {top}: pip install {install or top}.") from None
