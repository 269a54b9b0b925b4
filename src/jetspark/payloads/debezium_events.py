"""What a message of Debezium is: a change of a row, or what Debezium sends beside changes.

An event is an envelope (`before`, `after`, `source`, `op`), what ExtractNewRecordState makes of
it, or either of these as the data of a CloudEvent. It becomes the row that it leaves behind, or the
one that it removes, and

| column | |
|---|---|
| `__op` | c (created), u (updated), d (deleted), r (read by a snapshot), t (all rows deleted) |
| `__table` | the table's name in the database |
| `__time` | when the database committed it, or else when the stream got it |
| `__position` | its place in the database's log and in the stream: see `log_position` |

Tombstones, heartbeats, borders of transactions, messages of the application, notifications and
changes of a schema are no rows. Their shape says what they are, never a single name. Anything else
is a row or a bad record.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from jetspark.payloads import log_position
from jetspark.payloads.decoder import Undecodable
from jetspark.payloads.json_objects import parse_object
from jetspark.years import FIRST_MICROS, LAST_MICROS

OP: Final = "__op"
TABLE: Final = "__table"
TIME: Final = "__time"
POSITION: Final = log_position.COLUMN
ADDED: Final = (
    pa.field(OP, pa.string()),
    pa.field(TABLE, pa.string()),
    pa.field(TIME, pa.timestamp("us", tz="UTC")),
    pa.field(POSITION, pa.string()),
)
"""The columns behind those of the row."""
ADDED_NAMES = frozenset(field.name for field in ADDED)
_OPS = ("c", "d", "r", "t", "u")
_WITH_SCHEMA = {"schema", "payload"}
_TIME_FIELDS = frozenset({"ts_ms", "ts_us", "ts_ns"})
_TRANSACTION_FIELDS = frozenset({"status", "id", "event_count", "data_collections"})
_NOTIFICATION_FIELDS = frozenset({"id", "aggregate_type", "type", "additional_data"})
_SCHEMA_CHANGE_FIELDS = frozenset({"source", "databaseName", "schemaName", "ddl", "tableChanges"})
_CONTROL_SCHEMAS = ("Heartbeat", "TransactionMetadataValue", "SchemaChangeValue", "Notification")
"""Ends of the names of schemas whose messages are no changes of rows."""
_SOURCE_FIELDS = (
    *log_position.FIELDS, "version", "connector", "name", "snapshot", "db", "sequence", "schema",
    "table", "collection", "row", "event_serial_no", "rs_id", "ssn", "txId", "xmin", "origin",
    "origin_lsn", "server_id", "gtid", "thread", "query", "lcr_position", "redo_thread",
    "redo_sql", "row_id", "user_name", "commit_ts_ms", "start_scn", "start_ts_ms", "rs", "lsid",
    "txnNumber", "wallTime", "stxnid", "tord", "h", "keyspace", "shard", "vgtid", "begin_lsn",
    "txn_id", "cluster", *_TIME_FIELDS,
)  # fmt: skip
"""Fields of `source`, of all connectors."""
_ADDED_FIELDS = ("op", "deleted", "transaction", "patch", "updateDescription", *_SOURCE_FIELDS)
_ADDED_FIELDS += tuple(
    f"transaction_{name}" for name in ("id", "total_order", "data_collection_order")
)
MARKS = frozenset(f"__{prefix}{name}" for name in _ADDED_FIELDS for prefix in ("", "source_"))
"""Fields that ExtractNewRecordState adds to rows. Any other field that begins with __ is of the
table."""
_CHANGE_FIELDS = ("row", "event_serial_no", "rs_id", "ssn")
"""Fields of `source` that tell apart the changes of one place in the log."""
_FIELD_BY_EXTENSION = {name.replace("_", "").lower(): name for name in ("op", *_SOURCE_FIELDS)}
_EXTENSION_PREFIX = "iodebezium"
_DATA_CHANGE = re.compile(r"io\.debezium\.connector\.[\w.]+\.datachangeevent", re.IGNORECASE)
PARSE_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_INSPECTED = frozenset(
    {
        *MARKS, *_TIME_FIELDS, *_TRANSACTION_FIELDS, *_NOTIFICATION_FIELDS, "op", "source",
        "before", "after", "message", "specversion", "type",
    }
)  # fmt: skip
"""Fields that can show what a message is, which alone are decoded."""


class NoRowError(ValueError):
    """A payload is no event of a row; says why, in a sentence."""


class Event(NamedTuple):
    """A change of one row, or of all rows of a table."""

    op: str
    row: Any
    """The row's JSON; of an event in Avro, the field with the row, or "" for the event itself."""
    table: str | None
    time: int | None
    """Microseconds since 1970."""
    position: str
    schema: bytes = b""
    """The schema that the event carries, in JSON."""
    is_marked: bool = True
    """Whether an envelope or a field `__…` shows that it is an event."""
    not_sent: Sequence[str] = ()
    """Columns of a deleted row in Avro that the database did not send."""


