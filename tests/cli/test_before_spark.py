"""What `ingest`, `replay` and `run` find wrong before Spark is started."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from tests.support.streams import numbered

from jetspark.cli import app, demo, spark_runs
from jetspark.cli.options import options_as_flags, starting
from jetspark.cli.signals import StopRequested
from jetspark.cli.spark_runs import SparkFlags
from jetspark.errors import ConfigError, SparkUnavailableError
from jetspark.spark.ddl import check_fields
from jetspark.spark.failures import explain
from jetspark.spark.ingest import Ingest
from jetspark.timestamps import parse_isotime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.streams import Admin

    from jetspark.server import NatsServer

INGEST = ["ingest", "S", "--to", "nowhere", "--server", "nats://127.0.0.1:1"]
OWN_START = ["--option", "startingTimestamp=1700000000"]
REPLAY = ["replay", "/", "--to", "S", "--server", "nats://127.0.0.1:1"]


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark would not start: whoever tries says so."""
    monkeypatch.setenv("JAVA_HOME", "/no/java")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([*INGEST, "--json", "id STRNG"], "there is no type STRNG (did you mean STRING?)"),
        ([*INGEST, "--json-schema", "subject STRING"], "--json: column subject has a name"),
        ([*INGEST, "--json", "Headers STRING"], "--json: column Headers has a name that"),
        ([*INGEST, "--json", "id STRING, ID INT"], "--json: column ID has a name that another"),
        ([*INGEST, "--json", "_Corrupt_record INT"], "--json: column _Corrupt_record has a name"),
        ([*INGEST, "--json", "a INT NOT NULL"], "is no schema: a is NOT NULL, but each column"),
        ([*INGEST, "--format", "parquet"], "--format parquet: jetspark writes Delta and Iceberg"),
        ([*INGEST, "--format", "JSON"], 'use Spark\'s own writeStream.format("JSON") in a program'),
        ([*INGEST, "--format", "hudi"], "--format must be delta or iceberg, not 'hudi'."),
        ([*INGEST, "--partition-by", "region"], "--partition-by region: there is no such column"),
        ([*INGEST, "--partition-by", "=x"], "--partition-by '=x': write a column, or name="),
        ([*INGEST, "--follow", "--interval", "-1"], "--interval must be seconds, 0 or more, not -"),
        ([*INGEST, "--interval", "5"], "--interval is for --follow: give that, too, or leave"),
        ([*INGEST, "--start", "7", *OWN_START], "Give either --start or --option startingT"),
        ([*INGEST, *OWN_START], "'startingTimestamp' is in milliseconds since 1970, and"),
        ([*INGEST, OWN_START[0], OWN_START[1] + "000"], "Cannot connect to nats://127.0.0.1:1: "),
        ([*INGEST, "--start", "yesterday"], "--start 'yesterday': write earliest, latest, "),
        ([*INGEST, "--start", "0"], "--start must be earliest, latest or a sequence number"),
        ([*INGEST, "--max-offsets-per-trigger", "0"], "--max-offsets-per-trigger must be a whole"),
        ([*INGEST, "--subjects", ""], "--subjects is empty; leave it out"),
        ([*INGEST, "--option", "keys="], "Option 'keys' is empty; leave it out"),
        ([*INGEST, "--option", "stream=E"], "Give STREAM in place of --option str"),
        ([*INGEST, "--option", "Streams=E"], "Give STREAM in place of --option Str"),
        ([*INGEST, "--option", "bucket=E"], "Give STREAM and --bucket in place of"),
        ([*INGEST, "--option", "SERVERS=x"], "Give --server in place of --option SERVERS."),
        ([*INGEST, "--option", "context=x"], "Give --context in place of --option context."),
        ([*INGEST, "--option", "subjects=x"], "Give --subjects in place of --option subjects."),
        ([*INGEST, "--option", "jsonSchema=x"], "Give --json in place of --option jsonSchema."),
        ([*INGEST, "--option", "maxoffsetspertrigger=25"], "Give --max-offsets-per-trigger in pl"),
        (
            [*INGEST[:5], "nats://a:b@h", "--option", "User=x"],
            "Give the user either in --server or",
        ),
        ([*INGEST, "--table-option", "Path=x"], "Give --to in place of --table-option Path."),
        ([*INGEST, "--table-option", "mergeSchema=true"], "Give --merge-schema in place of"),
        ([*INGEST, "--table-option", "checkpointlocation=x"], "Give --checkpoint in place of"),
        ([*REPLAY, "--option", "stream=E"], "Give --to in place of --option stream."),
        ([*REPLAY, "--option", "Guarantee=x"], "Give --guarantee in place of --option Guarantee."),
        ([*REPLAY, "--option", "transactionId=x"], "Give --transaction-id in place of --option"),
        ([*REPLAY, "--table-option", "path=x"], "Give TABLE in place of --table-op"),
        ([*REPLAY, "--subject", "a", "--option", "Subject=b"], "Give either --subject or --option"),
        ([*INGEST, "--master", "lokal"], "--master 'lokal': write local[*] for this machine"),
        ([*INGEST, "--master", "local[0]"], "--master 'local[0]': write local[*] for this"),
        ([*INGEST, "--master", "spark://a"], "--master 'spark://a': write spark://host:7077"),
        ([*INGEST, "--master", "spark://127.0.0.1:1"], "master spark://127.0.0.1:1 cannot be"),
        (["ingest", "S", "--to", "", *INGEST[4:]], "--to is empty: name a folder."),
        ([*INGEST, "--checkpoint", " "], "--checkpoint is empty: name a folder."),
        (["demo", "--to", ""], "--to is empty: name a folder."),
        (["demo", "--master", "lokal"], "--master 'lokal': write local[*] for this machine"),
        ([*INGEST, "--conf", "executor.memory=1g"], "--conf executor.memory: Spark ignores "),
        ([*INGEST], "Cannot connect to nats://127.0.0.1:1: "),
        ([*REPLAY, "--guarantee", "once"], "--guarantee must be at-least-once, "),
        ([*REPLAY, "--guarantee", "exactly-once"], "give --transaction-id, a name of your own"),
        ([*REPLAY, "--prepare-stream"], "--prepare-stream is for guarantee exactly-once."),
        (
            ["replay", "no/table", *REPLAY[2:]],
            f"There is no file or folder {Path.cwd()}/no/table: ",
        ),
        (["replay", "x" * 256, *REPLAY[2:]], "table is too long: "),
        ([*REPLAY, "--master", "lokal"], "--master 'lokal': write local[*]"),
    ],
)
def test_a_mistake_is_reported_in_one_sentence_that_names_the_flag(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(arguments) == app.FAILED
    out, err = capsys.readouterr()
    assert sentence in err
    assert (out, err.count("\n")) == ("", 1)


@pytest.mark.parametrize("flag", ["--to", "--checkpoint"])
def test_ingest_refuses_a_file_as_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    file = tmp_path / "file"
    file.touch()
    arguments = ["ingest", "S", "--to", "nowhere", "--checkpoint", "nowhere"]
    arguments[arguments.index(flag) + 1] = str(file)
    assert app.run(arguments) == app.FAILED
    assert capsys.readouterr().err == f"{flag} {file} is a file: name a folder.\n"
    arguments[arguments.index(str(file))] = "x" * 256
    assert app.run(arguments) == app.FAILED
    assert capsys.readouterr().err.startswith(f"{flag} is too long: ")


@pytest.mark.parametrize(("to", "checkpoint"), [("shut/t", "chk"), ("t", "shut/c")])
def test_a_folder_that_takes_nothing_is_told_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, checkpoint: str
) -> None:
    shut = tmp_path / "shut"
    shut.mkdir()
    may = os.access  # the tests' user may be root, to whom modes are nothing
    monkeypatch.setattr(os, "access", lambda place, mode: place != shut and may(place, mode))
    like = Ingest(
        options={"stream": "S"}, to=f"{tmp_path}/{to}", checkpoint=f"{tmp_path}/{checkpoint}"
    )
    with pytest.raises(ConfigError, match=r"cannot be written: .*/shut is not writable for this"):
        like.look_ahead()
    read_only = SimpleNamespace(f_flag=os.ST_RDONLY)
    monkeypatch.setattr(os, "statvfs", lambda _: read_only)
    with pytest.raises(ConfigError, match="shut is on a read-only file system; name another"):
        like.look_ahead()


