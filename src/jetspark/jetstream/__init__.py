"""JetStream, a package for each of its parts:

- `documents`: the types of what is sent and answered; `requirements`: which server each needs
- `streams`, `stored` (messages read or deleted one by one), `backup`
- `publishing` (one message, many, counters, schedules), `batches` (atomic, fast ingest)
- `consumers` (made, changed, bound; push), `pulling` (fetch, consume), `ordered` (and watches)
- `events` (advisories and metrics), `acl` (the permissions that a role needs)

Their calls are mixins of `context.JetStream`; all ask the server through `api`.
"""

from jetspark.jetstream.backup.folder import BackupProgress, StreamBackup, verify_backup
from jetspark.jetstream.batches.atomic import AtomicBatch
from jetspark.jetstream.batches.fast_ingest import FastIngest
from jetspark.jetstream.consumers.consumer import Consumer
from jetspark.jetstream.consumers.pull import PullConsumer
from jetspark.jetstream.consumers.push import PushConsumer, PushMessages
from jetspark.jetstream.context import JetStreamContext
from jetspark.jetstream.events.documents import Event
from jetspark.jetstream.events.events import Events
from jetspark.jetstream.events.kinds import EventKind
from jetspark.jetstream.message import JsMsg
from jetspark.jetstream.ordered.ordered import OrderedMessages
from jetspark.jetstream.paging import Paged
from jetspark.jetstream.publishing.counters import Counter
from jetspark.jetstream.publishing.publisher import Publisher
from jetspark.jetstream.publishing.results import PublishFailure
from jetspark.jetstream.pulling.consume import ConsumerMessages
from jetspark.jetstream.pulling.fetch_result import FetchResult
from jetspark.jetstream.stored.direct_get import LastMsgs, StoredMsgs
from jetspark.jetstream.streams.templates import StreamTemplateConfig, StreamTemplateInfo

JetStream = JetStreamContext
"""The name that this package had for it; `jetspark.JetStream` adds buckets and stores."""

__all__ = [
    "AtomicBatch",
    "BackupProgress",
    "Consumer",
    "ConsumerMessages",
    "Counter",
    "Event",
    "EventKind",
    "Events",
    "FastIngest",
    "FetchResult",
    "JetStream",
    "JsMsg",
    "LastMsgs",
    "OrderedMessages",
    "Paged",
    "PublishFailure",
    "Publisher",
    "PullConsumer",
    "PushConsumer",
    "PushMessages",
    "StoredMsgs",
    "StreamBackup",
    "StreamTemplateConfig",
    "StreamTemplateInfo",
    "verify_backup",
]
