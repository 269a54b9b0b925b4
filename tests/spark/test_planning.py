"""Planning without I/O: whatever Spark does between two crashes, each sequence is read once."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from jetspark.errors import ConfigError, DataLossError, StreamNotFoundError, StreamRecreatedError
from jetspark.links.stream_facts import StreamFacts
from jetspark.ranges.fixed_range import Position, fixed_range
from jetspark.ranges.sequence_range import SequenceRange
from jetspark.spark.source import partitions, planning
from jetspark.spark.source.offsets import StreamOffset, from_json, to_json

CREATED = "2026-01-01T00:00:00.123456789Z"


def stream(
    first: int, last: int, *, name: str = "S", created: str = CREATED, per_subject: bool = False
) -> StreamFacts:
    how: dict[str, Any] = {"retention": "limits", "keeps_last_per_subject": per_subject}
    how |= {"first_seq": first, "last_seq": last, "messages": max(0, last - first + 1)}
    return StreamFacts(name=name, created=created, bytes=0, **how)


def through_json(offsets: dict[str, StreamOffset]) -> dict[str, StreamOffset]:
    """As Spark keeps it: as text."""
    return from_json(json.loads(json.dumps(to_json(offsets))))


def next_offset(facts: StreamFacts, offset: StreamOffset, **how: Any) -> StreamOffset:
    """Of a query on one stream."""
    if (target := how.pop("target", None)) is not None:
        how["targets"] = {facts.name: target}
    return planning.plan_next_offsets({facts.name: facts}, {facts.name: offset}, **how)[facts.name]


# -- the whole life of a query ---------------------------------------------------------------

_streams = st.sampled_from(["A", "B", "LATER"])
_sizes = {"max_offsets": 12, "max_bytes": 2_000, "min_offsets": 12}
_limits = st.fixed_dictionaries({}, optional={k: st.integers(1, v) for k, v in _sizes.items()})
_events = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), _streams, st.integers(1, 30)),
        st.tuples(st.just("batch"), _limits, st.none()),
        st.tuples(st.just("crash while the batch runs"), _limits, st.none()),
        st.tuples(st.just("restart"), st.none(), st.none()),
    ),
    max_size=40,
)


class Engine:
    """What Spark does with a source: it logs a batch's end, runs it, and logs that it is done."""

    def __init__(self, start: Position) -> None:
        self.option = start
        self.facts = {"A": stream(1, 0, name="A"), "B": stream(1, 3, name="B")}
        self.logged: list[dict[str, StreamOffset]] = []
        self.done = 0
        self.rows: dict[str, list[int]] = {}
        self.first: dict[str, int] = {}
        self.restart()

    def publish(self, name: str, count: int) -> None:
        """LATER is a stream that a pattern finds once it is there."""
        last = self.facts[name].last_seq if name in self.facts else 0
        self.facts[name] = stream(1, last + count, name=name)

    def restart(self) -> None:
        # Spark does not keep the initial offset: it is asked for again as long as no batch is
        # done, and the streams may have grown since.
        self.initial = through_json(
            {name: planning.initial_offset(one, self.option) for name, one in self.facts.items()}
        )

    def batch(self, limits: dict[str, Any], *, crash: bool = False) -> None:
        if self.done == len(self.logged):
            start = self.logged[-1] if self.logged else self.initial
            end = planning.plan_next_offsets(self.facts, start, **limits)
            if end == start:
                return
            self.logged.append(through_json(end))
            for name, offset in end.items():
                self.first.setdefault(name, offset.start)
        start = self.logged[self.done - 1] if self.done else self.initial
        ends = self.logged[self.done]
        ranges = [planning.plan_range(name, start.get(name), ends[name]) for name in sorted(ends)]
        parts = partitions.split_ranges(ranges, min_partitions=3, max_records=4)
        if crash:
            self.restart()
            return
        for part in parts:
            self.rows.setdefault(part.stream, []).extend(range(part.start, part.end))
        self.done += 1


