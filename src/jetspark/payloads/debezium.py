"""Debezium's change events: the rows of a database's tables, with what happened to them.

An event is an envelope (`before`, `after`, `source`, `op`), what ExtractNewRecordState makes of
it, or either of these as the data of a CloudEvent; in JSON, alone or beside its schema, or in Avro.
It becomes the row that it leaves behind, or the one that it removes, and

| column | |
|---|---|
| `__op` | c (created), u (updated), d (deleted), r (read by a snapshot), t (all rows deleted) |
| `__table` | the table's name in the database |
| `__time` | when the database committed it, or else when the stream got it |
| `__position` | its place in the database's log and in the stream: see `log_position` |

What Debezium sends beside changes is no row and is left out: tombstones, heartbeats, borders of
transactions, messages of the application, notifications, and changes of a schema. Their shape says
what they are, never a single name. Anything else is a row or a bad record.
"""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from jetspark.payloads import connect, log_position
from jetspark.payloads.ddl import arrow_columns
from jetspark.payloads.decoder import (
    PAYLOAD,
    REASON,
    PayloadDecoder,
    SchemaKey,
    Undecodable,
    Unframed,
    reason_of,
    shorten_reason,
    with_fields,
)
from jetspark.payloads.framing import Framing
from jetspark.payloads.json_plain import null_rows, parse_object
from jetspark.reserved_names import rejection_reason
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
_ADDED = frozenset(field.name for field in ADDED)
TABLE_OPTIONS: Final[Mapping[str, str]] = {
    "sequenceBy": POSITION,
    "applyAsDeletes": f"{OP} = 'd'",
    "applyAsTruncates": f"{OP} = 't'",
}
"""Options of a table of such rows with keys."""
UNAVAILABLE_VALUE: Final = "__debezium_unavailable_value"
"""Debezium's default for `unavailable.value.placeholder`."""

_OPS = ("c", "d", "r", "t", "u")
_WRAPPED = {"schema", "payload"}
_TIMES = frozenset({"ts_ms", "ts_us", "ts_ns"})
_TRANSACTION = frozenset({"status", "id", "event_count", "data_collections"})
_NOTIFICATION = frozenset({"id", "aggregate_type", "type", "additional_data"})
_SCHEMA_CHANGE = frozenset({"source", "databaseName", "schemaName", "ddl", "tableChanges"})
_CONTROL_SCHEMAS = ("Heartbeat", "TransactionMetadataValue", "SchemaChangeValue", "Notification")
"""Ends of the names of schemas whose messages are no changes of rows."""
_SOURCE = (
    *log_position.FIELDS, "version", "connector", "name", "snapshot", "db", "sequence", "schema",
    "table", "collection", "row", "event_serial_no", "rs_id", "ssn", "txId", "xmin", "origin",
    "origin_lsn", "server_id", "gtid", "thread", "query", "lcr_position", "redo_thread",
    "redo_sql", "row_id", "user_name", "commit_ts_ms", "start_scn", "start_ts_ms", "rs", "lsid",
    "txnNumber", "wallTime", "stxnid", "tord", "h", "keyspace", "shard", "vgtid", "begin_lsn",
    "txn_id", "cluster", *_TIMES,
)  # fmt: skip
"""Fields of `source`, of all connectors."""
_ADDED_FIELDS = ("op", "deleted", "transaction", "patch", "updateDescription", *_SOURCE)
_ADDED_FIELDS += tuple(
    f"transaction_{name}" for name in ("id", "total_order", "data_collection_order")
)
_MARKS = frozenset(f"__{prefix}{name}" for name in _ADDED_FIELDS for prefix in ("", "source_"))
"""Fields that ExtractNewRecordState adds to rows. Any other field that begins with __ is of the
table."""
_CHANGE = ("row", "event_serial_no", "rs_id", "ssn")
"""Fields of `source` that tell apart the changes of one place in the log."""
_NAMES_OF_EXTENSIONS = {name.replace("_", "").lower(): name for name in ("op", *_SOURCE)}
_EXTENSION = "iodebezium"
_DATA_CHANGE = re.compile(r"io\.debezium\.connector\.[\w.]+\.datachangeevent", re.IGNORECASE)
_NOTHING: Final = (None,) * len(ADDED)
_NO_EVENTS: Final = ((),) * len(ADDED)
MAX_DEPTH: Final = 60
"""Levels of a column."""
_VALUES = msgspec.json.Decoder(dict[str, Any]).decode
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_INSPECTED = frozenset(
    {
        *_MARKS, *_TIMES, *_TRANSACTION, *_NOTIFICATION, "op", "source", "before", "after",
        "message", "specversion", "type",
    }
)  # fmt: skip
"""Fields that can show what a message is."""


