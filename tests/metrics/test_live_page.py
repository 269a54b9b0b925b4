"""The page for people on the port of the metrics."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from tests.metrics.test_endpoint import answered
from tests.support import chromium
from tests.support.js_peer import install_packages

from jetspark.cli.command_line import show_command
from jetspark.metrics.endpoint import Health, serving
from jetspark.metrics.live_page import page_html

if TYPE_CHECKING:
    from tests.support.chromium import Chromium

HOSTILE = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"


def figures(**more: Any) -> dict[str, Any]:
    """What `QueryMetrics.documents` has of one query, full of texts that others wrote."""
    now = time.time()
    return {
        "name": HOSTILE,
        "rows": 1_234_567,
        "quarantined": 42,
        "restarts": 1,
        "lag": 1520,
        "lag_seconds": 0.8,
        "not_ready": [HOSTILE],
        "streams": [{"stream": HOSTILE, "position": 9, "lag": 1, "lag_seconds": None}],
        "servers": [{"url": HOSTILE, "name": HOSTILE, "version": HOSTILE}],
        "history": [
            {"at": now - 3600 + 10 * number, "rows": 98_000 * number, "lag_seconds": 0.5}
            for number in range(360)
        ],
        "batches": [
            {"batch": 7, "at": now, "rows": 9, "quarantined": 0, "seconds": 0.3, "files": None}
        ],
        "tables": [
            {"name": HOSTILE, "problem": HOSTILE},
            {
                "name": "t",
                "problem": "",
                "committed": now,
                "version": 3,
                "rows": None,
                "files": 1,
                "bytes": 10,
            },
        ],
        "more_tables": 3,
        "quarantine": {
            "name": HOSTILE,
            "note": HOSTILE,
            "reasons": [[HOSTILE, 2]],
            "last": [
                {"stream": HOSTILE, "seq": 5, "subject": HOSTILE, "column": None, "reason": HOSTILE}
            ],
        },
        **more,
    }


def test_the_figures_of_the_page() -> None:
    reasons = ["orders: no progress"]
    health = Health(ready=lambda: reasons)
    command = show_command(["ingest", "S", "--password", "hidden"])
    with serving("127.0.0.1:0", health, command=command, queries=lambda: [figures()]) as port:
        logging.getLogger("jetspark.spark").warning("a %s", "warning")
        logging.getLogger("jetspark.spark").info("no warning")
        code, text = answered(port, "/live.json")
        found = json.loads(text)
    assert (code, found["not_ready"], found["not_alive"]) == (200, reasons, [])
    assert found["command"] == "jetspark ingest S --password '***'"
    assert [warning["text"] for warning in found["warnings"]] == ["a warning"]
    assert found["queries"][0]["rows"] == 1_234_567


def test_the_page_has_nothing_from_elsewhere_and_may_run_nothing_else() -> None:
    with (
        serving("127.0.0.1:0") as port,
        urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer,
    ):
        page, policy = answer.read().decode(), answer.headers["Content-Security-Policy"]
        assert answered(port, "/elsewhere")[0] == 404
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|innerHTML|<link|src=", page)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--server", "nats://me:hidden@h:4222"], "--server 'nats://***@h:4222'"),
        (["--token=hidden", "-q"], "'--token=***' -q"),
        (["--creds", "hidden", "--to", "t"], "--creds '***' --to t"),
        (["--storage", "AWS_SECRET_ACCESS_KEY=hidden"], "--storage 'AWS_SECRET_ACCESS_KEY=***'"),
        (["--conf=spark.x=hidden"], "'--conf=spark.x=***'"),
    ],
)
def test_a_command_is_shown_without_secrets(arguments: list[str], shown: str) -> None:
    assert show_command(arguments) == f"jetspark {shown}"


# -- in a browser --------------------------------------------------------------------------------


@contextmanager
def browser(profile: Path) -> Iterator[Chromium]:
    binary = chromium.find()
    if binary is None:
        pytest.skip("there is no Chromium")
    with chromium.Chromium(binary, profile) as opened:
        yield opened


def shown(page: Chromium, port: int, **window: Any) -> None:
    """Open the page, and wait until it shows figures."""
    page.open(f"http://127.0.0.1:{port}/", **window)
    deadline = time.monotonic() + 30
    while not page.evaluate("document.body && document.body.dataset.shown || ''"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.full
def test_texts_of_others_stay_texts(tmp_path: Path) -> None:
    with (
        browser(tmp_path) as page,
        serving("127.0.0.1:0", command=HOSTILE, queries=lambda: [figures()]) as port,
    ):
        logging.getLogger("jetspark").warning(HOSTILE)
        shown(page, port)
        assert page.evaluate("document.title") == "jetspark"
        assert page.evaluate("document.querySelectorAll('img').length") == 0
        assert page.evaluate("document.querySelector('h2').textContent") == HOSTILE
        assert page.evaluate("document.querySelector('[data-figure=rows]').textContent") == (
            "1,234,567"
        )
        assert page.evaluate("document.querySelectorAll('polyline').length") == 2


@pytest.mark.full
def test_the_page_fits_a_phone_and_has_no_violation_of_axe(tmp_path: Path) -> None:
    axe = install_packages("axe-core-4", {"axe-core": "4"})
    if isinstance(axe, str):
        pytest.skip(axe)
    script = (axe / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")
    run = """axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]})
             .then(found => found.violations.map(one => one.id + ": " + one.nodes[0].html))"""
    documents: list[list[dict[str, Any]]] = [[figures()], []]
    with browser(tmp_path) as page:
        for queries in documents:
            with serving("127.0.0.1:0", command="jetspark", queries=queries.copy) as port:
                for width in (1280, 400):
                    for dark in (False, True):
                        shown(page, port, width=width, dark=dark)
                        assert page.evaluate("document.documentElement.scrollWidth") == width
                        page.evaluate(script + ";0")
                        assert page.evaluate(run) == [], (width, dark)


def test_the_page_has_one_script_and_one_style() -> None:
    page = page_html().decode()
    assert (page.count("<script>"), page.count("<style>")) == (1, 1)
