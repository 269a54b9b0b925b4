"""Whether streams were replaced by older copies of themselves, which have the same creation time.

While such a copy is shorter than the stream was, planning sees it. Once it has grown past that,
only a message tells: the one that was the last when the offset was planned has another time now. If
it is gone (deleted, removed by limits), nothing tells.
"""

from __future__ import annotations

from collections.abc import Mapping

from jetspark.bulk.facts import LastMessage
from jetspark.bulk.many_streams import times_of
from jetspark.bulk.stream_api import StreamAPI
from jetspark.errors import DataLossError, StreamNotFoundError
from jetspark.spark.offsets import StreamOffset


def copies_found(
    api: StreamAPI, offsets: Mapping[str, StreamOffset], advice: str
) -> list[DataLossError]:
    """An error for each stream that is a copy now; one request for each stream.

    `advice` ends the messages. Raises as `times_of`.
    """
    last = {name: offset.last for name, offset in offsets.items() if offset.last is not None}
    found = times_of(api, {name: one.seq for name, one in last.items()})
    return [
        _error(name, offsets[name].next, last[name], ns, advice)
        for name, ns in found.items()
        if ns != last[name].ns and _is_same(api, name, offsets[name].created)
    ]


def _is_same(api: StreamAPI, name: str, created: str) -> bool:
    """Whether the stream was not recreated, of which planning and readers tell."""
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
