"""Publishing and batches from the caller's thread: what their calls of JetStream share."""

from __future__ import annotations

from functools import cached_property

from jetspark.blocking.caller_side import CallerSide
from jetspark.full_client import JetStream as AsyncJetStream
from jetspark.jetstream.api import Api
from jetspark.jetstream.batches.calls import BatchCalls as AsyncBatchCalls
from jetspark.jetstream.publishing.calls import PublishCalls as AsyncPublishCalls


class _Calls(AsyncPublishCalls, AsyncBatchCalls):
    def __init__(self, api: Api) -> None:
        self._api = api


class ThisThreadCalls:
    """Part of JetStream."""

    _caller: CallerSide
    _inner: AsyncJetStream

    @cached_property
    def _in_this_thread(self) -> _Calls:
        """The asyncio calls over a client whose messages leave from the caller's thread."""
        inner = self._inner
        return _Calls(Api(self._caller, timeout=inner.timeout, api_prefix=inner.api_prefix))
