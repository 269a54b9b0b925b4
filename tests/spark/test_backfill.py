"""option("backfill", "snapshot") in a real Spark: the rows of an ordinary read."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.conftest import MakeServer
from tests.spark.conftest import Read, ToParquet, failure
from tests.spark.test_source import sequences
from tests.support.server_lines import server_of
from tests.support.streams import Admin, numbered

from jetspark.errors import ConfigError
from jetspark.spark.source.batch_reader import JetStreamBatchReader
from jetspark.spark.source.offsets import StreamOffset, to_json
from jetspark.spark.source.options import parse_options
from jetspark.spark.source.stream_reader import JetStreamStreamReader


@pytest.fixture(autouse=True)
def _newest(needs_server: Callable[[str], None]) -> None:
    needs_server("2.15")


@pytest.fixture
def stream(admin: Admin) -> str:
    """Long enough for a snapshot, though most of its messages gave way to later ones."""
    name = admin.stream(under=".*", max_msgs_per_subject=500)
    admin.fill([(f"{name}.{number % 10}", b"%d" % number) for number in range(1, 5001)])
    admin.fill(numbered(f"{name}.latest", 60_000))
    admin.delete_messages(name, 77, 4000)
    return name


@pytest.mark.full
def test_a_batch_read_has_the_same_rows_in_one_partition(read: Read, stream: str) -> None:
    expected = sorted(map(tuple, read(stream=stream).collect()))
    for parts in (1, 2):
        how = {"minPartitions": "2"} if parts == 2 else {}
        frame = read(stream=stream, backfill="snapshot", **how)
        assert sorted(map(tuple, frame.collect())) == expected
        assert frame.rdd.getNumPartitions() == parts
    some = {"startingOffsets": "50", "endingOffsets": "65000", "subjects": f"{stream}.3"}
    part = read(stream=stream, backfill="snapshot", **some)
    assert sequences(part) == list(range(53, 5_000, 10))


def test_streams_that_are_too_small_for_a_snapshot_share_partitions(
    stream: str, admin: Admin
) -> None:
    for number in range(5):
        admin.create(f"{stream}_{number}", f"{stream}_{number}")
        admin.fill(numbered(f"{stream}_{number}", 10))
    options = {"servers": admin.url, "streamPattern": f"{stream}.*", "backfill": "snapshot"}
    planned = JetStreamBatchReader(parse_options(options)).partitions()
    assert [[one.snapshot for one in part.ranges] for part in planned] == [[True], [False] * 5]
    options["endingOffsets"] = json.dumps(
        {stream: 63_000, **{f"{stream}_{number}": 11 for number in range(5)}}
    )
    planned = JetStreamBatchReader(parse_options(options)).partitions()
    assert not any(one.snapshot for part in planned for one in part.ranges)


@pytest.mark.full
def test_the_first_batch_of_a_query_comes_through_a_snapshot_and_later_ones_do_not(
    to_parquet: ToParquet, stream: str, admin: Admin
) -> None:
    options = {"servers": admin.url, "stream": stream, "startingOffsets": "earliest"}
    to_parquet.options = options | {"backfill": "snapshot", "maxOffsetsPerTrigger": "64000"}
    to_parquet.run()
    admin.fill(numbered(f"{stream}.new", 100))
    to_parquet.run()
    found = to_parquet.sequences()
    assert found == [*({*range(1, 5001)} - {77, 4000}), *range(64_501, 65_101)]


def test_only_the_first_batch_is_planned_with_a_snapshot() -> None:
    options = parse_options({"stream": "S", "backfill": "snapshot-blocking-deletes"})
    reader = JetStreamStreamReader(options)
    ends = [StreamOffset("t", number, 1) for number in (1, 500_001, 900_001)]
    first = StreamOffset("t", 1, 1, earliest=True, initial=True)
    (planned,) = reader.partitions(to_json({"S": first}), to_json({"S": ends[1]}))
    assert (planned.ranges[0].snapshot, planned.ranges[0].blocking) == (True, True)
    later = reader.partitions(to_json({"S": ends[1]}), to_json({"S": ends[2]}))
    assert [one.snapshot for part in later for one in part.ranges] == [False, False]


def test_an_old_server_is_refused_unless_the_value_says_so(
    read: Read, make_server: MakeServer
) -> None:
    server = make_server(binary=server_of("2.12"))
    with Admin(server.url) as admin:
        admin.create("S", "S.>")
        admin.fill(numbered("S.a", 100))
    old = {"servers": server.url, "stream": "S"}
    said = failure(read(**old, backfill="snapshot").collect)
    assert "'snapshot-blocking-deletes' accepts that" in said
    assert read(**old, backfill="snapshot-blocking-deletes").count() == 100


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"backfill": "fast"}, "must be consumer, snapshot, snapshot-blocking-deletes, not 'fast'"),
        ({"soleReader": "true"}, "cannot be used with sole_reader"),
        ({"interestConsumer": "c"}, "used with interest_consumer"),
        ({"maxRecordsPerPartition": "5"}, "has no effect in a batch read with backfill"),
        ({"stream": "", "bucket": "b"}, "present values are read by a consumer"),
    ],
)
def test_options_that_do_not_fit_are_one_sentence(options: dict[str, str], said: str) -> None:
    given = {"stream": "S", "backfill": "snapshot"} | options
    with pytest.raises(ConfigError, match=said):
        parse_options({name: value for name, value in given.items() if value}).for_batch()
