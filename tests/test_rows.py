"""`jetspark.read`: streams, buckets and backups as Arrow, Polars, pandas and DuckDB."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from tests.support.streams import Admin, numbered

import jetspark
from jetspark import blocking
from jetspark.acl import Roles
from jetspark.errors import (
    BucketNotFoundError,
    ConfigError,
    DataLossError,
    PermissionsError,
    StreamNotFoundError,
)
from jetspark.ranges import read_plan
from jetspark.ranges.arrow import BUCKET_SCHEMA, SCHEMA
from jetspark.ranges.fixed_range import AtTime
from jetspark.ranges.reader import read_range
from jetspark.ranges.scan import parse_bound

if TYPE_CHECKING:
    from tests.conftest import MakeServer, NeedsServer, Unique


def read(admin: Admin, *what: Any, **how: Any) -> jetspark.Rows:
    return jetspark.read(*what, servers=admin.url, **how)


def sequences(rows: jetspark.Rows) -> list[int]:
    found: list[int] = rows.to_arrow()["seq"].to_pylist()
    return found


# -- libraries -----------------------------------------------------------------------------------


def test_every_library_has_the_same_rows(admin: Admin) -> None:
    name = admin.stream(under=".>")
    headers = [("X", "1"), ("x", "two")]
    admin.fill([(f"{name}.eu", b"plain"), (f"{name}.us", b"\xff", headers), (f"{name}.eu", b"")])
    rows = read(admin, name)
    arrow = rows.to_arrow()
    assert arrow.schema.equals(SCHEMA)
    assert rows.schema.equals(SCHEMA)
    expected = arrow.to_pylist()
    assert [row["data"] for row in expected] == [b"plain", b"\xff", b""]
    assert rows.to_polars().to_dicts() == expected
    assert polars.DataFrame(rows).to_dicts() == expected
    assert pa.table(rows).to_pylist() == expected
    assert rows.to_pandas()["data"].tolist() == [b"plain", b"\xff", b""]
    with duckdb.connect() as connection:
        relation = rows.to_duckdb("orders", connection)
        assert relation.columns == SCHEMA.names
        found = connection.execute("SELECT seq, data, headers FROM orders ORDER BY seq").fetchall()
    assert found == [
        (1, b"plain", None),
        (2, b"\xff", [{"key": "X", "value": "1"}, {"key": "x", "value": "two"}]),
        (3, b"", None),
    ]


@pytest.mark.tables
def test_what_takes_arrows_c_stream_takes_the_rows(admin: Admin, tmp_path: Path) -> None:
    rows = read(admin, admin.stream(3))
    assert pa.RecordBatchReader.from_stream(rows).read_all().num_rows == 3
    with duckdb.connect() as connection:
        assert connection.execute("SELECT count(*) FROM rows").fetchall() == [(3,)]
    write_deltalake(tmp_path / "lake", rows)
    assert DeltaTable(tmp_path / "lake").to_pyarrow_table().num_rows == 3


def test_without_a_connection_the_table_is_in_duckdbs_own(admin: Admin) -> None:
    name = admin.stream(3)
    read(admin, name).to_duckdb(name)
    try:
        assert duckdb.sql(f'SELECT count(*) FROM "{name}"').fetchall() == [(3,)]
        with pytest.raises(duckdb.CatalogException, match="already exists"):
            read(admin, name).to_duckdb(name)
    finally:
        duckdb.sql(f'DROP TABLE "{name}"')


def test_duckdb_tells_of_a_loss_by_its_type(admin: Admin) -> None:
    name = admin.stream(10, max_msgs=5)
    with duckdb.connect() as connection, pytest.raises(DataLossError, match="sequences 1 to 5"):
        read(admin, name, start=1).to_duckdb("orders", connection)


@pytest.mark.parametrize(
    ("missing", "method", "install"),
    [
        ("polars", "to_polars", "pip install polars"),
        ("pandas", "to_pandas", "pip install pandas"),
        ("duckdb", "to_duckdb", "pip install duckdb"),
    ],
)
def test_a_missing_library_is_named_with_its_installation(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, missing: str, method: str, install: str
) -> None:
    rows = read(admin, admin.stream(1))
    rows.to_arrow()
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ConfigError, match=f"needs {missing}: {install}"):
        getattr(rows, method)(*(["orders"] if method == "to_duckdb" else []))


def test_without_pyarrow_read_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"needs pyarrow: pip install 'jetspark\[arrow\]'"):
        jetspark.read("ORDERS")


# -- ranges --------------------------------------------------------------------------------------


def test_a_range_by_sequence_is_without_its_end(admin: Admin) -> None:
    name = admin.stream(10)
    assert sequences(read(admin, name, start=3, end=6)) == [3, 4, 5]
    assert sequences(read(admin, name, start=11)) == []


def test_a_range_by_time_begins_with_the_first_message_at_or_after_it(admin: Admin) -> None:
    name = admin.stream(3)
    time.sleep(0.05)
    between = datetime.now(UTC)
    time.sleep(0.05)
    admin.fill(numbered(name, 2))
    assert sequences(read(admin, name, start=between)) == [4, 5]
    assert sequences(read(admin, name, end=between)) == [1, 2, 3]
    assert sequences(read(admin, name, start=between.isoformat())) == [4, 5]
    assert sequences(read(admin, name, start=timedelta(hours=2))) == [1, 2, 3, 4, 5]
    assert sequences(read(admin, name, start="2 hours")) == [1, 2, 3, 4, 5]
    assert sequences(read(admin, name, end="2 hours")) == []
    assert sequences(read(admin, name, start=datetime.now(UTC) + timedelta(days=1))) == []


def test_what_is_stored_since_a_time_is_no_loss_however_much_limits_removed(admin: Admin) -> None:
    name = admin.stream(10, max_msgs=5)
    rows = read(admin, name, start="2 hours")
    assert rows.schema is not None  # the range is fixed
    admin.fill(numbered(name, 2))
    assert sequences(rows) == [8, 9, 10]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2 hours", 7200),
        ("1 hour", 3600),
        ("90m", 5400),
        ("-90m", 5400),
        ("1.5 days ago", 129600),
        ("30 Seconds", 30),
        ("10 min", 600),
        ("1w", 604800),
    ],
)
def test_how_long_ago_is_written_as_people_do(text: str, seconds: float) -> None:
    found = parse_bound("start", text)
    assert isinstance(found, AtTime)
    assert abs(time.time_ns() - found.ns - seconds * 1e9) < 60e9


@given(st.datetimes(datetime(1980, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)))
def test_a_time_and_its_text_are_the_same_position(when: datetime) -> None:
    assert parse_bound("start", when) == parse_bound("start", when.isoformat())


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"start": 0}, "start must be at least 1"),
        ({"start": True}, "start is a whole number"),
        ({"start": "yesterday"}, "start is a sequence .* not 'yesterday'"),
        ({"end": datetime(2026, 1, 31)}, "end is a datetime with a time zone"),
        ({"columns": ["sequence"]}, "there is no column 'sequence'"),
        ({"columns": ["seq", "seq"]}, "columns names one twice"),
        ({"columns": ["seq"], "json_schema": "id STRING"}, "json_schema needs the column data"),
        ({"keys": "a"}, "keys and history are for buckets"),
        ({"subjects": ["a.*", "a.b"]}, "overlap"),
        ({"subjects": "a,b"}, r"give a list, subjects=\['a', 'b'\]"),
        ({"bucket": "b"}, "Name one thing to read"),
        ({"read_timeout": 0}, "timeout more than 0"),
        ({"server": "nats://127.0.0.1"}, "did you mean 'servers'"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_sent(how: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        jetspark.read("ORDERS", **how)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"start": 40}, "start is 40, but stream .* ends at sequence 10"),
        ({"start": 1_800_000_000}, "if you mean a time, give start '2027-01-15T08:00:00Z'"),
        ({"start": 7, "end": 3}, "before it begins"),
        ({"subjects": "nowhere"}, "subjects: no message under 'nowhere'"),
        ({"json_schema": "id VARIANT"}, "is no type that payloads have"),
        ({"json_schema": "id INT, ID INT"}, "ID is there twice"),
        ({"json_schema": "id INTEGR"}, "did you mean INTEGER"),
        ({"json_schema": ""}, "become columns by a schema: give it"),
    ],
)
def test_what_the_stream_does_not_have_is_refused(admin: Admin, how: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(admin, admin.stream(10), **how).to_arrow()


def test_a_folder_as_text_is_told_from_a_stream() -> None:
    with pytest.raises(ConfigError, match=r"write Path\('backups/orders'\)"):
        jetspark.read("backups/orders")


def test_a_stream_that_is_not_there_is_named_with_the_nearest(admin: Admin) -> None:
    name = admin.stream(1)
    with pytest.raises(StreamNotFoundError, match=f'did you mean "{name}"'):
        read(admin, f"{name}X").to_arrow()
    with pytest.raises(BucketNotFoundError):
        read(admin, bucket=name).to_arrow()


def test_a_work_queue_is_refused_and_stays_as_it_is(admin: Admin) -> None:
    name = admin.stream(3, retention="workqueue")
    with pytest.raises(ConfigError, match=f"`jetspark stream view {name}`"):
        read(admin, name).to_arrow()
    assert admin.facts(name).messages == 3


def test_removed_messages_are_a_loss_unless_told_otherwise(admin: Admin) -> None:
    name = admin.stream(10, max_msgs=5)
    with pytest.raises(DataLossError, match=r"sequences 1 to 5 .* Set fail_on_data_loss to false"):
        read(admin, name, start=1).to_arrow()
    assert sequences(read(admin, name, start=1, fail_on_data_loss=False)) == [6, 7, 8, 9, 10]


def test_the_range_is_fixed_by_the_first_use(admin: Admin) -> None:
    name = admin.stream(3)
    rows = read(admin, name)
    admin.fill(numbered(name, 1))
    assert len(sequences(rows)) == 4
    admin.fill(numbered(name, 1))
    assert len(sequences(rows)) == 4


def test_subjects_and_columns_are_chosen_by_the_server(admin: Admin) -> None:
    name = admin.stream(under=".>")
    admin.fill([(f"{name}.{place}", b"x") for place in ("eu", "us", "eu", "asia")])
    rows = read(admin, name, subjects=[f"{name}.eu", f"{name}.asia"], columns=["subject", "seq"])
    assert rows.to_arrow().to_pylist() == [
        {"subject": f"{name}.eu", "seq": 1},
        {"subject": f"{name}.eu", "seq": 3},
        {"subject": f"{name}.asia", "seq": 4},
    ]


# -- a snapshot or a consumer --------------------------------------------------------------------


def test_a_long_stream_comes_through_a_snapshot(
    admin: Admin, needs_server: NeedsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_server("2.15")
    monkeypatch.setattr(read_plan, "_MIN_SNAPSHOT_MESSAGES", 1000)
    name = admin.stream(2000)
    ways = []

    def noted(connection: Any, wanted: Any, **how: Any) -> Any:
        ways.append(wanted.snapshot)
        return read_range(connection, wanted, **how)

    monkeypatch.setattr(read_plan, "read_range", noted)
    assert sequences(read(admin, name)) == list(range(1, 2001))
    assert sequences(read(admin, name, backfill="consumer")) == list(range(1, 2001))
    assert sequences(read(admin, name, start=1500)) == list(range(1500, 2001))
    read(admin, name).head()
    assert ways == [True, False, False, False]


def test_the_role_of_a_range_reader_is_enough_without_a_snapshot(
    make_server: MakeServer, needs_server: NeedsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_server("2.15")
    monkeypatch.setattr(read_plan, "_MIN_SNAPSHOT_MESSAGES", 1000)
    few = Roles().range_reader("S").to_config()
    server = make_server(
        "authorization { users = ["
        f"{{ user: all, password: p }}, {{ user: few, password: p, {few} }}"
        "] }"
    )
    with Admin(server.url.replace("//", "//all:p@")) as admin:
        admin.create("S", "s")
        admin.fill(numbered("s", 2000))
    url = server.url.replace("//", "//few:p@")
    assert sequences(jetspark.read("S", servers=url)) == list(range(1, 2001))
    assert jetspark.read("S", servers=url, start="2 hours").head().num_rows == 10
    with pytest.raises(PermissionsError):
        jetspark.read("S", servers=url, backfill="snapshot").to_arrow()


# -- JSON ----------------------------------------------------------------------------------------


@pytest.fixture
def orders(admin: Admin) -> str:
    name = admin.stream(under=".>")
    payloads = [
        {"id": "a", "amount": 1.5, "at": "2026-01-31T12:00:00Z", "tags": ["x"]},
        {"id": "b", "amount": 2, "at": "2026-01-31T13:00:00Z"},
    ]
    admin.fill([(f"{name}.eu", json.dumps(one).encode()) for one in payloads])
    admin.fill([(f"{name}.eu", b"no JSON")])
    return name


def test_a_schema_makes_columns_and_leaves_what_does_not_fit(admin: Admin, orders: str) -> None:
    rows = read(
        admin, orders, columns=["seq", "data"], json_schema="id STRING, amount DOUBLE, at TIMESTAMP"
    )
    found = rows.to_arrow()
    assert found.schema.equals(rows.schema)
    assert found.to_pylist() == [
        {
            "seq": 1, "id": "a", "amount": 1.5,
            "at": datetime(2026, 1, 31, 12, tzinfo=UTC), "_corrupt_record": None,
            "_corrupt_reason": None,
        },
        {
            "seq": 2, "id": "b", "amount": 2.0,
            "at": datetime(2026, 1, 31, 13, tzinfo=UTC), "_corrupt_record": None,
            "_corrupt_reason": None,
        },
        {
            "seq": 3, "id": None, "amount": None, "at": None, "_corrupt_record": "no JSON",
            "_corrupt_reason": "The payload is not one JSON object: invalid character (byte 4).",
        },
    ]  # fmt: skip


def test_the_column_of_a_field_can_have_another_name(admin: Admin, orders: str) -> None:
    rename = {"at": "timestamp_of_order"}
    for how in (
        {"json_schema": "id STRING, at TIMESTAMP"},
        {"json_schema": True},
        {"decode": "debezium", "schema": "id STRING, at TIMESTAMP"},
    ):
        found = read(admin, orders, rename=rename, **how).to_arrow()
        assert "at" not in found.column_names
        assert found["timestamp_of_order"].to_pylist()[0] is not None
    with pytest.raises(ConfigError, match="the payloads have no field 'x'"):
        read(admin, orders, decode="debezium", schema="id STRING", rename={"x": "y"})
    with pytest.raises(ConfigError, match="rename goes with json_schema or decode"):
        read(admin, orders, rename=rename)


def test_a_sample_makes_columns_and_leaves_the_payloads_whole(admin: Admin, orders: str) -> None:
    found = read(admin, orders, json_schema=True).to_polars()
    assert found["id"].to_list() == ["a", "b", None]
    assert found["amount"].to_list() == [1.5, 2.0, None]
    assert found["tags"].to_list() == [["x"], None, None]
    assert json.loads(found["data"][0])["tags"] == ["x"]
    assert found["data"][2] == b"no JSON"


def test_compressed_payloads_make_columns_and_stay_as_they_came(admin: Admin) -> None:
    name, encoding = admin.stream(under=".>"), [("Content-Encoding", "gzip")]
    payloads = [gzip.compress(one) for one in (b'{"id": 1}', b'{"id": 2}', b'{"id": "x"}')]
    admin.fill([(f"{name}.eu", one, encoding) for one in payloads] + [(f"{name}.us", b"{}")])
    found = read(admin, name, json_schema=True, subjects=f"{name}.eu").to_arrow()
    assert found["id"].to_pylist() == ["1", "2", "x"]
    assert found["data"].to_pylist() == payloads
    found = read(admin, name, decode="json", schema="id INT").to_arrow()
    assert found["id"].to_pylist() == [1, 2, None, None]
    assert found["_corrupt_record"].to_pylist() == [None, None, '{"id": "x"}', None]


def test_without_fields_in_a_sample_the_columns_are_those_of_messages(admin: Admin) -> None:
    assert read(admin, admin.stream(), json_schema=True).to_polars().shape == (0, 6)
    assert read(admin, admin.stream(3, size=5), json_schema=True).to_arrow().schema.equals(SCHEMA)


# -- buckets and backups -------------------------------------------------------------------------


def test_a_bucket_has_its_present_values_or_its_history(admin: Admin, unique: Unique) -> None:
    name = unique("prices")
    with blocking.connect(admin.url) as nc:
        bucket = nc.jetstream().create_bucket(name, history=5)
        for key, value in (("eu.a", b"1"), ("eu.a", b"2"), ("us.b", b"3"), ("eu.c", b"4")):
            bucket.put(key, value)
        bucket.delete("eu.c")
    present = read(admin, bucket=name).to_arrow()
    assert present.schema.equals(BUCKET_SCHEMA)
    assert dict(zip(present["key"].to_pylist(), present["value"].to_pylist(), strict=True)) == {
        "eu.a": b"2",
        "us.b": b"3",
    }
    some = read(admin, bucket=name, keys="eu.*", columns=["key"]).to_arrow()
    assert some.to_pylist() == [{"key": "eu.a"}]
    history = read(admin, bucket=name, history=True, start=2).to_arrow()
    assert history["operation"].to_pylist() == ["PUT", "PUT", "PUT", "DEL"]
    assert history["bucket"].to_pylist() == [name] * 4
    with pytest.raises(ConfigError, match="history=True"):
        read(admin, bucket=name, start=2)


def test_a_backup_is_read_without_a_server(admin: Admin, tmp_path: Path) -> None:
    name = admin.stream(under=".>", max_msgs=8)
    admin.fill([(f"{name}.{n % 2}", b'{"n": %d}' % n) for n in range(1, 11)])
    folder = tmp_path / "backup"
    with blocking.connect(admin.url) as nc:
        nc.jetstream().backup_stream(name, folder)
    rows = jetspark.read(folder)
    assert rows.to_arrow()["seq"].to_pylist() == list(range(3, 11))
    some = jetspark.read(folder, subjects=f"{name}.0", start=5, end=9, json_schema="n INT")
    assert some.to_arrow()["n"].to_pylist() == [6, 8]
    assert jetspark.read(folder, json_schema=True).to_polars()["n"].to_list() == list(range(3, 11))
    assert jetspark.read(folder, start="2 hours").to_arrow().num_rows == 8
    assert jetspark.read(folder).head(2).num_rows == 2
    with pytest.raises(
        DataLossError, match=r"1 to 2 had been removed.* Set fail_on_data_loss to false"
    ):
        jetspark.read(folder, start=1).to_arrow()
    with pytest.raises(ConfigError, match="servers is for servers"):
        jetspark.read(folder, servers=admin.url)


# -- bounded memory, notebooks, asyncio ----------------------------------------------------------


def test_batches_come_while_they_are_read(admin: Admin) -> None:
    rows = read(admin, admin.stream(70_000), backfill="consumer")
    batches = iter(rows)
    assert next(batches).num_rows < 70_000
    assert 0 < sum(batch.num_rows for batch in batches) < 70_000


def test_a_notebook_shows_the_first_rows_and_reads_no_others(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = admin.stream(30_000)
    admin.fill([(name, b"<b>")])
    limits = []

    def noted(*what: Any, **how: Any) -> Any:
        limits.append(how["limits"].pull_messages)
        return read_range(*what, **how)

    monkeypatch.setattr(read_plan, "read_range", noted)
    rows = read(admin, name)
    html = rows._repr_html_()
    assert limits == [10]
    assert html.count("<tr>") == 11
    assert "the first 10 rows" in html
    last = read(admin, name, start=30_001)._repr_html_()
    assert "&lt;b&gt;" in last
    assert "all rows" in last
    assert repr(rows) == f"jetspark.read({name!r})"


def test_a_bar_shows_how_far_it_is(admin: Admin, capsys: pytest.CaptureFixture[str]) -> None:
    name = admin.stream(300)
    assert read(admin, name, progress=True).to_arrow().num_rows == 300
    assert f"reading {name}" in (shown := capsys.readouterr().err)
    assert "300/300" in shown


async def test_in_asyncio_a_thread_reads(admin: Admin) -> None:
    name = admin.stream(1000)
    tables = await asyncio.gather(
        *(asyncio.to_thread(read(admin, name).to_polars) for _ in range(4))
    )
    assert [len(table) for table in tables] == [1000] * 4
