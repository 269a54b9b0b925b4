# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: member."""

from __future__ import annotations

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.groups.message import GroupMsg
from jetspark.errors import JetsparkError
from jetspark.groups.documents import GroupConfig
from jetspark.groups.member import GroupMember as AsyncGroupMember
from jetspark.timestamps import Seconds


class GeneratedGroupMember:
    """The calls of `GroupMember` that hand on to its asyncio twin."""

    _client: CallerSide
    _inner: AsyncGroupMember

    @property
    def name(self) -> str:
        """The member's name."""
        return self._inner.name

    @property
    def config(self) -> GroupConfig:
        """The group's configuration, as this member follows it."""
        return self._inner.config

    @property
    def joined(self) -> bool:
        """Whether it has its consumer, and so may get messages."""
        return self._inner.joined

    @property
    def error(self) -> JetsparkError | None:
        """The error that ended it; None while it goes on, and after `stop`."""
        return self._inner.error

    def next(self, timeout: Seconds | None = None) -> GroupMsg:
        """The next message; waits `timeout` seconds, None: for ever.

        Raises RequestTimeoutError, BadSubscriptionError after its end, ConfigError when there is a
        callback, and `error`.
        """
        raise NotImplementedError

    def stop(self) -> None:
        """Leave: messages that were not taken go back, and another instance may go on at once.

        A running callback finishes.
        """
        raise NotImplementedError

    def wait_ended(self) -> None:
        """Return when it has ended. Raises `error`."""
        self._client.thread.run(self._inner.wait_ended)

    def __repr__(self) -> str:
        return repr(self._inner)
