"""What a fetch without acks has lost: nothing is delivered again then, so it must be told.

A batch that is complete at the server is followed by no status, and the status of a fetch without
timeout does not say how many were delivered. So deliveries that leave a doubt are compared with
what the consumer has sent. Others that pull from it get sequences, too: as long as some wait there,
nothing counts as lost, and a jump between two fetches alone is no doubt. A fetch that got neither
its batch nor a last word is one, and so is a lost link: others are no reason for these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from jetspark.errors import (
    BrokenSocketError,
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


class Deliveries:
    """What the fetches of one `PullConsumer` have got. `delivered`: consumer sequence so far."""

    __slots__ = ("_before", "_ended", "_fetching", "_last")

    def __init__(self, delivered: int) -> None:
        self._before = self._last = delivered
        self._ended = 0
        self._fetching: dict[int, list[JsMsg]] = {}

    @contextmanager
    def taken_by(self, messages: list[JsMsg]) -> Iterator[None]:
        """While a fetch appends its messages to this list."""
        if not self._fetching:  # what others have got since the last one is not missing
            self._before, self._ended = self._last, 0
        self._fetching[id(messages)] = messages
        try:
            yield
        finally:
            del self._fetching[id(messages)]
            self._ended += len(messages)
            if messages:
                last = _consumer_seq(messages[-1])
                # A lower one: the consumer was reset, or is another one of that name.
                self._last = last if last <= self._before else max(self._last, last)

    def missing(self, delivered: int, most: int) -> int:
        """How many of those up to `delivered` have not come, `most` at most; told once."""
        came = self._ended + sum(map(len, self._fetching.values()))
        missing = min(max(delivered - self._before - came, 0), most)
        self._ended += missing
        self._last = delivered
        return missing


async def lost_without_acks(
    api: Api,
    names: Mapping[str, str],
    deliveries: Deliveries,
    messages: list[JsMsg],
    batch: int,
    error: JetsparkError | None,
    *,
    link_lost: bool,
) -> SequenceMismatchError | None:
    """The error for deliveries of this fetch that did not come; None: none, or not known.

    `error`: what ended the fetch.
    """
    left = batch - len(messages)
    no_last_word = isinstance(error, RequestTimeoutError | MissedHeartbeatError)
    certain = link_lost or (no_last_word and left > 0)
    if not certain and (left <= 0 or error is not None or not _doubtful(messages)):
        return None
    try:
        async with asyncio.timeout(_WITHIN):
            info = await api.call(js_api.CONSUMER_INFO, **names)
    except (JetsparkError, TimeoutError):
        return None
    if info.get("num_waiting", 0):
        return None
    delivered = info["delivered"]["consumer_seq"]
    if certain:
        missing = deliveries.missing(delivered, batch if link_lost else left)
    else:
        missing = min(delivered - _consumer_seq(messages[0]) + 1, batch) - len(messages)
    if missing <= 0:
        return None
    then = "unless another client took them, they are lost"
    return not_come(f"consumer {names['consumer']!r}", missing, then)


def _doubtful(messages: list[JsMsg]) -> bool:
    """Whether an answered fetch has a gap, or ended before the last message that was there."""
    if not messages:
        return False
    *_, last, _, pending, _, _ = reply_fields(frame_of(messages[-1]).reply)
    return pending > 0 or last - _consumer_seq(messages[0]) >= len(messages)


def _consumer_seq(message: JsMsg) -> int:
    return reply_fields(frame_of(message).reply)[4]


def lost_for_good(messages: list[JsMsg], *, link_lost: bool) -> JetsparkError | None:
    """The error for what may be lost with the link, or was displaced by a duplicate."""
    if link_lost:
        return BrokenSocketError("The link was lost: messages on their way may be lost with it.")
    twice = len(messages) - len({frame_of(message).reply for message in messages})
    if not twice:
        return None
    return SequenceMismatchError(f"{twice} messages were delivered twice, in place of others.")
