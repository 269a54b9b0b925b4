"""Pipelines and replays on a real Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.streams import Admin
from tests.support.table_readers import column

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


@pytest.mark.full
@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_a_stream_that_is_emptied_is_read_for_one_sink_only(
    spark: SparkSession,
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    tmp_path: Path,
    retention: str,
    needs_server: Callable[[str], None],
) -> None:
    needs_server("2.14")
    queue = unique("QUEUE")
    admin.create(queue, f"{queue}.>", retention=retention, allow_direct=True)
    option = {"workqueue": "soleReader = true", "interest": 'interestConsumer = "c"'}[retention]
    table = 'format = "jetspark-delta"\npath = "{}/{}"'
    one_sink = f"""{option}
[views.some]
sql = "SELECT * FROM orders WHERE amount > 5"
[views.twice]
sql = "SELECT seq FROM orders UNION ALL SELECT seq FROM some"
[sinks.all]
from = "twice"
{table.format(tmp_path, "all")}
"""
    more = f'[sinks.some]\nfrom = "some"\n{table.format(tmp_path, "some")}\n'
    pipeline = write(tmp_path, shared_server, queue, one_sink + more)
    for act in (check_queries, start):
        with pytest.raises(PipelineError, match=r"toml:19: .*is read for the sink all, too, with"):
            act(pipeline, spark)
    alone = write(tmp_path, shared_server, queue, one_sink)
    check_queries(alone, spark)
    again = replace(alone, sources={**alone.sources, "again": alone.sources["orders"]})
    for pipeline, sql in (
        (again, "SELECT seq FROM orders UNION ALL SELECT seq FROM again"),
        (alone, "SELECT o.seq FROM orders o JOIN some s ON o.seq = s.seq"),
    ):
        views = {**pipeline.views, "twice": sql}
        with pytest.raises(PipelineError, match=r"is read twice for this sink"):
            start(replace(pipeline, views=views), spark)
    assert admin.facts(queue).consumers == 0


@pytest.mark.full
@pytest.mark.parametrize(
    ("more", "line", "sentence"),
    [
        ('[views.v]\nsql = "SELEC 1 FROM orders"', 10, "view v: Syntax error at or near 'SELEC'"),
        (
            '[views.v]\nsql = "SELECT amont FROM orders"',
            10,
            "view v: .*`amont` cannot be resolved",
        ),
        ('[sinks.s]\nformat = "parqet"\npath = "p"', 10, "sink s: .*data source: parqet"),
        (
            '[sinks.s]\nformat = "jetspark-delta"\npath = "p"\npartition_by = ["regoin"]',
            12,
            "sink s: partition_by: there is no column 'regoin'",
        ),
        (
            '[views.v]\nsql = "SELECT region, count(*) n FROM orders GROUP BY region"',
            11,
            "sink s: Append output mode not supported|sink s: .*watermark",
        ),
        (
            '[views.v]\nsql = "SELECT amount AS data FROM orders"\n'
            '[sinks.s]\nformat = "jetstream"\nstream = "S"\nsubject = "s"',
            11,
            "sink s: The column 'data' must be binary or string, not double",
        ),
        (
            '[views.v]\nsql = "SELECT * FROM later"\n[views.later]\nsql = "SELECT * FROM orders"',
            10,
            "view v: sql uses the view later, which is below it: a view uses the sources",
        ),
        ('[views.v]\nsql = "SELECT * FROM V"', 10, "view v: sql uses itself: a view uses the"),
        (
            "[views.v]\nsql = \"SELECT 'x' AS data FROM orders\"\n"
            '[sinks.s]\nformat = "jetstream"\n'
            'stream = "$STREAM"\nservers = "$SERVER"\nsubject = "s"',
            13,
            "sink s: it writes into the stream .*, which is read for it again",
        ),
        ('watermark = ["tme", "1 minute"]', 9, "source orders: .*`tme` cannot be resolved"),
    ],
)
def test_a_check_finds_what_no_query_could_do(
    spark: SparkSession,
    shared_server: NatsServer,
    orders: str,
    tmp_path: Path,
    more: str,
    line: int,
    sentence: str,
) -> None:
    more = more.replace("$STREAM", orders).replace("$SERVER", shared_server.url)
    if "[sinks" not in more:
        more += f'\n[sinks.s]\nformat = "jetspark-delta"\npath = "{tmp_path}/table"'
    with pytest.raises(PipelineError, match=rf"/pipeline\.toml:{line}: (?:{sentence})"):
        check_queries(write(tmp_path, shared_server, orders, more), spark)
    assert not (tmp_path / "chk").exists()


@pytest.mark.full
def test_sql_of_a_view_is_a_query_and_a_command_is_not_executed(
    spark: SparkSession, shared_server: NatsServer, orders: str, tmp_path: Path
) -> None:
    kept = tmp_path / "folder" / "kept"
    kept.parent.mkdir()
    kept.write_text("precious", "utf-8")
    overwrite = f"INSERT OVERWRITE DIRECTORY '{kept.parent}' USING csv SELECT 1 AS a"
    sink = f'[sinks.s]\nfrom = "orders"\nformat = "jetspark-delta"\npath = "{tmp_path}/table"'

    def pipeline(sql: str) -> PipelineFile:
        more = f'[views.v]\nsql = """{sql}"""\n{sink}'
        return write(tmp_path, shared_server, orders, more)

    refused = "(sql is a command.* query:|SqlScripting)"  # Spark 4.0 has no BEGIN
    for sql in (
        overwrite,
        f"WITH a AS (SELECT 1) {overwrite}",
        f"FROM (SELECT 1 AS a) {overwrite.partition(' SELECT')[0]} SELECT a",
        "DROP TABLE orders",
        "CREATE TEMPORARY VIEW x AS SELECT 1",
        "SET spark.sql.shuffle.partitions = 3",
        "SHOW TABLES",
        "BEGIN SELECT 1; END",
    ):
        for attempt in (check_queries, start):
            with pytest.raises(PipelineError, match=rf"toml:10: view v: {refused}"):
                attempt(pipeline(sql), spark)
    assert kept.read_text("utf-8") == "precious"
    assert not spark.catalog.tableExists("x")
    for sql in (
        "/* all */ SELECT * FROM orders; -- a comment",
        "WITH a AS (SELECT 1 AS n) SELECT * FROM a",
        "VALUES (1), (2)",
        "TABLE orders",
        "FROM orders SELECT region",
        "FROM orders |> WHERE amount > 1",
        "(SELECT 1) UNION ALL (SELECT 2)",
    ):
        check_queries(pipeline(sql), spark)


@pytest.mark.full
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
format = "jetspark-delta"
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
    assert sum(column("delta", tmp_path / "table", "region").values()) == 200
    assert admin.facts(f"{orders}_OUT").messages == 200
    admin.fill([(f"{orders}.eu", b'{"region": "eu", "amount": 1000}')])
    run(pipeline, spark)
    assert sum(column("delta", tmp_path / "table", "region").values()) == 201
    assert admin.facts(f"{orders}_OUT").messages == 201


def test_an_error_names_the_part_of_the_pipeline_and_its_line(
    spark: SparkSession, shared_server: NatsServer, orders: str, tmp_path: Path
) -> None:
    sink = '[sinks.out]\nformat = "noop"\n'
    view = '[views.v]\nsql = "SELECT nope FROM orders"\n'
    with pytest.raises(PipelineError, match=r"/pipeline\.toml:10: view v: .*nope"):
        start(write(tmp_path, shared_server, orders, view + sink), spark)
    with pytest.raises(PipelineError, match=r"toml:10: sink out: .*[Nn]o[Ss]uch"):
        start(write(tmp_path, shared_server, orders, '[sinks.out]\nformat = "nosuch"\n'), spark)
    with pytest.raises(PipelineError, match=r"toml:5: source orders: .*did you mean"):
        check_servers(write(tmp_path, shared_server, orders[:-1], sink))


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ('stream = "IN"', 'stream = "INN"', 4, r'source a: .*did you mean "IN'),
        ("servers = ", 'servers = "nats://127.0.0.1:1" # ', 3, "source a: No server at"),
        ('subjects = "IN.>"', 'subjects = "nope.*"', 5, "source a: Option 'subjects': no message"),
        ('stream = "OUT"', 'stream = "OUTT"', 9, r'sink b: .*did you mean "OUT'),
        ('subject = "OUT.x"', 'subject = "other.x"', 10, "sink b: Option 'subject': 'other.x'"),
        ("# more", 'credsFile = "nope.creds"', 11, "sink b: credsFile 'nope.creds' cannot be"),
        ("# more", 'nkeySecret = "SUnone"', 11, "sink b: nkeySecret holds no valid NKey seed"),
        ("# more", 'guarantee = "exactly-once"', 6, r"sink b: Stream 'OUT.*prepareStream"),
    ],
)
def test_an_error_of_a_server_is_reported_with_its_line(
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    tmp_path: Path,
    old: str,
    new: str,
    line: int,
    says: str,
    needs_server: Callable[[str], None],
) -> None:
    needs_server("2.12")
    key = unique("K")
    for name in ("IN", "OUT"):
        admin.create(f"{name}{key}", f"{name}{key}.>")
    text = f"""checkpoint = "{tmp_path}/chk"
