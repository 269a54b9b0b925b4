"""The range of a stream that is read once: where it begins and ends, and its subjects."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from jetspark.errors import ConfigError, named
from jetspark.links.leaders import confirmed_facts, linearizable_read
from jetspark.links.stream_api import StreamAPI
from jetspark.links.stream_facts import StreamFacts
from jetspark.nearest import did_you_mean
from jetspark.ranges.sequence_range import SequenceRange
from jetspark.subjects import subjects_overlap
from jetspark.timestamps import NANOSECONDS, format_isotime

logger = logging.getLogger("jetspark.ranges")

# -- positions -----------------------------------------------------------------------------------

Position: TypeAlias = Literal["earliest", "latest"] | int
"""The earliest stored message, after the latest, or a sequence."""

NS_PER_MS = 1_000_000
_LIKELY_NS = (10**18, 4 * 10**18)  # 2001 to 2096


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message stored at or after a time, nanoseconds since the epoch."""

    ns: int


PositionOrTime: TypeAlias = Position | AtTime


def resolve_position(
    position: PositionOrTime,
    stream: str,
    sequence_at: Callable[[int], int | None],
    *,
    none_is_latest: bool,
) -> Position:
    """Replace a time by the first sequence stored at or after it; other positions stay.

    `sequence_at`: looks up that sequence by nanoseconds; None when all messages are older. Then the
    position is "latest" if `none_is_latest`; otherwise this raises ConfigError.
    """
    if not isinstance(position, AtTime):
        return position
    sequence = sequence_at(position.ns)
    if sequence is not None:
        return sequence
    if none_is_latest:
        return "latest"
    check_not_future(position, stream)
    raise ConfigError(
        f"Stream {stream!r} has no message at or after {format_isotime(position.ns)}; set "
        f"{named('starting_offsets_by_timestamp_strategy')} to latest to begin after its last "
        "message."
    )


def check_not_future(position: AtTime, stream: str) -> None:
    """Raise ConfigError for a start in the future: messages of before that time would be read,
    since a read begins behind the stream's last message."""
    if position.ns > time.time_ns():
        raise ConfigError(
            f"Stream {stream!r} has no message at or after {format_isotime(position.ns)}, a time "
            "in the future, before which messages may still come: begin at latest, or at a time "
            "that has passed."
        )


# -- the range -----------------------------------------------------------------------------------


def head(facts: StreamFacts) -> int:
    """The first sequence that the stream may have; in an empty one, that of the next message."""
    if facts.messages == 0:
        return facts.last_seq + 1
    return max(facts.first_seq, 1)


def tail(facts: StreamFacts) -> int:
    """The sequence of the next message."""
    return facts.last_seq + 1


def check_exists(facts: StreamFacts, sequence: int, name: str) -> None:
    """Raise ConfigError for a sequence that is after the next message of the stream.

    `name`: what the user calls this position.
    """
    if sequence > tail(facts):
        raise ConfigError(
            f"{name} is {sequence}, but stream {facts.name!r} ends at sequence "
            f"{facts.last_seq}{_hint_at_time(name, sequence)}."
        )


def _hint_at_time(name: str, sequence: int) -> str:
    """Advice for a sequence that looks like a time: seconds or milliseconds since the epoch.

    Part of an error's sentence; empty for other sequences. `name`: what the user calls it.
    """
    for ns_per_unit in (NANOSECONDS, NS_PER_MS):
        ns = sequence * ns_per_unit
        if _LIKELY_NS[0] <= ns < _LIKELY_NS[1]:
            argument = name.replace("_offsets", "_timestamp")
            return f"; if you mean a time, give {argument} {format_isotime(ns)!r}"
    return ""


def fixed_range(
    facts: StreamFacts,
    start: Position,
    end: Position,
    subjects: tuple[str, ...] = (),
    *,
    names: tuple[str, str] = (named("starting_offsets"), named("ending_offsets")),
) -> SequenceRange:
    """Make the range of sequences from `start` to before `end`, as the stream is now.

    `end`: a sequence, or "latest" for the stream's end. `names`: what the user calls start and end,
    an argument or `errors.named` option. Raises ConfigError for positions that the stream does not
    have, or in the wrong order.
    """
    first = head(facts) if start == "earliest" else tail(facts) if start == "latest" else start
    check_exists(facts, first, names[0])
    end_sequence = tail(facts)
    if isinstance(end, int):
        check_exists(facts, end, names[1])
        end_sequence = end
    if end_sequence < first:
        if isinstance(start, int):
            raise ConfigError(
                f"Stream {facts.name!r} would end (before sequence {end_sequence}) before it "
                f"begins (sequence {start}): give {names[1]} a later position than {names[0]}, or "
                "leave it out to read to the stream's end."
            )
        end_sequence = first  # the stream's messages are all after the end: the range is empty
    return SequenceRange(
        stream=facts.name,
        start=first,
        end=end_sequence,
        created=facts.created,
        subjects=subjects,
        from_earliest=start == "earliest",
        last=facts.last,
    )


# -- subjects ------------------------------------------------------------------------------------


def check_subjects(
    name: str,
    subjects: Sequence[str],
    api: StreamAPI,
    facts: Mapping[str, StreamFacts],
    *,
    more_may_come: bool = False,
) -> None:
    """Raise ConfigError for a subject under which none of the streams has or can have a message.

    `facts`: the streams, by name. The server reports no such error, and there would never be a row.
    It is only a warning where other subjects may appear: in mirrors, in streams with sources or
    transforms, and where further streams may be found later (`more_may_come`). `name`: what the
    user calls the subjects. Raises the errors of `linearizable_read`.
    """
    unknown = _subjects_without_messages(subjects, api, facts)
    may_come = more_may_come or _store_other_subjects(facts)
    if unknown and not may_come:  # a replaced leader may have answered: ask proven ones
        proven = facts = confirmed_facts(api, facts)
        may_come = _store_other_subjects(proven)
        unknown = linearizable_read(
            api, proven, lambda api: _subjects_without_messages(subjects, api, proven)
        )
    streams = ", ".join(map(repr, facts))
    for subject in unknown:
        if not may_come:
            stream_subjects = _listened_subjects(facts)
            raise ConfigError(
                f"{name}: no message under {subject!r} is in {streams}, nor can one come: it "
                f"listens to {', '.join(stream_subjects) or 'nothing'}"
                f"{did_you_mean(subject, stream_subjects)}"
            )
        message = "%s: %s has no message under %r yet, and may never have one."
        logger.warning(message, name, streams, subject)


def _store_other_subjects(facts: Mapping[str, StreamFacts]) -> bool:
    """Whether one of the streams may store messages under subjects that it does not listen to."""
    return any(stream.stores_other_subjects for stream in facts.values())


def _listened_subjects(facts: Mapping[str, StreamFacts]) -> list[str]:
    """The subjects that the streams listen to, with wildcards."""
    return [subject for stream in facts.values() for subject in stream.subjects]


def _subjects_without_messages(
    subjects: Sequence[str], api: StreamAPI, facts: Mapping[str, StreamFacts]
) -> list[str]:
    """The `subjects` that no stream listens to, and under which none has an older message.

    A stream that listened to other subjects before may still have messages under these.
    """
    stream_subjects = _listened_subjects(facts)
    return [
        subject
        for subject in subjects
        if not any(subjects_overlap(subject, pattern) for pattern in stream_subjects)
        and not any(api.next_sequence(stream, 1, (subject,)) for stream in facts)
    ]
