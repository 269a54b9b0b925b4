"""Pipelines and replays on a real Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.ingest_job import ingest_job
from tests.support.pipelines import pipeline_of
from tests.support.streams import Admin
from tests.support.table_readers import column

from jetspark.errors import ConfigError, PipelineError
from jetspark.spark.pipelines.pipeline import check_queries, check_servers, start_pipeline
from jetspark.spark.pipelines.pipeline_file import PipelineFile, read_pipeline
from jetspark.spark.pipelines.replay import Replay

DELTA = '[sinks.s]\nformat = "jetspark-delta"\npath = "p"'
MESSAGES = '[sinks.s]\nformat = "jetstream"\nsubject = "s"'
REGIONS = ("eu", "us", "asia")


@pytest.fixture
def orders(admin: Admin) -> str:
    """A stream of 300 orders as JSON, and one message that is none."""
    name = admin.stream(under=".>")
    rows = [
        (f"{name}.{REGIONS[n % 3]}", json.dumps({"region": REGIONS[n % 3], "amount": n}).encode())
        for n in range(300)
    ]
    admin.fill([*rows, (f"{name}.bad", b"no JSON")])
    return name


Write = Callable[..., PipelineFile]


@pytest.fixture
def write(admin: Admin, orders: str, tmp_path: Path) -> Write:
    """A pipeline of the orders, or of another `stream`."""
    options = 'max_offsets_per_trigger = 150\njson_schema = "region STRING, amount DOUBLE"'

    def write(more: str, stream: str = orders) -> PipelineFile:
        return pipeline_of(admin.url, stream, tmp_path, more, options=options)

    return write


@pytest.mark.full
@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_a_stream_that_is_emptied_is_read_for_one_sink_only(
    spark: SparkSession,
    write: Write,
    admin: Admin,
    tmp_path: Path,
    retention: str,
    needs_server: Callable[[str], None],
) -> None:
    needs_server("2.14")
    queue = admin.stream(under=".>", retention=retention, allow_direct=True)
    option = {"workqueue": "sole_reader = true", "interest": 'interest_consumer = "c"'}[retention]
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
    pipeline = write(one_sink + more, queue)
    for act in (check_queries, start_pipeline):
        with pytest.raises(PipelineError, match=r"toml:19: .*is read for the sink all, too, with"):
            act(pipeline, spark)
    alone = write(one_sink, queue)
    check_queries(alone, spark)
    again = replace(alone, sources={**alone.sources, "again": alone.sources["orders"]})
    for pipeline, sql in (
        (again, "SELECT seq FROM orders UNION ALL SELECT seq FROM again"),
        (alone, "SELECT o.seq FROM orders o JOIN some s ON o.seq = s.seq"),
    ):
        views = {**pipeline.views, "twice": sql}
        with pytest.raises(PipelineError, match=r"is read twice for this sink"):
            start_pipeline(replace(pipeline, views=views), spark)
    assert admin.facts(queue).consumers == 0


@pytest.mark.full
@pytest.mark.parametrize(
    ("more", "line", "sentence"),
    [
        ('[views.v]\nsql = "SELEC 1 FROM orders"', 10, "view v: Syntax error at or near 'SELEC'"),
        ('[views.v]\nsql = "SELECT amont FROM orders"', 10, "view v: .*`amont` cannot be resolved"),
        ('[sinks.s]\nformat = "parqet"\npath = "p"', 10, "sink s: .*data source: parqet"),
        (f'{DELTA}\npartition_by = ["regoin"]', 12, "sink s: partition_by: there is no column"),
        (
            '[views.v]\nsql = "SELECT region, count(*) n FROM orders GROUP BY region"',
            *(11, "sink s: Append output mode not supported|sink s: .*watermark"),
        ),
        (
            f'[views.v]\nsql = "SELECT amount AS data FROM orders"\n{MESSAGES}\nstream = "S"',
            *(11, "sink s: The column 'data' must be binary or string, not double"),
        ),
        (
            '[views.v]\nsql = "SELECT * FROM later"\n[views.later]\nsql = "SELECT * FROM orders"',
            *(10, "view v: sql uses the view later, which is below it: a view uses the sources"),
        ),
        ('[views.v]\nsql = "SELECT * FROM V"', 10, "view v: sql uses itself: a view uses the"),
        (
            f"[views.v]\nsql = \"SELECT 'x' AS data FROM orders\"\n{MESSAGES}\n"
            'stream = "$STREAM"\nservers = "$SERVER"',
            *(14, "sink s: it writes into the stream .*, which is read for it again"),
        ),
        ('watermark = ["tme", "1 minute"]', 9, "source orders: .*`tme` cannot be resolved"),
    ],
)
def test_a_check_finds_what_no_query_could_do(
    spark: SparkSession,
    write: Write,
    admin: Admin,
    orders: str,
    tmp_path: Path,
    more: str,
    line: int,
    sentence: str,
) -> None:
    more = more.replace("$STREAM", orders).replace("$SERVER", admin.url)
    if "[sinks" not in more:
        more += f'\n[sinks.s]\nformat = "jetspark-delta"\npath = "{tmp_path}/table"'
    with pytest.raises(PipelineError, match=rf"/pipeline\.toml:{line}: (?:{sentence})"):
        check_queries(write(more), spark)
    assert not (tmp_path / "chk").exists()


@pytest.mark.full
def test_sql_of_a_view_is_a_query_and_a_command_is_not_executed(
    spark: SparkSession, write: Write, tmp_path: Path
) -> None:
    kept = tmp_path / "folder" / "kept"
    kept.parent.mkdir()
    kept.write_text("precious", "utf-8")
    overwrite = f"INSERT OVERWRITE DIRECTORY '{kept.parent}' USING csv SELECT 1 AS a"
    sink = f'[sinks.s]\nfrom = "orders"\nformat = "jetspark-delta"\npath = "{tmp_path}/table"'

    def pipeline(sql: str) -> PipelineFile:
        return write(f'[views.v]\nsql = """{sql}"""\n{sink}')

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
        for attempt in (check_queries, start_pipeline):
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
    spark: SparkSession, write: Write, orders: str, admin: Admin, tmp_path: Path
) -> None:
    out = admin.stream(under=".>")
    pipeline = write(
        f"""