class NoRowError(ValueError):
    """A payload is no event; says why, in a sentence."""


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


def event_of(payload: bytes, seq: int, columns: Collection[str] = ()) -> Event | None:
    """Return the event of a message in JSON; None if it is of no row.

    `columns`: those of the table, where they are known. Raises NoRowError.
    """
    if payload.strip() in (b"", b"null"):
        return None
    try:
        schema, row = b"", payload
        fields = parse_object(payload, _FIELDS)
        if fields.keys() == _WRAPPED:
            schema, row = bytes(fields["schema"]), bytes(fields["payload"])
            if row == b"null":
                return None
            schema = b"" if schema == b"null" else schema
            fields = _FIELDS(row) if row.startswith(b"{") else parse_object(row, _FIELDS)
        payload.decode()
        values = {
            name: raw if name in ("before", "after") else msgspec.json.decode(raw)
            for name, raw in fields.items()
            if name in _INSPECTED or name.startswith(_EXTENSION)
        }
    except Undecodable as error:
        raise NoRowError(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoRowError(f"The payload is not one JSON object: {error}.") from None
    return _classify(_Message(values, fields, row, schema), seq, columns)


class _Message(NamedTuple):
    """An event, or a message that is none."""

    values: Mapping[str, Any]
    """The decoded fields that can show what it is; `before` and `after` as in `fields`."""
    fields: Mapping[str, Any]
    """All fields: of JSON undecoded."""
    row: bytes | str
    """The row of the `Event`, if the message itself is a row."""
    schema: bytes = b""


def _classify(message: _Message, seq: int, columns: Collection[str]) -> Event | None:
    values = message.values
    if _is_left_out(message, columns):
        return None
    if "specversion" in values and _DATA_CHANGE.fullmatch(str(values.get("type"))):
        return _cloud_event(message, seq)
    if _is_envelope(values):
        return _envelope_event(values, values["source"], seq, message.schema)
    return _flat_event(message, seq)


def _is_envelope(values: Mapping[str, Any]) -> bool:
    has_sides = "before" in values or "after" in values or values.get("op") in ("t", "m")
    return isinstance(values.get("source"), dict) and "op" in values and has_sides


def _is_left_out(message: _Message, columns: Collection[str]) -> bool:
    """Return whether this is what Debezium sends beside changes of rows."""
    values, names = message.values, message.fields.keys() - _TIMES
    has_source = isinstance(values.get("source"), dict)
    if values.get("op") == "m":
        return has_source and isinstance(values.get("message"), dict)
    if has_source and names <= _SCHEMA_CHANGE:
        return "ddl" in names or "tableChanges" in names
    typical: frozenset[str]  # the fields that a table would hardly have, too
    if not names:
        typical = _TIMES
        fits = "ts_ms" in values and all(type(value) is int for value in values.values())
    elif names == _TRANSACTION:
        typical = frozenset({"event_count", "data_collections"})
        fits = values["status"] in ("BEGIN", "END") and isinstance(values["id"], str)
        fits = fits and isinstance(values["data_collections"], list | None)
    elif names - {"timestamp"} == _NOTIFICATION:
        typical = frozenset({"aggregate_type", "additional_data"})
        fits = isinstance(values["aggregate_type"], str)
    else:
        return False
    if message.schema and (name := _schema_name(message.schema)) is not None:
        return fits and name.endswith(_CONTROL_SCHEMAS)
    return fits and typical.isdisjoint(columns)


def _schema_name(text: bytes) -> str | None:
    schema = msgspec.json.decode(text)
    name = schema.get("name") if isinstance(schema, dict) else None
    return name if isinstance(name, str) else None


def _envelope_event(
    values: Mapping[str, Any], source: Mapping[str, Any], seq: int, schema: bytes
) -> Event:
    op = values["op"]
    row: bytes | str
    if op not in _OPS:
        raise NoRowError(f"op is {op!r}, and none of {', '.join(_OPS)}.")
    row = b"{}"
    if op != "t":
        side = "before" if op == "d" else "after"
        row = _row_of_side(values.get(side), side)
    time = _time(source)
    position = _position(source, op, seq, (op, values.get("before"), values.get("after")))
    return Event(op, row, _table(source), _time(values) if time is None else time, position, schema)


def _row_of_side(value: Any, side: str) -> bytes | str:
    """Return the row in `before` or `after`, as `Event` has it."""
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


def _flat_event(message: _Message, seq: int) -> Event:
    marks = {name[2:]: value for name, value in message.values.items() if name in _MARKS}
    source = {name: value for name, value in marks.items() if name not in _TIMES}
    for name, value in marks.items():
        if name.startswith("source_"):
            source[name.removeprefix("source_")] = value
    change = [item for item in message.fields.items() if item[0] not in _MARKS]
    return _row_event(message, source, marks, seq, change)


def _row_event(
    message: _Message, source: Mapping[str, Any], marks: Mapping[str, Any], seq: int, change: Any
) -> Event:
    """Return the event of a flattened row; `change`: its digest tells it from others."""
    op = marks.get("op") or "u"
    if marks.get("deleted") in (True, "true"):
        op = "d"
    if op not in _OPS:
        raise NoRowError(f"__op is {op!r}, and none of {', '.join(_OPS)}.")
    time = _time(source)
    return Event(
        op, message.row, _table(source), _time(marks) if time is None else time,
        _position(source, op, seq, (op, change)), message.schema, is_marked=bool(marks),
    )  # fmt: skip


def _cloud_event(message: _Message, seq: int) -> Event:
    """Return an event in the format of Debezium's CloudEventsConverter."""
    source = {
        _NAMES_OF_EXTENSIONS.get(short := name.removeprefix(_EXTENSION).lower(), short): value
        for name, value in message.values.items()
        if name.startswith(_EXTENSION)
    }
    schema, data = b"", message.fields.get("data") or b"null"
    try:
        fields = _FIELDS(data)
        if fields.keys() == _WRAPPED:
            schema, data = bytes(fields["schema"]), fields["payload"]
            fields = _FIELDS(data)
    except msgspec.ValidationError:
        raise NoRowError("The CloudEvent has no data in JSON.") from None
    if not source:
        raise NoRowError(
            "The CloudEvent does not say what happened: let Debezium's converter write its "
            "extension attributes (extension.attributes.enable)."
        )
    if fields.keys() <= {"before", "after"}:
        return _envelope_event({**fields, "op": source.get("op")}, source, seq, schema)
    row = _Message({}, fields, bytes(data), schema)
    return _row_event(row, source, source, seq, data)


def _table(source: Mapping[str, Any]) -> str | None:
    table = source.get("table") or source.get("collection")
    return table if isinstance(table, str) else None


def _time(source: Mapping[str, Any]) -> int | None:
    for name, factor in (("ts_us", 1), ("ts_ms", 1000)):
        if (time := source.get(name)) is None:
            continue
        if isinstance(time, str) and re.fullmatch("-?[0-9]{1,20}", time):
            time = int(time)
        if type(time) is not int or not FIRST_MICROS <= time * factor <= LAST_MICROS:
            raise NoRowError(f"{name} is no time in the years 1 to 9999.")
        return time * factor
    return None


def _position(source: Mapping[str, Any], op: str, seq: int, change: tuple[Any, ...]) -> str:
    try:
        log = log_position.log_place(source, op)
    except ValueError as error:
        raise NoRowError(f"{error}.") from None
    changed = msgspec.json.encode([*change, *(source.get(name) for name in _CHANGE)])
    return log_position.make_position(log, seq, changed)


# -- schemas -------------------------------------------------------------------------------------


def schema_in(payload: bytes) -> str | None:
    """The schema that an event carries, if rows can be made by it."""
    try:
        event = event_of(payload, 0)
        if event is None or not event.schema:
            return None
        names = row_columns(event.schema).names
        if rejection_reason(names) is not None:
            return None
    except Exception:  # whatever is wrong with it, it is no schema to begin with
        return None
    return event.schema.decode()


def row_schemas(schema: bytes) -> dict[str, connect.Schema]:
    """The schemas of a row's columns, in that of an event. Raises ValueError for another one."""
    try:
        schema_of_event = msgspec.json.decode(schema)
        fields = {field["field"]: field for field in schema_of_event["fields"]}
        is_envelope = "op" in fields or fields.keys() <= {"before", "after"}
        if is_envelope := is_envelope and fields.get("after", {}).get("type") == "struct":
            fields = {field["field"]: field for field in fields["after"]["fields"]}
        if not all(isinstance(name, str) for name in fields):
            raise TypeError
    except (msgspec.MsgspecError, AttributeError, KeyError, TypeError):
        raise ValueError("this is no schema of a Debezium event in JSON") from None
    if is_envelope and (reserved := _ADDED & fields.keys()):
        raise ValueError(
            f"the table has a column {min(reserved)}, whose name is that of a column of each "
            "event: name the other columns in the schema"
        )
    return {name: column for name, column in fields.items() if is_envelope or name not in _MARKS}


def row_columns(schema: bytes) -> pa.Schema:
    """The columns of the rows of an event with this schema. Raises ValueError."""
    try:
        columns = [(name, connect.arrow_type(part)) for name, part in row_schemas(schema).items()]
    except (KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("this is no schema of a Debezium event in JSON") from None
    if not columns:
        raise ValueError("this schema has no columns")
    if max(_depth(kind) for _, kind in columns) > MAX_DEPTH:  # Spark's code for a row is recursive
        raise ValueError(f"a column of this schema is nested more than {MAX_DEPTH} deep")
    return pa.schema(columns)


def _depth(kind: pa.DataType) -> int:
    parts = (kind.field(at).type for at in range(kind.num_fields))
    return 1 + max(map(_depth, parts), default=0)


def parse_schema(text: str) -> tuple[pa.Schema, str | None, bool]:
    """The columns of rows, the schema of events that come without theirs, and whether events are in
    Avro; from what users give: the schema of an event in JSON or in Avro, an event with its schema,
    or the columns in Spark's DDL. Raises ValueError."""
    if not text.lstrip().startswith("{"):
        columns = arrow_columns(text)
        if reserved := _ADDED & {*columns.names}:
            raise ValueError(f"each event has a column {min(reserved)} already: leave it out")
        return columns, None, False
    try:
        declared = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if in_avro := declared.get("type") == "record":
        declared = connect.schema_from_avro(declared)
    schema = msgspec.json.encode(declared.get("schema", declared))
    return row_columns(schema), schema.decode(), in_avro


# -- values that Debezium did not get ------------------------------------------------------------


class Placeholders:
    """Recognizes what Debezium writes for a value that the change has left as it was and the
    database did not send (`unavailable.value.placeholder`), in all forms that it has in columns of
    other types than text."""

    def __init__(self, text: str = UNAVAILABLE_VALUE) -> None:
        """`text`: as Debezium's option has it, also as `hex:…`. Raises ValueError."""
        as_bytes = text.encode()
        if text.startswith("hex:"):
            as_bytes = bytes.fromhex(text[4:])
            text = as_bytes.decode(errors="replace")
        if not as_bytes:
            raise ValueError("it is empty")
        self._texts = frozenset(
            {
                text, b64encode(as_bytes).decode(), urlsafe_b64encode(as_bytes).decode(),
                as_bytes.hex(), as_bytes.hex().upper(), f"\\x{as_bytes.hex()}",
            }
        )  # fmt: skip
        self._bytes = as_bytes
        values = list(as_bytes)
        self._byte_lists = (values, [number - 256 * (number > 127) for number in values])
        pair = msgspec.json.encode({text: text}).decode()
        self._texts |= {pair, pair.replace('":"', '": "')}  # hstore, as JSON
        self._marks = (b"\\", *(msgspec.json.encode(form)[1:-1] for form in self._texts))
        lists = [rb"\s*,\s*".join(b"%d" % n for n in values) for values in self._byte_lists]
        self._find_list = re.compile(rb"\[\s*(?:" + b"|".join(lists) + rb")\s*\]").search

    def marks_in(self, rows: bytes) -> list[bytes]:
        """Return bytes of which a row among these in JSON has one if it has a placeholder."""
        marks = [mark for mark in self._marks if mark in rows]
        return marks if self._find_list(rows) is None else [*marks, b"["]

    def fields_of_json(self, row: bytes) -> list[str]:
        """Return the fields of a JSON object whose values are placeholders, or have one in them."""
        return [name for name, value in parse_object(row, _VALUES).items() if self.are_in(value)]

    def are_in(self, value: Any) -> bool:
        """Return whether the value is a placeholder, or has one at any depth."""
        match value:
            case str():
                return value in self._texts
            case bytes():
                return value == self._bytes
            case list():
                return value in self._byte_lists or any(map(self.are_in, value))
            case tuple():
                return any(map(self.are_in, value))
            case dict():
                return any(map(self.are_in, value)) or any(map(self.are_in, value.values()))
        return False


# -- batches -------------------------------------------------------------------------------------


_NO_FRAME: Final = Framing(compression="none", may_be_framed=False)


class DebeziumDecoder:
    """Decodes events into columns, as `PayloadDecoder`; messages of no row are left out."""

    def __init__(
        self,
        fields: pa.Schema,
        schema: str | None = None,
        framing: Framing | None = None,
        avro: PayloadDecoder | None = None,
        placeholders: Placeholders | None = None,
    ) -> None:
        """`fields`: of the rows; `schema`: in JSON, of events that come without theirs; `avro`:
        decodes events in Avro."""
        self.fields = pa.schema([*fields, *ADDED])
        self._row_fields = fields
        self._names = frozenset(fields.names)
        self._schema = b"" if schema is None else schema.encode()
        self._framing = framing or _NO_FRAME
        self._avro = avro
        self._placeholders = placeholders or Placeholders()
        self._rows = PayloadDecoder(fields, _NO_FRAME, self._decoder)

    def decoded_schema(self, columns: pa.Schema) -> pa.Schema:
        """The schema of a batch with these columns, after `of`."""
        return with_fields(columns, self.fields)

    def decode_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the fields after its columns."""
        if self._avro is None:
            rows, events, reasons = self._read_json(batch)
            self._find_placeholders(events, reasons)
            columns, problems = self._decode_rows(events, reasons)
        else:
            envelopes = self._avro.decode_batch(batch).select([*self._avro.fields.names, REASON])
            # Times as numbers, since Python lacks some.
            columns = [column.cast(_without_times(column.type)) for column in envelopes.columns]
            envelopes = pa.RecordBatch.from_arrays(columns, envelopes.schema.names)
            rows, events, reasons = self._read_avro(batch, envelopes)
            columns, problems = self._select_rows(envelopes, rows, events, reasons)
        about = [
            (event.op, event.table, event.time, event.position) if event else _NOTHING
            for event in events
        ]
        added = zip(*about, strict=True) if about else _NO_EVENTS
        columns += [
            pa.array(values, field.type) for values, field in zip(added, ADDED, strict=True)
        ]
        if len(rows) < batch.num_rows:
            batch = batch.take(pa.array(rows, pa.int64()))
        if "timestamp" in batch.schema.names:
            at = self.fields.get_field_index(TIME)
            columns[at] = pc.coalesce(columns[at], batch.column("timestamp"))
        if problems.null_count < len(problems):
            bad_rows = pc.indices_nonzero(pc.is_valid(problems)).to_pylist()
            columns = [null_rows(column, bad_rows) for column in columns]
        return pa.RecordBatch.from_arrays(
            [*batch.columns, *columns, problems], schema=self.decoded_schema(batch.schema)
        )

    def _read_json(
        self, batch: pa.RecordBatch
    ) -> tuple[list[int], list[Event | None], list[str | None]]:
        """Return the numbers of the rows that stay, and of each the event, or why it is none."""
        unframed = self._framing.unframe(batch)
        payloads = unframed.payloads.to_pylist()
        problems = [None] * len(payloads)
        if unframed.reasons is not None:
            problems = unframed.reasons.to_pylist()

        def read(at: int, seq: int) -> Event | None:
            if problems[at] is not None:
                raise NoRowError(problems[at])
            try:
                event = event_of(payloads[at], seq, self._names)
                if event is None:
                    return None
                if not event.is_marked:
                    self._check_names(parse_object(event.row, _FIELDS))
                return event
            except NoRowError as error:
                raise NoRowError(f"{error}{self._framing.hint(payloads[at])}") from None

        return self._read(batch, read)

    def _read_avro(
        self, batch: pa.RecordBatch, envelopes: pa.RecordBatch
    ) -> tuple[list[int], list[Event | None], list[str | None]]:
        values = envelopes.to_pylist()
        sizes = pc.binary_length(batch.column(PAYLOAD)).to_pylist()

        def read(at: int, seq: int) -> Event | None:
            fields = values[at]
            if not sizes[at]:
                return None
            if (problem := fields.pop(REASON)) is not None:
                raise NoRowError(problem)
            event = _classify(_Message(fields, fields, ""), seq, self._names)
            if event is not None and event.op != "t":
                row = fields[event.row] if event.row else fields
                if not event.is_marked:
                    self._check_names(row)
                bad = [name for name, value in row.items() if self._placeholders.are_in(value)]
                event = event._replace(not_sent=self._check_sent(event, bad))
            return event

        return self._read(batch, read)

    def _check_names(self, row: Collection[str]) -> None:
        """Raise NoRowError for an object that may be any."""
        if self._names.isdisjoint(row):
            raise NoRowError(
                "The payload is no event: it has no envelope (op and source), no field that begins "
                "with __, and none of the columns."
            )

    def _check_sent(self, event: Event, not_sent: Sequence[str]) -> list[str]:
        """Return the columns that a deletion does not need. Raises NoRowError for another change
        without them."""
        columns = [name for name in self._row_fields.names if name in not_sent]
        if columns and event.op != "d":
            raise NoRowError(
                f"The database did not send {columns[0]}, which the change left as it was: set the "
                "table's REPLICA IDENTITY to FULL (PostgreSQL), or leave the column out."
            )
        return columns

    def _read(
        self, batch: pa.RecordBatch, read: Callable[[int, int], Event | None]
    ) -> tuple[list[int], list[Event | None], list[str | None]]:
        rows: list[int] = []
        events: list[Event | None] = []
        reasons: list[str | None] = []
        for at, seq in enumerate(batch.column("seq").to_pylist()):
            event, reason = None, None
            try:
                event = read(at, seq)
                if event is None:
                    continue
            except BaseException as error:
                is_known = isinstance(error, NoRowError)
                reason = shorten_reason(str(error)) if is_known else reason_of(error)
            rows.append(at)
            events.append(event)
            reasons.append(reason)
        return rows, events, reasons

    def _find_placeholders(self, events: list[Event | None], reasons: list[str | None]) -> None:
        """Make null of values that were not sent with a deletion, and bad records of others."""
        rows = [event.row if event else b"" for event in events]
        marks = self._placeholders.marks_in(b"\n".join(rows))
        for at, event in enumerate(events if marks else ()):
            if event is None or not any(mark in event.row for mark in marks):
                continue
            try:
                not_sent = self._check_sent(event, self._placeholders.fields_of_json(event.row))
            except NoRowError as error:
                events[at], reasons[at] = None, shorten_reason(str(error))
                continue
            if not_sent:
                row = parse_object(event.row, _FIELDS) | dict.fromkeys(
                    not_sent, msgspec.Raw(b"null")
                )
                events[at] = event._replace(row=msgspec.json.encode(row))

    def _decode_rows(
        self, events: Sequence[Event | None], reasons: Sequence[str | None]
    ) -> tuple[list[pa.Array], pa.StringArray]:
        """Decode rows in JSON, those of one schema together."""
        key_numbers: dict[bytes, int] = {}
        keys, rows = [], []
        for event in events:
            schema = (event.schema if event else b"") or self._schema
            keys.append(key_numbers.setdefault(schema, len(key_numbers)))
            rows.append(event.row if event else b"")
        problems = pa.array(reasons, pa.string())
        payloads = Unframed(
            pa.array(rows, pa.binary()),
            [SchemaKey(name=schema.decode()) for schema in key_numbers],
            pa.array(keys, pa.int32()),
            problems if problems.null_count < len(problems) else None,
        )
        return self._rows.decode(payloads)

    def _decoder(self, key: SchemaKey) -> connect.ConnectDecoder:
        try:
            return connect.ConnectDecoder(self._row_fields, self._schemas(key.name))
        except Exception as error:
            raise Undecodable(f"The event's schema cannot be read: {error}.") from None

    def _schemas(self, text: str) -> dict[str, connect.Schema | None]:
        schemas = row_schemas(text.encode()) if text else {}
        return {
            field.name: schemas.get(field.name) or connect.days_schema(field.type)
            for field in self._row_fields
        }

    def _select_rows(
        self,
        envelopes: pa.RecordBatch,
        rows: Sequence[int],
        events: Sequence[Event | None],
        reasons: Sequence[str | None],
    ) -> tuple[list[pa.Array], pa.StringArray]:
        """Convert the rows of events in Avro, which are in one or two records of the event."""
        sides = sorted({event.row for event in events if event is not None and event.op != "t"})
        positions = [
            None
            if event is None or event.op == "t"
            else sides.index(event.row) * len(envelopes) + row
            for row, event in zip(rows, events, strict=True)
        ]
        schemas = self._schemas(self._schema.decode())
        columns, readings = [], []
        for field in self._row_fields:
            readings.append(connect.compile_reading(field.type, schemas[field.name]))
            parts = [
                envelopes.column(field.name)
                if not side
                else pc.struct_field(envelopes.column(side), field.name)
                for side in sides
            ]
            column = pa.concat_arrays(parts) if parts else pa.nulls(0, field.type)
            columns.append(column.take(pa.array(positions, pa.int64())))
        problems = pa.array(reasons, pa.string())
        columns, problems = connect.convert_columns(
            list(self._row_fields), readings, columns, problems
        )
        for at, name in enumerate(self._row_fields.names):
            not_sent = [row for row, event in enumerate(events) if event and name in event.not_sent]
            columns[at] = null_rows(columns[at], not_sent) if not_sent else columns[at]
        return columns, problems


def _without_times(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(kind):
        return pa.int32() if pa.types.is_date32(kind) else pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_times(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_times(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_without_times(kind.item_type)))
    return kind
