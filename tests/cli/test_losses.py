"""What `ingest` and `run` tell of messages that failOnDataLoss=false leaves out, and of servers."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import pytest
from tests.cli.conftest import Run, meanwhile, until
from tests.conftest import MakeServer
from tests.support.ports import free_port
from tests.support.processes import finish, jetspark
from tests.support.streams import Admin, numbered

from jetspark.cli import console
from jetspark.cli.console import Outcome
from jetspark.cli.losses import Losses
from jetspark.cli.query_watch import Watch
from jetspark.cli.signals import stop_on_signals
from jetspark.ranges.losses import Loss, report_loss

SECONDS = 300.0
logger = logging.getLogger("jetspark.of_spark")


@pytest.mark.full
def test_a_pipeline_warns_of_what_its_planning_and_its_partitions_leave_out(
    admin: Admin, url: str, unique: Callable[[str], str], run_in_spark: Run, tmp_path: Path
) -> None:
    anew, limited = unique("ANEW"), unique("LIMITED")
    file = tmp_path / "p.toml"
    file.write_text(
        f"""
checkpoint = "{tmp_path}/chk"
[sources.rows]
servers = "{url}"
streams = "{anew},{limited}"
starting_offsets = "earliest"
fail_on_data_loss = "false"
[sinks.rows]
format = "jetspark-delta"
path = "{tmp_path}/t"
"""
    )

    def fill(count: int) -> None:
        admin.create(anew, anew)
        for name in (anew, limited):
            admin.fill(numbered(name, count))

    command = ["run", str(file), "--quiet", "--json"]
    admin.create(limited, limited, max_msgs=5)
    fill(10)
    code, out, err = run_in_spark(*command, server="")
    assert (code, json.loads(out)["losses"], err) == (0, [], "")
    admin.call(f"STREAM.DELETE.{anew}")  # made anew, while the other one loses its beginning
    fill(20)
    # Spark's processes have the file for losses in the environment in which the JVM started.
    with jetspark(*command, "--master", "local[1]") as process:
        code, out, err = finish(process, SECONDS)
    assert code == 0, err
    recreated, removed = json.loads(out)["losses"]
    assert recreated.startswith(f"Stream '{anew}' was created at ")
    assert "It is read from its first message, without what was not read" in recreated
    assert removed == (
        f"Stream '{limited}': up to 15 messages (sequences 11 to 25) were removed by its limits "
        "(max_msgs 5) or a purge, before they were read."
    )
    assert err.splitlines() == [recreated, removed]


@pytest.mark.full
def test_a_server_that_goes_away_and_comes_back_is_a_line_each_and_one_that_stays_away_the_end(
    make_server: MakeServer, run_in_spark: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JETSPARK_LOG", "json")
    server = make_server(store_dir=tmp_path / "store")
    with Admin(server.url) as admin:
        admin.create("AWAY", "away")
        admin.fill(numbered("away", 3))
    port, table = free_port(), tmp_path / "t"

    lines: list[str] = []

    def warn(text: str, *level: str) -> None:
        told(text, *level)
        lines.append(text)

    told = console.warn
    monkeypatch.setattr(console, "warn", warn)

    def rows(count: int) -> bool:
        line = f'jetspark_query_rows_total{{query="{table}"}} {count}.0\n'
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            return line in answer.read().decode()
        return False

    def away_and_back() -> Iterator[None]:
        yield from until(lambda: rows(3))
        server.stop()
        yield from until(lambda: len(lines) == 1)
        server.start()
        yield from until(lambda: len(lines) == 2)
        with Admin(server.url) as admin:
            admin.fill(numbered("away", 2))
        yield from until(lambda: rows(5))
        server.stop()

    how = ["--follow", "--interval", "0.2", "--read-timeout", "4", "-q"]
    with meanwhile(away_and_back()):
        code, _, err = run_in_spark(
            *("ingest", "AWAY", "--to", str(table), *how, "--metrics", f"127.0.0.1:{port}"),
            server=server.url,
        )
    lost, back, again, end = [
        (one["level"], one["message"]) for one in map(json.loads, err.splitlines())
    ]
    said = f"The connection to {server.url} is lost. The queries wait for a server."
    assert (code, lost, again, end[0]) == (1, ("warning", said), ("warning", said), "error")
    assert back[0] == "info"
    assert re.fullmatch(rf"{server.url} answers again, after \d+ s\.", back[1])
    assert end[1].startswith(
        f"No server at {server.url}: Connection refused. Tried for 4 s. The options "
        "--read-timeout and --publish-timeout say how long to try; run the same again, which goes "
        "on where it was.\n"
    )


def test_each_loss_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    losses = Losses()
    with losses.gathered():
        report_loss(logger, "a part", Loss("S", "removed", "made", 11, 20))
        report_loss(logger, "a part", Loss("S", "removed", "made", 1, 10))
        report_loss(logger, "again", Loss("S", "removed", "made", 5, 10))
        report_loss(logger, "ends at 5", Loss("T", "ends at 5", "short"))
        losses.report()
        assert "sequences" not in caplog.text  # those of other partitions may come
        losses.report(at_once=True)
        report_loss(logger, "ends at 6", Loss("T", "ends at 6", "short"))
        report_loss(logger, "more", Loss("S", "removed", "made", 21, 21))
        caplog.clear()
    assert caplog.messages == [losses.sentences[1]]
    assert losses.sentences == [
        "ends at 5",
        "Stream 'S': up to 21 messages (sequences 1 to 21) were removed.",
    ]
    report_loss(logger, "nobody asks", Loss("S", "nobody asks"))
    losses.report(at_once=True)
    assert len(losses.sentences) == 2


def test_a_loss_is_told_while_the_query_runs(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jetspark.cli.losses._GATHER_SECONDS", 0.0)
    watch = Watch(Outcome())
    told: list[bool] = []

    def wait(_: float) -> None:
        told.append("S is gone" in [record.message for record in caplog.records])
        report_loss(logger, "a batch", Loss("S", "S is gone"))
        query.isActive = len(told) < 2

    query: Any = SimpleNamespace(recentProgress=[], lastProgress=None, isActive=True)
    query.stop, query.exception, query.awaitTermination = lambda: None, lambda: None, wait
    query.status = {"message": "Processing new data"}
    with stop_on_signals() as stop, watch.losses.gathered():
        watch.run({"t": query}, stop)
    assert told == [False, True]
