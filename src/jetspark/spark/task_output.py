"""What a task that writes a table's files itself reports to the sink: files, figures, new fields.

Spark gives the tasks of a source no way to the driver but their rows. So the report travels as one
row with one hidden column, `COLUMN`. A column can come from anybody, for example from an event that
has a field of this name. Therefore

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
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import types

from jetspark.errors import TableError
from jetspark.lakehouse.new_files import NewFile, decode_new_file, encode_new_file
from jetspark.reserved_names import PREFIX
from jetspark.spark.lakehouse.growth import Growths
from jetspark.spark.versions import in_arrow

COLUMN: Final = types.StructField(
    f"{PREFIX}_task_output",
    types.StructType(
        [
            types.StructField("rows", types.LongType(), nullable=False),
            types.StructField("aside", types.LongType(), nullable=False),
            types.StructField("left_out", types.LongType(), nullable=False),
            types.StructField("sealed", types.BinaryType(), nullable=False),
        ]
    ),
)
"""The hidden column: how many rows the files have, how many quarantine records, how many messages
were left out (all for Spark's figures), and the sealed report."""
_FIELD: pa.Field = in_arrow(types.StructType([COLUMN])).field(0)
_DIGEST: Final = "sha256"
_DIGEST_BYTES: Final = 32


@dataclass(frozen=True)
class TaskOutput:
    """What a task of a source has written itself."""

    files: tuple[NewFile, ...]
    growth: Growths
    retries: int
    """Attempts to read that it made again."""
    aside: int = 0
    """How many rows of the files are quarantine records."""
    left_out: int = 0
    """How many messages are no rows by their format, such as heartbeats of Debezium."""


def make_secret() -> str:
    """A new secret for one start of a query."""
    return secrets.token_hex(32)


def report(output: TaskOutput, secret: str | None) -> pa.RecordBatch:
    """One row that has nothing but the hidden column with the sealed output."""
    count = sum(one.rows for one in output.files) - output.aside
    figures = {"rows": count, "aside": output.aside, "left_out": output.left_out}
    found = {**figures, "sealed": _seal(output, _needed(secret))}
    return pa.RecordBatch.from_pylist([{COLUMN.name: found}], pa.schema([_FIELD]))


def outputs_in(batch: pa.RecordBatch, secret: str | None) -> list[TaskOutput]:
    """The outputs that the rows of a batch report; none in rows of users.

    Raises TableError for a report that no task of this query has sealed.
    """
    if COLUMN.name not in batch.schema.names:
        return []
    return [_open(one, _needed(secret)) for one in batch.column(COLUMN.name).to_pylist()]


def _needed(secret: str | None) -> bytes:
    if not secret:
        raise TableError(
            f"The column {COLUMN.name} is jetspark's own, and this query has no use for it: leave "
            "it out of the rows."
        )
    return secret.encode()


def _seal(output: TaskOutput, secret: bytes) -> bytes:
    files = tuple(map(encode_new_file, output.files))
    content = msgspec.msgpack.encode(replace(output, files=files))
    return hmac.digest(secret, content, _DIGEST) + content


def _open(report: Any, secret: bytes) -> TaskOutput:
    sealed = report.get("sealed") if isinstance(report, dict) else None
    sealed = bytes(sealed) if isinstance(sealed, bytes | bytearray) else b""
    digest, content = sealed[:_DIGEST_BYTES], sealed[_DIGEST_BYTES:]
    if not hmac.compare_digest(digest, hmac.digest(secret, content, _DIGEST)):
        raise TableError(
            f"The column {COLUMN.name} has a report of files that no task of this query has "
            "written. Nothing of the batch was committed: leave the column out of the rows."
        )
    output = msgspec.msgpack.decode(content, type=TaskOutput)
    return replace(output, files=tuple(map(decode_new_file, output.files)))
