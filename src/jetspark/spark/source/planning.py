"""Plans the ranges of batches from offsets and the facts of streams, and finds losses. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from jetspark.err_codes import STREAM_NOT_FOUND
from jetspark.errors import DataLossError, StreamNotFoundError, named, switching
from jetspark.links.stream_facts import StreamFacts
from jetspark.ranges.fixed_range import Position, check_exists, head, tail
from jetspark.ranges.losses import Loss
from jetspark.ranges.sequence_range import SequenceRange
from jetspark.spark.source.offsets import StreamOffset

# -- offsets of one stream -------------------------------------------------------------------


def initial_offset(facts: StreamFacts, start: Position) -> StreamOffset:
    """The offset at which a new query begins in a stream, for the option's position `start`.

    Raises ConfigError for a sequence behind the end of the stream.
    """
    if start == "earliest":
        first = head(facts)
        return StreamOffset(facts.created, next=first, start=first, earliest=True, initial=True)
    if start == "latest":
        return StreamOffset(facts.created, next=tail(facts), start=tail(facts), initial=True)
    check_exists(facts, start, named("starting_offsets"))
    return StreamOffset(facts.created, next=start, start=start, initial=True)


@dataclass(frozen=True, slots=True)
class Backlog:
    """The part of a stream that a query has not read yet, from its offset to an end."""

    offset: StreamOffset
    """The offset at which it begins: the query's, or the first one of a recreated stream."""
    first: int
    """The first sequence that may still be stored; those before it are lost or were replaced."""
    end: StreamOffset
    """The offset after the last message."""

    def __len__(self) -> int:
        return max(0, self.end.next - self.first)

    def offset_after(self, count: int) -> StreamOffset:
        """The offset of a query that reads only the first `count` sequences of the backlog.

        For 0 it stays where it is, also if what comes next was removed.
        """
        return replace(self.end, next=self.first + count if count else self.offset.next)


def plan_backlog(
    facts: StreamFacts,
    offset: StreamOffset,
    *,
    target: int | None = None,
    fail_on_data_loss: bool = True,
) -> Backlog:
    """Find the part of a stream that a query at `offset` has not read, up to the end of the stream
    or to before the sequence `target`.

    With `fail_on_data_loss` it raises StreamRecreatedError or DataLossError; otherwise lost
    messages are left out.
    """
    if offset.missing:  # the stream is there again
        offset = replace(offset, missing=False)
    if fail_on_data_loss:
        without = switching("fail_on_data_loss", False)
        check_not_recreated(
            facts,
            offset,
            f"{without} to read it from its first message, without what was not read "
            "of the old one; what both hold comes again.",
        )
        # Shorter than what was read, or only than the last message that was seen.
        falls_short = tail(facts) < offset.next
        does = "wait until the stream has caught up" if falls_short else "go on without"
        check_not_shorter(facts, offset, f"{without} to {does}.")
    if facts.created != offset.created:  # recreated: read from its beginning
        offset = initial_offset(facts, "earliest")
    begin = offset.next
    if tail(facts) < begin:  # shorter than it was: nothing to read until it has caught up
        return Backlog(offset, begin, offset)
    if head(facts) > begin:
        # A query that begins at "earliest", and has read nothing, misses nothing.
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
                f"{switching('fail_on_data_loss', False)} to continue without them.",
            )
        begin = head(facts)
    end = tail(facts) if target is None else min(tail(facts), max(target, offset.next))
    # An initial offset must change even then, so that Spark logs it.
    if end == offset.next and not offset.initial:
        return Backlog(offset, begin, offset)
    after = replace(offset, next=end, initial=False, last=facts.last, witness=None)
    return Backlog(offset, begin, after)


# -- losses ----------------------------------------------------------------------------------


def check_not_recreated(facts: StreamFacts, offset: StreamOffset, advice: str) -> None:
    """Raise StreamRecreatedError if the stream is not the one that the query read, but a new one of
    its name. `advice`: the end of the message."""
    if facts.created != offset.created:
        raise facts.recreated_error(offset.created, advice)


def check_not_shorter(facts: StreamFacts, offset: StreamOffset, advice: str) -> None:
    """Raise DataLossError if the stream has lost messages at its end since the query planned.

    A recreated stream may be shorter. `advice`: the end of the message.
    """
    if is_shorter(facts, offset):
        problem = f"{_shorter_message(facts, offset)} {advice}"
        raise DataLossError(facts.name, tail(facts), offset.last_known, problem)


