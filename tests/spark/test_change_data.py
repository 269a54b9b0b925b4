"""A database's changes in a stream become its table."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from tests.support.debezium import (
    ENVELOPE_SCHEMA,
    TABLE,
    Database,
    replay,
    replay_history,
    with_repeats,
)
from tests.support.lake import Lake
from tests.support.streams import Admin
from tests.support.table_readers import by_duckdb

from jetspark.errors import ConfigError
from jetspark.spark.source.debezium_schema import add_event_schema
from jetspark.tables.formats import Format

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.tables]

BAD = (
    b'{"hello": 1}',
    b'{"op": "c", "after": {"id": 1}}',
    b'{"op": "c", "after": {"customer": "x"}, "source": {"table": "%s"}}' % TABLE.encode(),
)
"""What has no value for the key: no event, an envelope without source, a row without its key."""


@pytest.mark.full
def test_a_run_makes_the_table_of_the_database(lake: Lake) -> None:
    """In two runs, with bad messages between the events; and a history of the same stream."""
    rng = random.Random(5)
    database = Database(rng)
    for _ in range(300):
        database.change()
    subject = f"{lake.stream}.public.{TABLE}"
    messages = [
        (subject, one.payload("postgresql")) for one in with_repeats(rng, database.log, 0.02)
    ]
    messages[50:50] = [(subject, b"{"), (subject, b""), (subject, b'{"ts_ms": 5}')]
    messages[80:80] = [(subject, one) for one in BAD]
    how = {"minPartitions": "2", "maxOffsetsPerTrigger": "120", "decode": "debezium"}
    options = lake.options | how
    for begin, end in pairwise((0, len(messages) // 2, len(messages))):
        lake.admin.fill(messages[begin:end])
        source = add_event_schema(options)
        left_out = run(lake, source, "direct/{__table}")
        assert left_out == (2 if begin == 0 else 0)  # a tombstone and a heartbeat
        run(lake, source, "history", format="iceberg", history=True)
    with pytest.raises(StreamingQueryException, match=r"Message (51|81) of .* does not become"):
        lake.ingest("stopped", source, keys=["id"])
    rows = "SELECT id, customer, amount, epoch_us(changed), __table FROM t ORDER BY id"
    wanted = [(*row.values(), TABLE) for _, row in sorted(replay(database.log).items())]
    assert by_duckdb(Format.DELTA, lake.folder / "direct" / TABLE, rows) == wanted
    said = 'SELECT seq, data, "column", reason FROM t ORDER BY seq'
    aside = by_duckdb(Format.DELTA, lake.folder / "bad_direct", said)
    assert [one[:3] for one in aside] == [
        (51, b"{", None), (81, BAD[0], None), (82, BAD[1], None), (83, BAD[2], "id"),
    ]  # fmt: skip
    assert aside[0][3].startswith("The payload is not one JSON object")
    assert aside[1][3].startswith("The payload is no event")
    assert aside[3][3] == "There is no value in id, which is the table's key."
    versions = "SELECT id, __op, epoch_us(valid_from), epoch_us(valid_to), amount FROM t"
    found = by_duckdb(Format.ICEBERG, lake.folder / "history", versions)
    assert sorted(map(str, found)) == sorted(map(str, replay_history(database.log)))


def run(lake: Lake, options: Any, to: str, **how: Any) -> int:
    """The number of messages that were left out."""
    aside = str(lake.folder / f"bad_{to.partition('/')[0]}")
    done = lake.ingest(to, options, keys=["id"], quarantine=aside, **how)
    return done.left_out


def test_the_schema_is_that_of_the_newest_event_or_has_to_be_given(admin: Admin) -> None:
    stream = admin.stream(under=".>")
    options = {"servers": admin.url, "stream": stream, "decode": "debezium"}
    with pytest.raises(ConfigError, match="there is no event that carries its schema"):
        add_event_schema(options)
    database = Database(random.Random(1))
    database.change(truncates=0)
    admin.fill([(f"{stream}.a", database.log[0].payload("mysql"))])
    assert json.loads(add_event_schema(options)["schema"]) == ENVELOPE_SCHEMA
    number = [{"type": "int64", "field": 5}]
    incomplete: list[Any] = [
        {
            "schema": {"type": "struct", "fields": fields},
            "payload": {"op": "c", "source": {}, "after": {}},
        }
        for fields in ([], number, [{"type": "int64", "field": "_jetspark_files"}])
    ]
    incomplete[1]["schema"]["fields"] = [
        {"type": "struct", "fields": number, "field": name} for name in ("before", "after", "op")
    ]
    newer = [json.dumps(one).encode() for one in incomplete]
    admin.fill([(f"{stream}.a", one) for one in (*newer, b"", b"{", *[b""] * 300)])
    assert json.loads(add_event_schema(options)["schema"]) == ENVELOPE_SCHEMA
    named = {**options, "schemaFile": "orders.json"}
    assert add_event_schema(named) is named
