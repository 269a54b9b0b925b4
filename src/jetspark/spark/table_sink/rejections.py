"""Records that do not become rows of a table: which they are, and why.

Tasks that decode messages, DataFrames that are written, and the retry of a quarantine reject by the
same functions. A record is rejected if its payload could not be decoded, if it has no value in the
key or the order of an upsert, if no table takes it, or if the table cannot hold one of its values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.errors import ConfigError, named
from jetspark.payloads.framing import unnamed_frame_hint
from jetspark.payloads.json_plain import PlainJsonDecoder, is_json_type
from jetspark.payloads.tolerant import CORRUPT
from jetspark.spark.table_sink.options import STOP
from jetspark.spark.table_sink.target import Target
from jetspark.tables import quarantine
from jetspark.tables.file_layout import Layout
from jetspark.tables.misfits import misfit_mask, misfit_reason

ReasonOf: TypeAlias = Callable[[pa.RecordBatch], quarantine.Reason]
"""A function that says why the only record of a batch is rejected."""


def rejected_mask(target: Target, rows: pa.RecordBatch) -> pa.Array:
    """Boolean mask of the records to reject: undecodable, or without a value in an upsert key."""
    options = target.options
    mask = pa.repeat(pa.scalar(False), rows.num_rows)
    keeps_bad_records = options.quarantine is None and options.on_bad_record != STOP
    if CORRUPT in rows.schema.names and not keeps_bad_records:
        mask = pc.is_valid(rows.column(CORRUPT))
    if options.upsert is not None:
        mask = pc.or_(mask, pc.is_valid(options.upsert.missing_key_column(rows)))
    return mask


def rejection_reason(target: Target, record: pa.RecordBatch) -> quarantine.Reason:
    """The reason for which `rejected_mask` rejects a record, the only one of a batch."""
    upsert = target.options.upsert
    if upsert is not None and not (
        CORRUPT in record.schema.names and record.column(CORRUPT)[0].is_valid
    ):
        name = upsert.missing_key_column(record)[0].as_py()
        role = "key" if name in upsert.keys else "order"
        return name, f"There is no value in {name}, which is the table's {role}."
    columns = target.payload_columns
    if quarantine.REASON in record.schema.names:
        reason = record.column(quarantine.REASON)[0].as_py()
        return quarantine.column_of_reason(reason, columns), reason
    # A user's own DataFrame, whose payloads Spark has decoded.
    payload = record.column("data" if "data" in record.schema.names else CORRUPT).cast(pa.binary())
    _, reasons = _json_decoder(pa.schema(columns)).decode(payload)
    reason = reasons[0].as_py() or "The payload does not fit the schema."
    column = quarantine.column_of_reason(reason, columns)
    return column, reason + unnamed_frame_hint(payload[0].as_py() or b"")


@lru_cache(maxsize=20)
def _json_decoder(columns: pa.Schema) -> PlainJsonDecoder:
    """A decoder that explains why a payload does not fit, for columns of types that JSON has."""
    return PlainJsonDecoder(pa.schema([column for column in columns if is_json_type(column.type)]))


def misfits(
    target: Target, layout: Layout, rows: pa.RecordBatch
) -> tuple[pa.Array | None, ReasonOf]:
    """Boolean mask of the rows that a table cannot hold, None if it holds all of them, and a
    function that gives the reason for one of them."""
    mask = misfit_mask(layout, target.table_columns(rows))
    return mask, lambda row: misfit_reason(layout, target.table_columns(row))


def unrouted_reason(record: pa.RecordBatch) -> quarantine.Reason:
    """The reason for a message whose subject no table of a list takes."""
    subject = record.column("subject")[0].as_py()
    return "subject", f"No table of the list takes the subject {subject}."


def rejection_error(target: Target, records: pa.RecordBatch, reason_of: ReasonOf) -> ConfigError:
    """The error for the first of some rejected records, where nothing quarantines them."""
    first = records.slice(0, 1)
    message_columns = [name for name in quarantine.MESSAGE if name in records.schema.names]
    sentence = quarantine.rejection_message(
        first.select(message_columns).to_pylist()[0], reason_of(first)
    )
    advice = "Leave such rows out"
    if message_columns == list(quarantine.MESSAGE) or CORRUPT in records.schema.names:
        advice = (
            "Fix the schema and run the command again; it resumes at this batch. Or give the "
            f"{named('quarantine')}, to quarantine such records"
        )
    if target.options.upsert is None:
        advice += (
            f"; or leave {named('on_bad_record')} out, to keep them in {CORRUPT}, a column "
            f"which {named('merge_schema')} adds"
        )
    return ConfigError(f"{sentence} Nothing of its batch was written. {advice}.")