def test_a_demo_looks_at_its_folder_before_it_publishes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(demo, "_read_flights", lambda _: pytest.fail("looked too late"))
    assert app.run(["demo", "--to", f"{tmp_path}/file/x"]) == app.FAILED
    said = f"{tmp_path}/file/x cannot be made: {tmp_path}/file is a file: name a folder"
    assert capsys.readouterr().err.startswith(said)


def test_a_schema_in_a_pipeline_file_is_reported_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.toml"
    file.write_text(
        """checkpoint = "c"
[sources.a]
stream = "A"
json = "id STRNG"
[sinks.b]
format = "jetspark-delta"
path = "p"
"""
    )
    assert app.run(["run", str(file)]) == app.FAILED
    assert f"{file}:4: json 'id STRNG' is no schema: there is no type" in capsys.readouterr().err
    file.write_text(file.read_text().replace("id STRNG", "Seq INT"))
    assert app.run(["run", str(file)]) == app.FAILED
    assert f"{file}:4: json: column Seq has a name that another" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("checkpoint", "path", "says"),
    [
        ("file", "p", "1: checkpoint: {0}/file is a file: name a folder for the checkpoint."),
        ("file/c", "p", "1: checkpoint: {0}/file/c cannot be made: {0}/file is a file: "),
        ("c", "file", "6: sink b: {0}/file is a file: name a folder for the table."),
        ("c", "file/p", "6: sink b: {0}/file/p cannot be made: {0}/file is a file: "),
    ],
)
def test_run_names_the_file_in_the_place_of_a_folder_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], checkpoint: str, path: str, says: str
) -> None:
    (tmp_path / "file").touch()
    file = tmp_path / "p.toml"
    file.write_text(
        f"""checkpoint = "{tmp_path}/{checkpoint}"
[sources.a]
format = "rate"
[sinks.b]
format = "jetspark-delta"
path = "{tmp_path}/{path}"
"""
    )
    for check in ([], ["--check"]):
        assert app.run(["run", str(file), *check]) == app.FAILED
        assert f"{file}:{says.format(tmp_path)}" in capsys.readouterr().err


