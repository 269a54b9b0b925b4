"""A message of a consumer group: its subject is the one that it was published to."""

from __future__ import annotations

from jetspark.client.messages import MessageView
from jetspark.jetstream.message import JsMsg


class PartitionView(MessageView):
    """What is read of it, for both clients."""

    __slots__ = ()

    @property
    def subject(self) -> str:
        """What the message was published to, without the partition."""
        return super().subject.partition(".")[2]

    @property
    def partition(self) -> int:
        """The number of its partition."""
        return int(super().subject.partition(".")[0])


class GroupMsg(PartitionView, JsMsg):
    """One message of a consumer group; acknowledge it as any other."""

    __slots__ = ()
