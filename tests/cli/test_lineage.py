"""`jetspark ingest --lineage` and `jetspark run --lineage`: OpenLineage's events."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run
from tests.support.streams import Admin

from jetspark.cli import app
from jetspark.cli.lineage import lineage_of
from jetspark.cli.signals import StopRequested
from jetspark.errors import ConfigError, PipelineError
from jetspark.spark.source.options import parse_options
from jetspark.spark.table_sink.option_texts import parse_lakehouse_options
from jetspark.tables.formats import Format

Events = Callable[[], list[dict[str, Any]]]


@pytest.fixture(autouse=True)
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Events:
    """The events so far, by the library's own way into a file."""
    file = tmp_path / "events"
    for name, value in (("TYPE", "file"), ("LOG_FILE_PATH", str(file)), ("APPEND", "true")):
        monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__{name}", value)
    return lambda: [json.loads(line) for line in file.read_text().splitlines()]


def places(datasets: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["namespace"], one["name"]) for one in datasets]


def test_an_ingest_tells_stream_table_columns_and_rows(
    run_in_spark: Run, admin: Admin, tmp_path: Path, events: Events, url: str
) -> None:
    stream, lake = admin.stream(7), tmp_path / "lake"
    code, _, err = run_in_spark(
        "ingest", stream, "--to", str(lake), "--json-schema", "n LONG", "--lineage"
    )
    assert code == app.SUCCEEDED, err
    start, *amid, end = events()  # amid: after the first batch, if the run goes on for long enough
    assert [start["eventType"], end["eventType"]] == ["START", "COMPLETE"]
    assert {one["eventType"] for one in amid} <= {"RUNNING"}
    assert start["run"]["runId"] == end["run"]["runId"]
    assert (end["job"]["namespace"], end["job"]["name"]) == ("jetspark", f"ingest {lake}")
    assert places(start["inputs"]) == places(end["inputs"]) == [(url, stream)]
    assert places(start["outputs"]) == places(end["outputs"]) == [("file", str(lake))]
    [table] = end["outputs"]
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 7
    fields = {one["name"]: one["type"] for one in table["facets"]["schema"]["fields"]}
    assert fields["n"] == "int64"
    assert fields["seq"] == "int64"


@pytest.mark.full
def test_a_pipeline_tells_each_sink(
    run_in_spark: Run, admin: Admin, tmp_path: Path, events: Events, url: str
) -> None:
    orders, copies = admin.stream(3), admin.stream()
    file = tmp_path / "copy.toml"
    file.write_text(
        f"""
checkpoint = "{tmp_path}/chk"
[sources.orders]
servers = "{url}"
stream = "{orders}"
starting_offsets = "earliest"
[views.messages]
sql = "SELECT data, '{copies}' AS subject FROM orders"
[sinks.lake]
from = "orders"
format = "jetspark-delta"
path = "{tmp_path}/lake"
[sinks.messages]
format = "jetstream"
servers = "{url}"
stream = "{copies}"
"""
    )
    code, _, err = run_in_spark("run", str(file), "--lineage", server="")
    assert code == app.SUCCEEDED, err
    end = events()[-1]
    assert (end["eventType"], end["job"]["name"]) == ("COMPLETE", "copy")
    assert places(end["inputs"]) == [(url, orders)]
    assert places(end["outputs"]) == [("file", f"{tmp_path}/lake"), (url, copies)]
    counts = [one["outputFacets"]["outputStatistics"]["rowCount"] for one in end["outputs"]]
    assert counts == [3, 3]


# -- how a run ends --------------------------------------------------------------------------------


def told(end: BaseException | None, *, follow: bool = False, to: str = "lake") -> None:
    source = parse_options(
        {"stream": "ORDERS", "servers": "nats://a:4333,b", "user": "u", "password": "secret"}
    )
    sink = parse_lakehouse_options(Format.DELTA, {"path": to})
    with lineage_of("job", [source, None], {to: sink}, follow)(lambda: {to: 3}) as running:
        running()
        if end is not None:
            raise end


@pytest.mark.parametrize(
    ("end", "follow", "state"),
    [
        (None, False, "COMPLETE"),
        (StopRequested(signal.SIGTERM), True, "COMPLETE"),
        (StopRequested(signal.SIGTERM), False, "ABORT"),
        (PipelineError("The stream is gone."), True, "FAIL"),
    ],
)
def test_the_last_event_tells_how_a_run_ended(
    end: BaseException | None, follow: bool, state: str, events: Events
) -> None:
    with suppress(PipelineError, StopRequested):
        told(end, follow=follow)
    found = events()
    assert [one["eventType"] for one in found] == ["START", "RUNNING", state]
    reason = found[-1]["run"]["facets"].get("errorMessage", {})
    assert reason.get("message") == ("The stream is gone." if state == "FAIL" else None)
    assert "secret" not in json.dumps(found)
    assert places(found[0]["inputs"]) == [("nats://a:4333", "ORDERS")]


def test_files_are_named_as_openlineage_names_them(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jetspark.cli.lineage.find_table", lambda *_: None)
    for to, place in (
        ("s3://lake/shop/orders", ("s3://lake", "shop/orders")),
        ("file:///x/lake", ("file", "/x/lake")),
    ):
        told(None, to=to)
        assert places(events()[-1]["outputs"]) == [place]


def test_an_event_that_cannot_be_sent_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(tmp_path))
    told(None)
    found = [one for one in caplog.messages if one.startswith("Lineage: ")]
    assert [one.split(" was not sent")[0] for one in found] == [
        f"Lineage: {state}" for state in ("START", "RUNNING", "COMPLETE")
    ]


def test_without_a_place_for_events_or_with_a_wrong_one_nothing_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "nothing")
    with pytest.raises(ConfigError, match=r"^--lineage: the configuration"):
        told(None)
    monkeypatch.delenv("OPENLINEAGE__TRANSPORT__TYPE")
    with pytest.raises(ConfigError, match=r"^--lineage: set OPENLINEAGE_URL"):
        told(None)


@pytest.mark.parametrize("said", ["", "missing.yml"])
def test_the_configuration_of_the_current_folder_runs_nothing(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENLINEAGE_CONFIG", said)
    Path("openlineage.yml").write_text(
        "transport: {type: file, log_file_path: events, filesystem: subprocess.Popen,"
        " fs_kwargs: {args: [touch, ran]}}"
    )
    with pytest.raises(ConfigError, match="OPENLINEAGE_CONFIG="):
        told(None)
    assert not Path("ran").exists()
