"""Tables in an S3-compatible object store: Delta by its URI, Iceberg through a catalog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog
from tests.support.numbers_table import SCHEMA, rows, written
from tests.support.object_store import object_store

from jetspark.tables.arguments import resolve_table
from jetspark.tables.batches import commit_batch, last_batch
from jetspark.tables.formats import Format, open_or_create_table, open_table
from jetspark.tables.partitions import PartitionBy
from jetspark.tables.table import TableName, Vacuum

SECONDS = 120.0


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """The URL of a store with an empty bucket "lake"."""
    with object_store("lake") as url:
        yield url


@pytest.fixture(params=list(Format))
def named(request: pytest.FixtureRequest, store: str, tmp_path: Path) -> tuple[Format, TableName]:
    """A table that is not there yet, as a user names it."""
    format_: Format = request.param
    key = tmp_path.name.replace("_", "-").strip("-")
    if format_ is Format.DELTA:
        options = {
            "storage.AWS_ENDPOINT_URL": store,
            "storage.AWS_ALLOW_HTTP": "true",
            "storage.AWS_REGION": "us-east-1",
            "storage.AWS_ACCESS_KEY_ID": "a",
            "storage.AWS_SECRET_ACCESS_KEY": "hidden",
        }
        return resolve_table(f"s3://lake/{key}", "delta", options)
    options = {
        "storage.type": "sql",
        "storage.uri": f"sqlite:///{tmp_path}/catalog.db",
        "storage.warehouse": f"s3://lake/{key}",
        "storage.s3.endpoint": store,
        "storage.s3.region": "us-east-1",
        "storage.s3.access-key-id": "a",
        "storage.s3.secret-access-key": "hidden",
    }
    format_, name = resolve_table("mine:lake.numbers", None, options)
    load_catalog("mine", **name.properties).create_namespace("lake")
    return format_, name


@pytest.mark.full
def test_each_batch_is_there_once_and_files_are_put_together(
    named: tuple[Format, TableName],
) -> None:
    table = open_or_create_table(*named, SCHEMA, [PartitionBy("kind")])
    stale = open_table(*named)
    assert commit_batch(table, "q", 0, written(table, 0, 10))
    assert not commit_batch(stale, "q", 0, written(stale, 0, 10))
    assert commit_batch(stale, "q", 1, written(stale, 10, 20))
    table = open_table(*named)
    assert rows(table) == Counter(range(20))
    assert table.compact(10**8).removed == 4
    table = open_table(*named)
    assert (table.facts().rows, table.facts().files) == (20, 2)
    assert last_batch(table, "q") == 1
    assert table.vacuum(timedelta(hours=1), dry_run=False) == Vacuum([], [])
    assert rows(open_table(*named)) == Counter(range(20))


def test_no_secret_is_in_a_text_of_the_table(named: tuple[Format, TableName]) -> None:
    table = open_or_create_table(*named, SCHEMA, ())
    for one in (named[1], table.storage, table.facts(), table.scan_tasks(["n"], None, 1)):
        assert "hidden" not in repr(one)
        assert "hidden" not in str(one)
