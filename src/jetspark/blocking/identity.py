# Written by `python scripts/delegations.py`: change by_hand/, or the asyncio class.
"""Authorization callouts without async.

Of docstrings it has the first paragraphs; `help()` shows all.
"""

from __future__ import annotations

from jetspark.blocking.by_hand.identity import BaseAuthCallout
from jetspark.blocking.docstrings import twin_of
from jetspark.identity.callout import AuthCallout as AsyncAuthCallout
from jetspark.identity.callout import CalloutStats

__all__ = ["AuthCallout"]


@twin_of(AsyncAuthCallout)
class AuthCallout(BaseAuthCallout):
    """The result of `Client.auth_callout`; leaving its block stops it."""

    _inner: AsyncAuthCallout

    @property
    def stats(self) -> CalloutStats:
        """What it did so far."""
        return self._inner.stats

    def wait_stopped(self) -> None:
        """Wait until `stop` has ended it. Raises any other error that ends it."""
        self._thread.run(self._inner.wait_stopped)
