"""The calls of JetStream that open a batch (ADR-50)."""

from __future__ import annotations

from jetspark.arguments import checked
from jetspark.client.publishing import Publishing
from jetspark.jetstream.api import Api
from jetspark.jetstream.batches.atomic import AtomicBatch
from jetspark.jetstream.batches.fast_ingest import FastIngest
from jetspark.jetstream.batches.ingesting import GapPolicy, Ingesting, IngestOptions
from jetspark.jetstream.batches.staging import Staging
from jetspark.jetstream.requirements import check_feature
from jetspark.timestamps import Seconds, in_seconds


@checked
class BatchCalls:
    """The part of JetStream that is about batches."""

    _api: Api

    def atomic_batch(self, *, timeout: Seconds | None = None) -> AtomicBatch:
        """Store messages together or not at all: `async with js.atomic_batch() as batch`.

        The stream needs `allow_atomic` (2.12). `timeout`: seconds for the answer to the first
        message and to the commit; default: the context's. The rest is in `AtomicBatch`.
        """
        return AtomicBatch(atomic_batch(self._api, self._api.client.publishing, timeout))

    def fast_ingest(
        self,
        *,
        gaps: GapPolicy = "fail",
        ack_every: int = 500,
        outstanding: int = 2,
        timeout: Seconds | None = None,
    ) -> FastIngest:
        """Publish as fast as the stream takes it: `async with js.fast_ingest() as ingest`.

        The stream needs `allow_batched` (2.14). `gaps`: what a lost or refused message does,
        "fail" (the batch ends there) or "ok" (it goes on). `ack_every`: most messages for one
        ack; the server says how many it lets be, up to 500 for all who do this at a time.
        `outstanding`: acks that may be missing before `add` waits. `timeout`: seconds of
        connected time without a word from the server; default: the context's. The rest is in
        `FastIngest`.
        """
        publishing = self._api.client.publishing
        return FastIngest(fast_ingest(self._api, publishing, gaps, ack_every, outstanding, timeout))


@checked  # the blocking client calls it, too
def atomic_batch(api: Api, publishing: Publishing, timeout: Seconds | None) -> Staging:
    """`BatchCalls.atomic_batch`, sending by `publishing`."""
    check_feature("atomic_batch", (2, 12), api.server)
    return Staging(api, publishing, api.timeout if timeout is None else in_seconds(timeout))


@checked
def fast_ingest(
    api: Api,
    publishing: Publishing,
    gaps: GapPolicy,
    ack_every: int,
    outstanding: int,
    timeout: Seconds | None,
) -> Ingesting:
    """`BatchCalls.fast_ingest`, sending by `publishing`."""
    check_feature("fast_ingest", (2, 14), api.server)
    seconds = api.timeout if timeout is None else in_seconds(timeout)
    return Ingesting(api, publishing, IngestOptions(gaps, ack_every, outstanding, seconds))
