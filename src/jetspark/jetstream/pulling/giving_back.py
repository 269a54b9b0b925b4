"""What was delivered to a fetch that was cancelled goes back to its consumer, which would otherwise
deliver it again after its ack_wait only. Without acks it is lost, which is reported, as is what
consuming had buffered when it was stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from jetspark.errors import JetsparkError, SequenceMismatchError
from jetspark.jetstream.message import NAK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jetspark.client.client import Client
    from jetspark.client.listener import Listener
    from jetspark.jetstream.message import JsMsg


async def give_back(client: Client, listener: Listener | None, messages: Sequence[JsMsg]) -> None:
    """Refuse the messages (NAK), after those that are on their way to the listener.

    Its handler adds them to `messages`; None: all have come.
    """
    try:
        async with _all_come(client, listener):
            for message in messages:
                if message.reply is not None:
                    client.publish_nowait(message.reply, NAK)
    except JetsparkError:
        pass  # without a link they come again after ack_wait


async def report_lost(
    client: Client, listener: Listener | None, messages: Sequence[JsMsg], consumer: str
) -> None:
    """As `give_back`, of a consumer without acks."""
    try:
        async with _all_come(client, listener):
            pass
    except JetsparkError:
        pass  # without a link no more will come
    if messages:
        what = f"A fetch from consumer {consumer!r} was cancelled"
        client.report(lost_at_end(what, len(messages)))


def lost_at_end(what: str, count: int, least: str = "") -> SequenceMismatchError:
    """The error for deliveries that nobody takes any more. `what` has ended."""
    return SequenceMismatchError(
        f"{what}: what was delivered to it and not taken is lost without acks "
        f"({least}{count} message{'' if count == 1 else 's'})."
    )


@asynccontextmanager
async def _all_come(client: Client, listener: Listener | None) -> AsyncIterator[None]:
    try:
        if listener is not None:
            listener.stop()
            await client.flush()
        yield
    finally:
        if listener is not None:
            listener.close()
