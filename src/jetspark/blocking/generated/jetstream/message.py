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
        """Whether this object has sent a final acknowledgement."""
        return self._answerer().is_acked

    def ack(self) -> None:
        """Acknowledge it, without waiting for the server's confirmation (see `JsMsg`)."""
        drive(self._answerer().ack())

    def ack_sync(self, *, timeout: Seconds | None = None) -> None:
        """Acknowledge it, and wait `timeout` seconds (None: the client's) for the confirmation.

        Raises RequestTimeoutError, NoRespondersError when the consumer is gone, and as every
        acknowledgement (see `JsMsg`).
        """
        drive(self._answerer().ack_sync(timeout=timeout))

    def nak(self, delay: Seconds | None = None) -> None:
        """Not processed: deliver it again, at once or after `delay` (a timedelta, or seconds).

        Raises ConfigError for a negative delay, and as every acknowledgement (see
        `JsMsg`).
        """
        drive(self._answerer().nak(delay))

    def in_progress(self) -> None:
        """Still being processed: restarts the consumer's ack_wait (see `JsMsg`)."""
        drive(self._answerer().in_progress())

    def term(self, reason: str = "") -> None:
        """Never deliver it again. The server's advisory has the reason.

        A reason needs server 2.10.4: older ones would ignore the whole acknowledgement. Raises
        UnsupportedByServerError, ConfigError for a reason that is not one line of text, and as
        every acknowledgement (see `JsMsg`).
        """
        drive(self._answerer().term(reason))
