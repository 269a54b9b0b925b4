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
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from jetspark.codecs import connect, log_position
from jetspark.codecs.ddl import arrow_columns
from jetspark.codecs.decoder import (
    PAYLOAD,
    REASON,
    Packed,
    PayloadFields,
    reason_of,
    reason_text,
    with_fields,
)
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
_ADDED = frozenset(one.name for one in ADDED)
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
"""How the names of schemas end of what is no change."""
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
    f"transaction_{one}" for one in ("id", "total_order", "data_collection_order")
)
_MARKS = frozenset(f"__{prefix}{name}" for name in _ADDED_FIELDS for prefix in ("", "source_"))
"""Fields that ExtractNewRecordState adds to rows. Any other field that begins with __ is of the
table."""
_CHANGE = ("row", "event_serial_no", "rs_id", "ssn")
"""Fields of `source` that tell apart the changes of one place in the log."""
_OF_CLOUD_EVENTS = {name.replace("_", "").lower(): name for name in ("op", *_SOURCE)}
_EXTENSION = "iodebezium"
_DATA_CHANGE = re.compile(r"io\.debezium\.connector\.[\w.]+\.datachangeevent", re.IGNORECASE)
_MAX_SCHEMAS = 1000
MAX_DEPTH: Final = 60
"""Levels of a column."""
_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])


