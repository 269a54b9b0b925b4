"""Finds streams that were replaced: by older copies of themselves, or by streams that begin anew.

An older copy has the same creation time. Planning detects it while it is shorter than the stream
was. Later only a message shows it: the one that was the last when the offset was planned now has
another time. If that message is gone (deleted, removed by limits), nothing shows it.

A recreated stream has another creation time. Its sequences begin anew, unless it was restored from
a backup or is a mirror. Tables that are ordered by `seq` accept only a stream whose sequences
continue.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from jetspark.errors import StreamNotFoundError, named
from jetspark.links.many_streams import fetch_message_times
from jetspark.links.stream_api import StreamAPI
from jetspark.links.stream_facts import LastMessage, StreamFacts
from jetspark.spark.source.offsets import StreamOffset
from jetspark.spark.source.options import SourceOptions
from jetspark.spark.source.source_streams import leaders

ORDER_BY_TIME = (
    "Changes would be left out as older than what is there: take another table and another "
    f"checkpoint, or order by time ({named('sequence_by')} timestamp)."
)


def sequences_continue(options: SourceOptions, facts: StreamFacts, last: LastMessage) -> bool:
    """Whether a recreated stream goes on with the sequences of the old one, as a restored stream or
    a mirror does, so that tables can be ordered by sequence.

    `last`: the last message of the old stream that the query knows. Raises the errors of
    `Leaders.call`.
    """
    times = leaders(options).call(lambda api: fetch_message_times(api, {facts.name: last.seq}))
    time = times.get(facts.name)
    if time is not None:  # compared in microseconds, since tables keep no more
        return time // 1000 == last.ns // 1000
    # The message is gone, perhaps by a limit. A stream that begins after it has gone on. One that
    # begins before it has done so only if it was filled from a backup or from its origin.
    if facts.first_seq > last.seq:
        return True
    return facts.last_seq >= last.seq and bool(
        facts.is_mirror or facts.recreated_error("").restored
    )


def check_sequences_continue(
    options: SourceOptions, facts: StreamFacts, offset: StreamOffset
) -> None:
    """Raise StreamRecreatedError if a stream was recreated, and its sequences begin anew.

    `offset`: the query's position in the stream, by which that is found out. Also raises the errors
    of `sequences_continue`.
    """
    # An initial offset lacks the last message; a time of 0 is that of no message.
    last = offset.last or LastMessage(offset.last_known, ns=0)
    if facts.created != offset.created and not sequences_continue(options, facts, last):
        raise facts.recreated_error(offset.created, ORDER_BY_TIME)


class OlderCopy(NamedTuple):
    """A stream that was replaced by an older copy of itself."""

    stream: str
    seq: int
    """The sequence at which the copy has another message."""
    problem: str
    """What has happened, as a sentence."""


def find_older_copies(api: StreamAPI, offsets: Mapping[str, StreamOffset]) -> list[OlderCopy]:
    """Find streams that were replaced by older copies of themselves, as from a disk's backup.

    `offsets`: the query's, each with the stream's last message when it was planned. In such a copy
    that sequence has another message, with another time. Raises the errors of
    `fetch_message_times`.
    """
    last = {name: offset.last for name, offset in offsets.items() if offset.last is not None}
    times = fetch_message_times(api, {name: message.seq for name, message in last.items()})
    copies = []
    for name, ns in times.items():
        message, offset = last[name], offsets[name]
        if ns == message.ns:
            continue
        with suppress(StreamNotFoundError):
            # Not a recreated stream, which planning and readers detect.
            if api.stream(name).created == offset.created:
                problem = (
                    f"{message.replaced_message(name, ns)}, so messages before sequence "
                    f"{offset.next} may never have been read."
                )
                copies.append(OlderCopy(name, message.seq, problem))
    return copies
