"""Records that do not become rows: why, and the table that keeps them as they came.

| column | type | |
|---|---|---|
| stream, subject, seq, timestamp, headers, data | as format jetstream has them | the message |
| column | string | the column whose value does not fit; null when it is not one column |
| reason | string | why, for people |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from jetspark.payloads.field_names import PREFIX
from jetspark.reserved_names import CORRUPT_REASON

_PAIR = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.string())])
MESSAGE: Final = ("stream", "subject", "seq", "timestamp", "headers", "data")
"""The columns of the message itself."""
SCHEMA: Final = pa.schema(
    [
        pa.field("stream", pa.string()),
        pa.field("subject", pa.string()),
        pa.field("seq", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("headers", pa.list_(pa.field("element", _PAIR))),
        pa.field("data", pa.binary()),
        pa.field("column", pa.string()),
        pa.field("reason", pa.string()),
    ]
)
REASON: Final = CORRUPT_REASON
"""The column in which decoders say why a payload is no row."""

Reason = tuple[str | None, str]
"""(column, sentence): why a record does not become a row; the column may be None."""
_NAME_ENDS: Final = (":", ".", "[")
"""What follows the name of a field in a decoder's reason."""


def quarantine_rows(
    rows: pa.RecordBatch, reason_of: Callable[[pa.RecordBatch], Reason]
) -> pa.RecordBatch:
    """Make rows of a quarantine table, which keeps messages that did not become rows of their own
    table, from rejected records. `rows`: with the columns of `MESSAGE`; `reason_of`: says why a
    record, given as a batch of one row, was rejected."""
    # Not as Python's values, which lack some dates that other columns may have.
    reasons = [reason_of(rows.slice(index, 1)) for index in range(rows.num_rows)]
    columns, sentences = zip(*reasons, strict=True)
    message = [rows.column(name).cast(SCHEMA.field(name).type) for name in MESSAGE]
    explanations = [pa.array(columns, pa.string()), pa.array(sentences, pa.string())]
    return pa.RecordBatch.from_arrays([*message, *explanations], schema=SCHEMA)


def column_of_reason(reason: str, fields: Iterable[str]) -> str | None:
    """The column to which a decoder's reason refers: its field stands at the beginning, as in
    `items[1].price: 12.5 is not an INT.` None if the reason begins with none of these fields.
    `fields`: names of columns; a prefix of ours on a name is not part of the payload's field."""
    columns = {name.removeprefix(PREFIX): name for name in fields if name.startswith(PREFIX)}
    columns |= {name: name for name in fields}
    for name in sorted(columns, key=len, reverse=True):  # a name may be the beginning of another
        if reason.startswith(name) and reason[len(name) :].startswith(_NAME_ENDS):
            return columns[name]
    return None


def rejection_message(row: Mapping[str, Any], reason: Reason) -> str:
    """A sentence for people about a record that was rejected. `row`: the columns of its message
    (stream, seq, subject) that are known; `reason`: (column or None, why)."""
    stream, seq, subject = (row.get(name) for name in ("stream", "seq", "subject"))
    record = "A record" if seq is None else f"Message {seq}"
    record += "" if stream is None else f" of {stream}"
    record += "" if subject is None else f" on the subject {subject}"
    column, sentence = reason
    cause = "" if column is None else f", for its column {column}"
    return f"{record} does not become a row{cause}: {sentence}"
