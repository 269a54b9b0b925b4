"""JetStream, a package for each of its parts:

- `documents`: the types of what is sent and answered; `requirements`: which server each needs
- `streams`, `stored` (messages read or deleted one by one), `backup`
- `publish` (one message, counters, schedules), `publisher`, `atomic_batch`, `fast_ingest` (many)
- `consumers` (made, changed, bound; push), `pulling` (fetch, consume), `ordered` (and watches)
- `events` (advisories and metrics), `acl` (the permissions that a role needs)

Their calls are mixins of `context.JetStream`; all ask the server through `api`.
"""

from jetspark.documents.events import Event as Event
from jetspark.documents.events import EventKind as EventKind
from jetspark.jetstream.api import Paged as Paged
from jetspark.jetstream.atomic_batch import AtomicBatch as AtomicBatch
from jetspark.jetstream.consume import ConsumerMessages as ConsumerMessages
from jetspark.jetstream.consumers import Consumer as Consumer
from jetspark.jetstream.consumers import PullConsumer as PullConsumer
from jetspark.jetstream.consumers import PushConsumer as PushConsumer
from jetspark.jetstream.consumers import PushMessages as PushMessages
from jetspark.jetstream.context import JetStreamContext as JetStreamContext
from jetspark.jetstream.events import Events as Events
from jetspark.jetstream.fast_ingest import FastIngest as FastIngest
from jetspark.jetstream.fetch import FetchResult as FetchResult
from jetspark.jetstream.in_flight import PublishFailure as PublishFailure
from jetspark.jetstream.message import JsMsg as JsMsg
from jetspark.jetstream.ordered import OrderedMessages as OrderedMessages
from jetspark.jetstream.publish import Counter as Counter
from jetspark.jetstream.publisher import Publisher as Publisher
from jetspark.jetstream.stored import LastMsgs as LastMsgs
from jetspark.jetstream.stored import StoredMsgs as StoredMsgs
from jetspark.jetstream.streams import StreamTemplateConfig as StreamTemplateConfig
from jetspark.jetstream.streams import StreamTemplateInfo as StreamTemplateInfo
