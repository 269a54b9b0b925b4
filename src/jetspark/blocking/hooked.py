"""The blocking client with hooks, which are called in its callers' threads."""

from __future__ import annotations

from functools import partial

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.events import ErrorCallback, EventCallback
from jetspark.blocking.full_client import Client
from jetspark.client.client import Client as AsyncClient
from jetspark.client.hooked import HookedCalls
from jetspark.client.hooking import Hooked, HookedInLoop
from jetspark.client.hooks import Hooks
from jetspark.connection.options import ConnectOptions
from jetspark.connection.transport import Dial
from jetspark.errors import JetsparkError
from jetspark.payloads import Payload
from jetspark.timestamps import Seconds
from jetspark.wire.events import MessageFrame
from jetspark.wire.headers import HeadersLike


class HookedClient(Client):
    """A client with hooks."""

    def __init__(
        self,
        options: ConnectOptions,
        hooks: Hooks,
        event_callback: EventCallback | None,
        error_callback: ErrorCallback | None,
    ) -> None:
        self._hooked = HookedInLoop(hooks, self._report_from_anywhere, options.api_prefix)
        super().__init__(options, event_callback=event_callback, error_callback=error_callback)
        self._event_callback = self._hooked.telling(event_callback)

    def _report_from_anywhere(self, error: JetsparkError) -> None:
        self._thread.post(partial(self._inner.report, error))

    def _new_inner(self, dial: Dial | None) -> AsyncClient:
        inner = _HookedInner(
            self.options, event_callback=self._on_event, error_callback=self._on_error, dial=dial
        )
        inner.use_hooks(self._hooked)
        return inner

    def _new_caller(self) -> CallerSide:
        return _HookedCallerSide(self._thread, self._inner, self._buffer)


class _HookedInner(HookedCalls, AsyncClient):
    """What runs in the event loop's thread."""


class _HookedCallerSide(CallerSide):
    hooking: Hooked

    def ask(
        self, subject: str, payload: Payload, timeout: Seconds | None, headers: HeadersLike | None
    ) -> MessageFrame:
        plain = super().ask
        return self.hooking.send(
            subject,
            payload,
            None,
            headers,
            lambda sent: plain(subject, payload, timeout, sent),
            asking=True,
        )
