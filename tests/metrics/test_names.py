"""The table of names, its page, and the rules and the dashboard that use them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from jetspark.metrics.names import ALL, OPERATION, SENT, Kind

ROOT = Path(__file__).parents[2]
OBSERVABILITY = ROOT / "deploy" / "observability"


def shown() -> set[str]:
    """The names as Prometheus shows them."""
    total = {Kind.COUNTER: "_total"}
    return {f"{one.prometheus}{total.get(one.kind, '')}" for one in ALL}


def test_prometheus_names_are_derived_as_opentelemetry_does() -> None:
    assert SENT.prometheus == "messaging_client_sent_messages"
    assert OPERATION.prometheus == "messaging_client_operation_duration_seconds"
    assert OPERATION.labels[-1] == "error_type"
    assert len({one.prometheus for one in ALL}) == len(ALL)


def test_the_page_has_every_metric_with_its_meaning() -> None:
    page = (ROOT / "docs" / "guide-operating.md").read_text("utf-8")
    lines = re.findall(r"^\| `(\w+)` \| ([^|]*) \| ([^|]*) \|$", page, re.MULTILINE)
    total = {Kind.COUNTER: "_total"}
    assert lines == [
        (
            f"{one.prometheus}{total.get(one.kind, '')}",
            ", ".join(f"`{label}`" for label in one.labels) or "–",
            one.said,
        )
        for one in ALL
    ]


def test_rules_and_dashboard_use_names_that_there_are() -> None:
    rules = (OBSERVABILITY / "rules.yml").read_text("utf-8")
    dashboard = (OBSERVABILITY / "dashboard.json").read_text("utf-8")
    labels = {label for one in ALL for label in one.labels}
    used = set(re.findall(r"\b(?:jetspark|messaging)_\w+", rules + dashboard))
    assert {name.removesuffix("_bucket") for name in used} <= shown() | labels
    assert json.loads(dashboard)["title"]
    page = (ROOT / "docs" / "guide-operating.md").read_text("utf-8")
    for group in yaml.safe_load(rules)["groups"]:
        for rule in group["rules"]:
            assert f"### {rule['alert']}\n" in page
            assert rule["annotations"]["runbook"].endswith(f"#{rule['alert'].lower()}")


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_accepts_the_rules_and_their_alerts_fire() -> None:
    for command in (["check", "rules", "rules.yml"], ["test", "rules", "rules_test.yml"]):
        for _ in range(3):  # some versions panic on a busy machine
            done = subprocess.run(
                ["promtool", *command],
                cwd=OBSERVABILITY,
                capture_output=True,
                text=True,
                check=False,
            )
            if "panic: runtime error" not in done.stdout + done.stderr:
                break
        assert done.returncode == 0, done.stdout + done.stderr
