"""`jetspark ingest` as a person runs it, stops it, kills it and runs it again."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.support.processes import end, finish, jetspark
from tests.support.streams import Admin, numbered
from tests.support.table_readers import by_duckdb, column

from jetspark.cli.ingest import done
from jetspark.lakehouse.formats import Format, make_table
from jetspark.lakehouse.table import TableName

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from jetspark.server import NatsServer

SECONDS = 300.0


def wait_for(path: Path, command: subprocess.Popen[bytes]) -> None:
    """Until a file is there."""
    deadline = time.monotonic() + SECONDS
    while not path.exists():
        assert command.poll() is None, command.communicate()[1].decode()
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.01)


def rows(spark: SparkSession, table: Path) -> Counter[int]:
    """Of a new table in the default format."""
    found = spark.read.format("jetspark-delta").load(str(table))
    return Counter(row.seq for row in found.select("seq").collect())


def once(count: int) -> Counter[int]:
    return Counter(range(1, count + 1))


def test_a_table_by_columns_of_json_goes_on_the_next_time(
    spark: SparkSession,
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    tmp_path: Path,
    nothing_left: Callable[[], None],
) -> None:
    name = unique("JSON")
    admin.create(name, f"{name}.>")
    admin.fill([(f"{name}.a", b'{"carrier": "UA", "delay": 2.5}'), (f"{name}.b", b"no JSON")])
    arguments = [
        "ingest", name, "--to", str(tmp_path / "table"), "--server", shared_server.url,
        "--json", "carrier STRING, delay DOUBLE",
        "--partition-by", "carrier", "--partition-by", "token=split(subject, '[.]')[1]",
        "--master", "local[1]",
    ]  # fmt: skip
    with jetspark(*arguments) as command:
        code, out, err = finish(command, SECONDS)
    assert code == 0, err
    assert out == f"2 rows written to {tmp_path / 'table'}.\n"
    nothing_left()
    with jetspark(*arguments) as command:
        code, out, err = finish(command, SECONDS)
    assert (code, out) == (0, f"Nothing new for {tmp_path / 'table'}.\n"), err
    table = spark.read.format("jetspark-delta").load(str(tmp_path / "table")).orderBy("seq")
    assert table.columns == [
        "stream", "subject", "seq", "timestamp", "headers", "carrier", "delay", "_corrupt_record",
        "token",
    ]  # fmt: skip
    first, second = table.collect()
    assert (first.carrier, first.delay, first.token, first["_corrupt_record"]) == (
        "UA",
        2.5,
        "a",
        None,
    )
    assert (second.carrier, second.delay, second["_corrupt_record"]) == (None, None, "no JSON")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ingest_follow_runs_until_it_is_stopped(
    spark: SparkSession,
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    tmp_path: Path,
    nothing_left: Callable[[], None],
    number: int,
) -> None:
    name = unique("FOLLOW")
    admin.create(name, name)
    admin.fill(numbered(name, 100))
    table = tmp_path / "table"
    arguments = [
        "ingest", name, "--to", str(table), "--server", shared_server.url, "--follow",
        "--interval", "0.5", "--checkpoint", str(tmp_path / "progress"), "--master", "local[1]",
    ]  # fmt: skip
    with jetspark(*arguments) as command:
        wait_for(tmp_path / "progress" / "commits" / "0", command)
        admin.fill(numbered(name, 50))
        wait_for(tmp_path / "progress" / "commits" / "1", command)
        while rows(spark, table) != once(150):  # a batch may have begun amid the 50
            assert command.poll() is None, command.communicate()[1].decode()
        if number == signal.SIGINT:
            os.killpg(command.pid, number)  # as a terminal does it: workers get it too
            code, out, err = finish(command, SECONDS)
        else:
            code, out, err = end(command, number)
    assert (code, out) == (0, "Stopped; the same command goes on from here.\n"), err
    following, *batches = err.splitlines()
    assert following == f"Following {name} into {table}; Ctrl-C or SIGTERM ends it."
    assert any("0 rows written · " in line for line in batches)
    assert "Traceback" not in err
    nothing_left()
    assert rows(spark, table) == once(150)


@pytest.mark.spark
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["jvm", "session", "batch"])
def test_stopped_before_it_is_done_it_leaves_nothing_running_and_says_so(
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    nothing_left: Callable[[], None],
    number: int,
    moment: str,
) -> None:
    """While the JVM is started, while Spark starts in it, while a batch is read."""
    name = unique("UNFINISHED")
    admin.create(name, name)
    admin.fill(numbered(name, 5000))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    arguments = [
        "ingest", name, "--to", str(tmp_path / "table"), "--server", shared_server.url,
        "--max-offsets-per-trigger", "1", "--json-output", "--master", "local[1]",
    ]  # fmt: skip
    with jetspark(*arguments) as command:
        if moment == "batch":
            wait_for(tmp_path / "table" / "_checkpoint" / "commits" / "1", command)
        else:
            log = "*/spark.log" if moment == "jvm" else "*/blockmgr-*"
            deadline = time.monotonic() + SECONDS
            while not list(temporary.glob(log)):
                assert command.poll() is None, command.communicate()[1].decode()
                assert time.monotonic() < deadline
                time.sleep(0.01)
        if number == signal.SIGINT:
            os.killpg(command.pid, number)
            code, out, err = finish(command, SECONDS)
        else:
            code, out, err = end(command, number)
    assert code == 128 + number, err
    assert "Traceback" not in err
    said = json.loads(out)
    assert said["stopped_by"] == signal.Signals(number).name
    assert (said["rows"] > 0) == (moment == "batch")
    nothing_left()
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("format_", "moments", "whole_group"),
    # As soon as the first batch is planned; while the table gets its files; between batches.
    [
        pytest.param(
            "delta",
            [
                "progress/offsets/0",
                "table/_delta_log/00000000000000000002.json",
                "progress/commits/3",
            ],
            True,
            id="delta-group",
        ),
        pytest.param("delta", ["progress/commits/1"], False, id="delta-python"),
        pytest.param("iceberg", ["table/metadata/v3.metadata.json"], True, id="iceberg"),
    ],
)
def test_killed_and_no_row_lost_or_repeated(
    spark: SparkSession,
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    tmp_path: Path,
    nothing_left: Callable[[], None],
    format_: str,
    moments: list[str],
    whole_group: bool,
) -> None:
    count = int(os.environ.get("JETSPARK_INGEST_MESSAGES", "60000"))
    name = unique("KILLED")
    admin.create(name, name)
    admin.fill(numbered(name, count, size=128))
    table, progress = tmp_path / "table", tmp_path / "progress"
    arguments = [
        "ingest", name, "--to", str(table), "--server", shared_server.url, "--format", format_,
        "--checkpoint", str(progress), "--max-offsets-per-trigger", str(count // 8),
    ]  # fmt: skip
    for moment in moments:
        with jetspark(*arguments) as command:
            wait_for(tmp_path / moment, command)
            if whole_group:
                os.killpg(command.pid, signal.SIGKILL)
            else:
                command.kill()
            command.wait()
        nothing_left()
    with jetspark(*arguments) as command:
        code, _, err = finish(command, SECONDS)
    assert code == 0, err
    assert column(format_, table, "seq") == once(count)


@pytest.mark.spark
def test_a_table_keeps_its_format_and_columns_are_added_when_that_is_said(
    shared_server: NatsServer, admin: Admin, unique: Callable[[str], str], tmp_path: Path
) -> None:
    name, table = unique("GROWN"), tmp_path / "table"
    admin.create(name, name)
    admin.fill([(name, b'{"a": 1, "b": "x"}')])

    def ingest(*more: str) -> tuple[int, str, str]:
        base = ["ingest", name, "--to", str(table), "--server", shared_server.url]
        with jetspark(*base, "--partition-by", "day", "--master", "local[1]", *more) as command:
            return finish(command, SECONDS)

    first = ingest("--json", "a INT", "--format", "iceberg")
    assert first[:2] == (0, f"1 row written to {table}.\n"), first
    code, _, err = ingest("--json", "a INT", "--format", "delta")
    assert (code, err) == (
        1, f"{table} is a table in iceberg, not in delta: take another folder, such as {table}-2.\n"
    )  # fmt: skip
    admin.fill([(name, b'{"a": 2, "b": "y"}')])
    code, _, err = ingest("--json", "a INT, b STRING")
    assert code == 1
    assert err.startswith(f"{table} has no column b: give --merge-schema to add it")
    code, _, err = ingest("--json", "a INT, b STRING", "--merge-schema")
    assert code == 0, err
    assert sorted(by_duckdb("iceberg", table, "SELECT seq, a, b FROM t")) == [
        (1, 1, None),
        (2, 2, "y"),
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["NO_SUCH"], 'Stream "NO_SUCH" not found on nats://127.0.0.1:'),
        (["bad name"], "STREAM: Bad stream name 'bad name': "),
        (["S", "--server", "nats://127.0.0.1:1"], "Cannot connect to nats://127.0.0.1:1: "),
        (["S", "--subjects", "a..b"], "--subjects: Bad subject 'a..b': an empty token"),
        (["no_such", "--bucket"], "Bucket 'no_such' not found; "),
        (["S", "--option", "user"], "--option 'user': write name=value."),
        (["S", "--option", "usr=x"], "Unknown option 'usr' for format jetstream; did you mean"),
    ],
)
def test_mistakes_are_one_sentence(
    shared_server: NatsServer, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    base = [] if "--server" in arguments else ["--server", shared_server.url]
    with jetspark("ingest", *arguments, "--to", str(tmp_path / "table"), *base) as command:
        code, out, err = finish(command)
    assert (code, out) == (1, "")
    assert err.startswith(sentence)
    assert err.count("\n") == 1
    assert not (tmp_path / "table").exists()


def test_what_was_done_counts_the_changes_of_a_bucket_not_rows() -> None:
    assert done(0, "t", merged=True) == "Nothing new for t."
    assert done(1, "t", merged=False) == "1 row written to t."
    assert done(1_000, "t", merged=True) == "1,000 changes merged into t."
    assert done(0, "t", merged=True, removed=2) == (
        "Nothing new for t. Removed 2 rows of keys that are gone."
    )


def test_fewer_columns_and_a_checkpoint_among_the_files_are_refused_before_spark(
    shared_server: NatsServer, admin: Admin, unique: Callable[[str], str], tmp_path: Path
) -> None:
    name, table = unique("FEWER"), tmp_path / "table"
    admin.create(name, name)
    fields = pa.schema([("stream", pa.string()), ("subject", pa.string()), ("id", pa.string())])
    make_table(Format.DELTA, TableName(path=str(table)), fields, ())
    base = ["ingest", name, "--to", str(table), "--server", shared_server.url, "--adopt"]
    with jetspark(*base, "--option", "columns=stream,subject") as command:
        code, _, err = finish(command)
    assert code == 1
    assert err.startswith(f"{table} has the column id, which these rows lack: add it to them, or ")
    assert "--merge-schema" in err
    with jetspark(*base[:-1], "--checkpoint", str(table / "chk")) as command:
        code, _, err = finish(command)
    assert code == 1
    assert err.startswith(f"{table}/chk is inside of the table, where chk would count as a part of")
    assert not (table / "chk").exists()


@pytest.mark.spark
def test_a_followed_bucket_loses_the_keys_that_went_while_nobody_looked(
    shared_server: NatsServer, admin: Admin, unique: Callable[[str], str], tmp_path: Path
) -> None:
    bucket, table = unique("B"), tmp_path / "table"
    admin.create(f"KV_{bucket}", f"$KV.{bucket}.>", max_msgs_per_subject=1)
    admin.fill([(f"$KV.{bucket}.{key}", b"1") for key in ("a", "b")])
    base = ["ingest", bucket, "--bucket", "--server", shared_server.url, "--to", str(table)]
    base += ["--master", "local[1]"]
    with jetspark(*base) as command:
        code, out, err = finish(command, SECONDS)
    assert (code, out) == (0, f"2 changes merged into {table}.\n"), err
    admin.purge(f"KV_{bucket}", filter=f"$KV.{bucket}.a")
    with jetspark(*base, "--follow", "--interval", "0.1") as command:
        deadline = time.monotonic() + SECONDS
        while by_duckdb("delta", table, "SELECT key FROM t") != [("b",)]:
            assert command.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        command.send_signal(signal.SIGINT)
        code, _, err = finish(command, SECONDS)
    assert code == 0, err
    assert column("delta", table, "key") == {"b": 1}


def test_the_server_may_be_named_by_a_context_or_the_environment(
    shared_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "nats" / "context"
    folder.mkdir(parents=True)
    (folder / "there.json").write_text(f'{{"url": "{shared_server.url}"}}')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    base = ["ingest", "NO_SUCH", "--to", str(tmp_path / "table")]
    with jetspark(*base, "--context", "there") as command:
        _, _, by_context = finish(command)
    monkeypatch.setenv("NATS_URL", shared_server.url)
    with jetspark(*base) as command:
        _, _, by_environment = finish(command)
    expected = f'Stream "NO_SUCH" not found on {shared_server.url}'
    assert by_context.startswith(expected)
    assert by_environment.startswith(expected)
    with jetspark(*base, "--context", "there", "--server", shared_server.url) as command:
        _, _, both = finish(command)
    assert both == "Give either --server or --context.\n"


def test_a_second_run_is_refused_until_the_first_has_ended_however_it_ends(
    spark: SparkSession,
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    tmp_path: Path,
    nothing_left: Callable[[], None],
) -> None:
    name, other = unique("TWICE"), unique("OTHER")
    for stream in (name, other):
        admin.create(stream, stream)
        admin.fill(numbered(stream, 100))
    table = tmp_path / "table"
    arguments = ["--to", str(table), "--server", shared_server.url, "--master", "local[1]"]
    commits = table / "_checkpoint" / "commits"
    with jetspark("ingest", name, *arguments, "--follow", "--interval", "0.1") as first:
        wait_for(commits / "0", first)
        with jetspark("ingest", name, *arguments) as second:
            code, out, err = finish(second, SECONDS)
        assert (code, out) == (1, "")
        who = f"process {first.pid} on {socket.gethostname()}"
        checkpoint = table / "_checkpoint"
        assert err == f"Another run ({who}) uses {checkpoint}: stop it first, or let it end.\n"
        admin.fill(numbered(name, 50))
        wait_for(commits / "1", first)
        first.kill()
        first.wait()
    with jetspark("ingest", other, *arguments) as third:
        code, out, err = finish(third, SECONDS)
    assert (code, out) == (1, "")
    assert err.startswith(f"The checkpoint belongs to a query on {name}, not on {other}: use ano")
    with jetspark("ingest", name, *arguments) as fourth:
        code, _, err = finish(fourth, SECONDS)
    assert code == 0, err
    nothing_left()
    assert rows(spark, table) == once(150)


def test_a_column_that_is_not_there_is_one_sentence(
    shared_server: NatsServer, admin: Admin, unique: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique("COLUMN")
    admin.create(name, name)
    admin.fill(numbered(name, 1))
    arguments = ["ingest", name, "--to", str(tmp_path / "t"), "--server", shared_server.url]
    with jetspark(*arguments, "--partition-by", "region") as command:
        code, _, err = finish(command, SECONDS)
    assert code == 1
    assert "--partition-by region: there is no such column; there are stream, subject" in err
    assert "Traceback" not in err


@pytest.mark.spark
def test_a_table_that_cannot_be_written_is_one_sentence(
    shared_server: NatsServer, admin: Admin, unique: Callable[[str], str]
) -> None:
    name = unique("NOWHERE")
    admin.create(name, name)
    admin.fill(numbered(name, 1))
    with jetspark("ingest", name, "--to", "/proc/no", "--server", shared_server.url) as command:
        code, out, err = finish(command, SECONDS)
    assert (code, out) == (1, "")
    assert err == ("/proc/no/_checkpoint cannot be made (No such file or directory).\n")


def test_without_java_one_sentence_says_what_to_install(
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = unique("JAVA")
    admin.create(name, name)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with jetspark(
        "ingest", name, "--to", str(tmp_path / "t"), "--server", shared_server.url
    ) as command:
        code, _, err = finish(command)
    assert code == 1
    assert err.startswith("Spark needs Java 17 or newer: install it and put it on PATH")
    assert err.count("\n") == 1
