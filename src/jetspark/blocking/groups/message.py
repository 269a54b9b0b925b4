"""A message of a consumer group without async."""

from __future__ import annotations

from jetspark.blocking.jetstream.message import JsMsg
from jetspark.groups.member import PartitionView


class GroupMsg(PartitionView, JsMsg):
    """One message of a consumer group; acknowledge it as any other."""

    __slots__ = ()
