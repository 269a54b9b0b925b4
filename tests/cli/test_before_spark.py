"""What `ingest`, `replay` and `run` find wrong before Spark is started."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.cli.conftest import Run
from tests.support.ingest_job import ingest_job
from tests.support.streams import Admin

from jetspark.cli import app, demo
from jetspark.cli.ingest import batch_limits
from jetspark.cli.signals import StopRequested
from jetspark.cli.spark_flags import SparkFlags
from jetspark.cli.spark_session import _make_class_archive
from jetspark.cli.start_end import parse_start
from jetspark.errors import ConfigError, SparkUnavailableError
from jetspark.options.scopes import SourceScope
from jetspark.payloads.ddl import check_fields
from jetspark.tables.formats import Format, open_or_create_table
from jetspark.tables.table import TableName
from jetspark.timestamps import parse_isotime

Says = Callable[..., str]
INGEST = ["ingest", "S", "--to", "nowhere", "--server", "nats://127.0.0.1:1"]
JSON = [*INGEST, "--json-schema", "n LONG"]
RETRY = ["table", "retry", "no/records", "--to", "nowhere"]
CHECKPOINT = ["--checkpoint", "chk"]
K8S = "k8s://https://h:6443"
REPLAY = ["replay", "/", "--to", "S", "--server", "nats://127.0.0.1:1"]


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark would not start: whoever tries says so."""
    monkeypatch.setenv("JAVA_HOME", "/no/java")


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([*INGEST, "--json-schema", "id STRNG"], "there is no type STRNG (did you mean STRING?)"),
        (
            [*INGEST, "--json-schema", "id STRING, ID INT"],
            "ID is there twice, since Spark ignores case",
        ),
        ([*INGEST, "--json-schema", "_Corrupt_record INT"], "name '_Corrupt_record' is reserved"),
        (
            [*INGEST, "--json-schema", "a INT NOT NULL"],
            "is not a schema: a is NOT NULL, but each column",
        ),
        ([*INGEST, "--format", "parquet"], "--format parquet: jetspark writes Delta and Iceberg"),
        ([*INGEST, "--format", "JSON"], 'use Spark\'s own writeStream.format("JSON") in a program'),
        ([*INGEST, "--format", "hudi"], "--format must be delta or iceberg, not 'hudi'."),
        ([*INGEST, "--partition-by", "region"], "--partition-by 'region': there is no such column"),
        ([*INGEST, "--partition-by", "=x"], "--partition-by '=x': there is no such column"),
        ([*INGEST, "--follow", "--interval", "-1"], "--interval must be seconds, 0 or more, not -"),
        ([*INGEST, "--interval", "5"], "--interval is for --follow: give that, too, or leave"),
        ([*INGEST, "--start", "-99999999999d"], "--start '-99999999999d': write earliest, "),
        ([*INGEST, "--start", "9" * 5000], "--start must be earliest, latest or a sequence"),
        ([*INGEST, "--derive", f"x=subject[{'9' * 5000}]"], "a token of a subject has a number"),
        ([*INGEST, "--derive", "x=rest[1]"], "{rest[1]} is not a value of a row"),
        ([*INGEST, "--start", "yesterday"], "--start 'yesterday': write earliest, latest, "),
        ([*INGEST, "--end", "tomorrow"], "--end 'tomorrow': write a sequence, a time such as"),
        ([*INGEST, "--end", "earliest"], "--end cannot be earliest."),
        ([*INGEST, "--end", "7", "--follow"], "--end is for a run that ends: leave it out, or"),
        ([*INGEST, "--end", "7", "--bucket"], "--end is for streams: a bucket's table has the"),
        ([*INGEST, "--start", "0"], "--start must be earliest, latest or a sequence number"),
        ([*INGEST, "--max-offsets-per-trigger", "0"], "--max-offsets-per-trigger must be a whole"),
        ([*INGEST, "--subjects", ""], "--subjects is empty; leave it out"),
        ([*INGEST, "--keys", ""], "--keys is empty; leave it out"),
        ([*INGEST, "--json-schema", "a INT", "--fields", "a"], "both say what the payloads are"),
        (
            [*INGEST, "--json-schema", "a INT", "--rename", "a=seq"],
            "a would be the column seq, whose ",
        ),
        ([*INGEST, "--on-bad-record", "stop"], "--on-bad-record is for streams with --json-schema"),
        ([*INGEST, "--evolve"], "--evolve is for streams with --json-schema"),
        ([*JSON, "--on-bad-record", "drop"], "--on-bad-record must be keep, stop, not 'drop'."),
        ([*JSON, "--on-bad-record", "stop", "--quarantine", "q"], "Give either --quarantine, wh"),
        ([*INGEST, "--compact-every", "-5"], "--compact-every must be a whole number of at least"),
        ([*RETRY, "--json-schema", "n LONG"], "There is no Delta table at "),
        ([*RETRY, "--json-schema", "n LNG"], "there is no type LNG (did you mean LONG?)"),
        ([*RETRY, "--decode", "avro", "--server", "h"], "where --registry nats is: give them with"),
        ([*RETRY, "--pipeline", "x", "--server", "h"], "says the tables and schemas: give it "),
        ([*INGEST, "--master", "lokal"], "--master 'lokal': write local[*] for this machine"),
        ([*INGEST, "--master", "spark://a"], "--master 'spark://a': write spark://host:7077"),
        ([*INGEST, "--master", "spark://127.0.0.1:1,a"], "write spark://host:7077, several"),
        ([*INGEST, "--master", "spark://127.0.0.1:1"], "master spark://127.0.0.1:1 cannot be"),
        (["ingest", "S", "--to", "", *INGEST[4:]], "--to is empty: name a folder."),
        ([*INGEST, "--checkpoint", " "], "--checkpoint is empty: name a folder."),
        (["demo", "--to", ""], "--to is empty: name a folder."),
        (["demo", "--master", "lokal"], "--master 'lokal': write local[*] for this machine"),
        ([*INGEST, "--conf", "executor.memory=1g"], "--conf executor.memory: Spark ignores "),
        *(
            (["ingest", "S", "--to", to, *INGEST[4:], *more], sentence)
            for to, more, sentence in [
                ("lake/{}", [], "--to: {} is not a value of a row: write {column}, {subject[1]}"),
                ("lake/{subject[x]}", [], "{subject[x]}: a token of a subject has a number, from "),
                ("lake/{subject[-1]}", [], "{subject[-1]}: a token of a subject has a number"),
                ("lake/{subject[1}", [], "{subject[1} is not a value of a row"),
                ("lake/{header[]}", [], "{header[]}: name the header."),
                ("lake/{region", [], "the braces do not match: write {column}"),
                ("lake/region}", [], "the braces do not match: write {column}"),
                ("lake/{field[1]}", [], "{field[1]} is not a value of a row"),
                ("c:{subject[1]}", [], "has no namespace: write c:namespace.{subject[1]} for a"),
                ("c:a.{subject[1]}", [], "--checkpoint: name a folder for the progress into c:a."),
                ("c:a.{subject[1]}", ["--format", "delta"], "is a table of a catalog, which is in"),
                (
                    "c:a.b",
                    ["--format", "delta", "--checkpoint", "chk"],
                    "--format delta: c:a.b is ",
                ),
                ("s3://b/{subject[1]}", [], "--checkpoint: name a folder for the progress into s3"),
                ("lake/{key}", ["--bucket"], "--to lake/{key}: a bucket has one table; leave the"),
            ]
        ),
        *(
            (
                ["ingest", "S", "--to", to, *INGEST[4:], "--json-schema", "region STRING", *more],
                sentence,
            )
            for to, more, sentence in [
                ("t", ["--quarantine", ""], "--quarantine is empty."),
                ("t", ["--quarantine", "./t/"], "/t names a table of the rows: name another one."),
                ("t", ["--quarantine", "t/bad"], "/t/bad would lie in /"),
                ("bad/t", ["--quarantine", "bad"], "/bad/t would lie in /"),
                ("l/{region}", ["--quarantine", "l/bad"], "another one, such as /"),
                ("t", ["--quarantine", "c:a.bad"], "c:a.bad is a table of a catalog, and the "),
                ("t", ["--quarantine", "q/{region}"], "is a template; name a single table."),
                ("c:a.{region}", [*CHECKPOINT, "--quarantine", "l/bad"], "not a table of the cat"),
                ("c:a.{region}", [*CHECKPOINT, "--quarantine", "c:a.bad"], "such as a._bad."),
                ("l/{region}", ["--evolve"], "have one schema, which new "),
                (
                    "t",
                    ["--default-table", "x"],
                    "goes with a template of tables, such as ",
                ),
                ("t", ["--max-new-tables", "5"], "goes with a template of tables, such "),
                ("l/{region}", ["--max-new-tables", "0"], "of at least 1, not '0'."),
                (
                    "l/{region}",
                    ["--default-table", ""],
                    "--default-table is empty.",
                ),
                (
                    "l/{region}",
                    ["--default-table", "r/{a}"],
                    "is a template; name a sin",
                ),
                (
                    "l/{region}",
                    ["--default-table", "r", "--quarantine", "r"],
                    "another",
                ),
                ("t", ["--derive", "site"], "--derive 'site': write name=subject[1], name=header"),
                ("t", ["--derive", "=subject[1]"], "--derive '=subject[1]': write name=subject"),
                ("t", ["--derive", "seq=subject[1]"], "there is a column seq already."),
                ("t", ["--derive", "a=field[1]"], "--derive: {field[1]} is not a value of a row"),
                ("t", ["--derive", "a=subject[x]"], "{subject[x]}: a token of a subject has a"),
                ("t", ["--derive", "a=upper(subject)"], "there is no column upper(subject); there"),
                ("t", ["--derive", "a=day(at)"], "there is no column at; there are stream, "),
                ("t", ["--derive", "a=day(region)"], "region is string, and day(…) is of a time"),
                ("t", ["--derive", "a=hour(seq)"], "seq is no timestamp, and hour(…) is of a "),
                ("t", ["--derive", "a=subject[1]", "--derive", "A=subject[2]"], "a already"),
            ]
        ),
        ([*INGEST, "--quarantine", "bad"], "--quarantine is for streams with --json-schema or"),
        *(
            ([*INGEST, "--bucket", *more], sentence)
            for more, sentence in [
                (["--columns", "key,revision,operation"], "bucket would be missing."),
                (["--start", "latest"], "--start: the table of a bucket has all its keys, so it"),
                (["--no-fail-on-data-loss"], "--fail-on-data-loss cannot be false: values"),
                (["--apply-as-deletes", "value"], "--bucket sets applyAsDeletes to "),
                (["--infer"], "--infer is for streams"),
                (["--json-schema", "a INT", "--rescued-data-column", "x"], "is for streams"),
            ]
        ),
        *(
            ([*INGEST, "--decode", "debezium", "--schema", *more], sentence)
            for more, sentence in [
                (["id BIGINT", "--history"], "--history goes with --keys"),
                (["id BIGINT", "--columns", "data,timestamp"], "needs the column seq"),
                (["id INTEGERS"], "there is no type INTEGERS"),
                (["{"], "The schema cannot be used: it is not JSON"),
                (['{"type": "int"}'], "no schema of a Debezium event"),
            ]
        ),
        (["ingest", "S", *INGEST[4:]], "--to: name the table"),
        ([*JSON, "--infer"], "--infer prints what --json-schema takes"),
        ([*INGEST, "--infer-messages", "5"], "--infer-messages goes with --infer"),
        ([*INGEST, "--infer", "--infer-messages", "0"], "1 or more"),
        ([*INGEST, "--rescued-data-column", "x"], "--rescued-data-column goes with --json-schema"),
        ([*JSON, "--rescued-data-column", "N"], "a name that no column has"),
        ([*INGEST], "No server at nats://127.0.0.1:1: "),
        ([*INGEST, "--start", "-1h"], "No server at nats://127.0.0.1:1: "),
        ([*REPLAY, "--guarantee", "once"], "--guarantee must be at-least-once, "),
        ([*REPLAY, "--guarantee", "exactly-once"], "give --transaction-id, a name of your own"),
        ([*REPLAY, "--prepare-stream"], "--prepare-stream is for guarantee exactly-once."),
        (["replay", "no/table", *REPLAY[2:]], f"no file or folder {Path.cwd()}/no/table: "),
        (["replay", "x" * 256, *REPLAY[2:]], "table is too long: "),
        ([*REPLAY, "--master", "lokal"], "--master 'lokal': write local[*]"),
    ],
)
def test_a_mistake_is_reported_in_one_sentence_that_names_the_flag(
    arguments: list[str], sentence: str, run: Run
) -> None:
    code, out, err = run(*arguments, server="")
    assert sentence in err
    assert (code, out, err.count("\n")) == (app.FAILED, "", 1)


