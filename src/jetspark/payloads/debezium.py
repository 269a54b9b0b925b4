"""Debezium's change events as the rows of a database's tables, in JSON or in Avro.

`debezium_events` says what a message is, and which columns a row has beside those of its table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from jetspark.payloads import connect
from jetspark.payloads.connect_schema import Schema, days_schema
from jetspark.payloads.debezium_events import (
    ADDED,
    OP,
    PARSE_FIELDS,
    POSITION,
    TIME,
    Event,
    Message,
    NoRowError,
    classify_message,
    parse_event,
)
from jetspark.payloads.debezium_placeholders import Placeholders
from jetspark.payloads.debezium_schema import column_schemas
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
from jetspark.payloads.json_columns import null_rows
from jetspark.payloads.json_objects import parse_object

TABLE_OPTIONS: Final[Mapping[str, str]] = {
    "sequenceBy": POSITION,
    "applyAsDeletes": f"{OP} = 'd'",
    "applyAsTruncates": f"{OP} = 't'",
}
"""Options of a table of such rows with keys."""
_NO_EVENT: Final = (None,) * len(ADDED)
"""What a bad record has in the columns `ADDED`."""
_NO_FRAME: Final = Framing(compression="none", may_be_framed=False)


class _Changes(NamedTuple):
    """The messages of a batch that are events, or bad records; others are left out."""

    rows: list[int]
    """Their row numbers in the batch."""
    events: list[Event | None]
    """None for a bad record."""
    reasons: list[str | None]
    """Why each bad record is no event; None for an event."""


class DebeziumDecoder:
    """Decodes Debezium's change events into the rows of a table, as `PayloadDecoder` decodes
    payloads. Messages that are no change of a row, such as heartbeats, are left out."""

    def __init__(
        self,
        fields: pa.Schema,
        schema: str | None = None,
        framing: Framing | None = None,
        avro: PayloadDecoder | None = None,
        placeholders: Placeholders | None = None,
    ) -> None:
        """`fields`: the columns of the table's rows; `schema`: in JSON, of events that come without
        theirs; `framing`: what is around events in JSON; `avro`: decodes events in Avro, None: they
        are in JSON; `placeholders`: what stands for a value that the database did not send."""
        self.fields = pa.schema([*fields, *ADDED])
        self._row_fields = fields
        self._names = frozenset(fields.names)
        self._schema = b"" if schema is None else schema.encode()
        self._framing = framing or _NO_FRAME
        self._avro = avro
        self._placeholders = placeholders or Placeholders()
        self._rows = PayloadDecoder(fields, _NO_FRAME, self._row_decoder)

    def decoded_schema(self, columns: pa.Schema) -> pa.Schema:
        """Return the schema of `decode_batch` for a batch with these columns."""
        return with_fields(columns, self.fields)

    def decode_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a row for each message of the batch that is a change of a row or a bad record:
        with the columns of the batch, the fields, and `REASON`."""
        if self._avro is None:
            changes = self._read_json(batch)
            self._null_placeholders(changes)
            columns, reasons = self._decode_json_rows(changes)
        else:
            envelopes = self._avro.decode_batch(batch).select([*self._avro.fields.names, REASON])
            # Times as numbers, since Python lacks some.
            numbers = [column.cast(_without_times(column.type)) for column in envelopes.columns]
            envelopes = pa.RecordBatch.from_arrays(numbers, envelopes.schema.names)
            changes = self._read_avro(batch, envelopes)
            columns, reasons = self._convert_avro_rows(envelopes, changes)
        if len(changes.rows) < batch.num_rows:  # some messages are no changes
            batch = batch.take(pa.array(changes.rows, pa.int64()))
        added = [
            (event.op, event.table, event.time, event.position) if event else _NO_EVENT
            for event in changes.events
        ]
        columns += [
            pa.array([values[at] for values in added], field.type) for at, field in enumerate(ADDED)
        ]
        if "timestamp" in batch.schema.names:
            # An event without a time of the database has that of its message.
            at = self.fields.get_field_index(TIME)
            columns[at] = pc.coalesce(columns[at], batch.column("timestamp"))
        if reasons.null_count < len(reasons):
            bad_rows = pc.indices_nonzero(pc.is_valid(reasons)).to_pylist()
            columns = [null_rows(column, bad_rows) for column in columns]
        return pa.RecordBatch.from_arrays(
            [*batch.columns, *columns, reasons], schema=self.decoded_schema(batch.schema)
        )

    # -- events --------------------------------------------------------------------------------

    def _read_json(self, batch: pa.RecordBatch) -> _Changes:
        """Read the messages of a batch as events in JSON; their rows are not decoded yet."""
        unframed = self._framing.unframe(batch)
        payloads = unframed.payloads.to_pylist()
        problems = [None] * len(payloads)
        if unframed.reasons is not None:
            problems = unframed.reasons.to_pylist()

        def read(at: int, seq: int) -> Event | None:
            """Return the event in a row; None if it is no change. Raises NoRowError."""
            if problems[at] is not None:
                raise NoRowError(problems[at])
            try:
                event = parse_event(payloads[at], seq, self._names)
                # Nothing but its columns can show that an object without marks is a row.
                if event is not None and not event.is_marked:
                    self._check_has_column(parse_object(event.row, PARSE_FIELDS))
                return event
            except NoRowError as error:
                raise NoRowError(f"{error}{self._framing.hint(payloads[at])}") from None

        return _read_changes(batch, read)

    def _read_avro(self, batch: pa.RecordBatch, envelopes: pa.RecordBatch) -> _Changes:
        """Read the messages of a batch as events in Avro. `envelopes`: the decoded fields of the
        messages, and `REASON`."""
        values = envelopes.to_pylist()
        sizes = pc.binary_length(batch.column(PAYLOAD)).to_pylist()

        def read(at: int, seq: int) -> Event | None:
            """Return the event in a row; None if it is no change. Raises NoRowError."""
            fields = values[at]
            if not sizes[at]:  # a tombstone
                return None
            if (problem := fields.pop(REASON)) is not None:
                raise NoRowError(problem)
            event = classify_message(Message(fields, fields, ""), seq, self._names)
            if event is None or event.op == "t":
                return event
            row = fields[event.row] if event.row else fields
            if not event.is_marked:
                self._check_has_column(row)
            unsent = [name for name, value in row.items() if self._placeholders.is_in(value)]
            return event._replace(not_sent=self._check_unsent(event, unsent))

        return _read_changes(batch, read)

    def _check_has_column(self, row: Collection[str]) -> None:
        """Raise NoRowError for an object that has no column of the table: nothing shows that it is
        a row. `row`: the names of its fields."""
        if self._names.isdisjoint(row):
            raise NoRowError(
                "The payload is no event: it has no envelope (op and source), no field that begins "
                "with __, and none of the columns."
            )

    def _check_unsent(self, event: Event, unsent: Collection[str]) -> list[str]:
        """Return the columns of the table among `unsent`: an event's fields that the database did
        not send. Raises NoRowError if there are any, unless the event is a deletion, which needs no
        values."""
        columns = [name for name in self._row_fields.names if name in unsent]
        if columns and event.op != "d":
            raise NoRowError(
                f"The database did not send {columns[0]}, which the change left as it was: set the "
                "table's REPLICA IDENTITY to FULL (PostgreSQL), or leave the column out."
            )
        return columns

    def _null_placeholders(self, changes: _Changes) -> None:
        """Replace placeholders, which stand for values that the database did not send, by null in
        rows in JSON. An event that needs such a value becomes a bad record."""
        marks = self._placeholders.find_marks(
            b"\n".join(event.row if event else b"" for event in changes.events)
        )
        for at, event in enumerate(changes.events if marks else ()):
            if event is None or not any(mark in event.row for mark in marks):
                continue
            try:
                unsent = self._check_unsent(event, self._placeholders.find_fields(event.row))
            except NoRowError as error:
                changes.events[at], changes.reasons[at] = None, shorten_reason(str(error))
                continue
            if unsent:
                nulls = dict.fromkeys(unsent, msgspec.Raw(b"null"))
                row = parse_object(event.row, PARSE_FIELDS) | nulls
                changes.events[at] = event._replace(row=msgspec.json.encode(row))

    # -- rows ----------------------------------------------------------------------------------

    def _decode_json_rows(self, changes: _Changes) -> tuple[list[pa.Array], pa.StringArray]:
        """Decode the rows of events in JSON: return the columns of the table, and for each row why
        it does not fit, or null. Rows whose events carry the same schema are decoded together."""
        key_numbers: dict[bytes, int] = {}
        keys, rows = [], []
        for event in changes.events:
            schema = (event.schema if event else b"") or self._schema
            keys.append(key_numbers.setdefault(schema, len(key_numbers)))
            rows.append(event.row if event else b"")
        reasons = pa.array(changes.reasons, pa.string())
        payloads = Unframed(
            pa.array(rows, pa.binary()),
            [SchemaKey(name=schema.decode()) for schema in key_numbers],  # for `_row_decoder`
            pa.array(keys, pa.int32()),
            reasons if reasons.null_count < len(reasons) else None,
        )
        return self._rows.decode(payloads)

    def _row_decoder(self, key: SchemaKey) -> connect.ConnectDecoder:
        """Return the decoder of rows with one schema, which `key.name` has as JSON. Raises
        Undecodable."""
        try:
            return connect.ConnectDecoder(self._row_fields, self._column_schemas(key.name))
        except Exception as error:
            raise Undecodable(f"The event's schema cannot be read: {error}.") from None

    def _column_schemas(self, text: str) -> dict[str, Schema | None]:
        """Return Kafka Connect's schema of each column. `text`: an event's schema in JSON, "" if
        there is none; what it lacks is read by the column's type."""
        schemas = column_schemas(text.encode()) if text else {}
        return {
            field.name: schemas.get(field.name) or days_schema(field.type)
            for field in self._row_fields
        }

    def _convert_avro_rows(
        self, envelopes: pa.RecordBatch, changes: _Changes
    ) -> tuple[list[pa.Array], pa.StringArray]:
        """Convert the rows of events in Avro to the columns of the table. The row of an event is
        its field `before` or `after`, or (where that is "") the event itself."""
        events = changes.events
        sides = sorted({event.row for event in events if event is not None and event.op != "t"})
        # The column of `before` and that of `after` become one, from which rows are taken; None: a
        # row without values.
        positions = [
            None
            if event is None or event.op == "t"
            else sides.index(event.row) * len(envelopes) + row
            for row, event in zip(changes.rows, events, strict=True)
        ]
        schemas = self._column_schemas(self._schema.decode())
        columns, readings = [], []
        for field in self._row_fields:
            readings.append(connect.compile_reading(field.type, schemas[field.name]))
            parts = [
                pc.struct_field(envelopes.column(side), field.name)
                if side
                else envelopes.column(field.name)
                for side in sides
            ]
            column = pa.concat_arrays(parts) if parts else pa.nulls(0, field.type)
            columns.append(column.take(pa.array(positions, pa.int64())))
        columns, reasons = connect.convert_columns(
            list(self._row_fields), readings, columns, pa.array(changes.reasons, pa.string())
        )
        for at, name in enumerate(self._row_fields.names):
            unsent = [row for row, event in enumerate(events) if event and name in event.not_sent]
            columns[at] = null_rows(columns[at], unsent) if unsent else columns[at]
        return columns, reasons


def _read_changes(batch: pa.RecordBatch, read: Callable[[int, int], Event | None]) -> _Changes:
    """Read each message of a batch with `read`, which takes its row number and its sequence in the
    stream, and returns None for a message to be left out. Whatever it raises is the reason of a bad
    record."""
    changes = _Changes([], [], [])
    for at, seq in enumerate(batch.column("seq").to_pylist()):
        event, reason = None, None
        try:
            event = read(at, seq)
            if event is None:
                continue
        except NoRowError as error:
            reason = shorten_reason(str(error))
        except BaseException as error:
            reason = reason_of(error)
        changes.rows.append(at)
        changes.events.append(event)
        changes.reasons.append(reason)
    return changes


def _without_times(kind: pa.DataType) -> pa.DataType:
    """Return a type with whole numbers in place of dates and times, at any depth."""
    if pa.types.is_temporal(kind):
        return pa.int32() if pa.types.is_date32(kind) else pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_times(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_times(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_without_times(kind.item_type)))
    return kind
