"""A received message of the blocking client.

Contract: it reads as the asyncio client's message does, being the same view on the frame. Its
answer leaves as a publish does: checked here, sent by the event loop.
"""

from jetspark.blocking.generated.messages import GeneratedMessage


class Message(GeneratedMessage):
    """One message."""

    __slots__ = ()