@pytest.mark.parametrize("flag", ["--to", "--checkpoint"])
def test_ingest_refuses_a_file_as_folder(tmp_path: Path, run: Run, flag: str) -> None:
    file = tmp_path / "file"
    file.touch()
    other = ({"--to", "--checkpoint"} - {flag}).pop()

    def ingest(place: str) -> str:
        return run("ingest", "S", other, "nowhere", flag, place, server="")[2]

    assert ingest(str(file)) == f"{flag} {file} is a file: name a folder.\n"
    assert ingest("x" * 256).startswith(f"{flag} is too long: ")


@pytest.mark.parametrize(("to", "checkpoint"), [("shut/t", "chk"), ("t", "shut/c")])
def test_a_folder_that_takes_nothing_is_told_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, checkpoint: str
) -> None:
    shut = tmp_path / "shut"
    shut.mkdir()
    may = os.access  # the tests' user may be root, to whom modes are nothing
    monkeypatch.setattr(os, "access", lambda place, mode: place != shut and may(place, mode))
    like = ingest_job(
        options={"stream": "S"}, to=f"{tmp_path}/{to}", checkpoint=f"{tmp_path}/{checkpoint}"
    )
    with pytest.raises(ConfigError, match=r"cannot be written: .*/shut is not writable for this"):
        like.check_preconditions()
    read_only = SimpleNamespace(f_flag=os.ST_RDONLY)
    monkeypatch.setattr(os, "statvfs", lambda _: read_only)
    with pytest.raises(ConfigError, match="shut is on a read-only file system; name another"):
        like.check_preconditions()


