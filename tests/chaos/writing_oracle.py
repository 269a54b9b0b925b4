"""What is in the target, read by somebody else's client, held against what had to be written."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import nats
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from tests.chaos import outcome
from tests.chaos.outcome import Findings

_WITHIN = 60.0  # seconds
_AT_ONCE = 500


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


def compare(found: Sequence[tuple[str, str]], stream: str, expected: Collection[str]) -> Findings:
    """`expected`: the ids that had to be written, each under the subject of its file.

    Out of order are rows before which a later one of the same file is stored.
    """
    wanted = {(f"{stream}.{one[:3]}", one) for one in expected}
    return outcome.compare(found, wanted, order=lambda row: row)
