"""Files that a condition leaves out hold no row that meets it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.expressions import GreaterThan, Reference
from pyiceberg.table import StaticTable
from tests.support.table_readers import by_duckdb, by_polars, newest_metadata

from jetspark.errors import ConfigError
from jetspark.tables.batches import commit_files
from jetspark.tables.conditions import parse_condition
from jetspark.tables.file_writer import write_files
from jetspark.tables.formats import Format, open_or_create_table
from jetspark.tables.partitions import PartitionBy
from jetspark.tables.table import Table, TableName

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("real number", pa.float64()),
        ("text", pa.string()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("flag", pa.bool_()),
        ("price", pa.decimal128(10, 2)),
        ("data", pa.binary()),
        ("part", pa.string()),
    ]
)
START = datetime(2026, 1, 31, tzinfo=UTC)
VALUES: dict[str, list[str]] = {
    "id": ["7", "-1", "12"],
    '"real number"': ["2.5", "1e3", "-4"],
    "text": ["'t7'", "'é'", "''"],
    "day": ["'2026-02-05'", "DATE'2026-02-01'"],
    "moment": ["'2026-01-31T05:00:00.000999Z'", "'2026-01-31 10:00:00+02:00'"],
    "local": ["'2026-01-31T05:00:00'"],
    "flag": ["TRUE", "false"],
    "price": ["3.50", "7"],
    "part": ["'p1'", "'p 0'"],
}


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number in range(24):
        found.append(
            {
                "id": number,
                "real number": float("nan") if number % 5 == 4 else number / 2,
                "text": None if number % 6 == 5 else f"t{number}",
                "day": date(2026, 2, 1) + timedelta(days=number // 2),
                "moment": START + timedelta(hours=number, microseconds=999),
                "local": (START + timedelta(hours=number)).replace(tzinfo=None),
                "flag": None if number > 20 else number % 2 == 0,
                "price": Decimal(number) / 2,
                "data": b"x",
                "part": ["p 0", "p1", None][number % 3],
            }
        )
    return found


@pytest.fixture(scope="module", params=list(Format))
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A file for every two rows."""
    name = TableName(path=str(tmp_path_factory.mktemp("conditions") / "t"))
    made = open_or_create_table(request.param, name, SCHEMA, [PartitionBy("part")])
    add(made, rows(), 2)
    return made


def add(table: Table, rows: list[dict[str, Any]], size: int) -> None:
    """In files of so many rows."""
    layout = table.layout(10**8, "zstd")
    for start in range(0, len(rows), size):
        batch = pa.RecordBatch.from_pylist(rows[start : start + size], schema=SCHEMA)
        commit_files(table, write_files(layout, table.storage, f"part-{start}", [batch]))
        table.refresh()


def read(table: Table, prune: str | None) -> pa.Table:
    pieces = table.scan_tasks(SCHEMA.names, prune, at_least=1)
    batches = [batch.cast(SCHEMA) for piece in pieces for batch in piece.batches()]
    return pa.Table.from_batches(batches, SCHEMA)


@pytest.fixture(scope="module")
def filtering() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:  # a handful of rows each time
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def matching(
    filtering: duckdb.DuckDBPyConnection, condition: str, **tables: pa.Table
) -> list[list[int]]:
    """Of each table, as DuckDB filters; NaN is its greatest number, as it is Spark's."""
    found: dict[str, list[int]] = {name: [] for name in tables}
    for name, rows in tables.items():
        filtering.register(name, rows)
    pieces = [f"SELECT '{name}' t, id FROM {name} WHERE {condition}" for name in tables]
    for name, one in filtering.execute(" UNION ALL ".join(pieces) + " ORDER BY id").fetchall():
        found[name].append(one)
    return list(found.values())


def conditions() -> list[str]:
    chosen = random.Random(3)

    def leaf() -> str:
        column = chosen.choice(list(VALUES))
        values = VALUES[column]
        one, other = chosen.choice(values), chosen.choice(values)
        return chosen.choice(
            [
                f"{column} {chosen.choice(['=', '<>', '<', '<=', '>', '>='])} {one}",
                f"{one} {chosen.choice(['=', '!=', '<', '<=', '>', '>='])} {column}",
                f"{column} {chosen.choice(['', 'NOT '])}IN ({one}, {other})",
                f"{column} {chosen.choice(['', 'NOT '])}BETWEEN {one} AND {other}",
                f"{column} IS {chosen.choice(['', 'NOT '])}NULL",
            ]
        )

    def tree(depth: int) -> str:
        if depth == 0 or chosen.random() < 0.4:
            return leaf()
        joined = f" {chosen.choice(['AND', 'OR'])} ".join(tree(depth - 1) for _ in range(2))
        return f"{chosen.choice(['', 'NOT '])}({joined})"

    return [tree(2) for _ in range(40)]


