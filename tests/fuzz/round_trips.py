"""Rows of every type through everything that rewrites them.

Each run makes a table with columns of random types, and changes it as queries and commands do:
rows written, merged by their keys, columns added, files compacted. After each change the rows are
compared with a model, as our own readers have them; at the end deltalake, DuckDB, Polars and
PyIceberg read the whole table, and find rows by filters on every column. Values are the edges of
each type, and null at every level. `--spark`: Spark reads all tables, once.
"""

from __future__ import annotations

import math
import random
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyiceberg.expressions as ex
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.table import StaticTable
from tests.support import campaign
from tests.support.java import small_jvms
from tests.support.table_readers import by_polars, in_duckdb, newest_metadata

from jetspark.errors import JetsparkError
from jetspark.spark.session.session import close_session, local_session
from jetspark.tables.batches import commit_files
from jetspark.tables.file_layout import Layout
from jetspark.tables.file_writer import write_files
from jetspark.tables.formats import Format, open_or_create_table, open_table
from jetspark.tables.misfits import misfit_mask
from jetspark.tables.partitions import PartitionBy
from jetspark.tables.table import Table, TableName
from jetspark.tables.upserts import Upsert, staging_layout

# -------------------------------------------------------------------------------------------------
# Types, and the values at their edges.

LAST, BEFORE_SURROGATES = "\U0010ffff", "\ud7ff"
TEXTS = (
    "", "a", "ü", "a b/c=ü", "50%", "a~2Fb", "x" * 40, "é" * 40, LAST, LAST * 40,
    "x" * 32 + LAST * 3,
    "x" * 15 + BEFORE_SURROGATES + "more", BEFORE_SURROGATES * 20, "\0", "it's", '"q"', "null",
    "__HIVE_DEFAULT_PARTITION__", " ", "\U0001f600" * 20, "-1", "true", "\n", "a\\b",
)  # fmt: skip
LONG_TEXTS = ("y" * 5000, "z" * 70_000)
UTC_TIMES = pa.timestamp("us", "UTC")
LOCAL_TIMES = pa.timestamp("us")
TIMES = (
    datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(1970, 1, 1),
    datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2026, 1, 1, 12, 0, 0, 1),
    datetime(1582, 10, 10), datetime(2026, 3, 29, 2, 30, 0, 999), datetime(2262, 4, 12),
)  # fmt: skip
DATES = (
    date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1), date(1969, 12, 31), date(2026, 2, 28),
    date(1582, 10, 10),
)  # fmt: skip
FLOATS = (
    0.0, -0.0, 1.0, -1.5, 0.1, math.inf, -math.inf, math.nan, 1e308, -1e308, 5e-324, 2.0**53 + 1,
)  # fmt: skip


