"""JetStream without async; see `jetspark.jetstream.context` and `jetspark.JetStream`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetspark.blocking.generated.dead_letters.calls import GeneratedDeadLetterCalls
from jetspark.blocking.generated.groups.calls import GeneratedGroupCalls
from jetspark.blocking.generated.jetstream.backups import GeneratedBackupCalls
from jetspark.blocking.generated.jetstream.consumer_calls import GeneratedConsumerCalls
from jetspark.blocking.generated.jetstream.context import GeneratedJetStreamContext
from jetspark.blocking.generated.jetstream.event_calls import GeneratedEventCalls
from jetspark.blocking.generated.jetstream.publishing import (
    GeneratedBatchCalls,
    GeneratedPublishCalls,
)
from jetspark.blocking.generated.jetstream.stored_calls import GeneratedStoredCalls
from jetspark.blocking.generated.jetstream.streams import (
    GeneratedStreamCalls,
)
from jetspark.blocking.generated.kv.calls import GeneratedBucketCalls
from jetspark.blocking.generated.objects.calls import GeneratedObjectStoreCalls

if TYPE_CHECKING:
    from jetspark.blocking.client import Client


class JetStream(
    GeneratedJetStreamContext,
    GeneratedStreamCalls,
    GeneratedStoredCalls,
    GeneratedConsumerCalls,
    GeneratedPublishCalls,
    GeneratedBatchCalls,
    GeneratedEventCalls,
    GeneratedBackupCalls,
    GeneratedBucketCalls,
    GeneratedObjectStoreCalls,
    GeneratedGroupCalls,
    GeneratedDeadLetterCalls,
):
    """JetStream of a client, as returned by `Client.jetstream`.

    Its calls are those of its bases. For the errors of every API call see `jetspark.JetStream`.
    """

    _client: Client

    @property
    def client(self) -> Client:
        """The connection that it uses."""
        return self._client