def test_a_demo_looks_at_its_folder_before_it_publishes(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(demo, "_read_flights", lambda _: pytest.fail("looked too late"))
    said = f"{tmp_path}/file/x cannot be made: {tmp_path}/file is a file: name a folder"
    assert run("demo", "--to", f"{tmp_path}/file/x", server="")[2].startswith(said)


@pytest.fixture
def pipeline(tmp_path: Path, run: Run) -> Says:
    """Runs a pipeline from a source of Spark's into a table, and returns what went wrong.

    `at` stands for the file in it.
    """
    file = tmp_path / "p.toml"

    def errors_of(
        *more: str,
        checkpoint: str = f"{tmp_path}/c",
        path: str = f"{tmp_path}/p",
        source: str = 'format = "rate"',
        format_: str = "delta",
    ) -> str:
        file.write_text(
            f'checkpoint = "{checkpoint}"\n[sources.a]\n{source}\n'
            f'[sinks.b]\nformat = "jetspark-{format_}"\npath = "{path}"\n'
        )
        code, _, err = run("run", str(file), *more, server="")
        assert code == app.FAILED
        return err.replace(str(file), "at")

    return errors_of


def test_a_schema_in_a_pipeline_file_is_reported_with_its_line(
    pipeline: Says,
) -> None:
    source = 'stream = "A"\njson_schema = "{}"'
    said = pipeline(source=source.format("id STRNG"))
    assert "at:4: json_schema 'id STRNG' is not a schema: there is no type" in said
    said = pipeline(source=source.format("a VARIANT"))
    assert "at:4: json_schema 'a VARIANT': 'a VARIANT' is no type that payloads have" in said


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
    tmp_path: Path, pipeline: Says, checkpoint: str, path: str, says: str
) -> None:
    (tmp_path / "file").touch()
    places = {"checkpoint": f"{tmp_path}/{checkpoint}", "path": f"{tmp_path}/{path}"}
    for check in ([], ["--check"]):
        assert f"at:{says.format(tmp_path)}" in pipeline(*check, **places)


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
    tmp_path: Path, pipeline: Says, format_: str, there: list[str], to: str, says: str
) -> None:
    for file in map(tmp_path.joinpath, there):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        if file.parent.name == "offsets":
            (file.parent.parent / "metadata").touch()
    before = sorted(tmp_path.rglob("*"))
    like = ingest_job(options={"stream": "S"}, to=f"{tmp_path}/{to}", format=format_)
    with pytest.raises(ConfigError, match=says):
        like.check_preconditions()
    assert sorted(tmp_path.rglob("*")) == before
    assert re.search(
        rf"^at:6: sink b: .*{says}", pipeline(path=f"{tmp_path}/{to}", format_=format_)
    )
    assert sorted(tmp_path.rglob("*")) == sorted([*before, tmp_path / "p.toml"])


