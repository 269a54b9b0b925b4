"""A received message of the blocking client.

It has the same properties as the asyncio client's message. `respond` works as a publish does:
checked in the calling thread, sent by the event loop.
"""

from jetspark.blocking.generated.messages import GeneratedMessage


class Message(GeneratedMessage):
    """One message."""

    __slots__ = ()
