"""Plans ranges and partitions from offsets and the facts of streams. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from jetspark.err_codes import STREAM_NOT_FOUND
from jetspark.errors import DataLossError, StreamNotFoundError, named
from jetspark.links.stream_facts import StreamFacts
from jetspark.ranges.fixed_range import Position, check_exists, head, tail
from jetspark.ranges.losses import Loss
from jetspark.ranges.sequence_range import SequenceRange
from jetspark.spark.source.offsets import StreamOffset

# -- offsets of one stream -------------------------------------------------------------------


def initial_offset(facts: StreamFacts, start: Position) -> StreamOffset:
    """The offset of a new query. Raises ConfigError for a sequence that does not exist yet."""
    if start == "earliest":
        first = head(facts)
        return StreamOffset(facts.created, first, first, earliest=True, initial=True)
    if start == "latest":
        return StreamOffset(facts.created, tail(facts), tail(facts), initial=True)
    check_exists(facts, start, named("starting_offsets"))
    return StreamOffset(facts.created, start, start, initial=True)


@dataclass(frozen=True, slots=True)
class Backlog:
    """The part of a stream to be read, from an offset on."""

    offset: StreamOffset
    """The offset at which it begins: the query's, or the first one of a recreated stream."""
    first: int
    """The first sequence that may still be stored; those before it are lost or were replaced."""
    end: StreamOffset
    """The offset after the last message."""

    def __len__(self) -> int:
        return max(0, self.end.next - self.first)

    def offset_after(self, count: int) -> StreamOffset:
        """The offset after the first `count` sequences of the backlog."""
        return replace(self.end, next=self.first + count if count else self.offset.next)


def plan_backlog(
    facts: StreamFacts,
    offset: StreamOffset,
    *,
    target: int | None = None,
    fail_on_data_loss: bool = True,
) -> Backlog:
    """The unread part of a stream, before the sequence `target` if there is one.

    With `fail_on_data_loss` it raises StreamRecreatedError or DataLossError; otherwise lost
    messages are left out.
    """
    if offset.missing:
        offset = replace(offset, missing=False)
    if fail_on_data_loss:
        option = named("fail_on_data_loss")
        check_not_recreated(
            facts,
            offset,
            f"Set {option} to false to read it from its first message, without what was not read "
            "of the old one; what both hold comes again.",
        )
        falls_short = tail(facts) < offset.next
        does = "wait until the stream has caught up" if falls_short else "go on without"
        check_not_shorter(facts, offset, f"Set {option} to false to {does}.")
    if facts.created != offset.created:
        offset = initial_offset(facts, "earliest")
    begin = offset.next
    if tail(facts) < begin:
        return Backlog(offset, begin, offset)
    if head(facts) > begin:
        may_go = offset.initial and offset.earliest
        # Messages replaced by newer ones are not lost; the reader finds out whether that is all.
        no_loss = may_go or facts.keeps_last_per_subject or facts.has_a_gap_at(begin)
        if fail_on_data_loss and not no_loss:
            raise DataLossError(
                facts.name,
                begin,
                head(facts) - 1,
                f"Stream {facts.name!r} begins at sequence {head(facts)} now: sequences {begin} "
                f"to {head(facts) - 1} were removed {facts.removed_by}. "
                f"Set {named('fail_on_data_loss')} to false to continue without them.",
            )
        begin = head(facts)
    end = tail(facts) if target is None else min(tail(facts), max(target, offset.next))
    if end == offset.next and not offset.initial:
        return Backlog(offset, begin, offset)
    after = replace(offset, next=end, initial=False, last=facts.last, witness=None)
    return Backlog(offset, begin, after)


# -- losses ----------------------------------------------------------------------------------


def check_not_recreated(facts: StreamFacts, offset: StreamOffset, advice: str) -> None:
    """Raise StreamRecreatedError, which ends with the advice, for a stream that was recreated."""
    if facts.created != offset.created:
        raise facts.recreated_error(offset.created, advice)


def check_not_shorter(facts: StreamFacts, offset: StreamOffset, advice: str) -> None:
    """Raise DataLossError, which ends with the advice, for a stream that is shorter than it was.

    A recreated stream may be.
    """
    if is_shorter(facts, offset):
        problem = f"{_shorter_message(facts, offset)} {advice}"
        raise DataLossError(facts.name, tail(facts), offset.last_known, problem)


def is_shorter(facts: StreamFacts, offset: StreamOffset) -> bool:
    """Whether the stream, unless it was recreated, has lost the last message it is known to have
    had."""
    return facts.created == offset.created and facts.last_seq < offset.last_known


def _shorter_message(facts: StreamFacts, offset: StreamOffset) -> str:
    """The sentence about a stream that is shorter than the query knows it."""
    verb = "read" if offset.last_known < offset.next else "stored"
    return (
        f"Stream {facts.name!r} ends at sequence {facts.last_seq}, but {offset.last_known} was "
        f"{verb} before: the server has lost acknowledged messages."
    )


def _missing_message(stream: str) -> str:
    """The beginning of a sentence about a stream that is gone."""
    return f'Stream "{stream}" is gone, with what was not read of it, if anything'