[views.large]
sql = "SELECT region, amount FROM orders WHERE amount >= 100"
[views.messages]
sql = "SELECT '{out}.' || region AS subject, to_json(struct(*)) AS data FROM large"
[sinks.table]
from = "large"
format = "jetspark-delta"
path = "{tmp_path}/table"
partition_by = ["region"]
[sinks.stream]
format = "jetstream"
servers = "{admin.url}"
stream = "{out}"
"""
    )
    check_servers(pipeline)
    for count in (200, 201):
        for query in start_pipeline(pipeline, spark).values():
            query.awaitTermination(300)
        assert sum(column("delta", tmp_path / "table", "region").values()) == count
        assert admin.facts(out).messages == count
        admin.fill([(f"{orders}.eu", b'{"region": "eu", "amount": 1000}')])


def test_an_error_names_the_part_of_the_pipeline_and_its_line(
    spark: SparkSession, write: Write, orders: str
) -> None:
    sink = '[sinks.out]\nformat = "noop"\n'
    view = '[views.v]\nsql = "SELECT nope FROM orders"\n'
    with pytest.raises(PipelineError, match=r"/pipeline\.toml:10: view v: .*nope"):
        start_pipeline(write(view + sink), spark)
    with pytest.raises(PipelineError, match=r"toml:10: sink out: .*[Nn]o[Ss]uch"):
        start_pipeline(write('[sinks.out]\nformat = "nosuch"\n'), spark)
    with pytest.raises(PipelineError, match=r"toml:5: source orders: .*did you mean"):
        check_servers(write(sink, orders[:-1]))


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ('stream = "IN"', 'stream = "INN"', 4, r'source a: .*did you mean "IN'),
        ("servers = ", 'servers = "nats://127.0.0.1:1" # ', 3, "source a: No server at"),
        ('subjects = "IN.>"', 'subjects = "nope.*"', 5, "source a: subjects: no message"),
        ('stream = "OUT"', 'stream = "OUTT"', 9, r'sink b: .*did you mean "OUT'),
        ('subject = "OUT.x"', 'subject = "other.x"', 10, "sink b: subject: 'other.x'"),
        ("# more", 'creds_file = "nope.creds"', 11, "sink b: creds_file 'nope.creds' cannot be"),
        ("# more", 'nkey_seed = "SUnone"', 11, "sink b: nkey_seed holds no valid NKey seed"),
        ("# more", 'guarantee = "exactly-once"', 6, r"sink b: Stream 'OUT.*prepare_stream"),
    ],
)
def test_an_error_of_a_server_is_reported_with_its_line(
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
servers = "{admin.url}"
stream = "IN"
subjects = "IN.>"
[sinks.b]
format = "jetstream"
servers = "{admin.url}"
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


@pytest.mark.full
def test_what_was_ingested_is_replayed_or_there_is_a_sentence(
    spark: SparkSession, orders: str, admin: Admin, tmp_path: Path
) -> None:
    source = {"servers": admin.url, "stream": orders, "startingOffsets": "earliest"}
    path = str(tmp_path / "ingested")
    ingest = ingest_job(options=source, to=path, json_schema="region STRING, amount DOUBLE")
    ingest.start(spark).awaitTermination(300)
    out = admin.stream(under=".>")
    sink = {"servers": admin.url, "stream": out}
    job = Replay(table=path, options=sink, subject=f"replace(subject, '{orders}.', '{out}.')")
    assert replace(job, order_by="seq").run(spark) == 301
    back = [admin.api.message(out, seq=seq) for seq in (1, 2, 301)]
    assert [one and one.data for one in back] == [
        *(b'{"region":"eu","amount":0.0}', b'{"region":"us","amount":1.0}', b"no JSON")
    ]
    assert replace(job, where="region = 'eu'", data="region").run(spark) == 100
    last = admin.api.message(out, last_by_subj=f"{out}.eu")
    assert last is not None
    assert last.data == b"eu"
    for wrong, says in (
        (replace(job, order_by="seqq"), "did you mean 'seq'"),
        (replace(job, subject="nope("), r"^subject 'nope\(': Syntax error at or near end of"),
        (replace(job, where="zz > 1"), r"^rows 'zz > 1': .*`zz` cannot be.*seq`[^;]*\.$"),
        (replace(job, data="zz"), "^data 'zz': .*`zz` cannot be resolved"),
        (replace(job, msg_id="zz"), "^msg_id 'zz': .*`zz` cannot be resolved"),
    ):
        with pytest.raises(ConfigError, match=says):
            wrong.run(spark)
    with pytest.raises(PipelineError, match="Path does not exist"):
        replace(job, table=str(tmp_path / "nothing")).run(spark)
