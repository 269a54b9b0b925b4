"""The page of `ingest --metrics`: what it draws are the figures of the metrics and the tables."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tests.cli.conftest import Run, meanwhile, until
from tests.metrics.test_live_page import shown
from tests.support import chromium
from tests.support.ports import free_port
from tests.support.streams import Admin

pytestmark = [pytest.mark.full, pytest.mark.tables]

_PICTURE = os.environ.get("JETSPARK_PICTURE")
"""A file for the page as a picture, as the README has it."""


def answered(port: int, path: str) -> str:
    with suppress(OSError), urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return str(answer.read().decode())
    return ""


def test_the_page_of_an_ingest(admin: Admin, run_in_spark: Run, tmp_path: Path) -> None:
    stream = admin.stream(under=".>")
    good = [json.dumps({"id": number, "price": 2 * number}).encode() for number in range(40)]
    bad = [b'{"id": "<b>1</b>", "price": 1}', b'{"id": "x", "price": 1}', b"no JSON"]
    admin.fill([(f"{stream}.a", payload) for payload in good + bad])
    port, table, quarantine = free_port(), tmp_path / "orders", tmp_path / "bad"
    seen: dict[str, Any] = {}

    def look() -> Iterator[None]:
        read_all = f'jetspark_stream_lag_messages{{query="{table}",stream="{stream}"}} 0.0\n'
        yield from until(lambda: read_all in answered(port, "/metrics"))
        # Spark reports the batch a moment after its commit.
        yield from until(lambda: '"batch": 0' in answered(port, "/live.json"))
        seen["metrics"] = answered(port, "/metrics")
        seen["live"] = json.loads(answered(port, "/live.json"))
        with ExitStack() as stack:
            if (binary := chromium.find()) is not None:
                page = stack.enter_context(chromium.Chromium(binary, tmp_path / "profile"))
                shown(page, port)
                seen["drawn"] = page.evaluate(
                    "Object.fromEntries([...document.querySelectorAll('[data-figure]')]"
                    ".map(one => [one.dataset.figure, one.textContent]))"
                )
                if _PICTURE:
                    Path(_PICTURE).write_bytes(page.screenshot())
        yield

    with meanwhile(look(), then=signal.SIGINT):
        code, _, err = run_in_spark(
            *("ingest", stream, "--to", str(table), "--json-schema", "id INT, price INT"),
            *("--quarantine", str(quarantine), "--follow", "--interval", "0.2"),
            *("--metrics", f"127.0.0.1:{port}"),
        )
    assert code == 0, err
    (query,) = seen["live"]["queries"]
    assert query["name"] == str(table)
    assert (query["rows"], query["quarantined"], query["lag"]) == (40, 3, 0)
    (facts,) = query["tables"]
    assert (facts["name"], facts["rows"], facts["problem"]) == (str(table), 40, "")
    assert facts["committed"] is not None
    (batch,) = query["batches"]
    assert (batch["rows"], batch["quarantined"]) == (40, 3)
    assert batch["files"] == metric(seen["metrics"], "files_total")
    assert query["quarantine"]["name"] == str(quarantine)
    assert sum(records for _, records in query["quarantine"]["reasons"]) == 3
    assert [record["seq"] for record in query["quarantine"]["last"]] == [43, 42, 41]
    assert [server.get("problem") for server in query["servers"]] == [None]
    if "drawn" in seen:
        names = {
            "rows": "rows_total",
            "quarantined": "quarantined_rows_total",
            "restarts": "restarts_total",
            "lag": "lag_messages",
        }
        drawn = {figure: f"{metric(seen['metrics'], name):,.0f}" for figure, name in names.items()}
        assert seen["drawn"] == drawn


def metric(text: str, name: str) -> float:
    """The value of the only metric with this name of a query or a stream."""
    (value,) = re.findall(rf"^jetspark_(?:query|stream)_{name}{{.*}} (\S+)$", text, re.M)
    return float(value)