def describe_loss(stream: str, facts: StreamFacts | None, offset: StreamOffset) -> Loss | None:
    """The loss that a query with `failOnDataLoss=false` accepts; None if there is none.

    `facts`: None for a stream that is gone.
    """
    if facts is None:
        problem = f"{_missing_message(stream)}; the query continues without it."
        return None if offset.missing else Loss(stream, problem, f"gone {offset.created}")
    if facts.created != offset.created:
        advice = "It is read from its first message, without what was not read of the old one."
        problem = str(facts.recreated_error(offset.created, advice))
        return Loss(stream, problem, f"made {facts.created}")
    if is_shorter(facts, offset):
        until = f"What is stored meanwhile up to sequence {offset.next - 1} is not read."
        problem = f"{_shorter_message(facts, offset)} {until}"
        # The end changes while the stream grows, so it is not part of the loss's key.
        return Loss(stream, problem, f"short of {offset.last_known}")
    return None  # the reader reports a missing head, since it knows its own position


def may_be_outdated(facts: Mapping[str, StreamFacts], offsets: Mapping[str, StreamOffset]) -> bool:
    """Whether the facts may come from a leader that was replaced: a stream is gone, was recreated
    or is shorter than it was. (A removed head is no such sign.)"""
    return any(
        describe_loss(name, facts.get(name), offset) is not None for name, offset in offsets.items()
    )


# -- offsets of all streams ------------------------------------------------------------------


def plan_next_offsets(
    facts: Mapping[str, StreamFacts],
    offsets: Mapping[str, StreamOffset],
    *,
    max_offsets: int | None = None,
    max_bytes: int | None = None,
    min_offsets: int | None = None,
    targets: Mapping[str, int] | None = None,
    fail_on_data_loss: bool = True,
) -> dict[str, StreamOffset]:
    """The offsets at which the next batch ends; they equal `offsets` when there is nothing to read,
    unless one of these is initial, and thus not in Spark's log yet.

    `max_offsets` and `max_bytes`, which is estimated from the average message, are divided among
    the streams in proportion to what each has; with fewer than `min_offsets` in all there is
    nothing to read. `targets`: the ends of an AvailableNow run. A stream that appeared after the
    query began is read from its earliest message, unless it is not among the targets. A stream that
    is gone is marked as missing. Raises the errors of `plan_backlog`, and StreamNotFoundError for a
    stream that is gone and not marked yet.
    """
    backlogs: dict[str, Backlog] = {}
    missing: dict[str, StreamOffset] = {}
    for name, offset in offsets.items():
        if name in facts:
            target = None if targets is None else targets.get(name, offset.next)
            backlogs[name] = plan_backlog(
                facts[name], offset, target=target, fail_on_data_loss=fail_on_data_loss
            )
        elif fail_on_data_loss and not offset.missing:
            raise StreamNotFoundError(
                404,
                STREAM_NOT_FOUND,
                "stream not found",
                f"{_missing_message(name)}. Set {named('fail_on_data_loss')} to false for one run "
                "to continue without it.",
            )
        else:
            missing[name] = replace(offset, missing=True)
    for name in facts.keys() - offsets.keys():
        if targets is None or name in targets:
            fresh = initial_offset(facts[name], "earliest")
            target = None if targets is None else targets[name]
            backlogs[name] = plan_backlog(facts[name], fresh, target=target)
    lengths = {name: len(backlog) for name, backlog in backlogs.items()}
    total = sum(lengths.values())
    first_time = any(offset.initial for offset in offsets.values())
    if min_offsets is not None and total < min_offsets and not first_time:
        return dict(offsets)
    limit = _limit_in_sequences(facts, lengths, max_offsets, max_bytes)
    if limit is None or limit >= total:
        return missing | {name: backlog.end for name, backlog in backlogs.items()}
    shares = divide_limit(limit, lengths)
    return missing | {
        name: backlog.offset_after(shares[name]) for name, backlog in backlogs.items()
    }


def _limit_in_sequences(
    facts: Mapping[str, StreamFacts],
    lengths: Mapping[str, int],
    max_offsets: int | None,
    max_bytes: int | None,
) -> int | None:
    """The most sequences of a batch by both limits, None for no limit; `lengths`: of backlogs."""
    if max_bytes is None:
        return max_offsets
    # Bytes per sequence, gaps included, since the limit is divided in sequences.
    size = sum(
        count * facts[name].bytes / max(1, tail(facts[name]) - head(facts[name]))
        for name, count in lengths.items()
    )
    total = sum(lengths.values())
    by_bytes = total if size <= max_bytes else max(1, int(total * max_bytes / size))
    return by_bytes if max_offsets is None else min(by_bytes, max_offsets)


def divide_limit(limit: int, lengths: Mapping[str, int]) -> dict[str, int]:
    """Divide `limit` in proportion to `lengths`; no share exceeds its length."""
    total = sum(lengths.values())
    if total <= limit:
        return dict(lengths)
    # Each stream gets its share rounded down; the rest goes to those that were rounded down most.
    shares = {name: limit * count // total for name, count in lengths.items()}
    remainder = limit - sum(shares.values())
    by_remainder = sorted(lengths, key=lambda name: (-(limit * lengths[name] % total), name))
    for name in by_remainder[:remainder]:
        shares[name] += 1
    return shares


# -- ranges ----------------------------------------------------------------------------------


def plan_range(
    stream: str, start: StreamOffset | None, end: StreamOffset, subjects: tuple[str, ...] = ()
) -> SequenceRange:
    """The range between two offsets of one stream; `start` is None for a new stream.

    After a crash an initial `start` may have been resolved again, so the start in the logged end
    counts; likewise if the stream was recreated in between.
    """
    resolved = start is None or start.initial or start.created != end.created
    begin = end.start if start is None or resolved else start.next
    return SequenceRange(
        stream=stream,
        start=begin,
        end=max(begin, end.next),
        created=end.created,
        subjects=subjects,
        from_earliest=resolved and end.earliest,
        witness=None if start is None or resolved else start.witness,
    )
