"""Payloads with compression and frames: what is kept is the message as it came, and what is made of
it anew has no header of a compression that it lacks."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cramjam
import pytest
from pyspark.sql import SparkSession
from tests.payloads.avro_schemas import written
from tests.payloads.test_framing import OLD, confluent
from tests.support.lake import Lake
from tests.support.pipelines import pipeline_of
from tests.support.streams import Admin

from jetspark.blocking import connect
from jetspark.spark.pipelines.pipeline import check_queries, check_tables, reprocess, start_pipeline
from jetspark.spark.pipelines.replay import Replay
from jetspark.spark.pipelines.retry_quarantine import ReprocessResult
from jetspark.spark.source.infer_schema import infer_schemas

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.tables]

GZIP = {"Content-Encoding": "gzip", "Site": "eu"}


class Packed(Lake):
    """With messages that have headers."""

    def __init__(self, spark: SparkSession, admin: Admin, folder: Path) -> None:
        super().__init__(spark, admin, folder)
        self.sent: list[tuple[bytes, dict[str, str]]] = []

    def send(self, *messages: tuple[bytes, dict[str, str]]) -> None:
        self.publish(*((f"{self.stream}.x", data, more) for data, more in messages))
        self.sent += messages

    def publish(self, *messages: tuple[str, bytes, dict[str, str]]) -> None:
        with connect(self.admin.url) as nc:
            for subject, data, more in messages:
                nc.jetstream().publish(subject, data, headers=more)

    def table(
        self, to: str = "t", options: dict[str, str] | None = None, **how: Any
    ) -> list[dict[str, Any]]:
        self.ingest(to, options, **how)
        return self.rows(to)

    def as_sent(self, name: str = "aside") -> list[tuple[bytes, dict[str, str]]]:
        """The messages in a table."""
        return [(row["data"], headers(row)) for row in self.rows(name)]

    def replayed(self, name: str, **how: Any) -> list[tuple[bytes, dict[str, str]]]:
        """What `jetspark replay` publishes of a table."""
        target = f"{self.stream}_{name}_{len(how)}"
        self.admin.create(target, target)
        options = {"servers": self.admin.url, "stream": target, "subject": target}
        job = Replay(table=str(self.folder / name), options=options, order_by="seq", **how)
        count = job.run(self.spark)
        with connect(self.admin.url) as nc:
            found = [nc.jetstream().stream(target).get(seq) for seq in range(1, count + 1)]
        return [
            (one.data, dict(one.headers.items()) if one.headers is not None else {})
            for one in found
        ]


def headers(row: Mapping[str, Any]) -> dict[str, str]:
    return {pair["key"]: pair["value"] for pair in row["headers"] or ()}


@pytest.fixture
def lake(spark: SparkSession, admin: Admin, tmp_path: Path) -> Packed:
    return Packed(spark, admin, tmp_path)


def packed(value: Any) -> bytes:
    return gzip.compress(value if isinstance(value, bytes) else json.dumps(value).encode(), mtime=0)


@pytest.mark.full
def test_a_bad_record_is_the_message_as_it_came_and_becomes_a_row_later(lake: Packed) -> None:
    zstd = bytes(cramjam.zstd.compress(b'{"id": "z"}'))
    snappy = bytes(cramjam.snappy.compress_raw(b'{"id": "s"}'))
    lake.send(
        (packed({"id": 1}), GZIP),
        (packed({"id": "two", "more": [1]}), GZIP),
        (zstd, {"Content-Encoding": "zstd"}),
        (snappy, {"Content-Encoding": "snappy"}),
        (b'{"id": "plain"}', {}),
        (b"no gzip", GZIP),
        (packed({"id": 7, "more": "x"}), GZIP),
    )
    aside = str(lake.folder / "aside")
    rows = lake.table(json_schema="id INT", rescued_data_column="rest", quarantine=aside)
    fitting = [(row["seq"], row["id"], row["rest"]) for row in rows]
    assert fitting == [(1, 1, None), (7, 7, '{"more":"x"}')]
    assert lake.as_sent() == lake.sent[1:6]
    reasons = [row["reason"] for row in lake.rows("aside")]
    assert [reason.partition(" is not ")[0] for reason in reasons] == [
        *(f'id: "{value}"' for value in ("two", "z", "s", "plain")),
        "The payload",
    ]

    mended = lake.job(
        "mended", json_schema="id STRING", rescued_data_column="rest", quarantine=aside
    )
    lake.ingest(
        "mended", {"startingOffsets": "7"}, json_schema="id STRING", rescued_data_column="rest"
    )
    mended.check_rows()
    assert mended.reprocess() == ReprocessResult(added=4, already_present=0, remaining=1)
    found = [(row["id"], row["rest"]) for row in lake.rows("mended")]
    assert found == [
        ("two", '{"more":[1]}'), ("z", None), ("s", None), ("plain", None), ("7", '{"more":"x"}')
    ]  # fmt: skip
    assert lake.as_sent() == [lake.sent[5]]


@pytest.mark.full
def test_frames_and_a_compression_that_no_header_names_stay_around_bad_records(
    lake: Packed,
) -> None:
    around = {"framing": "confluent", "compression": "gzip"}
    lake.send(
        (packed(confluent(1, b'{"id": 1, "at": {}}')), {"Site": "eu"}),
        (packed(confluent(1, b'{"id": "two"}')), {"Site": "eu"}),
        (confluent(1, b'{"id": 3}'), {}),
        (packed(b"\xff"), {}),
    )
    schema, aside = "id INT", str(lake.folder / "aside")
    how: Any = {"json_schema": schema}
    (row,) = lake.table("t", around, quarantine=aside, rescued_data_column="rest", **how)
    assert (row["id"], row["rest"]) == (1, '{"at":{}}')
    assert lake.as_sent() == lake.sent[1:]

    rows = lake.table("kept", around, **how)
    assert [row["_corrupt_record"] for row in rows] == [
        None,
        '{"id": "two"}',
        confluent(1, b'{"id": 3}').decode(),
        rows[3]["_corrupt_record"],
    ]
    assert "_jetspark_payload" not in rows[0]


def test_a_schema_is_inferred_of_what_is_in_payloads(lake: Packed) -> None:
    lake.send((packed(confluent(1, b'{"id": 1}')), GZIP), (packed(confluent(1, b"{}")), GZIP))
    (inferred,) = infer_schemas(lake.options | {"framing": "confluent"}, None, 10)
    assert inferred.schema == "id BIGINT"


@pytest.mark.full
def test_a_dead_letter_is_published_again_as_it_came(lake: Packed) -> None:
    lake.send((packed({"id": "one"}), GZIP), (packed({"id": 2}), GZIP))
    letters = f"{lake.stream}_BAD"
    lake.ingest("t", json_schema="id INT", quarantine=f"stream:{letters}")
    with connect(lake.admin.url) as nc:
        js = nc.jetstream()
        assert js.dead_letters(letters).replay() == (1, 0, 0, 0)
        again = js.stream(lake.stream).get(3)
    assert again.headers is not None
    assert (again.data, again.headers["Content-Encoding"]) == (lake.sent[0][0], "gzip")
    rows = lake.table("again", {"startingOffsets": "3"}, json_schema="id STRING")
    assert [row["id"] for row in rows] == ["one"]


LIST = """
[sinks.{sink}]
from = "orders"
format = "jetspark-delta"
quarantine = "{folder}/aside"
[[sinks.{sink}.tables]]
subjects = ["{stream}.a"]
path = "{folder}/a"
json_schema = "id INT"
rescued_data_column = "rest"
[[sinks.{sink}.tables]]
subjects = ["{stream}.b"]
path = "{folder}/b"
json_schema = "{ddl}"
[[sinks.{sink}.tables]]
subjects = ["{stream}.raw"]
path = "{folder}/raw"
"""


@pytest.mark.full
@pytest.mark.parametrize("options", ["", 'compression = "gzip"\nframing = "confluent"'])
def test_tables_of_a_list_unpack_their_json_and_keep_messages_as_they_came(
    lake: Packed, options: str
) -> None:
    def message(value: Any) -> bytes:
        return packed(confluent(1, json.dumps(value).encode()) if options else value)

    name = lake.stream
    values: dict[str, Any] = {"a": {"id": 1, "x": 2}, "b": {"id": "two", "note": "n"}}
    values |= {"raw": {}, "other": {"id": 4}}
    lake.publish(*((f"{name}.{one}", message(value), GZIP) for one, value in values.items()))
    sink = "tasks"
    parts: Any = {"sink": sink, "folder": lake.folder / sink, "stream": name}
    sinks = LIST.format(ddl="id INT, note STRING", **parts)
    pipeline = pipeline_of(lake.admin.url, name, lake.folder, sinks, options=options)
    check_tables(pipeline)
    (query,) = start_pipeline(pipeline, lake.spark, check_queries(pipeline, lake.spark)).values()
    query.awaitTermination(300)
    (row,) = lake.rows(f"{sink}/a")
    assert (row["id"], row["rest"]) == (1, '{"x":2}')
    assert lake.as_sent(f"{sink}/raw") == [(message({}), GZIP)]
    left = [(message(values[one]), GZIP) for one in ("b", "other")]
    assert lake.as_sent(f"{sink}/aside") == left
    sinks = LIST.format(ddl="note STRING", **parts)
    mended = pipeline_of(lake.admin.url, name, lake.folder, sinks, options=options)
    tried = reprocess(mended, sink)
    assert tried == ReprocessResult(added=1, already_present=0, remaining=1)
    assert [row["note"] for row in lake.rows(f"{sink}/b")] == ["n"]


@pytest.mark.full
def test_without_a_schema_headers_name_no_compression_that_was_undone(lake: Packed) -> None:
    lake.send((packed(b"one"), GZIP), (b"two", GZIP), (b"three", {"Site": "us"}))
    plain = [(b"one", {"Site": "eu"}), *lake.sent[1:]]
    for compression in ("header", "gzip"):
        options = {"compression": compression}
        lake.ingest(compression, options)
        assert lake.as_sent(compression) == plain
        assert lake.replayed(compression) == plain
    lake.ingest("as_it_came")
    assert lake.as_sent("as_it_came") == lake.sent


@pytest.mark.full
def test_what_is_made_of_rows_is_not_published_as_compressed(lake: Packed) -> None:
    lake.send((packed({"id": 1}), GZIP), (packed({"id": "two"}), GZIP), (b"{", {"Site": "us"}))
    lake.ingest("json", json_schema="id INT")
    site = {"Site": "eu"}
    assert lake.replayed("json") == [
        (b'{"id":1}', site), (b'{"id": "two"}', site), (b"{", {"Site": "us"})
    ]  # fmt: skip
    assert lake.replayed("json", data="string(id)", where="id = 1") == [(b"1", site)]


@pytest.mark.full
def test_a_bad_record_that_was_kept_as_it_came_is_published_so(lake: Packed) -> None:
    bad = gzip.compress(b"\xff\xff")
    lake.send((gzip.compress(written(OLD, {"a": 1})), GZIP), (bad, GZIP))
    lake.ingest("avro", {"decode": "avro", "schema": json.dumps(OLD)})
    assert lake.replayed("avro") == [(b'{"a":1}', {"Site": "eu"}), (bad, GZIP)]