@given(start=st.sampled_from(["earliest", "latest"]), events=_events)
def test_every_sequence_exactly_once_over_crashes(
    start: Position, events: list[tuple[str, Any, Any]]
) -> None:
    engine = Engine(start)
    for what, one, other in events:
        if what == "publish":
            engine.publish(one, other)
        elif what == "batch":
            engine.batch(one)
        elif what == "crash while the batch runs":
            engine.batch(one, crash=True)
        else:
            engine.restart()
    # In the end everything that was logged or is there is read.
    engine.batch({})
    engine.batch({})
    for name, first in engine.first.items():
        assert engine.rows.get(name, []) == list(range(first, engine.facts[name].last_seq + 1))
    assert engine.first.keys() == engine.facts.keys()


# -- limits ----------------------------------------------------------------------------------


@given(
    limit=st.integers(0, 200),
    backlog=st.dictionaries(st.text("abcdef", min_size=1, max_size=2), st.integers(0, 100)),
)
def test_a_limit_is_divided_completely_and_no_share_exceeds_its_stream(
    limit: int, backlog: dict[str, int]
) -> None:
    shares = planning.divide_limit(limit, backlog)
    assert sum(shares.values()) == min(limit, sum(backlog.values()))
    assert all(0 <= shares[name] <= count for name, count in backlog.items())
    assert shares.keys() == backlog.keys()


def test_bytes_are_estimated_from_the_stream() -> None:
    facts = {"S": dataclasses.replace(stream(1, 100), bytes=10_000)}
    offsets = {"S": StreamOffset(CREATED, 1, 1)}
    assert planning.plan_next_offsets(facts, offsets, max_bytes=2_000)["S"].next == 21
    assert planning.plan_next_offsets(facts, offsets, max_bytes=1)["S"].next == 2
    assert planning.plan_next_offsets(facts, offsets, max_bytes=2_000, max_offsets=5)["S"].next == 6
    assert planning.plan_next_offsets(facts, offsets, max_bytes=10**9)["S"].next == 101


def test_fewer_than_the_minimum_wait_unless_nothing_is_logged_yet() -> None:
    offset = StreamOffset(CREATED, 91, 1)
    assert next_offset(stream(1, 99), offset, min_offsets=10) == offset
    assert next_offset(stream(1, 100), offset, min_offsets=10).next == 101
    initial = planning.initial_offset(stream(1, 100), "latest")
    assert not next_offset(stream(1, 100), initial, min_offsets=10).initial


def test_a_stream_that_is_gone_stops_the_query_unless_allowed() -> None:
    offsets = {"A": StreamOffset(CREATED, 5, 1), "B": StreamOffset(CREATED, 5, 1)}
    facts = {"B": stream(1, 10, name="B")}
    with pytest.raises(StreamNotFoundError, match='"A" is gone'):
        planning.plan_next_offsets(facts, offsets)
    ends = planning.plan_next_offsets(facts, offsets, fail_on_data_loss=False)
    assert (ends["A"], ends["B"].next) == (structs.replace(offsets["A"], missing=True), 11)


def test_what_was_accepted_as_gone_stays_so_and_is_not_read_again_when_it_comes_back() -> None:
    offsets = {"A": StreamOffset(CREATED, 5, 1)}
    assert planning.may_be_outdated({}, offsets)
    ends = from_json(to_json(planning.plan_next_offsets({}, offsets, fail_on_data_loss=False)))
    assert not planning.may_be_outdated({}, ends)
    assert planning.plan_next_offsets({}, ends) == ends
    assert planning.plan_range("A", offsets["A"], ends["A"]).start == 5
    back = planning.plan_next_offsets({"A": stream(1, 4, name="A")}, ends)
    assert back == offsets
    with pytest.raises(StreamNotFoundError, match="if anything"):
        planning.plan_next_offsets({}, back)
    assert planning.plan_next_offsets({"A": stream(1, 9, name="A")}, ends)["A"].next == 10
    with pytest.raises(StreamRecreatedError):
        planning.plan_next_offsets(
            {"A": stream(1, 9, created="2031-01-01T00:00:00Z", name="A")}, ends
        )


