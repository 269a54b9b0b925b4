"""`jetspark ingest` as a person runs it, stops it, kills it and runs it again.

What is refused before Spark starts is in test_before_spark.py.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Run, meanwhile, until
from tests.support.processes import end, finish, jetspark
from tests.support.streams import Admin, numbered
from tests.support.table_readers import by_duckdb, column

from jetspark.cli.ingest import describe_result
from jetspark.spark.checkpoints import read_checkpoint
from jetspark.spark.table_sink.ledger import TableLedger

SECONDS = 300.0


def is_there(folder: Path, file: str) -> bool:
    try:
        return any(folder.glob(file))
    except FileNotFoundError:  # a folder that went meanwhile
        return False


def wait_for(folder: Path, file: str, command: subprocess.Popen[bytes]) -> None:
    """Until there is such a file."""
    deadline = time.monotonic() + SECONDS
    while not is_there(folder, file):
        assert command.poll() is None, command.communicate()[1].decode()
        assert time.monotonic() < deadline, f"{file} did not appear"
        time.sleep(0.01)


def interrupted(command: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    """By Ctrl-C, which a terminal sends to the whole group: workers get it too."""
    os.killpg(command.pid, signal.SIGINT)
    return finish(command, SECONDS)


def once(count: int) -> Counter[int]:
    return Counter(range(1, count + 1))


@pytest.mark.full
def test_a_table_of_columns_of_json_goes_on_in_its_format_and_gets_columns_when_that_is_said(
    admin: Admin, run_in_spark: Run, tmp_path: Path
) -> None:
    name, table = admin.stream(under=".>"), tmp_path / "table"
    admin.fill([(f"{name}.a", b'{"carrier": "UA", "delay": 2.5}'), (f"{name}.b", b"no JSON")])

    def ingest(*more: str) -> tuple[int, str, str]:
        parts = ["--partition-by", "day", "--partition-by", "token"]
        parts += ["--derive", "token=subject[1]"]
        return run_in_spark("ingest", name, "--to", str(table), *parts, *more)

    code, out, err = ingest("--json-schema", "carrier STRING", "--format", "iceberg")
    assert (code, out) == (0, f"2 rows written to {table}.\n"), err
    code, _, err = ingest("--json-schema", "carrier STRING", "--format", "delta")
    assert (code, err) == (
        1, f"{table} is a table in iceberg, not in delta: take another folder, such as {table}-2.\n"
    )  # fmt: skip
    admin.fill([(f"{name}.a", b'{"carrier": "AA", "delay": 3.5}')])
    wider = ("--json-schema", "carrier STRING, delay DOUBLE")
    code, _, err = ingest(*wider)
    assert code == 1
    assert err.startswith(f"{table} has no column delay: give --merge-schema to add it")
    code, out, err = ingest(*wider, "--merge-schema")
    assert (code, out) == (0, f"1 row written to {table}.\n"), err
    columns = "seq, subject, carrier, delay, token, _corrupt_record"
    assert sorted(by_duckdb("iceberg", table, f"SELECT {columns} FROM t")) == [
        (1, f"{name}.a", "UA", None, "a", None),
        (2, f"{name}.b", None, None, "b", "no JSON"),
        (3, f"{name}.a", "AA", 3.5, "a", None),
    ]
    admin.fill([(f"{name}.b", b"[")])
    code, out, err = ingest(*wider, "--on-bad-record", "stop")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"Message 4 of {name} on the subject {name}.b does not become a row: ")
    assert err.endswith(" in _corrupt_record, a column which --merge-schema adds.\n")


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("spark.log", signal.SIGINT),  # while the JVM is started
        ("blockmgr-*", signal.SIGTERM),  # while Spark starts in it
    ],
    ids=["jvm", "session"],
)
def test_stopped_before_it_begins_it_leaves_nothing_running_and_says_so(
    admin: Admin,
    url: str,
    tmp_path: Path,
    temporary: Path,
    nothing_left: Callable[[], None],
    number: signal.Signals,
    moment: str,
) -> None:
    table = str(tmp_path / "table")
    arguments = ["ingest", admin.stream(), "--to", table, "--server", url, "--master", "local[1]"]
    with jetspark(*arguments, "--json") as command:
        wait_for(temporary, f"*/{moment}", command)
        ended = interrupted(command) if number == signal.SIGINT else end(command, number)
    code, out, err = ended
    assert code == 128 + number, err
    assert "Traceback" not in err
    said = json.loads(out)
    assert (said["stopped_by"], said["rows"]) == (number.name, 0)
    nothing_left()
    assert list(temporary.iterdir()) == []


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where commands keep what is of no use later."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def test_what_was_done_counts_the_changes_of_a_bucket_not_rows() -> None:
    assert describe_result(0, "t", merged=True) == "Nothing new for t."
    assert describe_result(1, "t", merged=False) == "1 row written to t."
    assert describe_result(1_000, "t", merged=True) == "1,000 changes merged into t."
    assert describe_result(0, "t", merged=True, removed=2) == (
        "Nothing new for t. Removed 2 rows of keys that are gone."
    )


@pytest.mark.full
def test_a_followed_bucket_loses_the_keys_that_went_while_nobody_looked(
    admin: Admin, unique: Callable[[str], str], run_in_spark: Run, tmp_path: Path
) -> None:
    bucket, table = unique("B"), tmp_path / "table"
    admin.create(f"KV_{bucket}", f"$KV.{bucket}.>", max_msgs_per_subject=1)
    admin.fill([(f"$KV.{bucket}.{key}", b"1") for key in ("a", "b")])
    base = ["ingest", bucket, "--bucket", "--to", str(table)]
    code, out, err = run_in_spark(*base)
    assert (code, out) == (0, f"2 changes merged into {table}.\n"), err
    admin.purge(f"KV_{bucket}", filter=f"$KV.{bucket}.a")

    gone = until(lambda: by_duckdb("delta", table, "SELECT key FROM t") == [("b",)])
    with meanwhile(gone, signal.SIGINT):
        code, _, err = run_in_spark(*base, "--follow", "--interval", "0.1")
    assert code == 0, err
    assert column("delta", table, "key") == {"b": 1}


@pytest.mark.full
def test_ingest_follows_until_it_is_stopped_amid_its_batches_and_no_row_is_lost_or_repeated(
    admin: Admin,
    url: str,
    run_in_spark: Run,
    tmp_path: Path,
    temporary: Path,
    nothing_left: Callable[[], None],
) -> None:
    """A second run is refused until the first has ended.

    test_demo.py kills one and looks what it leaves; tests/chaos/test_ingesting.py kills one that
    writes many tables, in Iceberg.
    """
    count = int(os.environ.get("JETSPARK_INGEST_MESSAGES", "4000"))
    name, table = admin.stream(100, size=128), tmp_path / "table"
    checkpoint = table / "_checkpoint"
    again = ["ingest", name, "--to", str(table), "--max-offsets-per-trigger", str(count // 4)]
    how = ["--server", url, "--master", "local[1]", "--follow", "--interval", "0.1"]
    with jetspark(*again, *how) as first:
        wait_for(checkpoint, "commits/0", first)
        code, out, err = run_in_spark(*again)
        assert (code, out) == (1, "")
        who = f"process {first.pid} on {socket.gethostname()}"
        assert err == f"Another run ({who}) uses {checkpoint}: stop it first, or let it end.\n"
        admin.fill(numbered(name, 50))
        # A batch may have begun amid the 50.
        while by_duckdb("delta", table, "SELECT count(*) FROM t") != [(150,)]:
            assert first.poll() is None, first.communicate()[1].decode()
            time.sleep(0.05)
        begun = len(list(checkpoint.glob("offsets/[0-9]*")))
        admin.fill(numbered(name, count - 150, 128))
        wait_for(checkpoint, f"commits/{begun}", first)
        code, out, err = interrupted(first)
    assert code == 0, err
    assert re.fullmatch(r"Stopped after [\d,]+ rows; the same command goes on from here\.\n", out)
    said, *batches = err.splitlines()
    assert said == f"Following {name} into {table}; Ctrl-C or SIGTERM ends it."
    assert any("0 rows written · " in line for line in batches)
    assert "Traceback" not in err
    nothing_left()
    assert list(temporary.iterdir()) == []
    other = admin.stream(100)
    code, out, err = run_in_spark("ingest", other, "--to", str(table))
    assert (code, out) == (1, "")
    assert err.startswith(f"The checkpoint belongs to a query on {name}, not on {other}: use ano")
    code, out, err = run_in_spark(*again)
    assert code == 0, err
    assert column("delta", table, "seq") == once(count)
    query = read_checkpoint(str(checkpoint)).query
    written = TableLedger(str(checkpoint), query or "").totals
    assert written is not None
    assert written.rows == count  # what Prometheus gets, over both runs


@pytest.mark.full
def test_a_run_without_new_messages_ends_before_spark_is_started(
    admin: Admin, run_in_spark: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, table = admin.stream(10), tmp_path / "table"
    again = ["ingest", name, "--to", str(table)]
    assert run_in_spark(*again)[:2] == (0, f"10 rows written to {table}.\n")
    with monkeypatch.context() as patch:
        patch.setattr("jetspark.cli.ingest.quiet_spark", lambda *_, **__: pytest.fail("Spark"))
        assert run_in_spark(*again) == (0, f"Nothing new for {table}.\n", "")
        code, out, _ = run_in_spark(*again, "--json")
        assert (code, json.loads(out)["rows"], json.loads(out)["table"]) == (0, 0, str(table))
    admin.fill(numbered(name, 5))
    assert run_in_spark(*again, "--end", "12")[:2] == (0, f"1 row written to {table}.\n")
    with monkeypatch.context() as patch:
        patch.setattr("jetspark.cli.ingest.quiet_spark", lambda *_, **__: pytest.fail("Spark"))
        for end in ("12", "5"):
            assert run_in_spark(*again, "--end", end) == (0, f"Nothing new for {table}.\n", "")
    assert run_in_spark(*again)[:2] == (0, f"4 rows written to {table}.\n")
    assert column("delta", table, "seq") == once(15)
    admin.call(f"STREAM.DELETE.{name}", None)
    admin.create(name, name)
    admin.fill(numbered(name, 15))  # as long, but another stream
    code, _, err = run_in_spark(*again)
    assert code == 1
    assert "recreated" in err
