"""A list of tables that one stream is divided into, each with its own subjects and schema.

Before they are divided rows have the columns of the stream, the number of their table (`NUMBER`),
and for each table with a schema a struct of the payload's fields (`fields_column`), which is null
in the rows of other tables. Columns that are made of others are made where rows are divided, in
tasks, for rows that come through Spark, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from jetspark.codecs.ddl import check_fields, with_types
from jetspark.codecs.decoder import REASON
from jetspark.codecs.encoder import in_places
from jetspark.codecs.field_names import FieldNames
from jetspark.codecs.framing import Framing
from jetspark.codecs.tolerant import Bare, Decoder
from jetspark.lakehouse.quarantine import Reason
from jetspark.lakehouse.routes import ValueOf
from jetspark.reserved_names import BARE_PAYLOAD, PREFIX
from jetspark.spark.json_payloads import (
    CORRUPT,
    KEPT,
    bare_payload,
    json_decoder,
    refused_payloads,
)
from jetspark.spark.lakehouse.growth import without
from jetspark.spark.lakehouse.options import ListedTable
from jetspark.spark.versions import in_arrow, of_arrow
from jetspark.subjects import subject_matches

NUMBER = "_jetspark_table"
"""Null in rows without a table."""
DAY = "day"
"""A partition column that is made if the rows have none of this name."""
OF_DAY = ValueOf.parse(DAY, "day(timestamp)")
"""What it is made of."""
_PAYLOAD = "data"
_ADDED = (CORRUPT, REASON, BARE_PAYLOAD)
"""Beside the fields of payloads."""


def fields_column(number: int) -> str:
    """The column with the fields of a table."""
    return f"_jetspark_fields_{number}"


def with_fields(rows: DataFrame, tables: Sequence[ListedTable], framing: Framing) -> DataFrame:
    """Rows of a stream as they are divided, by Spark. `framing`: of JSON payloads. Raises
    ConfigError."""
    parts = [_part(one, one.json, framing) for one in tables]
    columns = in_arrow(rows.schema)
    structs = [
        pa.field(fields_column(at), _struct(decoder, columns))
        for at, decoder in enumerate(part.decoder() for part in parts)
        if decoder is not None
    ]
    number = pa.field(NUMBER, pa.int32())
    schema = StructType([*rows.schema, *of_arrow(pa.schema([number, *structs]))])
    return rows.mapInArrow(partial(_attach_fields, parts), schema)


class Part(NamedTuple):
    """What tasks know of a table."""

    subjects: Sequence[str]
    ddl: str | None
    """Of its payloads."""
    option: str
    """What the schema is called."""
    names: FieldNames
    framing: Framing
    bare: Bare

    def decoder(self) -> Decoder | None:
        """What makes columns of its payloads. Raises ConfigError."""
        if self.ddl is None:
            return None
        return json_decoder(self.ddl, self.option, self.names, framing=self.framing, bare=self.bare)


def _bare(table: ListedTable) -> Bare:
    new = table.options.evolve and table.json is not None
    return "all" if new else bare_payload(None, table.made.values()) or "refused"


def _part(table: ListedTable, ddl: str | None, framing: Framing) -> Part:
    return Part(table.subjects, ddl, table.option, table.names, framing, _bare(table))


def decoder_of(table: ListedTable, ddl: str | None, framing: Framing) -> Decoder | None:
    """What makes columns of a table's payloads, whose schema is `ddl`. Raises ConfigError."""
    return _part(table, ddl, framing).decoder()