def test_a_stream_that_comes_after_the_freeze_waits_for_the_next_run() -> None:
    facts = {"A": stream(1, 10, name="A"), "B": stream(1, 10, name="B")}
    offsets = {"A": StreamOffset(CREATED, 5, 1)}
    assert planning.plan_next_offsets(facts, offsets, targets={"A": 11}).keys() == {"A"}
    assert planning.plan_next_offsets(facts, offsets)["B"].next == 11


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
    parts = partitions.split_range(wanted, min_partitions=min_partitions, max_records=max_records)
    position = wanted.start
    for part in parts:
        assert part.start == position
        assert 1 <= len(part) <= max_records
        assert (part.stream, part.created, part.subjects) == ("S", CREATED, ("a",))
        position = part.end
    assert position == wanted.end
    assert len(parts) >= min(length, min_partitions)
    assert max(map(len, parts), default=0) - min(map(len, parts), default=0) <= 1
    assert [part.from_earliest for part in parts] == [
        earliest and n == 0 for n, _ in enumerate(parts)
    ]


def test_several_ranges_share_the_partitions_by_length() -> None:
    small = SequenceRange("A", 1, 11, CREATED)
    large = SequenceRange("B", 1, 91, CREATED)
    none = SequenceRange("C", 1, 1, CREATED)
    parts = partitions.split_ranges([small, large, none], min_partitions=10, max_records=10**9)
    assert [part.stream for part in parts] == ["A"] + ["B"] * 9
    assert partitions.split_ranges([none], min_partitions=4, max_records=10) == []


@given(
    lengths=st.lists(st.integers(1, 100_000), max_size=300),
    min_partitions=st.integers(1, 40),
    max_records=st.integers(100_000, 300_000),
)
def test_small_ranges_share_a_partition(
    lengths: list[int], min_partitions: int, max_records: int
) -> None:
    parts = [SequenceRange(str(n), 1, 1 + length, CREATED) for n, length in enumerate(lengths)]
    shared = partitions.group_ranges(parts, min_partitions=min_partitions, max_records=max_records)
    assert [one for ranges in shared for one in ranges] == parts
    assert len(shared) >= min(len(parts), min_partitions)
    assert all(sum(map(len, ranges)) <= max_records for ranges in shared)
    # Two neighbours would not have fitted into one.
    if min_partitions == 1:
        costs = [sum(len(one) + 1_000 for one in ranges) for ranges in shared]
        assert all(a + b > 64_000 for a, b in pairwise(costs))


# -- offsets ---------------------------------------------------------------------------------


def test_the_first_offset_is_logged_even_when_there_is_nothing() -> None:
    initial = planning.initial_offset(stream(1, 10), "latest")
    logged = next_offset(stream(1, 10), initial)
    assert logged != initial
    assert len(planning.plan_range("S", initial, logged)) == 0
    assert next_offset(stream(1, 10), logged) == logged  # idle
    later = next_offset(stream(1, 15), logged)
    assert planning.plan_range("S", logged, later).start == 11


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
def test_batch_end_obeys_limits_and_the_available_now_end(
    limit: int | None, target: int | None, expected: int
) -> None:
    offset = StreamOffset(CREATED, 21, 1)
    end = next_offset(stream(1, 100), offset, max_offsets=limit, target=target)
    assert end.next == expected


def test_lost_sequences_stop_the_query_unless_allowed() -> None:
    offset = StreamOffset(CREATED, 5, 1)
    with pytest.raises(DataLossError, match="sequences 5 to 9 were removed") as caught:
        next_offset(stream(10, 20), offset)
    assert (caught.value.first, caught.value.last) == (5, 9)
    assert next_offset(stream(10, 20), offset, fail_on_data_loss=False).next == 21
    # A limit counts from the first stored sequence.
    assert next_offset(stream(10, 20), offset, max_offsets=4, fail_on_data_loss=False).next == 14
    # A superseded head is no loss.
    assert next_offset(stream(10, 20, per_subject=True), offset).next == 21