@pytest.mark.parametrize("follow", ["true", "false"])
def test_run_check_that_is_stopped_says_so(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, follow: str
) -> None:
    file = tmp_path / "p.toml"
    file.write_text(
        f'checkpoint = "{tmp_path}/c"\n[trigger]\nfollow = {follow}\n'
        '[sources.a]\nformat = "rate"\n[sinks.b]\nformat = "noop"\n'
    )

    @contextmanager
    def stopped(*_: object, **__: object) -> Iterator[None]:
        raise StopRequested(signal.SIGTERM)
        yield

    monkeypatch.setattr("jetspark.cli.run.quiet_spark", stopped)
    assert run("run", str(file), "--check", server="") == (
        128 + signal.SIGTERM,
        "Stopped before everything was checked; nothing was changed.\n",
        "",
    )


def test_the_guide_shows_the_line_about_faster_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = SimpleNamespace(make_later=lambda: True)
    monkeypatch.setattr("jetspark.spark.fast_start.class_archive.class_archive", lambda _: archive)
    _make_class_archive("local[*]", quiet=False)
    guide = Path(__file__).parents[2] / "docs" / "guide-cli.md"
    assert capsys.readouterr().err.strip() in guide.read_text("utf-8").splitlines()


# -- parts ---------------------------------------------------------------------------------------