def _whole_numbers(bits: int) -> list[int]:
    most = 2 ** (bits - 1)
    return [0, 1, -1, most - 1, -most, most // 3, -most + 1]


def _decimals(kind: pa.DataType) -> list[Decimal]:
    digits = 10**kind.precision - 1
    whole = [0, 1, -1, digits, -digits, digits // 7, -(10 ** min(kind.scale, kind.precision - 1))]
    return [Decimal(one).scaleb(-kind.scale, _EXACT) for one in whole]


_EXACT = Context(prec=60)
_INTEGERS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_OF_DECIMALS = [
    pa.decimal128(*one)
    for one in ((1, 0), (5, 5), (9, 2), (10, 10), (18, 3), (20, 10), (38, 0), (38, 38), (38, 18))
]
SCALARS: dict[pa.DataType, Sequence[Any]] = {
    pa.bool_(): (True, False),
    **{kind: _whole_numbers(bits) for bits, kind in _INTEGERS.items()},
    pa.float32(): [one for one in FLOATS if abs(one) not in (1e308, 5e-324, 0.1, 2.0**53 + 1)],
    pa.float64(): FLOATS,
    **{kind: _decimals(kind) for kind in _OF_DECIMALS},
    pa.string(): TEXTS,
    pa.binary(): (b"", b"a", b"\0\xff", b"\xff" * 20, b"\xff" * 15 + b"\xfe" * 5),
    pa.date32(): DATES,
    UTC_TIMES: [one.replace(tzinfo=UTC) for one in TIMES],
    LOCAL_TIMES: TIMES,
}


def random_column(rng: random.Random, name: str, format_: Format) -> pa.Field:
    """A column of a type that the format has."""
    while True:
        kind = random_type(rng)
        if format_ is Format.ICEBERG:
            return pa.field(name, _without_small(kind))
        if not ("map<" in str(kind) and "timestamp[us]" in str(kind)):
            return pa.field(name, kind)


def random_type(rng: random.Random, depth: int = 0) -> pa.DataType:
    if depth == 3 or rng.random() < (0.6 if depth == 0 else 0.5):
        return rng.choice(list(SCALARS))
    match rng.randrange(3):
        case 0:
            return pa.list_(pa.field("element", random_type(rng, depth + 1)))
        case 1:
            return pa.map_(rng.choice([pa.string(), pa.int64()]), random_type(rng, depth + 1))
    count = rng.randint(1, 3)
    return pa.struct([pa.field(f"f{at}", random_type(rng, depth + 1)) for at in range(count)])


def random_value(rng: random.Random, kind: pa.DataType, *, null: float = 0.25) -> Any:
    if rng.random() < null:
        return None
    if kind in SCALARS:
        return rng.choice(SCALARS[kind])
    count = rng.choice([0, 0, 1, 2, 3])
    if pa.types.is_list(kind):
        return [random_value(rng, kind.value_type) for _ in range(count)]
    if pa.types.is_map(kind):
        keys = {random_value(rng, kind.key_type, null=0) for _ in range(count)}
        return [(key, random_value(rng, kind.item_type)) for key in keys]
    return {one.name: random_value(rng, one.type) for one in kind}


# -------------------------------------------------------------------------------------------------
# Rows as all readers have them: plain values, times as whole numbers.


def plain_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """The column as values that differ if, and only if, the rows do."""
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in plain_values(chunk)]
    if isinstance(column, pa.ExtensionArray):
        return plain_values(column.storage)
    kind = column.type
    valid = column.is_valid().to_pylist()
    rows: list[Any]
    if pa.types.is_struct(kind):
        parts = [plain_values(pc.struct_field(column, [at])) for at in range(kind.num_fields)]
        rows = [
            dict(zip([one.name for one in kind], values, strict=True))
            for values in zip(*parts, strict=True)
        ]
    elif pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        is_map = pa.types.is_map(kind)
        if is_map:
            keys, items = plain_values(column.keys), plain_values(column.items)
            values: list[Any] = [{"key": a, "value": b} for a, b in zip(keys, items, strict=True)]
        else:
            values = plain_values(column.values)
            if pa.types.is_struct(kind.value_type):
                is_map = [one.name for one in kind.value_type] == ["key", "value"]
        rows = [values[start:end] for start, end in pairwise(column.offsets.to_pylist())]
        if is_map:
            rows = [sorted(row, key=repr) for row in rows]
    elif pa.types.is_timestamp(kind):
        rows = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).to_pylist()
    elif pa.types.is_date32(kind):
        rows = column.cast(pa.int32()).to_pylist()
    elif pa.types.is_floating(kind):
        rows = [None if one is None else repr(one) for one in column.to_pylist()]
    elif pa.types.is_decimal(kind):
        rows = [None if one is None else f"{one:f}" for one in column.to_pylist()]
    elif str(kind).endswith("_view"):
        rows = column.cast(pa.string() if "string" in str(kind) else pa.binary()).to_pylist()
    else:
        rows = column.to_pylist()
    return [value if is_valid else None for value, is_valid in zip(rows, valid, strict=True)]


