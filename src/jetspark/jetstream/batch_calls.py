"""The calls of JetStream that open a batch (ADR-50)."""

from __future__ import annotations

from jetspark.jetstream.api import Api
from jetspark.jetstream.batch import AtomicBatch
from jetspark.jetstream.requirements import check_feature


class BatchCalls:
    """The part of JetStream that is about batches."""

    _api: Api

    def atomic_batch(self, *, timeout: float | None = None) -> AtomicBatch:
        """Store messages together or not at all: `async with js.atomic_batch() as batch`.

        The stream needs `allow_atomic` (2.12). `timeout`: seconds for the answer to the first
        message and to the commit; default: the context's. The rest is in `AtomicBatch`.
        """
        check_feature("atomic_batch", (2, 12), self._api.server)
        return AtomicBatch(self._api, timeout=self._api.timeout if timeout is None else timeout)
