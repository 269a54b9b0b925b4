"""option("backup", folder) in a real Spark: the rows of an ordinary read, without a server."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.conftest import failure
from tests.support import archives
from tests.support.server_lines import server_of
from tests.support.streams import Admin

from jetspark import blocking
from jetspark.errors import ConfigError
from jetspark.server import NatsServer
from jetspark.spark.source.options import parse_options

COUNT = 3_000


@pytest.fixture(scope="module", params=["2.12", "2.15"])
def made(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[Any], str]:
    """(folder, rows of an ordinary read, the time of message 1500); the server is gone."""
    folder = tmp_path_factory.mktemp("backups") / "backup"
    rng = random.Random(1)
    with NatsServer(binary=server_of(request.param)) as server, Admin(server.url) as admin:
        admin.create("S", "S.>")
        admin.fill(
            [
                (f"S.{number % 7}", rng.randbytes(4800), [("K", str(number))])
                if number % 3
                else (f"S.{number % 7}", b"")
                for number in range(COUNT)
            ]
        )
        admin.delete_messages("S", 77, 78, 2000)
        admin.purge("S", seq=50)
        time = admin.call("STREAM.MSG.GET.S", {"seq": 1500})["message"]["time"]
        options = {"servers": server.url, "stream": "S"}
        rows = spark.read.format("jetstream").options(**options).load().collect()
        with blocking.connect(server.url) as nc:
            nc.jetstream().backup_stream("S", folder)
    return folder, sorted(rows, key=lambda row: row.seq), time


def load(spark: SparkSession, folder: Path, **options: str) -> DataFrame:
    return spark.read.format("jetstream").options(backup=str(folder), **options).load()


@pytest.mark.full
def test_rows_are_those_of_an_ordinary_read(
    spark: SparkSession, made: tuple[Path, list[Any], str]
) -> None:
    folder, rows, _ = made
    frame = load(spark, folder, maxRecordsPerPartition="500")
    assert frame.rdd.getNumPartitions() > 1
    assert sorted(frame.collect(), key=lambda row: row.seq) == rows
    assert load(spark, folder, minPartitions="2").count() == len(rows)


def test_starts_ends_subjects_and_columns_are_those_of_a_stream(
    spark: SparkSession, made: tuple[Path, list[Any], str]
) -> None:
    folder, rows, time = made
    part = load(spark, folder, startingOffsets="100", endingOffsets="2500", columns="seq,subject")
    inside = [(row.seq, row.subject) for row in rows if 100 <= row.seq < 2500]
    assert sorted(map(tuple, part.collect())) == inside
    assert load(spark, folder, subjects="S.3").count() == sum(row.subject == "S.3" for row in rows)
    later = load(spark, folder, startingTimestamp=time).agg({"seq": "min"}).first()
    assert later is not None
    assert later[0] <= 1500
    assert load(spark, folder, endingTimestamp=time, startingOffsets="60").count() == sum(
        60 <= row.seq < later[0] for row in rows
    )


def test_what_does_not_fit_is_one_sentence(
    spark: SparkSession, made: tuple[Path, list[Any], str], tmp_path: Path
) -> None:
    folder, _, _ = made
    assert "is not a backup of a stream" in failure(load(spark, tmp_path).collect)
    for uri in ("s3a://AKEY:SECRETKEY@x/y?z=SECRET", "s3://AKEY:SECRETKEY/SECRET@x/y"):
        refused = failure(spark.read.format("jetstream").option("backup", uri).load().collect)
        assert "SECRET" not in refused
    lost = failure(load(spark, folder, startingOffsets="1").collect)
    assert "begins at sequence 50: 1 to 49 had been removed. Set 'failOnDataLoss'" in lost
    assert load(spark, folder, startingOffsets="1", failOnDataLoss="false").count() > 2900
    wrong = failure(load(spark, folder, subjects="T.3").collect)
    assert "no message under 'T.3' is in the backup of stream 'S'" in wrong
    cut = tmp_path / "cut"
    cut.mkdir()
    for file in folder.iterdir():
        (cut / file.name).write_bytes(file.read_bytes()[: 10**6])
    assert "The archive has 1000000 bytes; backup.json says " in failure(load(spark, cut).collect)


def test_messages_removed_while_the_stream_was_backed_up_are_a_loss(
    spark: SparkSession, tmp_path: Path
) -> None:
    stored = [(b"s.a", number, 1, b"", b"x") for number in range(1, 1_001)]
    content = archives.message_list(stored)
    folder = archives.write_backup(tmp_path / "b", content, 1, 1_500, 1_500)
    lost = failure(load(spark, folder).collect)
    assert "The backup of stream 'S' lacks 500 of 1,500 messages: they were removed" in lost
    frame = load(spark, folder, failOnDataLoss="false", minPartitions="7")
    assert (frame.rdd.getNumPartitions(), frame.count()) == (7, 1_000)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stream": "S"}, "Give only one of stream, backup"),
        ({"servers": "nats://a"}, "servers is for servers; a backup is read without one"),
        ({"soleReader": "true"}, "sole_reader is for servers"),
        ({"readTimeout": "5"}, "read_timeout is for servers"),
        ({"keys": "a"}, "keys is for reading a bucket"),
        ({"backup": " "}, "backup is empty"),
    ],
)
def test_options_of_servers_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_options({"backup": "/backups/S", **options})
    with pytest.raises(ConfigError, match=r"backup is for spark\.read"):
        parse_options({"backup": "/backups/S"}).for_streaming()