class NoRowError(ValueError):
    """A payload is no event; says why, in a sentence."""


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to one row, or to all of a table."""

    op: str
    row: Mapping[str, Any]
    table: str | None
    time: int | None
    """In microseconds."""
    position: str
    schema: bytes = b""
    """Of the event, in JSON."""
    is_marked: bool = True
    """Whether an envelope or a field `__…` shows that it is an event."""


def event_of(payload: bytes, seq: int, columns: Collection[str] = ()) -> Event | None:
    """The event of a message; None if it is of no row. `columns`: those of the table, where they
    are known. Raises NoRowError."""
    if payload.strip() in (b"", b"null"):
        return None
    try:
        schema, value = _divide(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoRowError(f"The payload is not one JSON object: {error}.") from None
    except RecursionError:
        raise NoRowError("The payload is nested too deeply.") from None
    if value is None:
        return None
    if not isinstance(value, dict):
        raise NoRowError("The payload is not an object.")
    return _of_value(value, seq, schema, columns)


def _divide(payload: bytes) -> tuple[bytes, Any]:
    """The schema that a payload carries, if any, and its value."""
    try:
        parts = _RAW.decode(payload)
    except msgspec.ValidationError:
        return b"", connect.decode_json(payload)
    if parts.keys() != _WRAPPED:
        return b"", connect.decode_json(payload)
    schema = bytes(parts["schema"])
    return b"" if schema == b"null" else schema, connect.decode_json(parts["payload"])


def _of_value(
    value: Mapping[str, Any], seq: int, schema: bytes, columns: Collection[str]
) -> Event | None:
    if _is_left_out(value, schema, columns):
        return None
    if "specversion" in value and _DATA_CHANGE.fullmatch(str(value.get("type"))):
        return _of_cloud_event(value, seq)
    if _is_envelope(value):
        return _of_envelope(value, seq, schema)
    return _of_flat(value, seq, schema)


def _is_envelope(value: Mapping[str, Any]) -> bool:
    sides = "before" in value or "after" in value or value.get("op") in ("t", "m")
    return isinstance(value.get("source"), dict) and "op" in value and sides


def _is_left_out(value: Mapping[str, Any], schema: bytes, columns: Collection[str]) -> bool:
    """Whether this is what Debezium sends beside changes of rows."""
    names = value.keys() - _TIMES
    source = isinstance(value.get("source"), dict)
    if value.get("op") == "m":
        return source and isinstance(value.get("message"), dict)
    if source and names <= _SCHEMA_CHANGE:
        return "ddl" in names or "tableChanges" in names
    own: frozenset[str]  # the fields that a table would hardly have, too
    if not names:
        own = _TIMES
        fits = "ts_ms" in value and all(type(one) is int for one in value.values())
    elif names == _TRANSACTION:
        own = frozenset({"event_count", "data_collections"})
        fits = value["status"] in ("BEGIN", "END") and isinstance(value["id"], str)
        fits = fits and isinstance(value["data_collections"], list | None)
    elif names - {"timestamp"} == _NOTIFICATION:
        own = frozenset({"aggregate_type", "additional_data"})
        fits = isinstance(value["aggregate_type"], str)
    else:
        return False
    if schema and (name := _schema_name(schema)) is not None:
        return fits and name.endswith(_CONTROL_SCHEMAS)
    return fits and own.isdisjoint(columns)


def _schema_name(schema: bytes) -> str | None:
    found = msgspec.json.decode(schema)
    name = found.get("name") if isinstance(found, dict) else None
    return name if isinstance(name, str) else None


def _of_envelope(value: Mapping[str, Any], seq: int, schema: bytes) -> Event:
    op, source = value["op"], value["source"]
    if op not in _OPS:
        raise NoRowError(f"op is {op!r}, and none of {', '.join(_OPS)}.")
    row: Any = {}
    if op != "t":
        side = "before" if op == "d" else "after"
        row = value.get(side)
        if isinstance(row, str):
            raise NoRowError(
                f"{side} is a text, as of MongoDB: let ExtractNewDocumentState make columns of it."
            )
        if not isinstance(row, dict):
            raise NoRowError(
                f"There is no {side}, so the row is not known: the table needs a primary key, or "
                "(PostgreSQL) REPLICA IDENTITY FULL."
            )
    time = _time(source)
    change = (op, value.get("before"), value.get("after"))
    position = _position(source, op, seq, change)
    return Event(op, row, _table(source), _time(value) if time is None else time, position, schema)


def _of_flat(value: Mapping[str, Any], seq: int, schema: bytes) -> Event:
    marks = {name[2:]: one for name, one in value.items() if name in _MARKS}
    source = {name: one for name, one in marks.items() if name not in _TIMES}
    for name, one in marks.items():
        if name.startswith("source_"):
            source[name.removeprefix("source_")] = one
    return _of_row(value, source, marks, seq, schema, is_marked=bool(marks))


def _of_row(
    row: Mapping[str, Any],
    source: Mapping[str, Any],
    marks: Mapping[str, Any],
    seq: int,
    schema: bytes,
    *,
    is_marked: bool = True,
) -> Event:
    """The event of a flattened row."""
    op = marks.get("op") or "u"
    if marks.get("deleted") in (True, "true"):
        op = "d"
    if op not in _OPS:
        raise NoRowError(f"__op is {op!r}, and none of {', '.join(_OPS)}.")
    time = _time(source)
    change = (op, {name: one for name, one in row.items() if name not in _MARKS})
    return Event(
        op, row, _table(source), _time(marks) if time is None else time,
        _position(source, op, seq, change), schema, is_marked=is_marked,
    )  # fmt: skip


def _of_cloud_event(value: Mapping[str, Any], seq: int) -> Event:
    """An event in the format of Debezium's CloudEventsConverter."""
    source = {
        _OF_CLOUD_EVENTS.get(short := name.removeprefix(_EXTENSION).lower(), short): one
        for name, one in value.items()
        if name.startswith(_EXTENSION)
    }
    data, schema = value.get("data"), b""
    if isinstance(data, dict) and data.keys() == _WRAPPED:
        schema, data = msgspec.json.encode(data["schema"]), data["payload"]
    if not isinstance(data, dict):
        raise NoRowError("The CloudEvent has no data in JSON.")
    if not source:
        raise NoRowError(
            "The CloudEvent does not say what happened: let Debezium's converter write its "
            "extension attributes (extension.attributes.enable)."
        )
    if data.keys() <= {"before", "after"}:
        return _of_envelope({**data, "op": source.get("op"), "source": source}, seq, schema)
    return _of_row(data, source, source, seq, schema)


def _table(source: Mapping[str, Any]) -> str | None:
    found = source.get("table") or source.get("collection")
    return found if isinstance(found, str) else None


def _time(source: Mapping[str, Any]) -> int | None:
    for name, each in (("ts_us", 1), ("ts_ms", 1000)):
        if (found := source.get(name)) is None:
            continue
        if isinstance(found, str) and re.fullmatch("-?[0-9]{1,20}", found):
            found = int(found)
        if type(found) is not int or not FIRST_MICROS <= found * each <= LAST_MICROS:
            raise NoRowError(f"{name} is no time in the years 1 to 9999.")
        return found * each
    return None


