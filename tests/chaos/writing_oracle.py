"""What is in the target, read by somebody else's client, held against what had to be written."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import nats
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

_WITHIN = 60.0  # seconds
_AT_ONCE = 500


@dataclass(frozen=True)
class Finding:
    """Counts of rows."""

    found: int
    missing: int
    repeated: int
    unexpected: int
    out_of_order: int
    """Rows before which a later one of the same file is stored."""


def read(servers: Sequence[str], stream: str) -> list[tuple[str, str]]:
    """Subject and id of every message of the stream, markers left out, in order."""
    return asyncio.run(asyncio.wait_for(_read(servers, stream), _WITHIN))


async def _read(servers: Sequence[str], stream: str) -> list[tuple[str, str]]:
    client = await nats.connect(list(servers), max_reconnect_attempts=5)
    try:
        jetstream = client.jetstream()
        state = (await jetstream.stream_info(stream)).state
        found: list[tuple[str, str]] = []
        if not state.messages:
            return found
        config = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.ALL)
        reader = await jetstream.pull_subscribe(">", stream=stream, config=config)
        seq = 0
        while seq < state.last_seq:  # a replica may be behind: ask until it has the last one
            for message in await reader.fetch(_AT_ONCE, timeout=20):
                seq = message.metadata.sequence.stream
                if not message.subject.startswith("_spark."):
                    found.append((message.subject, message.data.partition(b" ")[0].decode()))
        return found
    finally:
        await client.close()


def compare(found: Sequence[tuple[str, str]], stream: str, expected: Collection[str]) -> Finding:
    """`expected`: the ids that had to be written, each under the subject of its file."""
    wanted = {(f"{stream}.{one[:3]}", one) for one in expected}
    counts = Counter(found)
    last: defaultdict[str, str] = defaultdict(str)
    out_of_order = 0
    seen = set()
    for row in found:
        subject, one = row
        if row not in seen and one < last[subject]:
            out_of_order += 1
        seen.add(row)
        last[subject] = max(last[subject], one)
    return Finding(
        found=len(found),
        missing=len(wanted - counts.keys()),
        repeated=sum(count - 1 for row, count in counts.items() if row in wanted),
        unexpected=sum(count for row, count in counts.items() if row not in wanted),
        out_of_order=out_of_order,
    )
