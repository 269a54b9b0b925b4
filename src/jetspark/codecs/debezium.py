"""Debezium's change events: the rows of a database's tables, with what happened to them.

An event is an envelope (`before`, `after`, `source`, `op`), or what ExtractNewRecordState makes of
it; in JSON, alone or beside its schema, or in Avro. It becomes the row that it leaves behind, or
the one that it removes, and

| column | |
|---|---|
| `__op` | c (created), u (updated), d (deleted), r (read by a snapshot), t (all rows deleted) |
| `__table` | the table's name in the database |
| `__time` | when the database committed it, or else when the stream got it |
| `__position` | its place in the database's log, as a text that sorts like the log |

Debezium repeats events after a restart, from where it last noted its place, with the same
positions. Where a log does not tell two changes of a row apart, and where the event does not say
its place, the message's sequence follows: the order of delivery.

Tombstones, heartbeats, transactions, messages of the application and changes of a schema are no
rows: they are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from jetspark.codecs import connect
from jetspark.codecs.ddl import arrow_columns
from jetspark.codecs.decoder import PAYLOAD, REASON, Packed, PayloadFields, with_fields

OP: Final = "__op"
TABLE: Final = "__table"
TIME: Final = "__time"
POSITION: Final = "__position"
ADDED: Final = (
    pa.field(OP, pa.string()),
    pa.field(TABLE, pa.string()),
    pa.field(TIME, pa.timestamp("us", tz="UTC")),
    pa.field(POSITION, pa.string()),
)
"""The columns behind those of the row."""
TABLE_OPTIONS: Final[Mapping[str, str]] = {
    "sequenceBy": POSITION,
    "applyAsDeletes": f"{OP} = 'd'",
    "applyAsTruncates": f"{OP} = 't'",
}
"""Options of a table of such rows with keys."""

_OPS = ("c", "d", "r", "t", "u")
_WRAPPED = {"schema", "payload"}
_OF_TRANSACTION = {"status", "id", "data_collections"}
_UNKNOWN = "__debezium_unavailable_value"
_NOT_SENT = (_UNKNOWN, "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==")
_LATEST = 2**53
_NUMBER = re.compile(r"\d+$")
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


def event_of(payload: bytes, seq: int) -> Event | None:
    """The event of a message; None if it is of no row. Raises NoRowError."""
    if payload.strip() in (b"", b"null"):
        return None
    schema = b""
    try:
        parts = _RAW.decode(payload)
        if parts.keys() == _WRAPPED:
            schema, payload = bytes(parts["schema"]), bytes(parts["payload"])
        value = connect.decode_json(payload)
    except msgspec.ValidationError:
        raise NoRowError("The payload is not an object.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NoRowError(f"The payload is not one JSON object: {error}.") from None
    except RecursionError:
        raise NoRowError("The payload is nested too deeply.") from None
    if value is None:
        return None
    if not isinstance(value, dict):
        raise NoRowError("The payload is not an object.")
    return _of_value(value, seq, schema)


def _of_value(value: Mapping[str, Any], seq: int, schema: bytes) -> Event | None:
    if "source" in value and not {"before", "after", "op"} & value.keys():
        return None  # a change of a schema
    if value.keys() == {"ts_ms"} or value.keys() >= _OF_TRANSACTION:
        return None  # a heartbeat, or where a transaction begins or ends
    if isinstance(value.get("source"), dict) and "op" in value:
        return _of_envelope(value, seq, schema)
    return _of_flat(value, seq, schema)


def _of_envelope(value: Mapping[str, Any], seq: int, schema: bytes) -> Event | None:
    op, source = value["op"], value["source"]
    if op == "m":
        return None
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
    time = _time({"ts_ms": value.get("ts_ms")} | source)
    return Event(op, row, _table(source), time, _position(source, time, seq), schema)


def _of_flat(value: Mapping[str, Any], seq: int, schema: bytes) -> Event:
    row = {name: one for name, one in value.items() if not name.startswith("__")}
    said = {name[2:]: one for name, one in value.items() if name.startswith("__")}
    said |= {
        name.removeprefix("source_"): one
        for name, one in said.items()
        if name.startswith("source_")
    }
    op = said.get("op") or "u"
    if said.get("deleted") in (True, "true"):
        op = "d"
    if op not in _OPS:
        raise NoRowError(f"__op is {op!r}, and none of {', '.join(_OPS)}.")
    time = _time(said)
    return Event(
        op, row, _table(said), time, _position(said, time, seq), schema, is_marked=bool(said)
    )


def _table(source: Mapping[str, Any]) -> str | None:
    found = source.get("table") or source.get("collection")
    return found if isinstance(found, str) else None


def _time(source: Mapping[str, Any]) -> int | None:
    for name, each in (("ts_us", 1), ("ts_ms", 1000)):
        if isinstance(found := source.get(name), int) and abs(found) < _LATEST:
            return found * each
    return None


# -------------------------------------------------------------------------------------------------
# The place of a change in its database's log, as a text.


def _position(source: Mapping[str, Any], time: int | None, seq: int) -> str:
    for of in _OF_LOGS:
        try:
            if (found := of(source, seq)) is not None:
                return found
        except (TypeError, ValueError):
            continue
    return f"{time or 0:016x}{seq:016x}"


def _of_postgres(source: Mapping[str, Any], _: int) -> str | None:
    # Rows of one record of the log (COPY) have different keys.
    return f"{int(source['lsn']):016x}" if source.get("lsn") is not None else None


def _of_mysql(source: Mapping[str, Any], _: int) -> str | None:
    file = source.get("file")
    number = _NUMBER.search(file) if isinstance(file, str) else None
    if number is None:
        return None
    place = int(source["pos"]), int(source.get("row") or 0)
    return f"{int(number[0]):016x}{place[0]:016x}{place[1]:016x}"


def _of_sql_server(source: Mapping[str, Any], seq: int) -> str | None:
    """And Db2, which does not number the changes of one place."""
    commit, change = source.get("commit_lsn"), source.get("change_lsn") or ""
    if not isinstance(commit, str) or ":" not in commit:
        return None
    number = source.get("event_serial_no")
    return f"{commit}{change}{seq if number is None else int(number):016x}"


def _of_oracle(source: Mapping[str, Any], seq: int) -> str | None:
    if source.get("scn") is None:
        return None
    scn = int(source["scn"])
    commit = int(source.get("commit_scn") or scn)
    last = f"{seq:016x}"
    if source.get("rs_id") is not None and source.get("ssn") is not None:
        last = f"{str(source['rs_id']).strip()}{int(source['ssn']):016x}"
    return f"{commit:020}{scn:020}{last}"


def _of_mongodb(source: Mapping[str, Any], seq: int) -> str | None:
    """All changes of a transaction have one place."""
    if source.get("ord") is None:
        return None
    return f"{int(source['ts_ms']):016x}{int(source['ord']):016x}{seq:016x}"


_OF_LOGS: tuple[Callable[[Mapping[str, Any], int], str | None], ...] = (
    _of_postgres, _of_mysql, _of_sql_server, _of_oracle, _of_mongodb,
)  # fmt: skip


# -------------------------------------------------------------------------------------------------


def schema_in(payload: bytes) -> str | None:
    """The schema that an event carries."""
    try:
        event = event_of(payload, 0)
    except NoRowError:
        return None
    return event.schema.decode() or None if event is not None else None


def row_schemas(schema: bytes) -> dict[str, connect.Schema]:
    """The schemas of a row's columns, in that of an event. Raises ValueError for another one."""
    try:
        found = msgspec.json.decode(schema)
        fields = {one["field"]: one for one in found["fields"]}
        if "op" in fields and "after" in fields:
            fields = {one["field"]: one for one in fields["after"]["fields"]}
    except (msgspec.DecodeError, KeyError, TypeError):
        raise ValueError("this is no schema of a Debezium event in JSON") from None
    return {name: one for name, one in fields.items() if not name.startswith("__")}