def _position(source: Mapping[str, Any], op: str, seq: int, change: tuple[Any, ...]) -> str:
    try:
        log = log_position.log_place(source, op)
    except ValueError as error:
        raise NoRowError(f"{error}.") from None
    what = connect.encode_json([*change, *(source.get(name) for name in _CHANGE)])
    return log_position.make_position(log, seq, what)


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
        found = msgspec.json.decode(schema)
        fields = {one["field"]: one for one in found["fields"]}
        is_envelope = "op" in fields or fields.keys() <= {"before", "after"}
        if is_envelope := is_envelope and fields.get("after", {}).get("type") == "struct":
            fields = {one["field"]: one for one in fields["after"]["fields"]}
        if not all(isinstance(name, str) for name in fields):
            raise TypeError
    except (msgspec.MsgspecError, AttributeError, KeyError, TypeError):
        raise ValueError("this is no schema of a Debezium event in JSON") from None
    if is_envelope and (taken := _ADDED & fields.keys()):
        raise ValueError(
            f"the table has a column {min(taken)}, whose name is that of a column of each event: "
            "name the other columns in the schema"
        )
    return {name: one for name, one in fields.items() if is_envelope or name not in _MARKS}


def row_columns(schema: bytes) -> pa.Schema:
    """The columns of the rows of an event with this schema. Raises ValueError."""
    try:
        found = [(name, connect.arrow_type(one)) for name, one in row_schemas(schema).items()]
    except (KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("this is no schema of a Debezium event in JSON") from None
    if not found:
        raise ValueError("this schema has no columns")
    if max(_depth(kind) for _, kind in found) > MAX_DEPTH:  # Spark's code for a row is recursive
        raise ValueError(f"a column of this schema is nested more than {MAX_DEPTH} deep")
    return pa.schema(found)


def _depth(kind: pa.DataType) -> int:
    parts = (kind.field(at).type for at in range(kind.num_fields))
    return 1 + max(map(_depth, parts), default=0)


def given_schema(text: str) -> tuple[pa.Schema, str | None, bool]:
    """The columns of rows, the schema of events that come without theirs, and whether events are in
    Avro; from what users give: the schema of an event in JSON or in Avro, an event with its schema,
    or the columns in Spark's DDL. Raises ValueError."""
    if not text.lstrip().startswith("{"):
        columns = arrow_columns(text)
        if taken := _ADDED & {*columns.names}:
            raise ValueError(f"each event has a column {min(taken)} already: leave it out")
        return columns, None, False
    try:
        found = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if in_avro := found.get("type") == "record":
        found = connect.of_avro(found)
    schema = msgspec.json.encode(found.get("schema", found))
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
        numbers = list(as_bytes)
        self._numbers = (numbers, [one - 256 * (one > 127) for one in numbers])
        pair = connect.encode_json({text: text}).decode()
        self._texts |= {pair, pair.replace('":"', '": "')}  # hstore, as JSON

    def are_in(self, value: Any) -> bool:
        """Whether the value is a placeholder, or has one at any depth."""
        match value:
            case str():
                return value in self._texts
            case bytes():
                return value == self._bytes
            case list():
                return value in self._numbers or any(map(self.are_in, value))
            case tuple():
                return any(map(self.are_in, value))
            case dict():
                return any(map(self.are_in, value)) or any(map(self.are_in, value.values()))
        return False


# -- batches -------------------------------------------------------------------------------------


class DebeziumFields:
    """Decodes events into columns, as `PayloadFields`; messages of no row are left out."""

    def __init__(
        self,
        fields: pa.Schema,
        schema: str | None = None,
        packed: Packed | None = None,
        avro: PayloadFields | None = None,
        placeholders: Placeholders | None = None,
    ) -> None:
        """`fields`: of the rows; `schema`: in JSON, of events that come without theirs; `packed`:
        what is around payloads; `avro`: decodes events in Avro."""
        self.fields = pa.schema([*fields, *ADDED])
        self._of_row = fields
        self._names = frozenset(fields.names)
        self._schema = b"" if schema is None else schema.encode()
        self._packed = packed
        self._avro = avro
        self._placeholders = placeholders or Placeholders()
        self._known: dict[bytes, list[tuple[str, connect.Reader]]] = {}

    def schema(self, columns: pa.Schema) -> pa.Schema:
        """The schema of a batch with these columns, after `of`."""
        return with_fields(columns, self.fields)

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the fields after its columns."""
        none = [None] * len(self.fields)
        found: list[list[Any]] = []
        places: list[int] = []
        reasons: list[str | None] = []
        seqs = batch.column("seq").to_pylist()
        for place, (payload, seq) in enumerate(zip(self._payloads(batch), seqs, strict=True)):
            try:
                event = self._event(payload, seq)
                if event is None:
                    continue
                row, reason = self._row(event), None
            except BaseException as error:
                row, reason = none, self._reason(error, payload)
            found.append(row)
            places.append(place)
            reasons.append(reason)
        columns = list(zip(*found, strict=True)) or [()] * len(none)
        arrays = [
            pa.array(one, field.type) for one, field in zip(columns, self.fields, strict=True)
        ]
        rows = batch if len(places) == batch.num_rows else batch.take(pa.array(places, pa.int64()))
        said = pa.array(reasons, pa.string())
        if "timestamp" in rows.schema.names:
            at = self.fields.get_field_index(TIME)
            known = pc.coalesce(arrays[at], rows.column("timestamp"))
            arrays[at] = pc.if_else(pc.is_valid(said), arrays[at], known)
        return pa.RecordBatch.from_arrays(
            [*rows.columns, *arrays, said], schema=self.schema(batch.schema)
        )

    def _reason(self, error: BaseException, payload: Any) -> str:
        if not isinstance(error, NoRowError):
            return reason_of(error)
        text = str(error)
        if isinstance(payload, bytes) and self._packed is not None:
            text += self._packed.hint(payload)
        return reason_text(text)

    def _payloads(self, batch: pa.RecordBatch) -> list[Any]:
        """Of each message: bytes, or the fields of an event in Avro, with `REASON`."""
        if self._avro is not None:
            found = self._avro.of(batch).select([*self._avro.fields.names, REASON])
            # Times as numbers, since Python lacks some.
            columns = [column.cast(_numbers(column.type)) for column in found.columns]
            values = pa.RecordBatch.from_arrays(columns, found.schema.names).to_pylist()
            empty = pc.equal(pc.binary_length(batch.column(PAYLOAD)), 0).to_pylist()
            return [b"" if none else one for none, one in zip(empty, values, strict=True)]
        if self._packed is None:
            return list(batch.column(PAYLOAD).to_pylist())
        bare = self._packed.unpack(batch)
        payloads: list[Any] = bare.payloads.to_pylist()
        for at, reason in enumerate([] if bare.reasons is None else bare.reasons.to_pylist()):
            payloads[at] = payloads[at] if reason is None else {REASON: reason}
        return payloads

    def _event(self, payload: Any, seq: int) -> Event | None:
        if isinstance(payload, bytes):
            return event_of(payload, seq, self._names)
        if (reason := payload[REASON]) is not None:
            raise NoRowError(reason)
        fields = {name: one for name, one in payload.items() if name != REASON}
        return _of_value(fields, seq, b"", self._names)

    def _row(self, event: Event) -> list[Any]:
        if not event.is_marked and event.row.keys().isdisjoint(self._names):
            raise NoRowError(
                "The payload is no event: it has no envelope (op and source), no field that begins "
                "with __, and none of the columns."
            )
        found = []
        for name, read in self._readers(event.schema):
            value = event.row.get(name)
            if self._placeholders.are_in(value):
                if event.op != "d":
                    raise NoRowError(
                        f"The database did not send {name}, which the change left as it was: set "
                        "the table's REPLICA IDENTITY to FULL (PostgreSQL), or leave the column "
                        "out."
                    )
                value = None
            try:
                found.append(connect.in_field(name, read, value))
            except ValueError as error:
                raise NoRowError(f"{error}.") from None
        return [*found, event.op, event.table, event.time, event.position]

    def _readers(self, schema: bytes) -> list[tuple[str, connect.Reader]]:
        schema = schema or self._schema
        if (known := self._known.get(schema)) is None:
            try:
                said = row_schemas(schema) if schema else {}
                known = [
                    (
                        one.name,
                        connect.reader(
                            one.type, said.get(one.name) or connect.days_schema(one.type)
                        ),
                    )
                    for one in self._of_row
                ]
            except Exception as error:
                raise NoRowError(f"The event's schema cannot be read: {error}.") from None
            if len(self._known) >= _MAX_SCHEMAS:  # each event may bring another one
                self._known.clear()
            self._known[schema] = known
        return known


def _numbers(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(kind):
        return pa.int32() if pa.types.is_date32(kind) else pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_numbers(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_numbers(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_numbers(kind.item_type)))
    return kind
