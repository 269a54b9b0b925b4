"""The range of a stream that is read once: where it begins and ends, and its subjects."""

from __future__ import annotations

import logging
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
    sequence_at: Callable[[str, int], int | None],
    *,
    none_is_latest: bool,
) -> Position:
    """A position without a time; `sequence_at(stream, ns)` is None when all messages are older.

    Raises ConfigError for that, unless it means the end of the stream.
    """
    if not isinstance(position, AtTime):
        return position
    sequence = sequence_at(stream, position.ns)
    if sequence is not None:
        return sequence
    if none_is_latest:
        return "latest"
    raise ConfigError(
        f"Stream {stream!r} has no message at or after {format_isotime(position.ns)}; set "
        f"{named('starting_offsets_by_timestamp_strategy')} to latest to begin after its last "
        "message."
    )


# -- the range -----------------------------------------------------------------------------------


def head(facts: StreamFacts) -> int:
    """The first sequence that may be stored; after the last one if the stream is empty."""
    if facts.messages == 0:
        return facts.last_seq + 1
    return max(facts.first_seq, 1)


def tail(facts: StreamFacts) -> int:
    """The sequence of the next message."""
    return facts.last_seq + 1


def check_exists(facts: StreamFacts, sequence: int, name: str) -> None:
    """Raise ConfigError for a position behind the end of the stream. `name`: see `fixed_range`."""
    if sequence > tail(facts):
        raise ConfigError(
            f"{name} is {sequence}, but stream {facts.name!r} ends at sequence "
            f"{facts.last_seq}{if_time(name, sequence)}."
        )


def if_time(name: str, number: int) -> str:
    """The end of a sentence about a sequence that is too high, if it looks like a time."""
    for unit in (NANOSECONDS, NS_PER_MS):
        if _LIKELY_NS[0] <= number * unit < _LIKELY_NS[1]:
            text = format_isotime(number * unit)
            argument = name.replace("_offsets", "_timestamp")
            return f"; if you mean a time, give {argument} {text!r}"
    return ""


def fixed_range(
    facts: StreamFacts,
    start: Position,
    end: Position,
    subjects: tuple[str, ...] = (),
    *,
    names: tuple[str, str] = (named("starting_offsets"), named("ending_offsets")),
) -> SequenceRange:
    """The range from `start` to before the sequence `end`. Raises ConfigError.

    `names`: of both for the user: mentions of options, or arguments.
    """
    first = head(facts) if start == "earliest" else tail(facts) if start == "latest" else start
    check_exists(facts, first, names[0])
    last = tail(facts)
    if isinstance(end, int):
        check_exists(facts, end, names[1])
        last = end
    if last < first:
        if isinstance(start, int):
            raise ConfigError(
                f"Stream {facts.name!r} would end (before sequence {last}) before it begins "
                f"(sequence {start}): the ending position is before the starting position."
            )
        last = first
    return SequenceRange(
        stream=facts.name,
        start=first,
        end=last,
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
    """Raise ConfigError for a subject that no stream has or can have; also as `linearizable_read`.

    The server reports no such error, and there would never be a row. It is only a warning where
    other subjects may appear: in mirrors, in streams with sources or transforms, and where further
    streams may be found later (`more_may_come`). `name`: the subjects' name for the user.
    """
    try:
        _check_subjects(name, subjects, api, facts, more_may_come)
    except ConfigError:  # perhaps in a replaced leader's answer
        linearizable_read(
            api,
            facts,
            lambda api: _check_subjects(
                name, subjects, api, confirmed_facts(api, facts), more_may_come
            ),
        )


def _check_subjects(
    name: str,
    subjects: Sequence[str],
    api: StreamAPI,
    facts: Mapping[str, StreamFacts],
    more_may_come: bool,
) -> None:
    stream_subjects = [subject for stream in facts.values() for subject in stream.subjects]
    for subject in subjects:
        if any(subjects_overlap(subject, pattern) for pattern in stream_subjects):
            continue
        if any(api.next_sequence(stream, 1, (subject,)) for stream in facts):
            continue  # stored while the stream had other subjects
        streams = ", ".join(map(repr, facts))
        if more_may_come or any(pattern.holds_others for pattern in facts.values()):
            logger.warning(
                "%s: %s has no message under %r yet, and may never have one.",
                name,
                streams,
                subject,
            )
            continue
        hint = did_you_mean(subject, stream_subjects)
        raise ConfigError(
            f"{name}: no message under {subject!r} is in {streams}, nor can one come: "
            f"it listens to {', '.join(stream_subjects) or 'nothing'}{hint}"
        )
