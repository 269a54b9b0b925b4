"""JetStream without async: the way in to everything about streams and consumers.

Contract: that of `jetspark.jetstream.context`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetspark.blocking.generated.jetstream.backups import GeneratedBackupCalls
from jetspark.blocking.generated.jetstream.consumer_calls import (
    GeneratedConsumerCalls,
    GeneratedConsumerControlCalls,
)
from jetspark.blocking.generated.jetstream.context import GeneratedJetStream
from jetspark.blocking.generated.jetstream.event_calls import GeneratedEventCalls
from jetspark.blocking.generated.jetstream.publishing import (
    GeneratedBatchCalls,
    GeneratedCounterCalls,
    GeneratedPublishCalls,
    GeneratedScheduleCalls,
)
from jetspark.blocking.generated.jetstream.stored_calls import GeneratedStoredCalls
from jetspark.blocking.generated.jetstream.streams import (
    GeneratedStreamCalls,
    GeneratedTemplateCalls,
)
from jetspark.blocking.generated.kv.calls import GeneratedBucketCalls
from jetspark.blocking.generated.objects.calls import GeneratedObjectStoreCalls

if TYPE_CHECKING:
    from jetspark.blocking.client import Client


class JetStream(
    GeneratedJetStream,
    GeneratedStreamCalls,
    GeneratedStoredCalls,
    GeneratedCounterCalls,
    GeneratedScheduleCalls,
    GeneratedConsumerCalls,
    GeneratedConsumerControlCalls,
    GeneratedPublishCalls,
    GeneratedBatchCalls,
    GeneratedEventCalls,
    GeneratedBackupCalls,
    GeneratedTemplateCalls,
    GeneratedBucketCalls,
    GeneratedObjectStoreCalls,
):
    """JetStream over a client.

    `timeout`: seconds for each API call and ack, default 5. `domain`: a JetStream domain, such as
    that behind a leaf node. `api_prefix`: the whole prefix instead of "$JS.API", for an API
    imported from another account. With neither, what the connection's options say, which a
    context of the `nats` command may have set. `trace`: log each API request and answer to
    "jetspark.trace" at level DEBUG, without messages and secrets. Raises ConfigError when both
    are given, BadNameError and BadSubjectError for unusable ones.
    """

    _client: Client

    @property
    def client(self) -> Client:
        """The connection below."""
        return self._client