def rows_of(table: pa.Table) -> dict[int, dict[str, Any]]:
    """Rows by their ids. Raises ValueError for an id that is there twice."""
    columns = {name: plain_values(table[name]) for name in table.schema.names}
    ids = columns["id"]
    if len(set(ids)) < len(ids):
        raise ValueError(
            f"rows are there twice: {[one for one, n in Counter(ids).items() if n > 1]}"
        )
    return {
        id_: {name: values[at] for name, values in columns.items()} for at, id_ in enumerate(ids)
    }


# -------------------------------------------------------------------------------------------------
# One table.


@dataclass
class Case:
    """A table and its model."""

    rng: random.Random
    format: Format
    folder: Path
    schema: pa.Schema
    partition_by: tuple[str, ...]
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    """As Python's values."""
    steps: list[str] = field(default_factory=list)
    widened: set[str] = field(default_factory=set)

    @property
    def model(self) -> dict[int, dict[str, Any]]:
        return rows_of(self.table_of(self.rows.values()))

    def table_of(self, rows: Any) -> pa.Table:
        return pa.Table.from_pylist(
            [{name: row.get(name) for name in self.schema.names} for row in rows], self.schema
        )

    def open(self) -> Table:
        return open_table(self.format, TableName(path=str(self.folder)))

    def new_rows(self, ids: Sequence[int]) -> list[dict[str, Any]]:
        others = [one for one in self.schema if one.name != "id"]
        return [
            {"id": id_} | {one.name: random_value(self.rng, one.type) for one in others}
            for id_ in ids
        ]

    def holdable(self, layout: Layout, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Without those that the task would quarantine."""
        if not rows:
            return rows
        (batch,) = self.table_of(rows).combine_chunks().to_batches()
        mask = misfit_mask(layout, batch)
        if mask is None:
            return rows
        return [row for row, misfit in zip(rows, mask.to_pylist(), strict=True) if not misfit]

    # -- changes ----------------------------------------------------------------------------

    def write(self) -> None:
        for _ in range(self.rng.randint(1, 3)):
            start = max(self.rows, default=0) + 1
            rows = self.new_rows(range(start, start + self.rng.randint(1, 12)))
            table = self.open()
            layout = table.layout(10**8, "zstd")
            rows = self.holdable(layout, rows)
            batches = self.table_of(rows).to_batches(max_chunksize=self.rng.choice([2, 100]))
            commit_files(table, write_files(layout, table.storage, "part-0", batches))
            self.rows.update({row["id"]: row for row in rows})

    def merge(self) -> None:
        known = self.rng.sample(sorted(self.rows), min(len(self.rows), self.rng.randint(0, 4)))
        start = max(self.rows, default=0) + 1
        rows = self.new_rows([*known, *range(start, start + self.rng.randint(0, 3))])
        table = self.open()
        layout = staging_layout(table.layout(10**8, "zstd"))
        rows = self.holdable(layout, rows)
        files = write_files(layout, table.storage, "part-0", self.table_of(rows).to_batches())
        commit_files(table, files, Upsert(("id",)))
        self.rows.update({row["id"]: row for row in rows})

    def compact(self) -> None:
        self.open().compact(10**8)

    def add_column(self) -> None:
        column = random_column(self.rng, f"c{len(self.schema)}", self.format)
        self.open().add_columns([column])
        self.schema = self.schema.append(column)

    def widen(self) -> None:
        for at, one in enumerate(self.schema):
            wider = {pa.int32(): pa.int64(), pa.float32(): pa.float64()}.get(one.type)
            if wider is None or self.format is Format.DELTA or one.name in str(self.partition_by):
                continue
            self.open().widen([one.with_type(wider)])
            self.schema = self.schema.set(at, one.with_type(wider))
            self.widened.add(one.name)
            return

    def step(self) -> None:
        change = self.rng.choice(
            [self.write, self.write, self.merge, self.compact, self.add_column, self.widen]
        )
        self.steps.append(change.__name__)
        change()


def _partitions(rng: random.Random, format_: Format, schema: pa.Schema) -> tuple[str, ...]:
    wanted = []
    for one in schema:
        if one.type not in SCALARS or rng.random() < 0.6:
            continue
        texts = [one.name]
        if format_ is Format.ICEBERG:
            texts += [f"bucket(4, {one.name})", f"truncate(2, {one.name})"]
            texts += [f"{unit}({one.name})" for unit in ("year", "month", "day", "hour")]
        by = PartitionBy.parse(rng.choice(texts))
        try:
            by.check(schema)
        except JetsparkError:
            continue
        if one.type == pa.binary() or (one.name == "id" and not by.transform):
            continue
        wanted.append(str(by))
    return tuple(wanted[:2])


def make(rng: random.Random, folder: Path) -> Case:
    format_ = rng.choice(list(Format))
    columns = [random_column(rng, f"c{at + 1}", format_) for at in range(rng.randint(1, 6))]
    schema = pa.schema([pa.field("id", pa.int64()), *columns])
    partition_by = _partitions(rng, format_, schema) if rng.random() < 0.5 else ()
    open_or_create_table(
        format_, TableName(path=str(folder)), schema, list(map(PartitionBy.parse, partition_by))
    )
    return Case(rng, format_, folder, schema, partition_by)


def _without_small(kind: pa.DataType) -> pa.DataType:
    """Iceberg has no integers below 32 bits."""
    if kind in (pa.int8(), pa.int16()):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_without_small(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _without_small(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _without_small(kind.value_type)))
    return kind


# -------------------------------------------------------------------------------------------------
# Readers.


def ours(case: Case) -> pa.Table:
    found = case.open().scan_tasks(case.schema.names, None, 2)
    batches = [one for piece in found for one in piece.batches()]
    return pa.Table.from_batches(batches) if batches else case.table_of([])


def readers(case: Case) -> Iterator[tuple[str, Callable[[], pa.Table]]]:
    """Each reader of the whole table."""
    yield "DuckDB", lambda: duckdb(case, "SELECT * FROM t")
    yield "Polars", lambda: by_polars(case.format, case.folder).collect().to_arrow()
    if case.format is Format.DELTA:
        yield "deltalake", lambda: DeltaTable(case.folder).to_pyarrow_table()
        yield "DataFusion", lambda: datafusion(case, "SELECT * FROM t")
    else:
        yield "PyIceberg", lambda: static(case).scan().to_arrow()


def static(case: Case) -> StaticTable:
    return StaticTable.from_metadata(newest_metadata(case.folder))


def duckdb(case: Case, sql: str) -> pa.Table:
    return in_duckdb(case.format, case.folder, sql).to_arrow_table()


def datafusion(case: Case, sql: str) -> pa.Table:
    found = QueryBuilder().register("t", DeltaTable(case.folder)).execute(sql)
    return pa.table(found.read_all())


def _literal(kind: pa.DataType, value: Any) -> str:
    """In SQL."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime():
            text = value.replace(tzinfo=None).isoformat(" ")
            return f"TIMESTAMPTZ '{text}+00:00'" if kind.tz else f"TIMESTAMP '{text}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case bytes():
            return "'" + "".join(f"\\x{one:02X}" for one in value) + "'::BLOB"
        case Decimal():
            return f"CAST('{value:f}' AS DECIMAL({kind.precision},{kind.scale}))"
        case float():
            return f"CAST('{value!r}' AS {'FLOAT' if kind == pa.float32() else 'DOUBLE'})"
    return f"({value})"


def filters(
    case: Case, column: pa.Field, value: Any
) -> Iterator[tuple[str, Callable[[], pa.Table]]]:
    """Each reader's rows whose column equals the value, or is null."""
    name, kind = column.name, column.type
    # These two compare the narrow values of older files with the filter's, made narrow.
    is_narrow = name in case.widened and pa.types.is_floating(kind)
    # DuckDB computes partitions of times before 1970, and of decimals, in its own way.
    of_name = [one for one in case.partition_by if f"{name})" in one]
    its_own = bool(of_name) and (pa.types.is_temporal(kind) or pa.types.is_decimal(kind))
    text = "IS NULL" if value is None else f"= {_literal(kind, value)}"
    if not (isinstance(value, str) and "\0" in value) and not is_narrow and not its_own:
        asked = f"SELECT id FROM t WHERE {name} {text}"
        yield "DuckDB", lambda: duckdb(case, asked)
    by = pl.col(name).is_null()
    if value is not None:
        by = pl.col(name) == pl.lit(pl.from_arrow(pa.array([value], kind))).first()
    yield (
        "Polars",
        lambda: by_polars(case.format, case.folder).filter(by).select("id").collect().to_arrow(),
    )
    if case.format is Format.DELTA:
        field_ = pc.field(name)
        wanted = field_.is_null() if value is None else field_ == pa.scalar(value, kind)
        yield (
            "deltalake",
            lambda: (
                DeltaTable(case.folder).to_pyarrow_dataset().to_table(filter=wanted, columns=["id"])
            ),
        )
        # It takes times for nanoseconds since 1970.
        if not isinstance(value, (datetime, bytes)):
            asked = f"SELECT id FROM t WHERE {name} {text}"
            yield "DataFusion", lambda: datafusion(case, asked)
    else:
        row_filter: Any = _IS_NULL(name) if value is None else _EQUAL(name, _iceberg(value))
        # It has no literal for an infinite float.
        is_infinite = isinstance(value, float) and math.isinf(value) and kind == pa.float32()
        if not is_infinite and not is_narrow:
            yield (
                "PyIceberg",
                lambda: (
                    static(case).scan(row_filter=row_filter, selected_fields=("id",)).to_arrow()
                ),
            )


_IS_NULL: Any = ex.IsNull
_EQUAL: Any = ex.EqualTo


def _iceberg(value: Any) -> Any:
    return value.isoformat() if isinstance(value, (date, datetime)) else value


def _wanted_ids(case: Case, column: pa.Field, value: Any) -> set[int]:
    values = {id_: row.get(column.name) for id_, row in case.rows.items()}
    if value is None:
        return {id_ for id_, one in values.items() if one is None}
    return {id_ for id_, one in values.items() if one is not None and one == value}


# -------------------------------------------------------------------------------------------------
# The campaign.


@dataclass
class Figures(campaign.Figures):
    changes: int = 0
    rows: int = 0
    reads: int = 0
    filters: int = 0


def _differences(wanted: Mapping[int, Any], found: Mapping[int, Any]) -> str | None:
    if wanted == found:
        return None
    if wanted.keys() != found.keys():
        lost, more = wanted.keys() - found.keys(), found.keys() - wanted.keys()
        return f"ids lost {sorted(lost)}, more {sorted(more)}"
    for id_, row in wanted.items():
        for name, value in row.items():
            if found[id_].get(name) != value:
                return f"row {id_}, {name}: {value!r:.200} became {found[id_].get(name)!r:.200}"
    return "other columns"


def check(case: Case, figures: Figures, *, all_readers: bool) -> Iterator[str]:
    """What is wrong with the table."""
    wanted = case.model
    reading: list[tuple[str, Callable[[], pa.Table]]] = [("jetspark", lambda: ours(case))]
    reading += readers(case) if all_readers and case.rows else []
    for reader, read in reading:
        figures.reads += 1
        try:
            found = rows_of(read().select(case.schema.names))
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            yield f"{reader} raised {type(error).__name__}: {str(error)[:300]}"
            continue
        expected = wanted
        if reader == "PyIceberg":  # it reads null as an empty list, where structs are in it
            expected, found = (_with_empty_lists(case.schema, rows) for rows in (wanted, found))
        if (difference := _differences(expected, found)) is not None:
            yield f"{reader}: {difference}"


def _with_empty_lists(schema: pa.Schema, rows: Mapping[int, Any]) -> dict[int, Any]:
    return {
        id_: {name: _with_empty_list(schema.field(name).type, row[name]) for name in schema.names}
        for id_, row in rows.items()
    }


def _with_empty_list(kind: pa.DataType, value: Any) -> Any:
    if pa.types.is_map(kind):
        return [
            {"key": one["key"], "value": _with_empty_list(kind.item_type, one["value"])}
            for one in value or []
        ]
    if pa.types.is_list(kind):
        return [_with_empty_list(kind.value_type, one) for one in value or []]
    if pa.types.is_struct(kind) and value is not None:
        return {one.name: _with_empty_list(one.type, value[one.name]) for one in kind}
    return value


def check_filters(case: Case, figures: Figures) -> Iterator[str]:
    for column in case.schema:
        if column.type not in SCALARS:
            continue
        present = [row.get(column.name) for row in case.rows.values()]
        values = {repr(one): one for one in present if one is None or one == one}
        for value in case.rng.sample(list(values.values()), min(len(values), 4)):
            wanted = _wanted_ids(case, column, value)
            for reader, read in filters(case, column, value):
                figures.filters += 1
                try:
                    found = set(read()["id"].to_pylist())
                except BaseException as error:
                    if isinstance(error, KeyboardInterrupt):
                        raise
                    if "_view)" in str(error):  # Arrow and deltalake's own files do not go together
                        continue
                    yield (
                        f"{reader}, {column.name} ({column.type}) = {value!r:.100}: "
                        f"{type(error).__name__}: {str(error)[:200]}"
                    )
                    continue
                if found != wanted:
                    yield (
                        f"{reader}, {column.name} ({column.type}) = {value!r:.100}: ids lost "
                        f"{sorted(wanted - found)}, more {sorted(found - wanted)}"
                    )


def turn(seed: str, folder: Path, figures: Figures) -> Case | None:
    rng = random.Random(seed)
    case = make(rng, folder)

    def note(*wrong: str) -> None:
        where = f"seed {seed!r}, {case.format}, by {case.partition_by}, {case.steps}"
        figures.wrong += [f"{where}: {one}" for one in wrong]

    for _ in range(rng.randint(2, 7)):
        try:
            case.step()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            note(f"{type(error).__name__}: {str(error)[:400]}")
            return None
        figures.changes += 1
        note(*(bad := [*check(case, figures, all_readers=False)]))
        if bad:
            return None
    figures.rows += len(case.rows)
    note(*check(case, figures, all_readers=True), *check_filters(case, figures))
    return case


def read_in_spark(cases: Sequence[Case], figures: Figures, folder: Path) -> None:
    """All tables, in one session."""
    small_jvms()
    conf = {"spark.sql.shuffle.partitions": "1", "spark.local.dir": str(folder)}
    spark = local_session("trips", master="local[2]", log_file=folder / "log", conf=conf)
    try:
        for case in cases:
            figures.reads += 1
            table = spark.read.format(f"jetspark-{case.format}").load(str(case.folder)).toArrow()
            difference = _differences(case.model, rows_of(table.select(case.schema.names)))
            if difference is not None:
                figures.wrong.append(f"{case.folder.name}, {case.steps}: Spark: {difference}")
    finally:
        close_session(spark)


def run(runs: int = 1000, seed: int = 0, spark: bool = False) -> Figures:
    """A run is a table."""
    warnings.simplefilter("ignore")
    figures = Figures()
    cases: list[Case] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="round-trips-")))
        for at in range(runs):
            case = turn(f"{seed} {at}", folder / str(at), figures)
            if spark and case is not None and case.rows:
                cases.append(case)
            else:
                shutil.rmtree(folder / str(at), ignore_errors=True)
            figures.count_run()
        if cases:
            read_in_spark(cases, figures, folder)
    return figures