def row_columns(schema: bytes) -> pa.Schema:
    """The columns of the rows of an event with this schema. Raises ValueError."""
    return pa.schema([(name, connect.arrow_type(one)) for name, one in row_schemas(schema).items()])


def given_schema(text: str) -> tuple[pa.Schema, str | None, bool]:
    """The columns of rows, the schema of events that come without theirs, and whether events are in
    Avro; from what users give: the schema of an event in JSON or in Avro, an event with its schema,
    or the columns in Spark's DDL. Raises ValueError."""
    if not text.lstrip().startswith("{"):
        return arrow_columns(text), None, False
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if in_avro := found.get("type") == "record":
        found = connect.of_avro(found)
    schema = msgspec.json.encode(found.get("schema", found))
    return row_columns(schema), schema.decode(), in_avro


class DebeziumFields:
    """Decodes events into columns, as `PayloadFields`; messages of no row are left out."""

    def __init__(
        self,
        fields: pa.Schema,
        schema: str | None = None,
        packed: Packed | None = None,
        avro: PayloadFields | None = None,
    ) -> None:
        """`fields`: of the rows; `schema`: in JSON, of events that come without theirs; `packed`:
        what is around payloads; `avro`: decodes events in Avro."""
        self.fields = pa.schema([*fields, *ADDED])
        self._of_row = fields
        self._schema = b"" if schema is None else schema.encode()
        self._packed = packed
        self._avro = avro
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
            except NoRowError as error:
                row, reason = none, str(error)
                if isinstance(payload, bytes) and self._packed is not None:
                    reason += self._packed.hint(payload)
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
            return event_of(payload, seq)
        if (reason := payload[REASON]) is not None:
            raise NoRowError(reason)
        return _of_value(payload, seq, b"")

    def _row(self, event: Event) -> list[Any]:
        if not event.is_marked and event.row.keys().isdisjoint(self._of_row.names):
            raise NoRowError(
                "The payload is no event: it has no envelope (op and source), no field that begins "
                "with __, and none of the columns."
            )
        found = []
        for name, read in self._readers(event.schema):
            value = event.row.get(name)
            if value in _NOT_SENT and event.op != "d":
                raise NoRowError(
                    f"PostgreSQL did not send {name}, which the change left as it was: set the "
                    "table's REPLICA IDENTITY to FULL."
                )
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
                    (one.name, connect.reader(one.type, said.get(one.name))) for one in self._of_row
                ]
            except (ValueError, KeyError, TypeError) as error:
                raise NoRowError(f"The event's schema cannot be read: {error}.") from None
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
