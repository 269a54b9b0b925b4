"""Planning without I/O: whatever Spark does between two crashes, each sequence is read once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.bulk.ranges import SequenceRange
from jetspark.bulk.stream_api import StreamFacts
from jetspark.errors import ConfigError, DataLossError, StreamRecreatedError
from jetspark.spark import planning
from jetspark.spark.offsets import StreamOffset, from_json, to_json

if TYPE_CHECKING:
    from jetspark.spark.options import Position

CREATED = "2026-01-01T00:00:00.123456789Z"


def stream(
    first: int, last: int, *, created: str = CREATED, per_subject: bool = False
) -> StreamFacts:
    return StreamFacts(
        name="S",
        created=created,
        first_seq=first,
        last_seq=last,
        messages=max(0, last - first + 1),
        bytes=0,
        retention="limits",
        subjects=("s.>",),
        keeps_last_per_subject=per_subject,
    )


def through_json(offset: StreamOffset) -> StreamOffset:
    """As Spark keeps it: as text."""
    return from_json(json.loads(json.dumps(to_json({"S": offset}))))["S"]


# -- the whole life of a query ---------------------------------------------------------------

_events = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 30)),
        st.tuples(st.just("batch"), st.none() | st.integers(1, 10)),
        st.tuples(st.just("crash while the batch runs"), st.none() | st.integers(1, 10)),
        st.tuples(st.just("crash before the batch is logged"), st.none()),
        st.tuples(st.just("restart"), st.none()),
    ),
    max_size=40,
)


class Engine:
    """What Spark does with a source: it logs a batch's end, runs it, and logs that it is done."""

    def __init__(self, start: Position) -> None:
        self.option = start
        self.facts = stream(1, 0)
        self.logged: list[StreamOffset] = []
        self.done = 0
        self.rows: list[int] = []
        self.first: int | None = None
        self.restart()

    def restart(self) -> None:
        # Spark does not keep the initial offset: it is asked for again as long as no batch is
        # done, and the stream may have grown since.
        self.initial = through_json(planning.initial_offset(self.facts, self.option))

    def batch(self, limit: int | None, *, crash: bool = False) -> None:
        if self.done == len(self.logged):
            start = self.logged[-1] if self.logged else self.initial
            end = planning.next_offset(self.facts, start, max_offsets=limit)
            if end == start:
                return
            self.logged.append(through_json(end))
            if self.first is None:
                self.first = start.next
        start = self.logged[self.done - 1] if self.done else self.initial
        wanted = planning.batch_range("S", start, self.logged[self.done])
        parts = planning.split(wanted, min_partitions=3, max_records=4)
        if crash:
            self.restart()
            return
        self.rows += [seq for part in parts for seq in range(part.start, part.end)]
        self.done += 1


@given(start=st.sampled_from(["earliest", "latest"]), events=_events)
def test_every_sequence_exactly_once_over_crashes(
    start: Position, events: list[tuple[str, int | None]]
) -> None:
    engine = Engine(start)
    for what, number in events:
        if what == "publish":
            assert number is not None
            engine.facts = stream(1, engine.facts.last_seq + number)
        elif what == "batch":
            engine.batch(number)
        elif what == "crash while the batch runs":
            engine.batch(number, crash=True)
        else:
            engine.restart()
    # In the end everything that was logged or is there is read.
    engine.batch(None)
    engine.batch(None)
    if engine.first is not None:
        assert engine.rows == list(range(engine.first, engine.facts.last_seq + 1))


# -- splitting -------------------------------------------------------------------------------


@given(
    start=st.integers(1, 10**12),
    length=st.integers(0, 5_000),
    min_partitions=st.integers(1, 50),
    max_records=st.integers(1, 2_000),
    earliest=st.booleans(),
)
def test_partitions_cover_the_range_once(
    start: int, length: int, min_partitions: int, max_records: int, earliest: bool
) -> None:
    wanted = SequenceRange("S", start, start + length, CREATED, ("a",), earliest)
    parts = planning.split(wanted, min_partitions=min_partitions, max_records=max_records)
    position = wanted.start
    for part in parts:
        assert part.start == position
        assert 1 <= len(part) <= max_records
        assert (part.stream, part.created, part.subjects) == ("S", CREATED, ("a",))
        position = part.end
    assert position == wanted.end
    assert len(parts) >= min(length, min_partitions)
    assert max(map(len, parts), default=0) - min(map(len, parts), default=0) <= 1
    assert [part.from_earliest for part in parts] == [earliest] * bool(parts) + [False] * (
        len(parts) - 1
    )


def test_several_ranges_share_the_partitions_by_length() -> None:
    small = SequenceRange("A", 1, 11, CREATED)
    large = SequenceRange("B", 1, 91, CREATED)
    none = SequenceRange("C", 1, 1, CREATED)
    parts = planning.split_all([small, large, none], min_partitions=10, max_records=10**9)
    assert [part.stream for part in parts] == ["A"] + ["B"] * 9
    assert planning.split_all([none], min_partitions=4, max_records=10) == []


# -- offsets ---------------------------------------------------------------------------------


def test_idle_gives_back_the_same_offset() -> None:
    offset = StreamOffset(CREATED, 11, 1)
    assert planning.next_offset(stream(1, 10), offset) == offset


