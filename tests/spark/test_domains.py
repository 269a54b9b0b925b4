"""Spark connected to a leaf node reads and writes streams of the hub's domain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.streams import Admin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession
    from tests.support.leaf import HubAndLeaf

PREFIX = {"jetstreamApiPrefix": "$JS.hub.API"}
DOMAIN = {"jetstreamDomain": "hub"}


@pytest.fixture
def at_hub(hub_and_leaf: HubAndLeaf) -> Iterator[Admin]:
    with Admin(hub_and_leaf.hub.url) as admin:
        yield admin


@pytest.mark.parametrize("where", [DOMAIN, PREFIX])
def test_a_stream_of_the_hub_is_read_through_the_leaf(
    spark: SparkSession,
    at_hub: Admin,
    hub_and_leaf: HubAndLeaf,
    unique: Callable[[str], str],
    where: dict[str, str],
) -> None:
    name = unique("S")
    at_hub.create(name, f"{name}.>")
    at_hub.fill((f"{name}.a", b"%d" % number) for number in range(100))
    options = {"servers": hub_and_leaf.leaf.url, "stream": name, "minPartitions": "2"}
    rows = spark.read.format("jetstream").options(**options, **where).load()
    assert sorted(row.seq for row in rows.collect()) == [*range(1, 101)]


@pytest.mark.full
@pytest.mark.parametrize("guarantee", ["at-least-once", "effectively-once", "exactly-once"])
def test_a_stream_of_the_hub_is_written_through_the_leaf(
    spark: SparkSession,
    at_hub: Admin,
    hub_and_leaf: HubAndLeaf,
    unique: Callable[[str], str],
    needs_server: Callable[[str], None],
    guarantee: str,
) -> None:
    options = {"servers": hub_and_leaf.leaf.url, "guarantee": guarantee}
    if guarantee == "exactly-once":
        needs_server("2.12")
        options |= {"prepareStream": "true", "transactionId": "once"}
    name = unique("S")
    at_hub.create(name, f"{name}.>")
    rows = spark.range(0, 100, 1, 2).selectExpr(
        f"concat('{name}.', id % 5) subject", "cast(id as string) data"
    )
    if guarantee == "effectively-once":
        rows = rows.selectExpr("*", "data msg_id")
    sink = rows.write.format("jetstream").options(stream=name, **options, **DOMAIN)
    sink.mode("append").save()
    back = spark.read.format("jetstream").options(servers=hub_and_leaf.hub.url, stream=name)
    found = [row.data for row in back.option("subjects", f"{name}.>").load().collect()]
    assert sorted(map(int, found)) == [*range(100)]