def test_a_schema_is_taken_or_refused_as_spark_does() -> None:
    for ddl, names in (
        ("a STRING", ["a"]),
        ("a: int, b: array<struct<x:int,y:map<string,double>>>", ["a", "b"]),
        ("struct<a:int>", ["a"]),
        ("`a b` STRING COMMENT 'x, y' , c decimal(10, 2)", ["a b", "c"]),
        ("d interval day to second, e time(3)", ["d", "e"]),
        ("a string collate utf8_lcase, b struct<>", ["a", "b"]),
        ("struct int, t TIMESTAMP_NTZ", ["struct", "t"]),
    ):
        assert list(check_fields(ddl, "--json")) == names
    wrong = ("", "a", "int", "a ARRAY<INT", "a STRING,", "1,2", "a:int>", "a-b INT", "a INT)")
    for ddl in (*wrong, "a int, a string"):
        with pytest.raises(ConfigError, match="is not a schema: "):
            check_fields(ddl, "--json")


def test_start_accepts_a_position_a_time_or_an_age() -> None:
    for bare in ("earliest", "Latest", "17", '{"A": 5}'):
        assert parse_start(bare) == {"startingOffsets": bare}
    assert parse_start("2026-01-31T12:00:00Z")["startingTimestamp"] == "2026-01-31T12:00:00Z"
    assert parse_start("2026-01-31T12:00:00Z")["startingOffsetsByTimestampStrategy"] == "latest"
    assert parse_start("9026-01-31T12:00:00Z") == {"startingTimestamp": "9026-01-31T12:00:00Z"}
    assert parse_start("2026-01-31 12:00:00+02:00")["startingTimestamp"] == "2026-01-31T10:00:00Z"
    here = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.mktime((2026, 1, 31) + (0,) * 6)))
    assert parse_start("2026-01-31")["startingTimestamp"] == here
    for text, seconds in (("-90m", 5400), ("-1.5h", 5400), ("-2D", 172800), ("-1w", 604800)):
        found = parse_isotime(parse_start(text)["startingTimestamp"])
        assert 0 <= time.time_ns() - seconds * 10**9 - found < 60 * 10**9
    for wrong in ("", "-", "-5", "1h", "2026-13-01", "tomorrow"):
        with pytest.raises(ConfigError, match="--start"):
            parse_start(wrong)


