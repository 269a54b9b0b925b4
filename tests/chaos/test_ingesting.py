"""The campaign "ingesting" in small."""

from __future__ import annotations

from functools import partial

import pytest
from tests.chaos.campaign import Shared, run_one
from tests.chaos.ingesting import Message, Row, Sink, expected, ingesting
from tests.chaos.outcome import compare

SINK = Sink(many=True, keys=True, aside=True)


@pytest.mark.server
@pytest.mark.spark
def test_many_tables_have_every_message_in_one_place_after_kills() -> None:
    act = partial(ingesting, sink=SINK, format_="iceberg", lives=1)
    with Shared() as shared:
        outcome = run_one("many tables, upsert, quarantine, iceberg", act, 1, 0, shared)
    assert outcome.good, outcome
    assert outcome.faults >= 2


def test_a_message_in_two_places_or_in_a_wrong_one_is_seen() -> None:
    published = [
        Message(1, "E.r0", b"", "k", 5),
        Message(2, "E.r0", b"", "k", 6),
        Message(3, "E.r1", b"", "k", 7),
        Message(4, "E", b"x", "k", 8),
        Message(5, "E.r1", b"{", None, None),
    ]
    rows: list[Row] = list(expected(published, SINK))
    assert sorted(map(str, rows)) == [
        "('aside', None, 4, b'x', None)",
        "('aside', None, 5, b'{', 'r1')",
        "('lake/r0', 'k', 2, 6, 'r0')",
        "('lake/r1', 'k', 3, 7, 'r1')",
    ]
    elsewhere: Row = ("lake/r0", "k", 3, 7, "r1")
    found = compare([*rows[:-1], rows[0], elsewhere], rows, order=lambda _: ("", 0))
    assert (found.missing, found.repeated, found.unexpected) == (1, 1, 1)
