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

from jetspark.errors import DataLossError, StreamNotFoundError
from jetspark.links.many_streams import fetch_message_times
from jetspark.links.stream_api import StreamAPI
from jetspark.links.stream_facts import LastMessage, StreamFacts
from jetspark.spark.source.offsets import StreamOffset
from jetspark.spark.source.options import SourceOptions
from jetspark.spark.source.source_streams import leaders

ORDER_BY_TIME = (
    "Changes would be left out as older than what is there: take another table and another "
    "checkpoint, or order by time (sequenceBy=timestamp)."
)


def sequences_continue(options: SourceOptions, facts: StreamFacts, last: LastMessage) -> bool:
    """Whether the stream still has this message, or continues its sequences as a restored one does.

    The times are compared in microseconds, since tables keep no more. Raises the errors of
    `Leaders.call`.
    """
    time = (
        leaders(options)
        .call(lambda api: fetch_message_times(api, {facts.name: last.seq}))
        .get(facts.name)
    )
    if facts.first_seq > last.seq or time is not None:
        return time is None or time // 1000 == last.ns // 1000
    return facts.last_seq >= last.seq and bool(
        facts.is_mirror or facts.recreated_error("").restored
    )


def check_sequences_continue(
    options: SourceOptions, facts: Mapping[str, StreamFacts], offsets: Mapping[str, StreamOffset]
) -> None:
    """Raise StreamRecreatedError for a stream whose sequences begin anew.

    Also raises the errors of `sequences_continue`.
    """
    for name, offset in offsets.items():
        stream, last = facts.get(name), offset.last or LastMessage(offset.last_known, 0)
        if (
            stream
            and stream.created != offset.created
            and not sequences_continue(options, stream, last)
        ):
            raise stream.recreated_error(offset.created, ORDER_BY_TIME)


def find_older_copies(
    api: StreamAPI, offsets: Mapping[str, StreamOffset], advice: str
) -> list[DataLossError]:
    """Return an error for each stream that was replaced by an older copy, by one request a stream.

    `advice` ends the messages. Raises the errors of `fetch_message_times`.
    """
    last = {name: offset.last for name, offset in offsets.items() if offset.last is not None}
    times = fetch_message_times(api, {name: message.seq for name, message in last.items()})
    return [
        _older_copy_error(name, offsets[name].next, last[name], ns, advice)
        for name, ns in times.items()
        if ns != last[name].ns and _has_creation_time(api, name, offsets[name].created)
    ]


def _has_creation_time(api: StreamAPI, name: str, created: str) -> bool:
    """Whether the stream was not recreated, which planning and readers detect."""
    try:
        return api.stream(name).created == created
    except StreamNotFoundError:
        return False


def _older_copy_error(
    name: str, next_sequence: int, last: LastMessage, time: int, advice: str
) -> DataLossError:
    sentence = (
        f"{last.replaced_message(name, time)}, so messages before sequence {next_sequence} "
        f"may never have been read. {advice}"
    )
    return DataLossError(name, last.seq, last.seq, sentence.strip())
