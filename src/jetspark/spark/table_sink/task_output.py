"""The result of a task that writes a table's files, on its way to the driver: files, figures, and
fields that the table lacks.

The task of a sink returns it as Spark's commit message. The task of a source has no way to the
driver but its rows, so the result travels as one row with one hidden column, `COLUMN`, to the sink,
which passes it on. A column can come from anybody, for example from an event that has a field of
this name. Therefore

- the report is data (MessagePack of known classes), and decoding it cannot run anything;
- it is sealed with a secret that the driver makes for each start of a query. Only the query's own
  source and sink have it, in the option `TASK_SECRET`, which Spark masks in all that it shows;
- each file that it names has to be one that a `FileWriter` can have written: a plain name below
  the table's folder.

A name that begins with `_jetspark` is refused in every schema and DataFrame (`reserved_names`), so
an unsealed report does not get this far. If one does, the write ends with TableError.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import Column, types
from pyspark.sql import functions as F
from pyspark.sql.datasource import WriterCommitMessage

from jetspark.errors import TableError
from jetspark.reserved_names import PREFIX
from jetspark.spark.table_sink.schema_evolution import SchemaChanges, combine_changes
from jetspark.spark.versions import in_arrow
from jetspark.tables.new_files import NewFile, decode_new_file, encode_new_file
from jetspark.tables.stream_positions import StreamPosition, latest_positions

_FIGURES: Final = ("rows", "quarantined", "left_out")
COLUMN: Final = types.StructField(
    f"{PREFIX}_task_output",
    types.StructType(
        [
            *(types.StructField(name, types.LongType(), nullable=False) for name in _FIGURES),
            types.StructField("sealed", types.BinaryType(), nullable=False),
        ]
    ),
)
"""The hidden column: the figures of the task for Spark's reports, and the sealed result."""
_FIELD: pa.Field = in_arrow(types.StructType([COLUMN])).field(0)
_DIGEST: Final = "sha256"
_DIGEST_BYTES: Final = 32


@dataclass(frozen=True)
class TaskOutput:
    """What the driver has to know of the rows that one task, or several, have written: the files,
    columns that tables lack, and figures."""

    files: tuple[NewFile, ...] = ()
    schema_changes: SchemaChanges = field(default_factory=dict)
    """Columns that the tables lack. If there are any, the files are not committed."""
    retries: int = 0
    """Attempts to read that failed and were repeated."""
    quarantined: int = 0
    """Rows of the files that are quarantine records."""
    left_out: int = 0
    """Messages that are no rows by their format, such as heartbeats of Debezium."""
    positions: tuple[StreamPosition, ...] = ()
    """How far the streams were read."""

    @property
    def rows(self) -> int:
        """The number of rows in the files that are rows of tables, not quarantined records."""
        return sum(file.rows for file in self.files) - self.quarantined


@dataclass
class TaskCommit(WriterCommitMessage):
    """Spark's commit message of a sink task: what the task has written, for the driver."""

    writer_id: str
    """The query's id; empty in a batch write."""
    output: TaskOutput = TaskOutput()


def combine(outputs: Iterable[TaskOutput]) -> TaskOutput:
    """Combine what several tasks have written into one output, for one commit."""
    outputs = tuple(outputs)
    return TaskOutput(
        files=tuple(file for output in outputs for file in output.files),
        schema_changes=combine_changes(output.schema_changes for output in outputs),
        retries=sum(output.retries for output in outputs),
        quarantined=sum(output.quarantined for output in outputs),
        left_out=sum(output.left_out for output in outputs),
        positions=latest_positions(each for output in outputs for each in output.positions),
    )


# -- the hidden column ---------------------------------------------------------------------------


def make_secret() -> str:
    """Make a random secret for one start of a query, with which its tasks seal their reports."""
    return secrets.token_hex(32)


def report(output: TaskOutput, secret: str | None) -> pa.RecordBatch:
    """The report of a source task that writes files itself: one row with one hidden column, in
    which its output is sealed with the query's secret. The sink passes it on to the driver."""
    figures = {name: getattr(output, name) for name in _FIGURES}
    row = {**figures, "sealed": _seal(output, _key_of(secret))}
    return pa.RecordBatch.from_pylist([{COLUMN.name: row}], pa.schema([_FIELD]))


def observed_figures() -> list[Column]:
    """Sums of rows, quarantined records and left-out messages over all tasks' reports, as columns
    for `DataFrame.observe`: Spark itself would count reports, not rows."""
    return [F.sum(f"{COLUMN.name}.{name}").alias(name) for name in _FIGURES]


def outputs_in(batch: pa.RecordBatch, secret: str | None) -> list[TaskOutput]:
    """Unseal the outputs of source tasks from rows that are their reports; an empty list for rows
    that are no reports.

    Raises TableError for a report that was not sealed with the query's secret, so that no task of
    this query has made it.
    """
    if COLUMN.name not in batch.schema.names:
        return []
    key = _key_of(secret)
    return [_unseal(row, key) for row in batch.column(COLUMN.name).to_pylist()]


def _key_of(secret: str | None) -> bytes:
    """The key that seals a task's report, from the query's secret. Raises TableError for a query
    without a secret: its tasks make no reports, so the column comes from the user's rows."""
    if not secret:
        raise TableError(
            f"The column {COLUMN.name} is reserved for jetspark, and this query has no use for it: "
            "leave it out of the rows."
        )
    return secret.encode()


def _seal(output: TaskOutput, key: bytes) -> bytes:
    """Encode a task's output as bytes that begin with an HMAC digest, which proves that the output
    comes from somebody who has the key."""
    files = tuple(map(encode_new_file, output.files))
    content = msgspec.msgpack.encode(replace(output, files=files))
    return hmac.digest(key, content, _DIGEST) + content


def _unseal(row: Mapping[str, Any] | None, key: bytes) -> TaskOutput:
    """Check and decode a task's output from a value of the hidden column. Raises TableError if its
    digest was not made with the key, before anything is decoded."""
    sealed = row.get("sealed") if isinstance(row, dict) else None
    sealed = bytes(sealed) if isinstance(sealed, bytes | bytearray) else b""
    digest, content = sealed[:_DIGEST_BYTES], sealed[_DIGEST_BYTES:]
    if not hmac.compare_digest(digest, hmac.digest(key, content, _DIGEST)):
        raise TableError(
            f"The column {COLUMN.name} has a report of files that no task of this query has "
            "written. Nothing of the batch was committed: leave the column out of the rows."
        )
    output = msgspec.msgpack.decode(content, type=TaskOutput)
    return replace(output, files=tuple(map(decode_new_file, output.files)))