_MARKS = {
    "delta": "_delta_log/00000000000000000000.json",
    "iceberg": "metadata/v1.metadata.json",
    "parquet": "_spark_metadata/0",
    "checkpoint": "offsets/0",
}


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
@pytest.mark.parametrize(
    ("there", "to", "says"),
    [
        (["t/x.txt"], "t", r"t is no \w+ table and holds x\.txt"),
        *(([f"t/{mark}"], "t/_a/b", "t/_a/b would lie in .*/t, an") for mark in _MARKS.values()),
        (["t/offsets/0"], "t", "t .*holds .*metadata"),
        (["t/_delta_log/0.json", "t/_c/offsets/0"], "t/_c", "t/_c would lie in .*/t, another"),
    ],
)
def test_a_folder_of_others_is_refused_before_spark_starts_and_left_as_it_was(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    format_: str,
    there: list[str],
    to: str,
    says: str,
) -> None:
    for file in map(tmp_path.joinpath, there):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        if file.parent.name == "offsets":
            (file.parent.parent / "metadata").touch()
    before = sorted(tmp_path.rglob("*"))
    like = Ingest(options={"stream": "S"}, to=f"{tmp_path}/{to}", format=format_)
    with pytest.raises(ConfigError, match=says):
        like.look_ahead()
    assert sorted(tmp_path.rglob("*")) == before
    file = tmp_path / "p.toml"
    file.write_text(
        f"""checkpoint = "{tmp_path}/c"
[sources.a]
format = "rate"
[sinks.b]
format = "jetspark-{format_}"
path = "{tmp_path}/{to}"
"""
    )
    assert app.run(["run", str(file)]) == app.FAILED
    assert re.search(says, capsys.readouterr().err)
    assert sorted(tmp_path.rglob("*")) == sorted([*before, file])


@pytest.mark.parametrize("follow", ["true", "false"])
def test_run_check_that_is_stopped_says_so(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    follow: str,
) -> None:
    file = tmp_path / "p.toml"
    file.write_text(
        f"""checkpoint = "{tmp_path}/c"
[trigger]
follow = {follow}
[sources.a]
format = "rate"
[sinks.b]
format = "noop"
"""
    )

    @contextmanager
    def stopped(*_: object, **__: object) -> Iterator[None]:
        raise StopRequested(signal.SIGTERM)
        yield

    monkeypatch.setattr("jetspark.cli.run.quiet_spark", stopped)
    assert app.run(["run", str(file), "--check"]) == 128 + signal.SIGTERM
    assert capsys.readouterr().out == (
        "Stopped before everything was checked; nothing was changed.\n"
    )


