"""What `ingest` and `run` tell of messages that failOnDataLoss=false leaves out."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.processes import finish, jetspark
from tests.support.streams import Admin, numbered

from jetspark.bulk.ranges import Loss, left_out
from jetspark.cli.console import Outcome
from jetspark.cli.signals import stop_on_signals
from jetspark.cli.spark_runs import Losses, Watch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from jetspark.server import NatsServer

SECONDS = 300.0
LENIENT = ("--option", "failOnDataLoss=false")
logger = logging.getLogger("jetspark.of_spark")


@pytest.mark.spark
def test_ingest_warns_of_messages_that_were_removed_unread(
    shared_server: NatsServer, admin: Admin, unique: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique("LOSS")
    admin.create(name, name, max_msgs=50)
    admin.fill(numbered(name, 50))
    base = ["ingest", name, "--to", str(tmp_path / "t"), "--server", shared_server.url]
    base += ["--master", "local[2]", "--json-output"]
    with jetspark(*base, *LENIENT) as command:
        code, out, err = finish(command, SECONDS)
    assert (code, json.loads(out)["losses"], "Stream" in err) == (0, [], False)
    admin.fill(numbered(name, 200))
    with jetspark(*base, *LENIENT, "--quiet") as command:
        code, out, err = finish(command, SECONDS)
    sentence = (
        f"Stream '{name}': up to 150 messages (sequences 51 to 200) were removed by its "
        "limits (max_msgs 50) or a purge, before they were read."
    )
    assert (code, err) == (0, f"{sentence}\n")
    told = json.loads(out)
    assert (told["rows"], told["losses"]) == (50, [sentence])


@pytest.mark.spark
def test_a_pipeline_warns_of_what_its_planning_and_its_partitions_leave_out(
    shared_server: NatsServer, admin: Admin, unique: Callable[[str], str], tmp_path: Path
) -> None:
    anew, limited = unique("ANEW"), unique("LIMITED")
    file = tmp_path / "p.toml"
    file.write_text(
        f"""
checkpoint = "{tmp_path}/chk"
[sources.rows]
servers = "{shared_server.url}"
streams = "{anew},{limited}"
startingOffsets = "earliest"
failOnDataLoss = "false"
[sinks.rows]
format = "jetspark-delta"
path = "{tmp_path}/t"
"""
    )
    for count in (10, 20):  # the second time one is made anew, the other has lost its beginning
        admin.create(anew, anew)
        if count == 10:
            admin.create(limited, limited, max_msgs=5)
        admin.fill(numbered(limited, count))
        admin.fill(numbered(anew, count))
        with jetspark("run", str(file), "--master", "local[1]", "--json") as command:
            code, out, err = finish(command, SECONDS)
        assert code == 0, err
        if count == 10:
            assert json.loads(out)["losses"] == []
            admin.call(f"STREAM.DELETE.{anew}")
    recreated, removed = json.loads(out)["losses"]
    assert recreated.startswith(f"Stream '{anew}' was created at ")
    assert "It is read from its first message, without what was not read" in recreated
    assert removed.startswith(f"Stream '{limited}': up to 15 messages (sequences 11 to 25) were ")
    # A run of more than a minute also tells how far it is.
    told = [line for line in err.splitlines() if " · lag " not in line]
    assert told[-2:] == [recreated, removed]


def test_each_loss_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    losses = Losses()
    with losses.gathered():
        left_out(logger, "a part", Loss("S", "removed", "made", 11, 20))
        left_out(logger, "a part", Loss("S", "removed", "made", 1, 10))
        left_out(logger, "again", Loss("S", "removed", "made", 5, 10))
        left_out(logger, "ends at 5", Loss("T", "ends at 5", "short"))
        losses.report()
        assert "sequences" not in caplog.text  # those of other partitions may come
        losses.report(now=True)
        left_out(logger, "ends at 6", Loss("T", "ends at 6", "short"))
        left_out(logger, "more", Loss("S", "removed", "made", 21, 21))
        caplog.clear()
    assert caplog.messages == ["Stream 'S': up to 1 message (sequence 21) was removed."]
    assert losses.sentences == [
        "ends at 5",
        "Stream 'S': up to 21 messages (sequences 1 to 21) were removed.",
    ]
    left_out(logger, "nobody asks", Loss("S", "nobody asks"))
    losses.report(now=True)
    assert len(losses.sentences) == 2


def test_a_loss_is_told_while_the_query_runs(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jetspark.cli.spark_runs._GATHER_SECONDS", 0.0)
    watch = Watch(Outcome())
    told: list[bool] = []

    def wait(_: float) -> None:
        told.append("S is gone" in [record.message for record in caplog.records])
        left_out(logger, "a batch", Loss("S", "S is gone"))
        query.isActive = len(told) < 2

    query: Any = SimpleNamespace(
        recentProgress=[],
        lastProgress=None,
        isActive=True,
        stop=lambda: None,
        exception=lambda: None,
        awaitTermination=wait,
    )
    query.status = {"message": "Processing new data"}
    with stop_on_signals() as stop, watch.losses.gathered():
        watch.run({"t": query}, stop)
    assert told == [False, True]
