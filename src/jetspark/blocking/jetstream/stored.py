"""Reading stored messages without a consumer, without async."""

from __future__ import annotations

from jetspark.blocking.listing import Listing
from jetspark.documents.streams import StoredMsg


class StoredMsgs(Listing[StoredMsg]):
    """Stored messages in order of their sequences: iterate it, or `msgs.all()` for a list.

    The first request is sent when iteration begins; each iteration starts anew.
    """

    __slots__ = ()