def test_a_batch_is_limited_unless_it_is_a_snapshot() -> None:
    def limits(*, bucket: bool = False, **options: Any) -> Any:
        return batch_limits(SourceScope(**options), bucket=bucket)

    usual = {"maxOffsetsPerTrigger": "2000000", "maxBytesPerTrigger": "1073741824"}
    assert limits() == usual
    assert limits(backfill="snapshot") == {}
    assert limits(bucket=True) == {"maxOffsetsPerTrigger": "500000"}
    assert limits(backfill="snapshot", bucket=True) == {"maxOffsetsPerTrigger": "500000"}
    assert limits(backfill="snapshot", max_offsets_per_trigger=7) == {}


@pytest.fixture
def ingest(run: Run, tmp_path: Path) -> Says:
    """What is wrong with a run into a new table; "" if only Spark is missing, or another test's
    session is in the way."""
    missing = ("Spark needs Java 17 or newer: install it and put it", "A session is open already")

    def errors_of(stream: str, *more: str) -> str:
        code, out, err = run("ingest", stream, "--to", str(tmp_path / "new"), *more)
        assert (code, out, err.count("\n")) == (app.FAILED, "", 1)
        return "" if err.startswith(missing) else err

    return errors_of


def test_a_wrong_start_or_end_is_told_before_spark_is_started(
    admin: Admin, ingest: Says, tmp_path: Path
) -> None:
    name = admin.stream(3)
    for flag in ("--start", "--end"):
        for number in ("1700000000", "1700000000000"):
            says = f"ends at sequence 3; if you mean a time, give {flag} '2023-11-14T22:13:20Z'.\n"
            assert ingest(name, flag, number).endswith(says)
        assert ingest(name, flag, "5") == f"{flag} is 5, but stream {name!r} ends at sequence 3.\n"
        assert ingest(name, flag, "4") == ""
    both = ingest(name, "--start", "3", "--end", "2")
    assert "would end (before sequence 2) before it begins" in both
    assert ingest(name, "--end", "2999-01-01T00:00:00Z") == ""
    assert not (tmp_path / "new").exists()
    (tmp_path / "new").mkdir()  # something may have been read: the checkpoint decides
    assert "ends at sequence" not in ingest(name, "--start", "5")


