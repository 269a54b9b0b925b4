"""The guides on events and permissions name every kind and every role."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from jetspark.cli import app
from jetspark.documents.events import EventKind

DOCS = Path(__file__).parents[2] / "docs"
EVENTS = (DOCS / "guide-events.md").read_text("utf-8")
SECURITY = (DOCS / "guide-security.md").read_text("utf-8")
PERMISSIONS = SECURITY.split("## Permissions for JetStream")[1].split("\n## ")[0]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_every_kind_is_in_the_guide() -> None:
    table = EVENTS.split("## Kinds of events")[1].split("\n## ")[0]
    assert set(re.findall(r"`([a-z]+(?:_[a-z]+)+|nak|terminated)`", table)) - {
        "sample_freq"
    } >= set(EventKind)


def test_roles_for_events_from_python(capsys: Any) -> None:
    exec(blocks(PERMISSIONS, "python")[0], {})
    printed = capsys.readouterr().out
    assert '"$JS.hub.API.CONSUMER.CREATE.ORDERS.worker"' in printed
    assert '"invoices.>"' in printed
    assert '"_INBOX_worker.>"' in printed


def test_the_guide_names_every_role(capsys: Any) -> None:
    assert app.run(["acl"]) == app.SUCCEEDED
    roles = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    table = PERMISSIONS.split("| role |")[1].split("\n\n")[0]
    assert {
        word
        for line in table.splitlines()[2:]
        for word in re.findall(r"`([a-z-]+)`", line.split("|")[1])
    } == roles
