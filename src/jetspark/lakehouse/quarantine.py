"""Records that do not become rows: why, and the table that keeps them as they came.

| column | type | |
|---|---|---|
| stream, subject, seq, timestamp, headers, data | as format jetstream has them | the message |
| column | string | the column whose value does not fit; null when it is not one column |
| reason | string | why, for people |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

_PAIR = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.string())])
MESSAGE: Final = ("stream", "subject", "seq", "timestamp", "headers", "data")
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
REASON: Final = "_corrupt_reason"
"""The column in which decoders say why a payload is no row."""
_SHOWN = 80

Reason = tuple[str | None, str]
"""A column, or None, and a sentence."""


def records(rows: pa.RecordBatch, why: Callable[[pa.RecordBatch], Reason]) -> pa.RecordBatch:
    """Rows of the table: `rows` has the columns of `MESSAGE`; `why` says the reason of one row."""
    # Not as Python's values, which lack some dates that other columns may have.
    reasons = [why(rows.slice(at, 1)) for at in range(rows.num_rows)]
    columns, sentences = zip(*reasons, strict=True)
    message = [rows.column(name).cast(SCHEMA.field(name).type) for name in MESSAGE]
    said = [pa.array(columns, pa.string()), pa.array(sentences, pa.string())]
    return pa.RecordBatch.from_arrays([*message, *said], schema=SCHEMA)


def refusal(row: Mapping[str, Any], reason: Reason) -> str:
    """A sentence about a record that is not to be kept; `row`: the columns of `MESSAGE` that are
    known of it."""
    stream, seq, subject = (row.get(name) for name in ("stream", "seq", "subject"))
    which = "A record" if seq is None else f"Message {seq}"
    which += "" if stream is None else f" of {stream}"
    which += "" if subject is None else f" on the subject {subject}"
    column, sentence = reason
    where = "" if column is None else f", for its column {column}"
    return f"{which} does not become a row{where}: {sentence}"


def why_not(payload: bytes | None, fields: Mapping[str, pa.DataType]) -> Reason:
    """Why a refused payload is not a row with these fields."""
    if not payload or not payload.strip():
        return None, "The payload is empty."
    try:
        text = payload.decode()
    except UnicodeDecodeError as error:
        return (
            None,
            f"The payload is not UTF-8: byte {error.start} is 0x{payload[error.start]:02x}.",
        )
    try:
        value = json.loads(text)
    except RecursionError:
        return None, "The payload is nested too deeply."
    except ValueError as error:
        said = str(error)
        return None, f"The payload is not one JSON object: {said[:1].lower()}{said[1:]}."
    if not isinstance(value, dict):
        return None, f"The payload is {_kind(value)}, not an object."
    for name, kind in fields.items():
        found = value.get(name)
        if found is None or _fits(found, kind):
            continue
        shown = json.dumps(found)
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
        return name, f"{name} is {_kind(found)} ({shown}), not {kind}."
    return None, "The payload does not fit the schema."


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return "null"


def _fits(value: Any, kind: pa.DataType) -> bool:
    """Whether a JSON value may be of a type; True if that is unknown."""
    for is_of, fits in _KINDS:
        if is_of(kind):
            return fits(value, kind)
    return True


def _whole(value: Any, kind: pa.DataType) -> bool:
    most = 1 << (kind.bit_width - 1)
    return type(value) is int and -most <= value < most


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType], bool]], ...] = (
    (pa.types.is_boolean, lambda value, _: isinstance(value, bool)),
    (pa.types.is_integer, _whole),
    (pa.types.is_floating, lambda value, _: type(value) in (int, float)),
    (pa.types.is_struct, lambda value, _: isinstance(value, dict)),
    (pa.types.is_map, lambda value, _: isinstance(value, dict)),
    (pa.types.is_list, lambda value, _: isinstance(value, list)),
    (
        pa.types.is_temporal,
        lambda value, _: isinstance(value, str) and value[:4].isdecimal() and value[4:5] == "-",
    ),
)
