"""What was delivered to a fetch that was cancelled goes back to its consumer, which would otherwise
deliver it again after its ack_wait only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetspark.errors import JetsparkError
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
        if listener is not None:
            listener.stop()
            await client.flush()
        for message in messages:
            if message.reply is not None:
                client.publish_nowait(message.reply, NAK)
    except JetsparkError:
        pass  # without a link they come again after ack_wait
    finally:
        if listener is not None:
            listener.close()