def _attach_fields(
    parts: Sequence[Part], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    decoders = [part.decoder() for part in parts]
    # No more of them at a time than fit into memory without their compression.
    bounded = (part.rows for batch in batches for part in parts[0].framing.decompress(batch))
    for batch in bounded:
        numbers = _numbers(batch.column("subject"), [part.subjects for part in parts])
        found = batch.append_column(NUMBER, numbers)
        for at, decoder in enumerate(decoders):
            if decoder is not None:
                mine = pc.fill_null(pc.equal(numbers, at), False)
                decoded = with_corrupt(decoder.of(batch.filter(mine)))
                kind = _struct(decoder, batch.schema)
                struct = pa.StructArray.from_arrays(
                    [decoded.column(one.name) for one in kind], fields=list(kind)
                )
                found = found.append_column(fields_column(at), in_places(mine, struct))
        yield found


def _struct(decoder: Decoder, columns: pa.Schema) -> pa.StructType:
    fields = list(decoder.schema(columns))[len(columns) :]
    return pa.struct([*fields, pa.field(CORRUPT, pa.string())])


def with_corrupt(decoded: pa.RecordBatch) -> pa.RecordBatch:
    """The decoded rows of one table with the payloads that do not fit."""
    return decoded.append_column(CORRUPT, refused_payloads(decoded))


def put_aside(tables: Sequence[ListedTable], *, unlisted: bool) -> Column:
    """Whether a row is no row of its table; with `unlisted` also, whether it has none."""
    refused = [
        F.col(fields_column(at))[CORRUPT].isNotNull()
        for at, one in enumerate(tables)
        if one.json is not None
    ]
    refused += [F.col(NUMBER).isNull()] if unlisted else []
    return reduce(Column.__or__, refused, F.lit(False))


def schema_of(rows: StructType, number: int, table: ListedTable) -> StructType:
    """The columns that the rows of one table have, by those of all rows."""
    found = [one for one in rows if one.name in KEPT]
    if table.json is None or table.options.quarantine is not None:
        found.append(rows[_PAYLOAD])
    fields = _fields(rows, number)
    found += fields
    for name, value in table.made.items():
        of = StructType(found)[value.column]
        none = pa.RecordBatch.from_pylist([], schema=in_arrow(StructType([of])))
        found.append(StructField(name, from_arrow_type(value.of(none).type)))
    return StructType(found)


def made_columns(rows: StructType, number: int, table: ListedTable) -> Mapping[str, ValueOf]:
    """The columns that are made of others, with the one for new fields if there is to be one."""
    if table.json is None:
        return table.made
    columns = [one.name for one in _fields(rows, number) if one.name not in _ADDED]
    added = {*map(table.names.field, columns)} - check_fields(table.json, table.option).keys()
    ddl = with_types(table.json, dict.fromkeys(sorted(added), "string"))
    return without(ddl, table.made, new=table.options.evolve, names=table.names)


def _fields(rows: StructType, number: int) -> StructType:
    """Those of the payloads."""
    if (own := fields_column(number)) not in rows.names:
        return StructType()
    fields = rows[own].dataType
    assert isinstance(fields, StructType)  # noqa: S101
    return fields


def rows_of(
    batch: pa.RecordBatch, number: int, made: Mapping[str, ValueOf] | None = None
) -> pa.RecordBatch:
    """The rows of one table, with its fields as columns, and those that are made of others."""
    own = fields_column(number)
    columns = {
        name: batch.column(name)
        for name in batch.schema.names
        if name == BARE_PAYLOAD or not name.startswith(PREFIX)
    }
    if own in batch.schema.names:
        struct = batch.column(own)
        names = [field.name for field in struct.type]
        columns |= dict(zip(names, struct.flatten(), strict=True))
    for name, value in (made or {}).items():
        columns[name] = value.of(pa.RecordBatch.from_pydict(columns))
    return pa.RecordBatch.from_pydict(columns)


def numbers_of(subjects: pa.Array, tables: Sequence[ListedTable]) -> pa.Array:
    """The numbers of the tables that rows go to."""
    return _numbers(subjects, [one.subjects for one in tables])


def _numbers(subjects: pa.Array, tables: Sequence[Sequence[str]]) -> pa.Array:
    encoded = subjects.dictionary_encode()
    found = [_number(subject, tables) for subject in encoded.dictionary.to_pylist()]
    return pa.array(found, pa.int32()).take(encoded.indices)


def _number(subject: str, tables: Sequence[Sequence[str]]) -> int | None:
    for at, wanted in enumerate(tables):
        if any(subject_matches(one, subject) for one in wanted):
            return at
    return None


def divided(
    batch: pa.RecordBatch, numbers: pa.Array
) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """(number of the table, its rows)."""
    for number in pc.unique(numbers).to_pylist():
        chosen = pc.is_null(numbers) if number is None else pc.equal(numbers, number)
        yield number, batch.filter(chosen)


def no_table(row: pa.RecordBatch) -> Reason:
    """Why a row has no table."""
    subject = row.column("subject")[0].as_py()
    return "subject", f"No table of the list takes the subject {subject}."
