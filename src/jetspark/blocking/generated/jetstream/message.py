# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: message."""

from __future__ import annotations

from jetspark.blocking.caller_side import drive
from jetspark.blocking.messages import Message
from jetspark.jetstream.message import JsMsg as AsyncJsMsg
from jetspark.timestamps import Seconds


class GeneratedJsMsg(Message):
    """The calls of `JsMsg` that hand on to its asyncio twin."""

    __slots__ = ()

    def _answerer(self) -> AsyncJsMsg:
        raise NotImplementedError

    @property
    def is_acked(self) -> bool:
        """Whether this object has sent a final answer."""
        return self._answerer().is_acked

    def ack(self) -> None:
        """Done; does not wait for the server to confirm it."""
        drive(self._answerer().ack())

    def ack_sync(self, *, timeout: Seconds | None = None) -> None:
        """Done, and the server confirmed it within `timeout` seconds (None: the client's).

        Raises RequestTimeoutError, and NoRespondersError when the consumer is gone.
        """
        drive(self._answerer().ack_sync(timeout=timeout))

    def nak(self, delay: Seconds | None = None) -> None:
        """Deliver it again: now, or after `delay` (a timedelta, or seconds)."""
        drive(self._answerer().nak(delay))

    def in_progress(self) -> None:
        """Still working: begins the consumer's ack_wait anew."""
        drive(self._answerer().in_progress())

    def term(self, reason: str = "") -> None:
        """Never deliver it again. The server's advisory shows the reason.

        A reason needs server 2.10.4, or raises UnsupportedByServerError: older ones would not
        take the answer at all.
        """
        drive(self._answerer().term(reason))
