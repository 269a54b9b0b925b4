"""A table that is ready for its rows, as the driver sends it to the tasks that write into it.

It says which records it rejects, and why: tasks that decode messages, DataFrames that are written,
and the retry of a quarantine reject by the same methods. A record is rejected if its payload could
not be decoded, if it has no value in the key or the order of an upsert, or if the table cannot hold
one of its values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from jetspark.errors import ConfigError, PipelineError, named
from jetspark.payloads.framing import unnamed_frame_hint
from jetspark.payloads.json_columns import is_json_type
from jetspark.payloads.json_plain import PlainJsonDecoder
from jetspark.payloads.tolerant import CORRUPT
from jetspark.spark.source.payload_columns import METADATA_COLUMNS
from jetspark.spark.table_sink.options import STOP, LakehouseOptions
from jetspark.tables import formats, quarantine
from jetspark.tables.file_layout import Layout
from jetspark.tables.new_files import Storage

_DEAD_LETTER_FOLDER = "_letters/"
"""Staging folder for dead letters, in the folder of a template's tables."""

ReasonOf: TypeAlias = Callable[[pa.RecordBatch], quarantine.Reason]
"""A function that says why the only record of a batch is rejected."""


@dataclass(frozen=True)
class Target:
    """A table that was created or checked and is ready for rows: what the tasks of a write need to
    know of it. It may also be a list of tables, or a template of them, as `lake/{region}`."""

    options: LakehouseOptions
    schema: pa.Schema
    """The columns that the table will have."""
    layout: Layout | None = None
    """None, like `storage`, where tasks route rows into several tables."""
    storage: Storage | None = None
    tables: tuple[Target, ...] = ()
    """The tables of a list."""
    completed_batch: int | None = None
    """The batch for which this was prepared, if the tables have it, so that nothing is written."""

    def check_completed(self, batch: tuple[str, int] | None) -> None:
        """Raise PipelineError if a task of another batch uses this target, which was prepared for a
        batch that the tables already have: nothing would be written.

        `batch`: the id of the task's query and the number of its batch; None: not known.
        """
        if batch is not None and batch[1] != self.completed_batch:
            raise PipelineError(
                f"Spark writes batch {batch[1]}, but has prepared batch {self.completed_batch}, "
                "which is in the tables: start the query again."
            )

    @property
    def by_name(self) -> dict[str, Target]:
        """The tables of a list by their names; without a list this target itself, by the name ""
        that a query's only table has."""
        return {str(table.options.name): table for table in self.tables} or {"": self}

    @property
    def dead_letter_staging(self) -> tuple[Layout, Storage]:
        """Layout and storage of the files into which tasks write rejected records, for the driver
        to publish to a stream of dead letters.

        They are among the data files of the (first) table, and named like these, so that `vacuum`
        removes what a failed task leaves behind. For a template they are in a folder of their own.
        """
        if self.tables:
            return self.tables[0].dead_letter_staging
        if self.layout is not None and self.storage is not None:
            return Layout(quarantine.SCHEMA, folder=self.layout.folder), self.storage
        route = self.options.route
        assert route is not None  # noqa: S101
        root = replace(self.options.name, path=route.root)
        storage = formats.folder_storage(self.options.format, root)
        return Layout(quarantine.SCHEMA, folder=_DEAD_LETTER_FOLDER), storage

    @property
    def payload_columns(self) -> dict[str, pa.DataType]:
        """Types, by name, of the table's columns that are no metadata of a message (its subject,
        sequence, …): fields of payloads and derived columns."""
        return {
            column.name: column.type
            for column in self.schema
            if column.name not in METADATA_COLUMNS
        }

    def select_columns(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Drop the columns of rows that the table does not have, such as the raw payload."""
        return rows.select([name for name in rows.schema.names if name in self.schema.names])

    # -- rejected records --------------------------------------------------------------------

    def rejected_mask(self, rows: pa.RecordBatch) -> pa.Array:
        """Boolean mask of the records to reject: those that could not be decoded, and those without
        a value in a column by which the table's rows are merged (its keys, or their order)."""
        options = self.options
        mask = pa.repeat(pa.scalar(False), rows.num_rows)
        # Without a quarantine and without STOP, a record that could not be decoded is a row, too,
        # with its payload in `_corrupt_record`, which is null in others.
        keeps_bad_records = options.quarantine is None and options.on_bad_record != STOP
        if CORRUPT in rows.schema.names and not keeps_bad_records:
            mask = pc.is_valid(rows.column(CORRUPT))
        if options.upsert is not None:
            mask = pc.or_(mask, pc.is_valid(options.upsert.missing_key_column(rows)))
        return mask

    def rejection_reason(self, record: pa.RecordBatch) -> quarantine.Reason:
        """Explain why `rejected_mask` rejects a record: the column that it is about, if it is about
        one, and a sentence. `record`: a batch of this one row."""
        is_decoded = CORRUPT not in record.schema.names or not record.column(CORRUPT)[0].is_valid
        if is_decoded and (upsert := self.options.upsert) is not None:
            name = upsert.missing_key_column(record)[0].as_py()
            role = "key" if name in upsert.keys else "order"
            return name, f"There is no value in {name}, which is the table's {role}."
        columns = self.payload_columns
        if quarantine.REASON in record.schema.names:  # the decoder has said why
            reason = record.column(quarantine.REASON)[0].as_py()
            return quarantine.column_of_reason(reason, columns), reason
        # A user's own DataFrame, whose payloads Spark has decoded.
        payload = record.column("data" if "data" in record.schema.names else CORRUPT)
        payload = payload.cast(pa.binary())
        _, reasons = _json_decoder(pa.schema(columns)).decode(payload)
        reason = reasons[0].as_py() or "The payload does not fit the schema."
        column = quarantine.column_of_reason(reason, columns)
        return column, reason + unnamed_frame_hint(payload[0].as_py() or b"")

    def rejection_error(self, records: pa.RecordBatch, reason_of: ReasonOf) -> ConfigError:
        """The error that ends a write since records were rejected and there is no quarantine for
        them: it describes the first one, and says what the user can do."""
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
        if self.options.upsert is None:
            advice += (
                f"; or leave {named('on_bad_record')} out, to keep them in {CORRUPT}, a column "
                f"which {named('merge_schema')} adds"
            )
        return ConfigError(f"{sentence} Nothing of its batch was written. {advice}.")


@lru_cache(maxsize=20)
def _json_decoder(columns: pa.Schema) -> PlainJsonDecoder:
    """A decoder of JSON payloads into these columns, as far as JSON has their types; it explains
    why a payload does not fit."""
    return PlainJsonDecoder(pa.schema([column for column in columns if is_json_type(column.type)]))