[sources.a]
servers = "{shared_server.url}"
stream = "IN"
subjects = "IN.>"
[sinks.b]
format = "jetstream"
servers = "{shared_server.url}"
stream = "OUT"
subject = "OUT.x"
# more
"""
    assert old in text
    text = text.replace(old, new, 1)
    for name in ("IN", "OUT"):
        text = text.replace(f'"{name}', f'"{name}{key}')
    file = tmp_path / "p.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(PipelineError, match=rf"/p\.toml:{line}: {says}"):
        check_servers(read_pipeline(file))


def table(spark: SparkSession, server: NatsServer, orders: str, folder: Path) -> str:
    options = {"servers": server.url, "stream": orders, "startingOffsets": "earliest"}
    to = str(folder / "ingested")
    ingest = Ingest(options=options, to=to, json_schema="region STRING, amount DOUBLE")
    ingest.start(spark).awaitTermination(300)
    return to


@pytest.mark.full
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


@pytest.mark.full
def test_replays_that_cannot_work(
    spark: SparkSession, shared_server: NatsServer, orders: str, tmp_path: Path
) -> None:
    path = table(spark, shared_server, orders, tmp_path)
    sink = {"servers": shared_server.url, "stream": orders}
    with pytest.raises(ConfigError, match="did you mean 'seq'"):
        Replay(table=path, options=sink, order_by="seqq").run(spark)
    job = Replay(table=path, options=sink)
    for wrong, says in (
        (replace(job, subject="nope("), r"^--subject 'nope\(': Syntax error at or near end of"),
        (
            replace(job, where="zz > 1"),
            r"^--rows 'zz > 1': .*`zz` cannot be resolved.*seq`[^;]*\.$",
        ),
        (replace(job, data="zz"), "^--data 'zz': .*`zz` cannot be resolved"),
        (replace(job, msg_id="zz"), "^--msg-id 'zz': .*`zz` cannot be resolved"),
    ):
        with pytest.raises(ConfigError, match=says):
            wrong.run(spark)
    with pytest.raises(PipelineError, match="Path does not exist"):
        Replay(table=str(tmp_path / "nothing"), options=sink).run(spark)
