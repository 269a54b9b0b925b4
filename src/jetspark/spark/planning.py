"""Planning: from offsets and what a stream says of itself to ranges and partitions. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

from jetspark.bulk.ranges import SequenceRange
from jetspark.bulk.stream_api import StreamFacts
from jetspark.errors import ConfigError, DataLossError, StreamRecreatedError
from jetspark.spark.offsets import StreamOffset
from jetspark.spark.options import Position


def head(facts: StreamFacts) -> int:
    """The first sequence that may be stored; behind the last one when the stream is empty."""
    if facts.messages == 0:
        return facts.last_seq + 1
    return max(facts.first_seq, 1)


def tail(facts: StreamFacts) -> int:
    """The sequence that the next message will get."""
    return facts.last_seq + 1


def initial_offset(facts: StreamFacts, start: Position) -> StreamOffset:
    """Where a query begins. Raises ConfigError for a sequence that does not exist yet."""
    if start == "earliest":
        first = head(facts)
        return StreamOffset(facts.created, first, first, earliest=True, initial=True)
    if start == "latest":
        return StreamOffset(facts.created, tail(facts), tail(facts), initial=True)
    _check_exists(facts, start, "startingOffsets")
    return StreamOffset(facts.created, start, start, initial=True)


def _check_exists(facts: StreamFacts, sequence: int, option: str) -> None:
    if sequence > tail(facts):
        raise ConfigError(
            f"Option {option!r} is {sequence}, but stream {facts.name!r} ends at sequence "
            f"{facts.last_seq}."
        )


def next_offset(
    facts: StreamFacts,
    offset: StreamOffset,
    *,
    max_offsets: int | None = None,
    target: int | None = None,
    fail_on_data_loss: bool = True,
) -> StreamOffset:
    """The end of the next batch; equal to `offset` when there is nothing new, unless that is
    initial and thus not logged yet.

    `max_offsets` counts sequences, gaps included; `target` is a sequence not to pass.
    Raises StreamRecreatedError and DataLossError, or goes on without what is lost.
    """
    if facts.created != offset.created:
        if fail_on_data_loss:
            raise StreamRecreatedError(facts.name, offset.created, facts.created)
        offset = initial_offset(facts, "earliest")
    begin = offset.next
    if tail(facts) < begin:
        if fail_on_data_loss:
            raise DataLossError(
                facts.name,
                tail(facts),
                begin - 1,
                f"Stream {facts.name!r} ends at sequence {facts.last_seq}, but {begin - 1} was "
                "read before: the server has lost acknowledged messages. "
                "Set failOnDataLoss to false to wait until the stream has caught up.",
            )
        return offset
    if head(facts) > begin:
        may_go = offset.initial and offset.earliest
        if fail_on_data_loss and not may_go and not facts.keeps_last_per_subject:
            raise DataLossError(
                facts.name,
                begin,
                head(facts) - 1,
                f"Stream {facts.name!r} begins at sequence {head(facts)} now: sequences {begin} "
                f"to {head(facts) - 1} were removed (limits, purge or expiry) before they were "
                "read. Set failOnDataLoss to false to go on without them.",
            )
        begin = head(facts)
    end = tail(facts)
    if max_offsets is not None:
        end = min(end, begin + max_offsets)
    if target is not None:
        end = min(end, max(target, offset.next))
    return StreamOffset(offset.created, max(end, offset.next), offset.start, offset.earliest)


def batch_range(
    stream: str,
    start: StreamOffset,
    end: StreamOffset,
    subjects: tuple[str, ...] = (),
) -> SequenceRange:
    """The range between two offsets of one stream.

    An initial `start` may have been resolved again after a crash; what counts is the start that
    the logged end carries. The same holds when the stream was recreated in between.
    """
    resolved = start.initial or start.created != end.created
    begin = end.start if resolved else start.next
    return SequenceRange(
        stream=stream,
        start=begin,
        end=max(begin, end.next),
        created=end.created,
        subjects=subjects,
        from_earliest=resolved and end.earliest,
    )


def fixed_range(
    facts: StreamFacts,
    start: Position,
    end: Position,
    subjects: tuple[str, ...] = (),
) -> SequenceRange:
    """The range of a batch read; `end` as a sequence is not included.

    Raises ConfigError for sequences that the stream has not reached, or an end before the start.
    """
    first = initial_offset(facts, start)
    last = tail(facts)
    if isinstance(end, int):
        _check_exists(facts, end, "endingOffsets")
        last = end
    if last < first.next:
        if isinstance(start, int):
            raise ConfigError(
                f"Option 'endingOffsets' ({last}) is before 'startingOffsets' ({start})."
            )
        last = first.next
    return SequenceRange(
        stream=facts.name,
        start=first.next,
        end=last,
        created=facts.created,
        subjects=subjects,
        from_earliest=first.earliest,
    )


def split(wanted: SequenceRange, *, min_partitions: int, max_records: int) -> list[SequenceRange]:
    """Cut a range into partitions of nearly equal length, none empty.

    As many as `min_partitions`, or more when one would exceed `max_records` sequences.
    """
    length = len(wanted)
    count = min(length, max(min_partitions, -(-length // max_records)))
    return [
        SequenceRange(
            stream=wanted.stream,
            start=wanted.start + length * index // count,
            end=wanted.start + length * (index + 1) // count,
            created=wanted.created,
            subjects=wanted.subjects,
            # The head of the earliest part may go; behind it, what is missing is missing.
            from_earliest=wanted.from_earliest and index == 0,
        )
        for index in range(count)
    ]


def split_all(
    ranges: Iterable[SequenceRange], *, min_partitions: int, max_records: int
) -> list[SequenceRange]:
    """Partitions of several ranges, each getting its share of `min_partitions` by length."""
    filled = [one for one in ranges if len(one)]
    total = sum(map(len, filled))
    return [
        part
        for one in filled
        for part in split(
            one,
            min_partitions=max(1, -(-min_partitions * len(one) // total)),
            max_records=max_records,
        )
    ]
