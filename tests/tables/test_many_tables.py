"""One batch into many tables: each row once in exactly one of them, whatever an attempt left."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain, combinations
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql.types import ArrayType, StructType
from tests.support.tasks import batch_writer

from jetspark.errors import ConfigError, TableError
from jetspark.spark.table_sink import batch_commits
from jetspark.spark.table_sink.option_texts import parse_lakehouse_options
from jetspark.spark.table_sink.options import LakehouseOptions
from jetspark.tables import quarantine
from jetspark.tables.batches import commit_batch
from jetspark.tables.formats import Format, find_table
from jetspark.tables.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ROWS = StructType().add("seq", "long").add("region", "string")
_HEADER = StructType().add("key", "string").add("value", "string")
_KINDS = {"data": "binary", "seq": "long", "timestamp": "timestamp"}


def batch(*rows: tuple[int, str | None]) -> pa.RecordBatch:
    seqs, regions = zip(*rows, strict=True)
    return pa.record_batch({"seq": pa.array(seqs, pa.int64()), "region": pa.array(regions)})


def options_of(place: str, folder: Path, **more: str) -> LakehouseOptions:
    """Tables of a template in folders, or in a catalog."""
    if place != "catalog":
        given = {"path": f"{folder}/lake/{{region}}", "defaultTable": f"{folder}/rest"}
        return parse_lakehouse_options(Format(place), given | more).for_batch()
    storage = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/warehouse",
    }
    catalog = load_catalog("mine", **storage)
    if not catalog.list_namespaces():
        (folder / "warehouse").mkdir()
        catalog.create_namespace("shop")
    given = {"catalog": "mine", "table": "shop.{region}", "defaultTable": "mine:shop.the_rest"}
    given |= {f"storage.{name}": value for name, value in storage.items()}
    return parse_lakehouse_options(Format.ICEBERG, given | more).for_batch()


def rows_of(options: LakehouseOptions, names: Iterable[str]) -> Counter[tuple[int, str | None]]:
    """The rows of all tables, which are only in their own or in the one for the rest."""
    found: Counter[tuple[int, str | None]] = Counter()
    for name in names:
        table = find_table(options.format, options.of_table(name).name)
        for piece in table.scan_tasks(["seq", "region"], None, 1) if table is not None else ():
            for one in piece.batches():
                found.update(zip(*one.to_pydict().values(), strict=True))
    return found


def names_of(options: LakehouseOptions, *regions: str) -> list[str]:
    assert options.route is not None
    assert options.default_table is not None
    found = options.route.split_by_table(batch(*((0, one) for one in regions)))
    return [*(name for name, _ in found if name is not None), options.default_table]


TASKS = ([(1, "a"), (2, "b"), (3, "x"), (4, None)], [(5, "x"), (6, "y"), (7, "a"), (8, "")])


@pytest.mark.full
@pytest.mark.parametrize(
    ("place", "committed"),
    [
        *(("delta", some) for n in range(5) for some in combinations("axyR", n)),
        *(("iceberg", some) for some in ("x", "R")),
        *(("catalog", some) for some in ("x", "R")),
    ],
)
def test_what_an_attempt_has_committed_is_there_once_after_the_next(
    tmp_path: Path, place: str, committed: Iterable[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks take the rows of x to different tables, since they may make only two."""
    options = options_of(place, tmp_path, transactionId="once", maxNewTables="2")
    tables = names_of(options, "a", "b", "x", "y")
    done = {str(options.of_table(tables["abxyR".index(one)]).name) for one in committed}

    def commit(table: Table, *given: Any, **named: Any) -> bool:
        if str(table.name) not in done:
            raise OSError("Input/output error")
        return commit_batch(table, *given, **named)

    def attempt() -> None:
        writer = batch_writer(options, ROWS)
        writer.commit([writer.write(iter([batch(*rows)])) for rows in TASKS])

    with monkeypatch.context() as patch:
        patch.setattr(batch_commits, "commit_batch", commit)
        with pytest.raises(TableError, match="cannot be written"):
            attempt()
    attempt()
    assert rows_of(options, tables) == Counter(chain(*TASKS))


@pytest.mark.parametrize("place", ["delta", "catalog"])
def test_a_limit_on_new_tables_holds_however_often_it_is_tried(tmp_path: Path, place: str) -> None:
    options = options_of(place, tmp_path, transactionId="once", maxNewTables="2")
    options = replace(options, default_table=None)
    for _ in range(3):
        writer = batch_writer(options, ROWS)
        with pytest.raises(ConfigError, match="more than 2 new tables"):
            writer.write(iter([batch((1, "a"), (2, "b"), (3, "c"))]))
    later = replace(options, transaction_id="later")
    writer = batch_writer(later, ROWS)
    writer.commit([writer.write(iter([batch((1, "a"), (2, "b"), (3, "c"), (4, "d"))]))])


def test_values_of_others_name_tables_of_their_namespace_only(tmp_path: Path) -> None:
    options = options_of("catalog", tmp_path)
    writer = batch_writer(options, ROWS)
    regions = ["eu", "a.b", "../x", "Größe", "the_rest", "x" * 300]
    rows = [*enumerate(regions)]
    writer.commit([writer.write(iter([batch(*rows)]))])
    tables = names_of(options, *regions)
    assert rows_of(options, tables) == Counter(rows)
    catalog = load_catalog("mine", **options.name.properties)
    assert len(catalog.list_tables("shop")) == len(regions)


def test_a_record_with_a_date_that_python_does_not_have_is_put_aside(tmp_path: Path) -> None:
    rows = StructType()
    for name in quarantine.MESSAGE:
        rows.add(name, ArrayType(_HEADER) if name == "headers" else _KINDS.get(name, "string"))
    rows.add("on", "date").add("_corrupt_record", "string")
    given = {"path": f"{tmp_path}/lake/{{on}}-{{subject}}", "quarantine": f"{tmp_path}/aside"}
    options = parse_lakehouse_options(Format.DELTA, given).for_batch()
    writer = batch_writer(options, rows)
    message = {name: pa.nulls(2, quarantine.SCHEMA.field(name).type) for name in quarantine.MESSAGE}
    message["data"] = pa.array([b'{"n": 1', b'{"on": "+12026-01-01"}'])
    message["seq"] = pa.array([1, 2])
    dates = pa.array([10**7, 10**7], pa.int32()).cast(pa.date32())
    found = {**message, "on": dates, "_corrupt_record": pa.array(["x", None])}
    writer.commit([writer.write(iter([pa.record_batch(found)]))])
    aside = find_table(Format.DELTA, options.of_table(f"{tmp_path}/aside").name)
    assert aside is not None
    (one,) = aside.scan_tasks(["seq"], None, 1)
    (found_there,) = one.batches()
    assert sorted(found_there.to_pydict()["seq"]) == [1, 2]
