"""The listener's ways out, without Spark: the log, a callback that fails, a query that ends."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jetspark.spark.queries.progress import LagListener, QueryLag


def offset(**following: int) -> dict[str, Any]:
    return {"version": 1, "streams": {name: {"next": one} for name, one in following.items()}}


def progress(batch: int, read: dict[str, Any], latest: dict[str, Any]) -> Any:
    ends = {"endOffset": json.dumps(read), "latestOffset": json.dumps(latest)}
    other = {"endOffset": "7", "latestOffset": "9"}  # of another format
    figures = {"batchId": batch, "numInputRows": 10, "processedRowsPerSecond": 5.0}
    report = {"id": "an-id", "name": "orders", **figures, "sources": [ends, other]}
    return SimpleNamespace(progress=SimpleNamespace(json=json.dumps(report)))


def test_each_batch_is_logged_and_told(caplog: pytest.LogCaptureFixture) -> None:
    told: list[QueryLag] = []
    listener = LagListener(told.append)
    with caplog.at_level(logging.INFO, "jetspark.spark"):
        listener.onQueryProgress(progress(3, offset(A=11, B=5), offset(A=21, B=5, C=4)))
    # C is new to the query: all that it has is still to be read.
    assert [(one.batch, one.lag) for one in told] == [(3, {"A": 10, "B": 0, "C": 3})]
    assert caplog.messages == ["orders: batch 3, 10 rows, lag 13"]


def test_a_callback_that_fails_is_logged_and_called_again(caplog: pytest.LogCaptureFixture) -> None:
    def fail(one: QueryLag) -> None:
        raise ValueError(f"batch {one.batch}")

    listener = LagListener(fail)
    for batch in range(2):
        listener.onQueryProgress(progress(batch, offset(A=1), offset(A=2)))
    assert caplog.messages == ["The lag callback failed"] * 2
    assert listener.latest["orders"].batch == 1


def test_a_query_that_has_ended_is_forgotten() -> None:
    listener = LagListener()
    listener.onQueryStarted(cast("Any", SimpleNamespace(id="an-id", name="orders")))
    listener.onQueryProgress(progress(0, offset(A=1), offset(A=2)))
    assert listener.latest["orders"].lag == {"A": 1}
    listener.onQueryTerminated(cast("Any", SimpleNamespace(id="an-id")))
    assert listener.latest == {}
