"""`jetspark run` and `jetspark replay` as a person runs them."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn
from urllib.request import urlopen

import pytest
from pyspark.sql import SparkSession
from tests.cli.conftest import Run, meanwhile, until
from tests.support.ports import free_port
from tests.support.streams import Admin
from tests.support.table_readers import column

from jetspark.server import NatsServer
from jetspark.spark.pipelines.replay import Replay
from jetspark.spark.session.jvm import WrongSettingError

SECONDS = 300.0


def pipeline(folder: Path, server: NatsServer, source: str, target: str, more: str = "") -> Path:
    file = folder / "copy.toml"
    file.write_text(
        f"""
checkpoint = "{folder}/chk"
[trigger]
interval = "100ms"
[sources.rows]
servers = "{server.url}"
stream = "{source}"
starting_offsets = "earliest"
[views.messages]
sql = "SELECT data, '{target}' AS subject FROM rows"
[sinks.copy]
format = "jetstream"
servers = "{server.url}"
stream = "{target}"
guarantee = "exactly-once"
prepare_stream = true
{more}
""",
        "utf-8",
    )
    return file


def stored(admin: Admin, stream: str) -> int:
    """Messages, the sink's own markers not counted."""
    info = admin.call(f"STREAM.INFO.{stream}", {"subjects_filter": stream})
    return sum((info["state"].get("subjects") or {}).values())


@pytest.mark.full
def test_a_pipeline_runs_follows_and_stops_and_a_lost_checkpoint_repeats_nothing(
    admin: Admin,
    shared_server: NatsServer,
    run_in_spark: Run,
    tmp_path: Path,
    needs_server: Callable[[str], None],
) -> None:
    needs_server("2.12")
    source, target = admin.stream(100), admin.stream()
    table = f"""
[sinks.lake]
from = "rows"
format = "jetspark-delta"
[[sinks.lake.tables]]
subjects = ["{source}"]
path = "{tmp_path}/lake"
json_schema = "n LONG"
evolve = true
"""
    file = pipeline(tmp_path, shared_server, source, target, table)
    before = admin.call("STREAM.INFO." + target, None)["config"]
    code, out, err = run_in_spark("run", str(file), "--check", server="")
    assert code == 0, err
    fine, *would, not_checked = out.splitlines()
    assert fine == f"{file} is valid: rows → copy, lake."
    assert would == [
        f"A run would change stream {target}: the subject _spark.{target}.mark.>, allow_atomic, "
        "allow_rollup_hdrs, allow_msg_ttl.",
        f"A run would make stream {target}_SPARK, the ledger of exactly-once.",
    ]
    assert not_checked.startswith("Not checked: ")
    assert admin.call("STREAM.INFO." + target, None)["config"] == before
    assert f"{target}_SPARK" not in admin.api.stream_names()
    done = tmp_path / "chk" / "lake" / "commits" / "0"
    with meanwhile(until(lambda: done.exists() and stored(admin, target) == 100), signal.SIGTERM):
        code, out, err = run_in_spark("run", str(file), "--follow", server="")
    assert code == 0, err
    *results, end_of_run = out.splitlines()
    assert end_of_run == "Stopped; the same command goes on from here."
    assert all(re.fullmatch(r"(copy|lake): 100 rows \w+\.", one) for one in results)
    admin.fill([(source, b'{"new": true}')])
    code, out, err = run_in_spark("run", str(file), server="")
    # It may have been stopped before Spark noted the batch; then it came again, and is there once.
    assert code == 0, err
    assert stored(admin, target) == 101
    assert re.fullmatch(r"copy: \d+ rows? read\.\nlake: \d+ rows? written\.\n", out)
    assert column("delta", tmp_path / "lake", "seq") == Counter(range(1, 102))
    assert column("delta", tmp_path / "lake", "new") == Counter({None: 100, True: 1})
    shutil.rmtree(tmp_path / "chk")
    pipeline(tmp_path, shared_server, source, target)
    elsewhere = tmp_path / "elsewhere" / file.name
    elsewhere.parent.mkdir()
    elsewhere.write_text(file.read_text("utf-8").replace("/chk", "/another"), "utf-8")
    for again in (file, elsewhere):
        code, out, err = run_in_spark("run", str(again), server="")
        assert (code, out) == (1, ""), err
        said = " ".join(err.split())
        assert (
            f'sink copy: Stream "{target}" holds the rows that copy/copy wrote with another' in said
        )
        assert "set adopt_ledger to true for one run." in said
    assert stored(admin, target) == 101


