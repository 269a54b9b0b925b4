"""Pipelines and replays on a real Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.support.streams import Admin

from jetspark.errors import ConfigError, PipelineError
from jetspark.spark.ingest import Ingest
from jetspark.spark.pipeline import check_queries, check_servers, start
from jetspark.spark.pipeline_file import PipelineFile, read_pipeline
from jetspark.spark.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from jetspark.server import NatsServer

REGIONS = ("eu", "us", "asia")


@pytest.fixture
def orders(admin: Admin, unique: Callable[[str], str]) -> str:
    """A stream of 300 orders as JSON, and one message that is none."""
    name = unique("ORDERS")
    admin.create(name, f"{name}.>")
    rows = [
        (f"{name}.{REGIONS[n % 3]}", json.dumps({"region": REGIONS[n % 3], "amount": n}).encode())
        for n in range(300)
    ]
    admin.fill([*rows, (f"{name}.bad", b"no JSON")])
    return name


def write(folder: Path, server: NatsServer, orders: str, more: str) -> PipelineFile:
    file = folder / "pipeline.toml"
    file.write_text(
        f"""
checkpoint = "{folder}/chk"
[sources.orders]
servers = "{server.url}"
stream = "{orders}"
startingOffsets = "earliest"
maxOffsetsPerTrigger = 150
json = "region STRING, amount DOUBLE"
{more}
""",
        "utf-8",
    )
    return read_pipeline(file)


def run(pipeline: PipelineFile, spark: SparkSession) -> None:
    for query in start(pipeline, spark).values():
        query.awaitTermination(300)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ('[views.v]\nsql = "SELEC 1 FROM orders"', "view v: Syntax error at or near 'SELEC'"),
        ('[views.v]\nsql = "SELECT amont FROM orders"', "view v: .*`amont` cannot be resolved"),
        ('[sinks.s]\nformat = "parqet"\npath = "p"', "sink s: .*data source: parqet"),
        (
            '[sinks.s]\nformat = "parquet"\npath = "p"\npartition_by = ["regoin"]',
            "sink s: partition_by: there is no column 'regoin'",
        ),
        (
            '[views.v]\nsql = "SELECT region, count(*) n FROM orders GROUP BY region"',
            "sink s: Append output mode not supported|sink s: .*watermark",
        ),
        (
            '[views.v]\nsql = "SELECT amount AS data FROM orders"\n'
            '[sinks.s]\nformat = "jetstream"\nstream = "S"\nsubject = "s"',
            "sink s: The column 'data' must be binary or string, not double",
        ),
    ],
)
def test_a_check_finds_what_no_query_could_do(
    spark: SparkSession,
    shared_server: NatsServer,
    orders: str,
    tmp_path: Path,
    more: str,
    sentence: str,
) -> None:
    if "[sinks" not in more:
        more += f'\n[sinks.s]\nformat = "parquet"\npath = "{tmp_path}/table"'
    with pytest.raises((ConfigError, PipelineError), match=sentence):
        check_queries(write(tmp_path, shared_server, orders, more), spark)
    assert not (tmp_path / "chk").exists()


def test_two_sinks_of_one_source_go_on_the_next_time(
    spark: SparkSession, shared_server: NatsServer, orders: str, admin: Admin, tmp_path: Path
) -> None:
    admin.create(f"{orders}_OUT", f"{orders}_OUT.>")
    pipeline = write(
        tmp_path,
        shared_server,
        orders,
        f"""
[views.large]
sql = "SELECT region, amount FROM orders WHERE amount >= 100"
[views.messages]
sql = "SELECT '{orders}_OUT.' || region AS subject, to_json(struct(*)) AS data FROM large"
[sinks.table]
from = "large"
format = "parquet"
path = "{tmp_path}/table"
partition_by = ["region"]
[sinks.stream]
format = "jetstream"
servers = "{shared_server.url}"
stream = "{orders}_OUT"
""",
    )
    check_servers(pipeline)
    run(pipeline, spark)
    table = str(tmp_path / "table")
    assert spark.read.parquet(table).count() == 200
    assert admin.facts(f"{orders}_OUT").messages == 200
    admin.fill([(f"{orders}.eu", b'{"region": "eu", "amount": 1000}')])
    run(pipeline, spark)
    assert spark.read.parquet(table).count() == 201
    assert admin.facts(f"{orders}_OUT").messages == 201


def test_whose_mistake_it_is_is_told(
    spark: SparkSession, shared_server: NatsServer, orders: str, tmp_path: Path
) -> None:
    sink = '[sinks.out]\nformat = "noop"\n'
    view = '[views.v]\nsql = "SELECT nope FROM orders"\n'
    with pytest.raises(PipelineError, match=r"^view v: .*nope"):
        start(write(tmp_path, shared_server, orders, view + sink), spark)
    with pytest.raises(PipelineError, match=r"^sink out: .*[Nn]o[Ss]uch"):
        start(write(tmp_path, shared_server, orders, '[sinks.out]\nformat = "nosuch"\n'), spark)
    with pytest.raises(PipelineError, match=r"^source orders: .*did you mean"):
        check_servers(write(tmp_path, shared_server, orders[:-1], sink))


def table(spark: SparkSession, server: NatsServer, orders: str, folder: Path) -> str:
    options = {"servers": server.url, "stream": orders, "startingOffsets": "earliest"}
    to = str(folder / "ingested")
    ingest = Ingest(options=options, to=to, json_schema="region STRING, amount DOUBLE")
    ingest.start(spark).awaitTermination(300)
    return to


def test_what_was_ingested_is_replayed(
    spark: SparkSession, shared_server: NatsServer, orders: str, admin: Admin, tmp_path: Path
) -> None:
    path = table(spark, shared_server, orders, tmp_path)
    admin.create(f"{orders}_B", f"{orders}_B.>")
    sink = {"servers": shared_server.url, "stream": f"{orders}_B"}
    subject = f"replace(subject, '{orders}.', '{orders}_B.')"
    rows = Replay(table=path, options=sink, subject=subject, order_by="seq").run(spark)
    assert rows == 301
    back = [admin.api.message(f"{orders}_B", seq=seq) for seq in (1, 2, 301)]
    assert [one and one.data for one in back] == [
        b'{"region":"eu","amount":0.0}',
        b'{"region":"us","amount":1.0}',
        b"no JSON",
    ]
    some = Replay(table=path, options=sink, subject=subject, where="region = 'eu'", data="region")
    assert some.run(spark) == 100
    last = admin.api.message(f"{orders}_B", last_by_subj=f"{orders}_B.eu")
    assert last is not None
    assert last.data == b"eu"


def test_replays_that_cannot_work(
    spark: SparkSession, shared_server: NatsServer, orders: str, tmp_path: Path
) -> None:
    path = table(spark, shared_server, orders, tmp_path)
    sink = {"servers": shared_server.url, "stream": orders}
    with pytest.raises(ConfigError, match="did you mean 'seq'"):
        Replay(table=path, options=sink, order_by="seqq").run(spark)
    with pytest.raises(PipelineError, match="nope"):
        Replay(table=path, options=sink, subject="nope").run(spark)
    with pytest.raises(PipelineError, match="Path does not exist"):
        Replay(table=str(tmp_path / "nothing"), options=sink).run(spark)
