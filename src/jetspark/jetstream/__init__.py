"""JetStream: a file for each noun, and `context.JetStreamContext` with the calls of all.

All call the server through `api`. The documents of requests and answers are in
`jetspark.documents`, backups in `jetspark.backup`, permissions in `jetspark.acl`.
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
from jetspark.jetstream.counters import Counter as Counter
from jetspark.jetstream.events import Events as Events
from jetspark.jetstream.fast_ingest import FastIngest as FastIngest
from jetspark.jetstream.fetch import FetchResult as FetchResult
from jetspark.jetstream.in_flight import PublishFailure as PublishFailure
from jetspark.jetstream.message import JsMsg as JsMsg
from jetspark.jetstream.ordered import OrderedMessages as OrderedMessages
from jetspark.jetstream.publisher import Publisher as Publisher
from jetspark.jetstream.stored import LastMsgs as LastMsgs
from jetspark.jetstream.stored import StoredMsgs as StoredMsgs
from jetspark.jetstream.stream import Stream as Stream
