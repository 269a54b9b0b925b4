"""Stored messages, read without a consumer and without async."""

from __future__ import annotations

from jetspark.blocking.listing import Listing
from jetspark.jetstream.documents import StoredMsg


class StoredMsgs(Listing[StoredMsg]):
    """Stored messages, in the order of their sequences: iterate them, or `msgs.all()`.

    Nothing is requested before the first message is; each `for` starts anew.
    """

    __slots__ = ()
