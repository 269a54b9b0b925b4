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

from jetspark.bulk.many_streams import fetch_message_times
from jetspark.bulk.stream_api import StreamAPI
from jetspark.bulk.stream_facts import LastMessage, StreamFacts
from jetspark.errors import (
    DataLossError,
    StreamNotFoundError,
)
from jetspark.spark.offsets import StreamOffset
from jetspark.spark.options import SourceOptions
from jetspark.spark.source_streams import leaders

ORDER_BY_TIME = (
    "Changes would be left out as older than what is there: take another table and another "
    "checkpoint, or order by time (sequenceBy=timestamp)."
)


def goes_on(options: SourceOptions, facts: StreamFacts, last: LastMessage) -> bool:
    """Whether a stream's sequences go on after a message, whose time counts in microseconds, as
    those of a restored stream do. Raises the errors of `Leaders.call`."""
    now = (
        leaders(options)
        .call(lambda api: fetch_message_times(api, {facts.name: last.seq}))
        .get(facts.name)
    )
    if facts.first_seq > last.seq or now is not None:
        return now is None or now // 1000 == last.ns // 1000
    return facts.last_seq >= last.seq and bool(facts.is_mirror or facts.another_than("").restored)


def check_go_on(
    options: SourceOptions, facts: Mapping[str, StreamFacts], offsets: Mapping[str, StreamOffset]
) -> None:
    """Raise StreamRecreatedError for a stream whose sequences begin anew, and as `goes_on`."""
    for name, one in offsets.items():
        now, last = facts.get(name), one.last or LastMessage(one.known, 0)
        if now and now.created != one.created and not goes_on(options, now, last):
            raise now.another_than(one.created, ORDER_BY_TIME)


def copies_found(
    api: StreamAPI, offsets: Mapping[str, StreamOffset], advice: str
) -> list[DataLossError]:
    """An error for each stream that is a copy now; one request for each stream.

    `advice` ends the messages. Raises the errors of `fetch_message_times`.
    """
    last = {name: offset.last for name, offset in offsets.items() if offset.last is not None}
    found = fetch_message_times(api, {name: one.seq for name, one in last.items()})
    return [
        _error(name, offsets[name].next, last[name], ns, advice)
        for name, ns in found.items()
        if ns != last[name].ns and _is_same(api, name, offsets[name].created)
    ]


def _is_same(api: StreamAPI, name: str, created: str) -> bool:
    """Whether the stream was not recreated, which planning and readers detect."""
    try:
        return api.stream(name).created == created
    except StreamNotFoundError:
        return False


def _error(name: str, begin: int, last: LastMessage, now: int, advice: str) -> DataLossError:
    sentence = (
        f"{last.replaced(name, now)}, so messages before sequence {begin} may never have been "
        f"read. {advice}"
    )
    return DataLossError(name, last.seq, last.seq, sentence.strip())