@pytest.mark.full
def test_no_row_that_meets_a_condition_is_left_out(
    table: Table, filtering: duckdb.DuckDBPyConnection
) -> None:
    whole = read(table, None)
    assert whole.num_rows == 24
    left_out = 0
    for condition in conditions():
        found = read(table, condition.replace('"', "`"))
        kept, all_of_them = matching(filtering, condition, kept=found, whole=whole)
        assert kept == all_of_them, condition
        left_out += 24 - found.num_rows
    assert left_out > 24 * 8  # of 24 * 40


@pytest.mark.full
def test_a_condition_may_have_a_thousand_values(table: Table) -> None:
    whole = read(table, None)
    assert read(table, f"id IN ({', '.join(map(str, range(-500, 500)))})").num_rows == len(
        [one for one in whole["id"].to_pylist() if one is not None]
    )


@pytest.mark.parametrize(
    "text", ["(" * 3000 + "id = 1" + ")" * 3000, " AND ".join(["id = 1"] * 3000)]
)
def test_a_condition_that_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        parse_condition(text, SCHEMA)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a condition"),
        ("id ==== 1", "is not a condition"),
        ("id = 1; drop", "is not a condition"),
        (
            "upper(text) = 'X'",
            r"UPPER\(text\) = 'X' cannot be decided for a file; write comparisons",
        ),
        ("1 = 1", "cannot be decided for a file"),
        ("text LIKE 'a%'", "cannot be decided for a file"),
        ("id > 1.5", "id has the type int64; compare it with a whole number"),
        ("id = 99999999999999999999", "compare it with a whole number that it can hold"),
        ("id = 'x'", "not with 'x'"),
        ("text = 1", "compare it with a text such as 'eu', not with 1"),
        ("price = 1.555", "compare it with a number with at most as many digits"),
        ("moment < '2026-01-31 09:00:00'", "compare it with a time with its zone such as"),
        ("local < '2026-01-31 09:00:00Z'", "a time without zone"),
        ("day = '2026-02-31'", "a date such as"),
        ("data = 'x'", "nothing but null"),
        ("texd = 'x'", "there is no column 'texd'; there are id, real number"),
        ("id = CAST('abc' AS INT)", "compare it with a whole number"),
    ],
)
def test_what_is_no_condition_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_condition(text, SCHEMA)


@pytest.mark.parametrize("format_", list(Format))
def test_filters_of_others_find_all(
    format_: Format, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """deltalake's own scan takes a file without a bound for one without matching rows."""
    folder = tmp_path_factory.mktemp("filters") / "t"
    table = open_or_create_table(format_, TableName(path=str(folder)), SCHEMA, ())
    plain = [
        one | {"real number": one["id"] / 2, "price": one["price"] + 12345678} for one in rows()
    ]
    plain[0]["moment"] = datetime.max.replace(tzinfo=UTC)
    add(table, plain, 8)
    end = datetime(9999, 1, 1, tzinfo=UTC)
    for name, value in (
        ("real number", 5.0), ("price", Decimal("12345680.00")), ("moment", end), ("text", "t3"),
    ):  # fmt: skip
        above: Any = value
        wanted = sorted(one["id"] for one in plain if one[name] is not None and one[name] > value)
        assert wanted
        found: dict[str, list[int]] = {
            "Polars": by_polars(format_, folder)
            .filter(pl.col(name) > value)
            .collect()["id"]
            .to_list(),
            "DuckDB": [
                one
                for (one,) in by_duckdb(
                    format_, folder, f"SELECT id FROM t WHERE \"{name}\" > '{value}'"
                )
            ],
        }
        if format_ is Format.DELTA:
            own = DeltaTable(folder).to_pyarrow_table(columns=["id"], filters=[(name, ">", value)])
            found["deltalake"] = own["id"].to_pylist()
        else:
            scan = StaticTable.from_metadata(newest_metadata(folder)).scan(
                GreaterThan(term=Reference(name), value=above)
            )
            found["PyIceberg"] = scan.to_arrow()["id"].to_pylist()
        assert {one: sorted(ids) for one, ids in found.items()} == dict.fromkeys(found, wanted)