def test_the_readme_shows_the_line_about_faster_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = SimpleNamespace(make_later=lambda: True)
    monkeypatch.setattr("jetspark.spark.fast_start.class_archive.class_archive", lambda: archive)
    spark_runs._make_class_archive(quiet=False)
    readme = Path(__file__).parents[2] / "README.md"
    assert capsys.readouterr().err.strip() in readme.read_text("utf-8").splitlines()


# -- parts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ddl", "names"),
    [
        ("a STRING", ["a"]),
        ("a: int, b: array<struct<x:int,y:map<string,double>>>", ["a", "b"]),
        ("struct<a:int>", ["a"]),
        ("`a b` STRING COMMENT 'x, y' , c decimal(10, 2)", ["a b", "c"]),
        ("d interval day to second, e time(3)", ["d", "e"]),
        ("a string collate utf8_lcase, b struct<>", ["a", "b"]),
        ("struct int, t TIMESTAMP_NTZ", ["struct", "t"]),
    ],
)
def test_a_schema_that_spark_takes_is_taken(ddl: str, names: list[str]) -> None:
    assert list(check_fields(ddl, "--json")) == names


@pytest.mark.parametrize(
    "ddl",
    [
        *("", "a", "int", "a ARRAY<INT", "a STRING,", "1,2", "a:int>", "a-b INT", "a INT)"),
        "a int, a string",
    ],
)
def test_a_schema_that_spark_refuses_is_refused(ddl: str) -> None:
    with pytest.raises(ConfigError, match="is no schema: "):
        check_fields(ddl, "--json")


def test_start_accepts_a_position_a_time_or_an_age() -> None:
    for bare in ("earliest", "Latest", "17", '{"A": 5}'):
        assert starting(bare) == {"startingOffsets": bare}
    assert starting("2026-01-31T12:00:00Z")["startingTimestamp"] == "2026-01-31T12:00:00Z"
    assert starting("2026-01-31T12:00:00Z")["startingOffsetsByTimestampStrategy"] == "latest"
    assert starting("9026-01-31T12:00:00Z") == {"startingTimestamp": "9026-01-31T12:00:00Z"}
    assert starting("2026-01-31 12:00:00+02:00")["startingTimestamp"] == "2026-01-31T10:00:00Z"
    here = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.mktime((2026, 1, 31) + (0,) * 6)))
    assert starting("2026-01-31")["startingTimestamp"] == here
    for text, seconds in (("-90m", 5400), ("-1.5h", 5400), ("-2D", 172800), ("-1w", 604800)):
        found = parse_isotime(starting(text)["startingTimestamp"])
        assert 0 <= time.time_ns() - seconds * 10**9 - found < 60 * 10**9
    for wrong in ("", "-", "-5", "1h", "2026-13-01", "tomorrow"):
        with pytest.raises(ConfigError, match="--start"):
            starting(wrong)


