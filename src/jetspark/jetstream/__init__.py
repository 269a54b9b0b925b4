"""JetStream, a package for each of its parts:

- `documents`: the types of what is sent and answered; `requirements`: which server each needs
- `streams`, `stored` (messages read or deleted one by one), `backup`
- `publishing` (one message, many, counters, schedules), `batches` (atomic, fast ingest)
- `consumers` (made, changed, bound; push), `pulling` (fetch, consume), `ordered` (and watches)
- `events` (advisories and metrics), `acl` (the permissions that a role needs)

Their calls are mixins of `context.JetStream`; all ask the server through `api`.
"""

from jetspark.documents.events import Event, EventKind
from jetspark.jetstream.backup import BackupProgress, StreamBackup, verify_backup
from jetspark.jetstream.batches import AtomicBatch, FastIngest
from jetspark.jetstream.consume import ConsumerMessages
from jetspark.jetstream.consumers import Consumer, PullConsumer, PushConsumer, PushMessages
from jetspark.jetstream.context import JetStreamContext
from jetspark.jetstream.events import Events
from jetspark.jetstream.fetch import FetchResult
from jetspark.jetstream.message import JsMsg
from jetspark.jetstream.ordered import OrderedMessages
from jetspark.jetstream.paging import Paged
from jetspark.jetstream.publish import Counter
from jetspark.jetstream.publisher import Publisher, PublishFailure
from jetspark.jetstream.stored import LastMsgs, StoredMsgs
from jetspark.jetstream.streams import StreamTemplateConfig, StreamTemplateInfo

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