def test_mistakes_in_pipeline_files_are_one_sentence(
    admin: Admin, run: Run, shared_server: NatsServer, tmp_path: Path
) -> None:
    source = admin.stream()
    file = pipeline(tmp_path, shared_server, source, source + "X")
    replay = ["replay", str(tmp_path), "--to", source, "--server", shared_server.url, "--guarantee"]
    for arguments, says in (
        (["run", str(tmp_path / "nope.toml")], "cannot be read"),
        (["run", str(file)], f'did you mean "{source}"'),
        ([*replay, "x"], "must"),
        ([*replay, "exactly-once"], "--transaction-id"),
    ):
        code, _, err = run(*arguments, server="")
        assert (code, says in err) == (1, True)


def test_a_wrong_setting_of_spark_is_named_with_its_line(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/spark/test_session.py has settings that Spark refuses."""

    def refusing(*_: object, conf: Mapping[str, str], **__: object) -> NoReturn:
        raise WrongSettingError("spark.driver.memory", f"no {conf['spark.driver.memory']}")

    monkeypatch.setattr("jetspark.spark.session.session.local_session", refusing)
    file = tmp_path / "p.toml"
    setting = '[spark]\n"spark.driver.memory" = "lots"'
    for place, given, more in (
        (f"{file}:3: [spark] spark.driver.memory", setting, ["--check"]),
        ("--conf spark.driver.memory", "", ["--conf", "spark.driver.memory=lots"]),
    ):
        file.write_text(
            f'checkpoint = "{tmp_path}/c"\n{given}\n'
            '[sources.a]\nformat = "rate"\n[sinks.b]\nformat = "noop"\n'
        )
        code, _, err = run("run", str(file), *more, server="")
        assert (code, f"{place}: no lots" in err) == (1, True), err


@pytest.mark.full
def test_a_table_is_replayed_and_a_transaction_is_published_once(
    admin: Admin,
    run_in_spark: Run,
    tmp_path: Path,
    needs_server: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needs_server("2.12")
    target, table = admin.stream(under=".>"), tmp_path / "rows.json"
    table.write_text('{"region": "eu", "n": 1}\n{"region": "us", "n": 2}\n', "utf-8")

    def replay(*more: str) -> tuple[int, str, str]:
        how = ["--format", "json", "--subject", f"concat('{target}.', region)", "--order-by", "n"]
        return run_in_spark("replay", str(table), "--to", target, *how, *more)

    address, run, seen = f"127.0.0.1:{free_port()}", Replay.run, ""

    def run_and_look(job: Replay, spark: SparkSession) -> int:
        nonlocal seen
        count = run(job, spark)
        rows = f'jetspark_query_rows_total{{query="{target}"}} 2.0\n'
        deadline = time.monotonic() + 30
        while rows not in seen and time.monotonic() < deadline:
            with urlopen(f"http://{address}/metrics", timeout=SECONDS) as answer:
                seen = answer.read().decode()
            time.sleep(0.1)
        with urlopen(f"http://{address}/readyz", timeout=SECONDS) as answer:
            assert answer.status == 200
        return count

    with monkeypatch.context() as patch:
        patch.setattr(Replay, "run", run_and_look)
        said = replay("--metrics", address)
    assert said[:2] == (0, f"2 rows of {table} published to {target}.\n")
    assert f'jetspark_query_rows_total{{query="{target}"}} 2.0\n' in seen
    assert f'jetspark_query_active{{query="{target}"}} 1.0\n' in seen
    assert "\njetspark_spark_tasks_total " in seen
    first = admin.api.message(target, seq=1)
    assert first is not None
    assert first.data == b'{"n":1,"region":"eu"}'
    once = ["--guarantee", "exactly-once", "--transaction-id", "t", "--prepare-stream"]
    documents = []
    for _ in range(2):
        code, out, err = replay(*once, "--json")
        assert code == 0, err
        documents.append(json.loads(out))
    assert [(one["rows"], one["rows_before"]) for one in documents] == [(2, 0), (0, 2)]
    assert replay(*once)[:2] == (0, "Published before as t: 2 rows; nothing written.\n")
    code, _, err = replay(*once, "--rows", "n = 1")
    assert code == 1, err
    assert "other rows" in err