@pytest.mark.parametrize("messages", [0, 3])
def test_a_time_after_the_last_message_is_told_before_spark_is_started(
    admin: Admin, ingest: Says, tmp_path: Path, messages: int
) -> None:
    name = admin.stream(messages)
    future, past = "9026-01-31T12:00:00Z", "2020-01-01T00:00:00Z"
    says = (
        f"Stream {name!r} has no message at or after {future}, a time in the future, before which "
        "messages may still come: begin at latest, or at a time that has passed.\n"
    )
    assert ingest(name, "--start", future) == says
    latest = ("--starting-offsets-by-timestamp-strategy", "latest")
    assert ingest(name, "--start", future, *latest) == says
    assert ingest(name, "--start", past) == ""  # all that comes is later
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["NO_SUCH"], 'Stream "NO_SUCH" not found on nats://127.0.0.1:'),
        (["bad name"], "STREAM: Bad stream name 'bad name': "),
        (["S", "--subjects", "a..b"], "--subjects: Bad subject 'a..b': an empty token"),
        (["no_such", "--bucket"], "Bucket 'no_such' not found; "),
        (["S", "--context", "there"], "Give either --server or --context."),
    ],
)
def test_what_the_server_lacks_is_told_before_spark_is_started(
    ingest: Says, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    assert ingest(*arguments).startswith(sentence)
    assert not (tmp_path / "new").exists()


def test_a_table_that_does_not_fit_is_refused_before_spark_is_started(
    admin: Admin, run: Run, tmp_path: Path
) -> None:
    name, table = admin.stream(1), tmp_path / "table"
    fields = pa.schema([("stream", pa.string()), ("subject", pa.string()), ("id", pa.string())])
    open_or_create_table(Format.DELTA, TableName(path=str(table)), fields, ())

    def ingest(*more: str) -> str:
        return run("ingest", name, "--to", str(table), *more)[2]

    said = ingest("--adopt", "--columns", "stream,subject")
    assert said.startswith(f"The rows have no column id, as {table} has: add it to them, give --ev")
    assert "--merge-schema" in said
    inside = f"{table}/chk is inside of the table, where chk would count as a part of"
    assert ingest("--checkpoint", str(table / "chk")).startswith(inside)
    assert not (table / "chk").exists()


def test_the_server_may_be_named_by_a_context_or_the_environment(
    url: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "nats" / "context"
    folder.mkdir(parents=True)
    (folder / "there.json").write_text(f'{{"url": "{url}"}}')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    ingest = ["ingest", "NO_SUCH", "--to", str(tmp_path / "table")]
    expected = f'Stream "NO_SUCH" not found on {url}'
    assert run(*ingest, "--context", "there", server="")[2].startswith(expected)
    monkeypatch.setenv("NATS_URL", url)
    assert run(*ingest, server="")[2].startswith(expected)


def test_masters_that_spark_knows_and_of_several_hosts_one_must_be_reachable() -> None:
    for master in ("local", "local[*]", "local[2,3]", "local-cluster[2,1,1024]", "yarn", K8S):
        assert SparkFlags(master=master, conf=["spark.a=b=c"]).settings() == {"spark.a": "b=c"}
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        SparkFlags(master=f"spark://127.0.0.1:1,127.0.0.1:{port}").settings()
        with pytest.raises(ConfigError, match="several with commas"):
            SparkFlags(master=f"spark://127.0.0.1:{port},a").settings()
    with pytest.raises(SparkUnavailableError, match=re.escape("spark://127.0.0.1:1,127.0.0.1:2")):
        SparkFlags(master="spark://127.0.0.1:1,127.0.0.1:2").settings()


def test_a_template_in_a_catalog_that_is_not_configured_is_told_before_spark_starts() -> None:
    ingest = ingest_job(options={"stream": "S"}, to="mine:lake.{subject[1]}", checkpoint="chk")
    ingest.check()
    with pytest.raises(ConfigError, match="no configuration of a catalog 'mine'"):
        ingest.check_preconditions()
