"""What a reader looks at, the same for all: payload and stream sequence of every message, once.

Through each client's own attributes, since a client that parses late must pay for it too.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable
from operator import attrgetter
from typing import Any, TypeAlias

from benchmarks.measure import Job, Tally
from benchmarks.raw import make_consumer

Look: TypeAlias = Callable[[Any], tuple[bytes, int]]

JETSPARK: Look = attrgetter("data", "seq")
NATS_PY: Look = attrgetter("data", "metadata.sequence.stream")
NATSIO: Look = attrgetter("data", "metadata.stream_seq")
NATSRPY: Look = attrgetter("payload", "stream_sequence")


def equal_consumers(job: Job) -> dict[str, str]:
    """New consumers, by stream."""
    return {name: make_consumer(job.url, name) for name in (job.warm_stream, job.stream)}


def look_at(messages: Iterable[Any], look: Look) -> Tally:
    count = size = sequences = 0
    for data, sequence in map(look, messages):
        count += 1
        size += len(data)
        sequences += sequence
    return Tally(count, size, sequences)


async def look_at_first(messages: int, arriving: AsyncIterable[Any], look: Look) -> Tally:
    count = size = sequences = 0
    async for message in arriving:
        data, sequence = look(message)
        count += 1
        size += len(data)
        sequences += sequence
        if count == messages:
            break
    return Tally(count, size, sequences)