def test_the_first_offset_is_logged_even_when_there_is_nothing() -> None:
    initial = planning.initial_offset(stream(1, 10), "latest")
    logged = planning.next_offset(stream(1, 10), initial)
    assert logged != initial
    assert len(planning.batch_range("S", initial, logged)) == 0
    later = planning.next_offset(stream(1, 15), logged)
    assert planning.batch_range("S", logged, later).start == 11


@pytest.mark.parametrize(
    ("limit", "target", "expected"),
    [
        (None, None, 101),
        (10, None, 31),
        (None, 50, 50),
        (10, 25, 25),
        (500, 500, 101),
        (None, 5, 21),
    ],
)
def test_limits_and_the_frozen_end(limit: int | None, target: int | None, expected: int) -> None:
    offset = StreamOffset(CREATED, 21, 1)
    end = planning.next_offset(stream(1, 100), offset, max_offsets=limit, target=target)
    assert end.next == expected


def test_a_limit_counts_from_the_first_stored_sequence() -> None:
    offset = StreamOffset(CREATED, 1, 1)
    end = planning.next_offset(
        stream(1_000, 2_000), offset, max_offsets=10, fail_on_data_loss=False
    )
    assert end.next == 1_010


def test_lost_sequences_stop_the_query_unless_allowed() -> None:
    offset = StreamOffset(CREATED, 5, 1)
    with pytest.raises(DataLossError, match="sequences 5 to 9 were removed") as caught:
        planning.next_offset(stream(10, 20), offset)
    assert (caught.value.first, caught.value.last) == (5, 9)
    assert planning.next_offset(stream(10, 20), offset, fail_on_data_loss=False).next == 21


def test_the_head_may_move_while_nothing_was_read_from_earliest() -> None:
    offset = planning.initial_offset(stream(1, 20), "earliest")
    end = planning.next_offset(stream(10, 20), offset)
    assert planning.batch_range("S", offset, end).from_earliest
    assert end.next == 21


def test_a_superseded_head_is_no_loss() -> None:
    offset = StreamOffset(CREATED, 5, 1)
    assert planning.next_offset(stream(10, 20, per_subject=True), offset).next == 21


def test_a_stream_that_went_back_stops_the_query_unless_allowed() -> None:
    offset = StreamOffset(CREATED, 50, 1)
    with pytest.raises(DataLossError, match="ends at sequence 20"):
        planning.next_offset(stream(1, 20), offset)
    assert planning.next_offset(stream(1, 20), offset, fail_on_data_loss=False) == offset


def test_a_recreated_stream_stops_the_query_or_begins_anew() -> None:
    offset = StreamOffset(CREATED, 50, 1)
    again = stream(1, 20, created="2027-01-01T00:00:00Z")
    with pytest.raises(StreamRecreatedError):
        planning.next_offset(again, offset)
    end = planning.next_offset(again, offset, fail_on_data_loss=False)
    wanted = planning.batch_range("S", offset, end)
    assert (wanted.start, wanted.end, wanted.created) == (1, 21, again.created)


@pytest.mark.parametrize(
    ("facts", "start", "expected"),
    [
        (stream(1, 0), "earliest", 1),
        (stream(1, 0), "latest", 1),
        (stream(8, 20), "earliest", 8),
        (stream(8, 20), "latest", 21),
        (stream(8, 20), 10, 10),
        (stream(21, 20), "earliest", 21),
    ],
)
def test_where_a_query_begins(facts: StreamFacts, start: Position, expected: int) -> None:
    offset = planning.initial_offset(facts, start)
    assert (offset.next, offset.start) == (expected, expected)


def test_a_start_that_does_not_exist_yet_is_refused() -> None:
    with pytest.raises(ConfigError, match="ends at sequence 20"):
        planning.initial_offset(stream(1, 20), 22)
    assert planning.initial_offset(stream(1, 20), 21).next == 21


def test_the_range_of_a_batch_read() -> None:
    wanted = planning.fixed_range(stream(5, 20), "earliest", "latest")
    assert (wanted.start, wanted.end, wanted.from_earliest) == (5, 21, True)
    wanted = planning.fixed_range(stream(5, 20), 7, 9)
    assert (wanted.start, wanted.end, wanted.from_earliest) == (7, 9, False)
    with pytest.raises(ConfigError, match="before 'startingOffsets'"):
        planning.fixed_range(stream(5, 20), 9, 7)
    with pytest.raises(ConfigError, match="ends at sequence 20"):
        planning.fixed_range(stream(5, 20), 9, 40)


def test_offset_documents_have_one_order() -> None:
    offsets = {name: StreamOffset(CREATED, 2, 1, earliest=True) for name in ("B", "A")}
    text = json.dumps(to_json(offsets))
    assert text == json.dumps(to_json(dict(sorted(offsets.items()))))
    assert text == json.dumps(json.loads(text), sort_keys=True)


@pytest.mark.parametrize(
    "document",
    [{}, {"version": 2, "streams": {}}, {"version": 1, "streams": {"S": {"next": 1}}}, []],
)
def test_foreign_checkpoints_are_refused(document: object) -> None:
    with pytest.raises(ConfigError, match="checkpoint"):
        from_json(document)  # type: ignore[arg-type]
