"""Spark connected to a leaf node reads and writes streams of the hub's domain."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import Read, Write
from tests.support.leaf import HubAndLeaf
from tests.support.streams import Admin

PREFIX = {"jetstreamApiPrefix": "$JS.hub.API"}
DOMAIN = {"jetstreamDomain": "hub"}


@pytest.fixture
def at_hub(hub_and_leaf: HubAndLeaf) -> Iterator[Admin]:
    with Admin(hub_and_leaf.hub.url) as admin:
        yield admin


@pytest.mark.parametrize("where", [DOMAIN, PREFIX])
def test_a_stream_of_the_hub_is_read_through_the_leaf(
    read: Read, at_hub: Admin, hub_and_leaf: HubAndLeaf, where: dict[str, str]
) -> None:
    name = at_hub.stream(under=".>")
    at_hub.fill((f"{name}.a", b"%d" % number) for number in range(100))
    rows = read(servers=hub_and_leaf.leaf.url, stream=name, minPartitions="2", **where)
    assert sorted(row.seq for row in rows.collect()) == [*range(1, 101)]


@pytest.mark.full
@pytest.mark.parametrize("guarantee", ["at-least-once", "effectively-once", "exactly-once"])
def test_a_stream_of_the_hub_is_written_through_the_leaf(
    spark: SparkSession,
    read: Read,
    write: Write,
    at_hub: Admin,
    hub_and_leaf: HubAndLeaf,
    needs_server: Callable[[str], None],
    guarantee: str,
) -> None:
    options = {"servers": hub_and_leaf.leaf.url, "guarantee": guarantee}
    if guarantee == "exactly-once":
        needs_server("2.12")
        options |= {"prepareStream": "true", "transactionId": "once"}
    name = at_hub.stream(under=".>")
    rows = spark.range(0, 100, 1, 2).selectExpr(
        f"concat('{name}.', id % 5) subject", "cast(id as string) data"
    )
    if guarantee == "effectively-once":
        rows = rows.selectExpr("*", "data msg_id")
    write(rows, stream=name, **options, **DOMAIN)
    back = read(servers=hub_and_leaf.hub.url, stream=name, subjects=f"{name}.>")
    found = [row.data for row in back.collect()]
    assert sorted(map(int, found)) == [*range(100)]
