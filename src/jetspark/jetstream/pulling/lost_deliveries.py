"""What a fetch without acks has lost: nothing is delivered again then, so it must be told.

A batch that is complete at the server is followed by no status, and the status of a fetch without
timeout does not say how many were delivered. So deliveries that leave a doubt are compared with
what the consumer has sent. Others that pull from it get sequences, too: as long as some wait there,
nothing counts as lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from jetspark.errors import (
    JetsparkError,
    MissedHeartbeatError,
    RequestTimeoutError,
    SequenceMismatchError,
)
from jetspark.jetstream.api import Api
from jetspark.jetstream.message import JsMsg
from jetspark.jetstream.pulling.gap_detection import not_come
from jetspark.wire import js_api
from jetspark.wire.kernel import frame_of, reply_fields

_WITHIN: Final = 0.5  # seconds for the consumer's info


async def lost_without_acks(
    api: Api,
    names: Mapping[str, str],
    messages: list[JsMsg],
    batch: int,
    error: JetsparkError | None,
) -> SequenceMismatchError | None:
    """The error for deliveries of this fetch that did not come; None: none, or not known.

    `messages`: at least one. `error`: what ended the fetch.
    """
    if len(messages) >= batch:
        return None
    *_, first, _, _, _, _ = reply_fields(frame_of(messages[0]).reply)
    *_, last, _, pending, _, _ = reply_fields(frame_of(messages[-1]).reply)
    unanswered = isinstance(error, RequestTimeoutError | MissedHeartbeatError)
    gap = last - first >= len(messages)
    if not unanswered and (error is not None or not (gap or pending)):
        return None
    try:
        async with asyncio.timeout(_WITHIN):
            info = await api.call(js_api.CONSUMER_INFO, **names)
    except (JetsparkError, TimeoutError):
        return None
    sent = info["delivered"]["consumer_seq"] - first + 1
    missing = min(sent, batch) - len(messages)
    if missing <= 0 or info.get("num_waiting", 0):
        return None
    then = "unless another client took them, they are lost"
    return not_come(f"consumer {names['consumer']!r}", missing, then)


def delivered_twice(messages: list[JsMsg]) -> SequenceMismatchError | None:
    """The error for duplicates, which have displaced other messages of a batch."""
    twice = len(messages) - len({frame_of(message).reply for message in messages})
    if not twice:
        return None
    return SequenceMismatchError(f"{twice} messages were delivered twice, in place of others.")
