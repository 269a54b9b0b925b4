"""The campaigns of this folder in small."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest
from tests.fuzz import (
    archives,
    change_data,
    hostile_tables,
    json_columns,
    json_payloads,
    payloads,
    round_trips,
    streams,
)
from tests.wire.test_kernels import both

from jetspark.payloads.ddl import arrow_fields
from jetspark.payloads.json_decoder import JsonDecoder


def test_spoiled_archives_are_rows_or_a_typed_error() -> None:
    figures = archives.run(700, seed=1)
    assert figures.ended["refused"] > 150
    assert figures.ended["read"] > 100


@pytest.mark.tables
def test_tables_and_histories_of_events_are_those_of_the_database() -> None:
    figures = change_data.run(runs=4, seed=40, events=200)
    assert figures.wrong == []
    assert figures.versions > 0
    assert figures.rows > 500
    assert figures.bad_records > len(change_data.BAD)
    assert figures.left_out > len(change_data.LEFT_OUT)


@pytest.mark.tables
def test_nothing_is_executed_read_or_deleted_outside_of_a_hostile_table() -> None:
    figures = hostile_tables.run(25, seed=2)
    assert figures.wrong == []
    assert figures.done.total() > 40
    assert figures.refused.total() > 20


def test_hostile_json_makes_bad_records_and_nothing_else() -> None:
    figures = json_columns.run(300, seed=3)
    assert (figures.runs, figures.wrong) == (300, [])


@both
def test_the_c_kernel_takes_or_leaves_json_nearly() -> None:
    count = 20_000
    figures = json_payloads.run(count, seed=1)
    assert figures.wrong == []
    assert 0.3 * count < figures.parsed < 0.8 * count


def test_without_the_c_kernel_the_columns_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = arrow_fields("a INT, t STRING", "json:")
    given = pa.array([b'{"a": 1}', b"x", b'{"t": 1.5}'], pa.binary())
    expected = JsonDecoder(fields).decode(given)
    monkeypatch.setattr("jetspark.payloads.json_decoder.json_columns", None)
    assert JsonDecoder(fields).decode(given) == expected


def test_no_row_is_lost_and_no_good_one_changed_beside_damaged_payloads() -> None:
    figures = payloads.run(12_000, seed=1)
    assert figures.wrong == []
    assert 8000 < figures.rows < 12_000


def test_rewritten_rows_stay_the_same_for_every_reader_and_are_found_by_filters() -> None:
    figures = round_trips.run(4, seed=2026)
    assert figures.wrong == []
    assert figures.filters > 50


async def test_mutated_streams_are_events_or_a_typed_error_and_clients_always_end() -> None:
    figures = await asyncio.wait_for(streams.run(6_000, seed=1), 120)
    assert figures.streams["refused"] > 600
    assert figures.streams["accepted"] > 600
    assert figures.clients.total() == 120
    assert figures.clients["connected"] > 12
    assert len(figures.clients) > 3