def test_a_start_behind_the_end_is_told_before_spark_is_started(
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = unique("START")
    admin.create(name, name)
    admin.fill(numbered(name, 3))
    command = ["ingest", name, "--to", str(tmp_path / "new"), "--server", shared_server.url]

    def told(*start: str) -> str:
        assert app.run([*command, "--start", *start]) == app.FAILED
        return capsys.readouterr().err

    assert told("5") == f"--start is 5, but stream {name!r} ends at sequence 3.\n"
    for number in ("1700000000", "1700000000000"):
        says = "ends at sequence 3; if you mean a time, give --start 2023-11-14T22:13:20Z.\n"
        assert told(number).endswith(says)
    assert not (tmp_path / "new").exists()
    assert "ends at sequence" not in told("4")
    (tmp_path / "new").mkdir()  # something may have been read: the checkpoint decides
    assert "ends at sequence" not in told("5")


@pytest.mark.parametrize("messages", [0, 3])
def test_a_time_after_the_last_message_is_told_before_spark_is_started(
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    messages: int,
) -> None:
    name = unique("START")
    admin.create(name, name)
    if messages:
        admin.fill(numbered(name, messages))
    command = ["ingest", name, "--to", str(tmp_path / "new"), "--server", shared_server.url]

    def told(*more: str) -> str:
        assert app.run([*command, *more]) == app.FAILED
        assert not (tmp_path / "new").exists()
        return capsys.readouterr().err

    future, past = "9026-01-31T12:00:00Z", "2020-01-01T00:00:00Z"
    says = (
        f"Stream {name!r} has no message at or after {future}; give --option "
        "startingOffsetsByTimestampStrategy=latest to begin behind its last one.\n"
    )
    latest = ["--option", "startingOffsetsByTimestampStrategy=latest"]
    late = "has no message at or after"
    for way in (["--start", future], ["--option", f"startingTimestamp={future}"]):
        assert told(*way) == says
        assert late not in told(*way, *latest)
    assert late not in told("--start", past)  # all that comes is later
    own = told("--option", f"startingTimestamp={past}")
    assert late not in own if messages else own == says.replace(future, past)


def test_a_start_with_a_hyphen_is_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([*INGEST, "--start", "-1h"]) == app.FAILED
    assert capsys.readouterr().err.startswith("Cannot connect to nats://127.0.0.1:1: ")


def test_an_option_given_by_its_own_name_keeps_it() -> None:
    flags = {"prepareStream": "--prepare-stream", "stream": "--to"}
    sentence = "Set the option 'prepareStream' to true, or another option 'stream'; set aB to no."
    told = r"^Give --prepare-stream, or another option 'stream'; give --option aB=no\.$"
    with pytest.raises(ConfigError, match=told), options_as_flags(flags, {"stream": "S"}):
        raise ConfigError(sentence)


@pytest.mark.parametrize(
    "master",
    ["local", "local[*]", "local[2,3]", "local-cluster[2,1,1024]", "yarn", "k8s://https://h:6443"],
)
def test_masters_that_spark_knows(master: str) -> None:
    assert SparkFlags(master=master, conf=["spark.a=b=c"]).settings() == {"spark.a": "b=c"}


def test_master_url_with_several_hosts_needs_one_reachable() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        SparkFlags(master=f"spark://127.0.0.1:1,127.0.0.1:{port}").settings()
    with pytest.raises(SparkUnavailableError, match=re.escape("spark://127.0.0.1:1,127.0.0.1:2")):
        SparkFlags(master="spark://127.0.0.1:1,127.0.0.1:2").settings()


def test_a_table_of_a_catalog_is_in_iceberg() -> None:
    ingest = Ingest(options={"stream": "S"}, to="mine:lake.x", checkpoint="chk", format="delta")
    with pytest.raises(ConfigError, match=r"^--format delta: mine:lake.x is a table of a"):
        ingest.check()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[TASK_WRITE_FAILED] Task failed. SQLSTATE: 58030\n"
            "Caused by: java.io.IOException: No space left on device",
            "No space left on device: free some, and run the same again, which goes on where it "
            "was.",
        ),
        (
            ": org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed to "
            "find the data source: x. SQLSTATE: 42K02\n\tat a.b",
            "Failed to find the data source: x.",
        ),
        ("[PARSE_SYNTAX_ERROR] Syntax error at 'a'. SQLSTATE: 42601", "Syntax error at 'a'."),
    ],
)
def test_sparks_marks_are_no_part_of_the_sentence(text: str, sentence: str) -> None:
    assert str(explain(RuntimeError(text))) == sentence


class _Failed(RuntimeError):
    """As PySpark's exceptions keep what Java says."""

    def __init__(self, text: str, trace: str) -> None:
        super().__init__(text)
        self._cause = RuntimeError()
        self._cause._stackTrace = trace  # type: ignore[attr-defined]


_CLEANING = (
    "\tSuppressed: org.apache.spark.SparkException: abort: Traceback (most recent call last):\n"
    "jetspark.errors.ConnectionFailure: while cleaning up\n\n\tat a.b\n"
)


@pytest.mark.parametrize(
    ("trace", "sentence"),
    [
        (
            "org.apache.spark.SparkException: Writing job failed.\n\tat a.b\n" + _CLEANING +
            "Caused by: org.apache.spark.SparkException: [X] commit: Traceback:\n"
            "jetspark.errors.ServerRefusedError: Connection refused.\n\n\tat a.b\n" + _CLEANING,
            "Connection refused.",
        ),
        (
            "org.apache.spark.SparkException: Writing job failed.\n\tat a.b\n"
            "Caused by: java.io.IOException: Broken disk\n\tat a.b\n",
            "Broken disk",
        ),
        (
            "java.lang.IllegalStateException: batch 0 doesn't exist\n\tat a.b",
            "The query's checkpoint has lost its batch 0: it was removed while the query ran. To "
            "begin anew, remove what is left of it and of the query's table, or name other "
            "folders.",
        ),
    ],
)  # fmt: skip
def test_the_reason_of_a_failed_commit_is_told(trace: str, sentence: str) -> None:
    text = "[STREAM_FAILED] Writing job failed. SQLSTATE: XXKST"
    assert str(explain(_Failed(text, trace))) == sentence