def is_shorter(facts: StreamFacts, offset: StreamOffset) -> bool:
    """Whether the stream now ends before the last message that the query knows it had.

    False for a recreated stream, whose sequences are others.
    """
    return facts.created == offset.created and facts.last_seq < offset.last_known


def _shorter_message(facts: StreamFacts, offset: StreamOffset) -> str:
    """The first sentence of a message about a stream that has lost messages at its end."""
    verb = "read" if offset.last_known < offset.next else "stored"
    return (
        f"Stream {facts.name!r} ends at sequence {facts.last_seq}, but {offset.last_known} was "
        f"{verb} before: the server has lost acknowledged messages."
    )


def _missing_message(stream: str) -> str:
    """The beginning of a sentence about a stream that is gone."""
    return f'Stream "{stream}" is gone, with what was not read of it, if anything'


def describe_loss(stream: str, facts: StreamFacts | None, offset: StreamOffset) -> Loss | None:
    """Describe what a query loses as a stream is gone, was recreated, or is shorter than it was.

    With `failOnDataLoss=false` the query goes on, and the loss is logged. Returns None if nothing
    is lost, or it was accepted before. `facts`: None for a stream that is gone; `offset`: the
    query's.
    """
    if facts is None:
        problem = f"{_missing_message(stream)}; the query continues without it."
        return None if offset.missing else Loss(stream, problem, key=f"gone {offset.created}")
    if facts.created != offset.created:
        advice = "It is read from its first message, without what was not read of the old one."
        problem = str(facts.recreated_error(offset.created, advice))
        return Loss(stream, problem, key=f"made {facts.created}")
    if is_shorter(facts, offset):
        until = f"What is stored meanwhile up to sequence {offset.next - 1} is not read."
        problem = f"{_shorter_message(facts, offset)} {until}"
        # The end changes while the stream grows, so it is not part of the loss's key.
        return Loss(stream, problem, key=f"short of {offset.last_known}")
    return None  # the reader reports a missing head, since it knows its own position


def may_be_outdated(facts: Mapping[str, StreamFacts], offsets: Mapping[str, StreamOffset]) -> bool:
    """Whether a stream seems to be gone, recreated or shorter than it was, so that the facts may be
    old ones, from a leader that was replaced, and should be fetched from a proven leader.

    Messages removed from the head are no such sign: old facts would have more, not fewer.
    """
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
    """Plan where the next batch of a query ends in each stream; `offsets`: where the query is now.

    The result equals `offsets` when there is nothing to read, unless one of these is initial, and
    thus not in Spark's log yet. A stream that appeared after the query began is read from its
    earliest message, unless it is not among the targets. One that is gone is marked as missing.

    `max_offsets` and `max_bytes`, which is estimated from the average message, are divided among
    the streams in proportion to what each has; with fewer than `min_offsets` in all there is
    nothing to read. `targets`: the ends of an AvailableNow run. Raises the errors of
    `plan_backlog`, and StreamNotFoundError for a stream that is gone and not marked yet.
    """
    backlogs: dict[str, Backlog] = {}
    missing: dict[str, StreamOffset] = {}
    for name, offset in offsets.items():
        if name in facts:
            # In an AvailableNow run nothing is read of a stream without a target.
            target = None if targets is None else targets.get(name, offset.next)
            backlogs[name] = plan_backlog(
                facts[name], offset, target=target, fail_on_data_loss=fail_on_data_loss
            )
        elif fail_on_data_loss and not offset.missing:
            raise StreamNotFoundError(
                404,
                STREAM_NOT_FOUND,
                "stream not found",
                f"{_missing_message(name)}. {switching('fail_on_data_loss', False)} for one run "
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
    # A first batch does not wait for more, so that Spark soon logs where the query began.
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
    """The number of sequences that a batch may have, by the limits in sequences and in bytes.

    None if there is no limit. `lengths`: by stream, the sequences that are not read yet. Bytes are
    estimated from the average size of a stream's messages.
    """
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
    """Divide a batch's limit among streams, in proportion to what each has to read (`lengths`).

    The shares add up to the limit, if there is so much to read, and none exceeds its length.
    """
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
    """The range of a stream that a batch reads, between the offsets at its start and end.

    `start`: None for a stream that is new in this batch. If the batch is the query's first one in
    the stream, it begins where `end` says that the query began: Spark has logged `end`, but after a
    crash an initial `start` may have been resolved again, to another sequence.
    """
    # Whether the batch is the first one in this stream; a recreated stream is a new one.
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