def parse_event(payload: bytes, seq: int, columns: Collection[str] = ()) -> Event | None:
    """Return the event of a message in JSON; None for what Debezium sends beside changes of rows.

    `seq`: the message's sequence; `columns`: those of the table, where they are known. Raises
    NoRowError.
    """
    if payload.strip() in (b"", b"null"):
        return None
    try:
        schema, row = b"", payload
        fields = parse_object(payload, PARSE_FIELDS)
        if fields.keys() == _WITH_SCHEMA:  # as Kafka Connect writes JSON with schemas
            schema, row = bytes(fields["schema"]), bytes(fields["payload"])
            if row == b"null":
                return None
            schema = b"" if schema == b"null" else schema
            fields = PARSE_FIELDS(row) if row.startswith(b"{") else parse_object(row, PARSE_FIELDS)
        payload.decode()  # raises if it is not UTF-8
        values = {
            name: raw if name in ("before", "after") else msgspec.json.decode(raw)
            for name, raw in fields.items()
            if name in _INSPECTED or name.startswith(_EXTENSION_PREFIX)
        }
    except Undecodable as error:
        raise NoRowError(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoRowError(f"The payload is not one JSON object: {error}.") from None
    return classify_message(Message(values, fields, row, schema), seq, columns)


class Message(NamedTuple):
    """The fields of a message, before it is known what it is."""

    values: Mapping[str, Any]
    """The decoded fields that can show what it is; `before` and `after` as in `fields`."""
    fields: Mapping[str, Any]
    """All fields: of JSON undecoded."""
    row: bytes | str
    """The row of the `Event`, if the message itself is a row."""
    schema: bytes = b""


def classify_message(message: Message, seq: int, columns: Collection[str]) -> Event | None:
    """Return the event that a message is; None if it is no change of a row, such as a heartbeat.

    `seq`: the message's sequence; `columns`: those of the table, where they are known. Raises
    NoRowError.
    """
    values = message.values
    if _is_control_message(message, columns):
        return None
    if "specversion" in values and _DATA_CHANGE.fullmatch(str(values.get("type"))):
        return _parse_cloud_event(message, seq)
    # A truncation or an application's message has neither `before` nor `after`.
    has_sides = "before" in values or "after" in values or values.get("op") in ("t", "m")
    if isinstance(values.get("source"), dict) and "op" in values and has_sides:
        return _parse_envelope(values, values["source"], seq, message.schema)
    return _parse_flat_row(message, seq)


def _is_control_message(message: Message, columns: Collection[str]) -> bool:
    """Return whether a message is one that Debezium sends beside changes of rows, such as a
    heartbeat or a border of a transaction. Its fields tell.

    A table can have a row of the same fields: then `columns`, or the schema's name, tells it apart.
    """
    values, names = message.values, message.fields.keys() - _TIME_FIELDS
    has_source = isinstance(values.get("source"), dict)
    if values.get("op") == "m":  # a message of an application, in the database's log
        return has_source and isinstance(values.get("message"), dict)
    if has_source and names <= _SCHEMA_CHANGE_FIELDS:
        return "ddl" in names or "tableChanges" in names
    typical: frozenset[str]  # if the table has one of these columns, this is its row
    if not names:  # a heartbeat
        typical = _TIME_FIELDS
        fits = "ts_ms" in values and all(type(value) is int for value in values.values())
    elif names == _TRANSACTION_FIELDS:  # a border of a transaction
        typical = frozenset({"event_count", "data_collections"})
        fits = values["status"] in ("BEGIN", "END") and isinstance(values["id"], str)
        fits = fits and isinstance(values["data_collections"], list | None)
    elif names - {"timestamp"} == _NOTIFICATION_FIELDS:
        typical = frozenset({"aggregate_type", "additional_data"})
        fits = isinstance(values["aggregate_type"], str)
    else:
        return False
    if message.schema and (name := _schema_name(message.schema)) is not None:
        return fits and name.endswith(_CONTROL_SCHEMAS)
    return fits and typical.isdisjoint(columns)


def _schema_name(text: bytes) -> str | None:
    """Return the name in a schema of Connect; None if it has none."""
    schema = msgspec.json.decode(text)
    name = schema.get("name") if isinstance(schema, dict) else None
    return name if isinstance(name, str) else None


def _parse_envelope(
    values: Mapping[str, Any], source: Mapping[str, Any], seq: int, schema: bytes
) -> Event:
    """Return the event of an envelope (`before`, `after`, `source`, `op`): its row is the one that
    the change leaves behind, or has removed. Raises NoRowError."""
    op = values["op"]
    row: bytes | str
    if op not in _OPS:
        raise NoRowError(f"op is {op!r}, and none of {', '.join(_OPS)}.")
    row = b"{}"
    if op != "t":
        side = "before" if op == "d" else "after"
        row = _row_of_side(values.get(side), side)
    time = _read_time(source)  # of the commit; else when Debezium has read it
    time = _read_time(values) if time is None else time
    change = (op, values.get("before"), values.get("after"))
    position = _make_position(source, op, seq, change)
    return Event(op, row, _table_name(source), time, position, schema)


def _row_of_side(value: Any, side: str) -> bytes | str:
    """Return the row in `before` or `after`: its JSON. Of an event in Avro return the name of that
    field, since its rows are already columns. Raises NoRowError if there is no row."""
    if isinstance(value, dict):  # of Avro
        return side
    row = bytes(value or b"null")
    if row.startswith(b'"'):
        raise NoRowError(
            f"{side} is a text, as of MongoDB: let ExtractNewDocumentState make columns of it."
        )
    if not row.startswith(b"{"):
        raise NoRowError(
            f"There is no {side}, so the row is not known: the table needs a primary key, or "
            "(PostgreSQL) REPLICA IDENTITY FULL."
        )
    return row


def _parse_flat_row(message: Message, seq: int) -> Event:
    """Return the event of a message that is a row itself, as ExtractNewRecordState writes it, which
    adds fields `__…` about the change."""
    marks = {name[2:]: value for name, value in message.values.items() if name in MARKS}
    source = {name: value for name, value in marks.items() if name not in _TIME_FIELDS}
    for name, value in marks.items():
        if name.startswith("source_"):
            source[name.removeprefix("source_")] = value
    change = [item for item in message.fields.items() if item[0] not in MARKS]
    return _make_row_event(message, source, marks, seq, change)


def _make_row_event(
    message: Message, source: Mapping[str, Any], marks: Mapping[str, Any], seq: int, change: Any
) -> Event:
    """Return the event of a row that comes without `before` and `after`. Raises NoRowError.

    `source`: fields about the place of the change in the database; `marks`: fields about the change
    (`op`, `deleted`, times); `change`: what is the same when the event is repeated.
    """
    op = marks.get("op") or "u"  # which replaces the row, or adds it
    if marks.get("deleted") in (True, "true"):
        op = "d"
    if op not in _OPS:
        raise NoRowError(f"__op is {op!r}, and none of {', '.join(_OPS)}.")
    time = _read_time(source)
    time = _read_time(marks) if time is None else time
    position = _make_position(source, op, seq, (op, change))
    table, is_marked = _table_name(source), bool(marks)
    return Event(op, message.row, table, time, position, message.schema, is_marked=is_marked)


def _parse_cloud_event(message: Message, seq: int) -> Event:
    """Return the event of a CloudEvent, as Debezium's CloudEventsConverter writes it: facts of the
    source in extension attributes, the change in the data. Raises NoRowError."""
    # CloudEvents' names have no underscores and no capitals.
    source = {
        _FIELD_BY_EXTENSION.get(short := name.removeprefix(_EXTENSION_PREFIX).lower(), short): value
        for name, value in message.values.items()
        if name.startswith(_EXTENSION_PREFIX)
    }
    schema, data = b"", message.fields.get("data") or b"null"
    try:
        fields = PARSE_FIELDS(data)
        if fields.keys() == _WITH_SCHEMA:
            schema, data = bytes(fields["schema"]), fields["payload"]
            fields = PARSE_FIELDS(data)
    except msgspec.ValidationError:
        raise NoRowError("The CloudEvent has no data in JSON.") from None
    if not source:
        raise NoRowError(
            "The CloudEvent does not say what happened: let Debezium's converter write its "
            "extension attributes (extension.attributes.enable)."
        )
    if fields.keys() <= {"before", "after"}:
        return _parse_envelope({**fields, "op": source.get("op")}, source, seq, schema)
    row = Message({}, fields, bytes(data), schema)
    return _make_row_event(row, source, source, seq, data)


def _table_name(source: Mapping[str, Any]) -> str | None:
    """Return the table, or MongoDB's collection, that `source` names; None if it names none."""
    table = source.get("table") or source.get("collection")
    return table if isinstance(table, str) else None


def _read_time(source: Mapping[str, Any]) -> int | None:
    """Return the time in `ts_us` or `ts_ms`, in microseconds since 1970; None if there is none.
    Raises NoRowError for what is no time."""
    for name, factor in (("ts_us", 1), ("ts_ms", 1000)):
        if (time := source.get(name)) is None:
            continue
        if isinstance(time, str) and re.fullmatch("-?[0-9]{1,20}", time):
            time = int(time)
        if type(time) is not int or not FIRST_MICROS <= time * factor <= LAST_MICROS:
            raise NoRowError(f"{name} is no time in the years 1 to 9999.")
        return time * factor
    return None


def _make_position(source: Mapping[str, Any], op: str, seq: int, change: tuple[Any, ...]) -> str:
    """Return the `__position` of a change, by which changes are ordered; see `log_position`.
    `change`: what is the same when the event is repeated. Raises NoRowError."""
    try:
        log = log_position.log_place(source, op)
    except ValueError as error:
        raise NoRowError(f"{error}.") from None
    changed = msgspec.json.encode([*change, *(source.get(name) for name in _CHANGE_FIELDS)])
    return log_position.make_position(log, seq, changed)
