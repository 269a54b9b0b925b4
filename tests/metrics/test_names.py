"""The table of names, its page, and the rules and the dashboard that use them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest

import jetspark
from jetspark.metrics.names import ALL, OPERATION, SENT, MetricType

ROOT = Path(__file__).parents[2]
OBSERVABILITY = ROOT / "deploy" / "observability"


def shown() -> set[str]:
    """The names as Prometheus shows them."""
    total = {MetricType.COUNTER: "_total"}
    return {f"{one.prometheus}{total.get(one.kind, '')}" for one in ALL}


def test_prometheus_names_are_derived_as_opentelemetry_does() -> None:
    assert SENT.prometheus == "messaging_client_sent_messages"
    assert OPERATION.prometheus == "messaging_client_operation_duration_seconds"
    assert OPERATION.labels[-1] == "error_type"
    assert len({one.prometheus for one in ALL}) == len(ALL)


def test_the_page_has_every_metric_with_its_meaning() -> None:
    page = (ROOT / "docs" / "guide-operating.md").read_text("utf-8")
    lines = re.findall(r"^\| `(\w+)` \| ([^|]*) \| ([^|]*) \|$", page, re.MULTILINE)
    total = {MetricType.COUNTER: "_total"}
    assert lines == [
        (
            f"{one.prometheus}{total.get(one.kind, '')}",
            ", ".join(f"`{label}`" for label in one.labels) or "–",
            one.description,
        )
        for one in ALL
    ]


def shown_and_alerted() -> set[str]:
    """The metrics that dashboard and rules ask for; labels are no metrics."""
    rules = (OBSERVABILITY / "rules.yml").read_text("utf-8")
    dashboard = json.loads((OBSERVABILITY / "dashboard.json").read_text("utf-8"))
    asked = [one["expr"] for panel in dashboard["panels"] for one in panel["targets"]]
    asked += [rule["expr"] for group in yaml.safe_load(rules)["groups"] for rule in group["rules"]]
    labels = {label for one in ALL for label in one.labels}
    used = set(re.findall(r"\b(?:jetspark|messaging)_\w+", " ".join(asked))) - labels
    assert all(panel["targets"] for panel in dashboard["panels"])
    return {name.removesuffix("_bucket") for name in used}


def test_what_rules_and_dashboard_ask_of_clients_is_served() -> None:
    """tests/deploy/test_containers.py has what they ask of queries."""
    jetspark.observe()
    served = set(re.findall(r"^# TYPE (\w+)", generate_latest().decode(), re.MULTILINE))
    of_clients = ("messaging_", "jetspark_client_")
    assert {name for name in shown_and_alerted() if name.startswith(of_clients)} <= served


def test_rules_and_dashboard_use_names_that_there_are() -> None:
    rules = (OBSERVABILITY / "rules.yml").read_text("utf-8")
    assert shown_and_alerted() <= shown()
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
