"""Rows of a DataFrame as entries of a Key-Value bucket.

| column | type | |
|---|---|---|
| key | string | |
| value | binary or string | null deletes the key |
| operation | string | optional: PUT, DEL or PURGE; without it a null value is DEL |

The source's own columns bucket, revision and created are allowed and ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.types import BinaryType, StringType, StructType

from jetspark.bulk.encoded_messages import EncodedMessage, header_block
from jetspark.errors import ConfigError
from jetspark.kv_rules import OPERATION, Operation, check_key
from jetspark.spark.rows import payloads
from jetspark.subjects import nearest_name

_WRITTEN = ("key", "value", "operation")
_NOT_WRITTEN = ("bucket", "revision", "created")
_BLOCKS = {
    Operation.PUT: None,
    Operation.DEL: header_block([(OPERATION, Operation.DEL)]),
    Operation.PURGE: header_block([(OPERATION, Operation.PURGE), ("Nats-Rollup", "sub")]),
}


def check_bucket_columns(schema: StructType) -> None:
    """Raises ConfigError for a DataFrame that cannot be written to a bucket."""
    names = schema.fieldNames()
    for name in names:
        if name not in _WRITTEN and name not in _NOT_WRITTEN:
            near = nearest_name(name, _WRITTEN)
            hint = f" Did you mean {near}?" if near else ""
            raise ConfigError(
                f"The column {name!r} cannot be written to a bucket; the columns are "
                f"{', '.join(_WRITTEN)}.{hint}"
            )
    for name in ("key", "value"):
        if name not in names:
            raise ConfigError(f"A column {name!r} is required to write to a bucket.")
    for name, kinds in (
        ("key", StringType),
        ("value", (BinaryType, StringType)),
        ("operation", StringType),
    ):
        if name in names and not isinstance(schema[name].dataType, kinds):
            found = schema[name].dataType.simpleString()
            wanted = "binary or string" if name == "value" else "string"
            raise ConfigError(f"The column {name!r} must be {wanted}, not {found}.")


class EntryEncoder:
    """Encodes the rows of one task as entries."""

    def __init__(self, bucket: str, *, largest: int) -> None:
        """`largest`: maximum bytes of a value, including headers."""
        self._bucket = bucket
        self._largest = largest

    def messages(self, batches: Iterable[pa.RecordBatch]) -> Iterator[EncodedMessage]:
        """One entry for each row, in order.

        Raises ConfigError for a row that cannot be an entry, BadNameError for its key.
        """
        for batch in batches:
            keys = batch.column("key").to_pylist()
            said: list[str | None] = [None] * batch.num_rows
            if "operation" in batch.schema.names:
                said = batch.column("operation").to_pylist()
            for key, value, operation in zip(keys, payloads(batch, "value"), said, strict=True):
                yield self._message(key, value, operation)

    def _message(
        self, key: str | None, value: bytes | None, operation: str | None
    ) -> EncodedMessage:
        if key is None:
            raise ConfigError("A row has no key (null).")
        check_key(key)
        done = operation or (Operation.DEL if value is None else Operation.PUT)
        if done not in _BLOCKS:
            raise ConfigError(f"The operation of key {key!r} is {done!r}, not PUT, DEL or PURGE.")
        if done == Operation.PUT and value is None:
            raise ConfigError(f"The row for key {key!r} is a PUT without a value (null).")
        payload = value if done == Operation.PUT and value is not None else b""
        if len(payload) > self._largest:
            raise ConfigError(
                f"The value of key {key!r} has {len(payload)} bytes; the bucket takes "
                f"{self._largest} at most."
            )
        return f"$KV.{self._bucket}.{key}".encode(), _BLOCKS[Operation(done)], payload
