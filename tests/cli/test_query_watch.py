"""What a running pipeline tells where nobody looks at a terminal."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from tests.support.java import accumulator_server

from jetspark.cli import query_watch
from jetspark.cli.console import Outcome
from jetspark.cli.query_watch import Watch
from jetspark.cli.signals import Stop, StopRequested
from jetspark.cli.spark_session import _logs_in, log_failures
from jetspark.cli.watched_query import LINE_SECONDS, WatchedQuery
from jetspark.errors import PipelineError

if TYPE_CHECKING:
    from jetspark.spark.queries.metrics import QueryMetrics


def test_what_py4j_logs_goes_to_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])  # as in a command
    with _logs_in(tmp_path / "log"):
        logging.exception("Exception while sending command.")
    assert "while sending" in (tmp_path / "log").read_text()
    assert capsys.readouterr().err == ""
    assert logging.root.handlers == []


class Query:
    """Has written ten rows when it is looked at for the `first` time, and ends after some looks."""

    def __init__(self, looks: int, *, first: int = 0, rows: int = 10, batch: int = 0) -> None:
        self.looks = looks
        self.batch = batch
        self.rows = rows
        self.stopped = False
        self.first = first
        self.status = {"message": "Getting offsets from JetStream"}
        self.recentProgress: list[dict[str, Any]] = []
        self.lastProgress: dict[str, Any] | None = None

    @property
    def isActive(self) -> bool:
        self.looks -= 1
        self.first -= 1
        if self.first < 0:
            self.lastProgress = {
                "batchId": self.batch,
                "timestamp": "2026-01-01T00:00:00.000Z",
                "numInputRows": self.rows,
                "processedRowsPerSecond": 5.0,
                "sources": [],
            }
            self.recentProgress = [self.lastProgress]
        return self.looks >= 0

    def exception(self) -> None:
        return None

    def awaitTermination(self, seconds: float) -> bool:
        return self.looks < 0

    def stop(self) -> None:
        self.stopped = True


def run(
    query: Query, outcome: Outcome | None = None, stop: Stop | None = None, *, read: bool = False
) -> Watch:
    watch = Watch(outcome or Outcome(), read={"orders"} if read else ())
    watch.run({"orders": cast("StreamingQuery", query)}, stop or Stop())
    return watch


def test_progress_without_a_terminal_is_printed_in_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(query_watch, "LINE_SECONDS", 0.0)
    query = Query(3)
    assert run(query).rows == {"orders": 10}
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("10 rows written · ") for line in lines)
    assert query.stopped


def test_a_line_has_the_rate_since_the_one_before() -> None:
    query = WatchedQuery(cast("StreamingQuery", Query(1)), began=0.0)
    later = LINE_SECONDS + 1  # times are not exact
    assert query.rows_per_second(later, 600) == pytest.approx(600 / later)
    assert query.rows_per_second(2 * later, 600) == 0
    assert query.rows_per_second(3 * later, 900) == pytest.approx(300 / later)


def test_a_query_that_may_go_on_is_started_again_and_counts_with_the_one_before() -> None:
    class Ended(Query):
        def exception(self) -> Any:
            return StreamingQueryException("the table has grown") if self.looks < 0 else None

    second = Query(2, batch=1)
    waiting = [second]

    def again(query: StreamingQuery) -> StreamingQuery | None:
        return cast("StreamingQuery", waiting.pop(0)) if isinstance(query, Ended) else None

    watch = Watch(Outcome(quiet=True))
    watch.run({"orders": cast("StreamingQuery", Ended(2))}, Stop(), restart=again)
    assert watch.rows == {"orders": 20}
    assert second.stopped
    with pytest.raises(PipelineError, match="the table has grown"):
        Watch(Outcome(quiet=True)).run(
            {"orders": cast("StreamingQuery", Ended(2))}, Stop(), restart=lambda _: None
        )


@pytest.mark.parametrize(("rows", "counted"), [(10, "read"), (1, "written")])
def test_the_first_batch_is_reported_at_once_and_only_once(
    capsys: pytest.CaptureFixture[str], rows: int, counted: str
) -> None:
    run(Query(8, first=3, rows=rows), read=counted == "read")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{rows} row{'s' * (rows > 1)} {counted} · ")


def test_before_the_first_batch_is_done_the_line_says_what_is_under_way(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(query_watch, "LINE_SECONDS", 0.0)
    query = Query(2, first=9)
    run(query)
    query = Query(2, first=9)
    query.status = {"message": "Processing new data"}
    read = iter([0, 617])
    monkeypatch.setattr(WatchedQuery, "rows_in_first_batch", lambda _: next(read))
    run(query)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "planning the first batch"
    assert lines[2:] == ["reading the first batch", "reading the first batch · 617 rows"]


def test_what_a_stopped_first_batch_had_read_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Soon(Stop):
        def check(self) -> None:
            raise StopRequested(signal.SIGINT)

    monkeypatch.setattr(WatchedQuery, "rows_in_first_batch", lambda _: 617)
    watch = Watch(Outcome(quiet=True))
    assert watch.stop_sentence == "Stopped; the same command goes on from here."
    with pytest.raises(StopRequested):
        watch.run({"orders": cast("StreamingQuery", Query(9, first=99))}, Soon())
    assert watch.stop_sentence == (
        "Stopped in a batch of 617 rows so far; the same command goes on from here."
    )
    watch = Watch(Outcome(quiet=True))
    with pytest.raises(StopRequested):
        watch.run({"orders": cast("StreamingQuery", Query(9))}, Soon())
    assert watch.stop_sentence == "Stopped after 10 rows; the same command goes on from here."


def test_spark_is_not_asked_for_figures_that_nobody_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(_: WatchedQuery) -> int:
        pytest.fail("no line is due")

    monkeypatch.setattr(WatchedQuery, "rows_in_first_batch", ask)
    query = Query(5, first=9)
    query.status = {"message": "Processing new data"}
    run(query)


def test_quiet_runs_print_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(query_watch, "LINE_SECONDS", 0.0)
    outcome = Outcome(quiet=True)
    run(Query(3), outcome)
    outcome.report("done", rows=1)
    assert capsys.readouterr() == ("", "")


def test_a_result_for_programs_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    Outcome(quiet=True, as_json=True).report("done", rows=1, stopped_by=None)
    assert capsys.readouterr().out == '{"rows": 1, "stopped_by": null}\n'


def test_a_request_to_stop_ends_the_watching_and_the_query() -> None:
    query = Query(3)
    with pytest.raises(StopRequested) as caught:
        run(query, stop=Stop(signal.SIGTERM))
    assert caught.value.exit_code == 143
    assert query.stopped


def test_figures_begin_inside_the_run_where_no_signal_interrupts_the_jvm() -> None:
    class Metrics:
        def follow(self, name: str, *_: object) -> None:
            followed.append((name, stop.held))

        def stop_refreshing(self) -> None:
            pass

    @contextmanager
    def lineage(rows: Callable[[], Mapping[str, int]]) -> Iterator[Callable[[], None]]:
        assert rows() == {}  # no query has reported any rows yet, not even none
        yield lambda: None

    stop, followed = Stop(), list[tuple[str, bool]]()
    watch = Watch(Outcome(quiet=True))
    watch.lineage, watch._metrics = lineage, cast("QueryMetrics", Metrics())
    watch.run({"orders": cast("StreamingQuery", Query(2))}, stop)
    assert followed == [("orders", True)]
    assert watch.rows == {"orders": 10}


def test_a_connection_that_ends_early_prints_no_traceback(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a task that was stopped, to PySpark's server of accumulators."""
    server = accumulator_server()
    log_failures(server)
    done = threading.Event()
    shut_down = server.shutdown_request

    def shut_down_request(request: object) -> None:
        shut_down(request)
        done.set()

    monkeypatch.setattr(server, "shutdown_request", shut_down_request)
    socket.create_connection(server.server_address[:2]).close()
    assert done.wait(60)
    server.shutdown()
    assert capfd.readouterr().err == ""
