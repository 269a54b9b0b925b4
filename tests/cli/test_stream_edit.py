"""`jetspark stream edit`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run

from jetspark import blocking, errors
from jetspark.cli import app

DAY = 86400 * 10**9


@pytest.fixture
def stream(url: str, unique: Callable[[str], str]) -> str:
    name = unique("S")
    with blocking.connect(url) as nc:
        nc.jetstream().create_stream(
            name=name, subjects=[name], max_msgs=100, deny_purge=True, metadata={"a": "1", "b": "2"}
        )
    return name


def config(run: Run, stream: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("stream", "info", stream, "--json")[1])["config"]
    return found


def test_edit_shows_the_differences_and_changes_only_these(
    run: Run, stream: str, tmp_path: Path
) -> None:
    before = config(run, stream)
    wanted = ("stream", "edit", stream, "--max-age", "7d", "--max-messages", "0")
    code, out, err = run(*wanted)
    assert code == app.FAILED
    head, *rows = [line.split() for line in out.splitlines()]
    assert head == ["option", "now", "then"]
    assert sorted(rows) == [
        ["max_age", "unlimited", "7", "days,", "0:00:00"],
        ["max_msgs", "100", "unlimited"],
    ]
    assert "confirm with --force" in err
    assert run(*wanted, "--dry-run")[0] == 0
    assert config(run, stream) == before
    assert json.loads(run(*wanted, "--force", "--json")[1]) == {
        "stream": stream,
        "changed": True,
        "changes": {
            "max_age": {"before": before.get("max_age"), "after": 7 * DAY},
            "max_msgs": {"before": 100, "after": -1},
        },
    }
    assert config(run, stream) == before | {"max_age": 7 * DAY, "max_msgs": -1}
    assert run(*wanted) == (0, f"Stream {stream} is like that already.\n", "")
    file = tmp_path / "changes.json"
    file.write_text(json.dumps({"metadata": {"a": "1"}, "subjects": [stream, f"{stream}.*"]}))
    assert run("stream", "edit", stream, "--config", str(file), "--force")[0] == 0
    after = config(run, stream)
    assert after["subjects"] == [stream, f"{stream}.*"]
    assert (after["metadata"]["a"], "b" in after["metadata"]) == ("1", False)


@pytest.mark.parametrize(
    "change",
    [
        {"storage": "memory"},
        {"retention": "workqueue"},
        {"deny_purge": False},
    ],
    ids=str,
)
def test_what_no_server_changes_is_refused_before_it_is_asked(
    run: Run, url: str, stream: str, tmp_path: Path, change: dict[str, Any]
) -> None:
    file = tmp_path / "changes.json"
    file.write_text(json.dumps(change))
    code, out, err = run("stream", "edit", stream, "--config", str(file), "--dry-run")
    assert (code, out, err.count("\n")) == (app.FAILED, "", 1)
    assert f"The {next(iter(change))} of stream {stream} is " in err
    with blocking.connect(url) as nc, pytest.raises(errors.APIError):  # the server agrees
        nc.jetstream().stream(stream).update(change)


def test_what_this_server_refuses_is_one_sentence(run: Run, stream: str) -> None:
    code, _, err = run("stream", "edit", stream, "--max-age", "1s", "--force")
    assert (code, err.count("\n")) == (app.FAILED, 1)
    assert f"The server refuses to change stream {stream}: " in err


def test_an_edit_that_says_nothing_or_names_another_stream_is_refused(
    run: Run, stream: str, tmp_path: Path
) -> None:
    code, _, err = run("stream", "edit", stream)
    assert code == app.FAILED
    assert "Say what to change" in err
    file = tmp_path / "other.json"
    file.write_text('{"name": "OTHER"}')
    code, _, err = run("stream", "edit", stream, "--config", str(file))
    assert code == app.FAILED
    assert "cannot be renamed" in err