def test_the_head_may_move_while_nothing_was_read_from_earliest() -> None:
    offset = planning.initial_offset(stream(1, 20), "earliest")
    end = next_offset(stream(10, 20), offset)
    assert planning.plan_range("S", offset, end).from_earliest
    assert end.next == 21


def test_a_stream_that_went_back_stops_the_query_unless_allowed() -> None:
    offset = StreamOffset(CREATED, 50, 1)
    with pytest.raises(DataLossError, match="ends at sequence 20"):
        next_offset(stream(1, 20), offset)
    assert next_offset(stream(1, 20), offset, fail_on_data_loss=False) == offset


def test_a_recreated_stream_stops_the_query_or_begins_anew() -> None:
    offset = StreamOffset(CREATED, 50, 1)
    again = stream(1, 20, created="2027-01-01T00:00:00Z")
    with pytest.raises(StreamRecreatedError):
        next_offset(again, offset)
    end = next_offset(again, offset, fail_on_data_loss=False)
    wanted = planning.plan_range("S", offset, end)
    assert (wanted.start, wanted.end, wanted.created) == (1, 21, again.created)


@pytest.mark.parametrize(
    ("facts", "start", "expected"),
    [
        (stream(1, 0), "earliest", 1),
        (stream(1, 0), "latest", 1),
        (stream(8, 20), "earliest", 8),
        (stream(8, 20), "latest", 21),
        (stream(8, 20), 10, 10),
        (stream(8, 20), 21, 21),
        (stream(21, 20), "earliest", 21),
    ],
)
def test_where_a_query_begins(facts: StreamFacts, start: Position, expected: int) -> None:
    offset = planning.initial_offset(facts, start)
    assert (offset.next, offset.start) == (expected, expected)
    with pytest.raises(ConfigError, match=f"ends at sequence {facts.last_seq}"):
        planning.initial_offset(facts, facts.last_seq + 2)


def test_batch_range_comes_from_its_positions_and_is_checked() -> None:
    for positions, expected in (
        (("earliest", "latest"), (5, 21, True)),
        ((7, 9), (7, 9, False)),
    ):
        wanted = fixed_range(stream(5, 20), *positions)
        assert (wanted.start, wanted.end, wanted.from_earliest) == expected
    for end, says in ((7, "before it begins"), (40, "ends at sequence 20")):
        with pytest.raises(ConfigError, match=says):
            fixed_range(stream(5, 20), 9, end)


def test_offset_documents_have_one_order() -> None:
    offsets = {name: StreamOffset(CREATED, 2, 1, earliest=True) for name in ("B", "A")}
    text = json.dumps(to_json(offsets))
    assert text == json.dumps(to_json(dict(sorted(offsets.items()))))
    assert text == json.dumps(json.loads(text), sort_keys=True)


def test_a_gap_of_any_length_makes_no_more_partitions_than_can_be_planned() -> None:
    wanted = SequenceRange("S", 6, 2**62, CREATED)
    parts = partitions.split_range(wanted, min_partitions=4, max_records=250_000)
    assert len(parts) == partitions.MAX_PARTITIONS
    assert (parts[0].start, parts[-1].end) == (6, 2**62)
    assert all(one.end == after.start for one, after in pairwise(parts))


@given(st.booleans(), st.booleans())
def test_offsets_are_read_with_and_without_flags(earliest: bool, initial: bool) -> None:
    offset = StreamOffset(CREATED, 2, 1, earliest=earliest, initial=initial)
    named = {"created": CREATED, "earliest": earliest, "initial": initial, "next": 2, "start": 1}
    assert from_json({"streams": {"S": named}, "version": 1}) == {"S": offset}
    document = to_json({"S": offset})
    assert from_json(document) == {"S": offset}
    assert False not in document["streams"]["S"].values()


def test_foreign_checkpoints_are_refused() -> None:
    of_another = {"version": 1, "streams": {"S": {"next": 1}}}
    documents: list[Any] = [{}, [], {"version": 2, "streams": {}}, of_another]
    for document in documents:
        with pytest.raises(ConfigError, match="checkpoint"):
            from_json(document)
