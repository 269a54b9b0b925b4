"""JetStream: one file per noun.

`context.JetStream` composes them; `documents` holds the types of what is sent and answered.
"""

from jetspark.jetstream.backup_folder import BackupProgress, StreamBackup, verify_backup
from jetspark.jetstream.batch import AtomicBatch
from jetspark.jetstream.consume import ConsumerMessages
from jetspark.jetstream.consumer_handles import Consumer, PullConsumer, PushConsumer
from jetspark.jetstream.context import JetStream
from jetspark.jetstream.counters import Counter
from jetspark.jetstream.direct import StoredMsgs
from jetspark.jetstream.event_documents import Event
from jetspark.jetstream.event_kinds import EventKind
from jetspark.jetstream.events import Events
from jetspark.jetstream.fast_ingest import FastIngest
from jetspark.jetstream.fetch_result import FetchResult
from jetspark.jetstream.message import JsMsg
from jetspark.jetstream.ordered import OrderedMessages
from jetspark.jetstream.paging import Paged
from jetspark.jetstream.publish_results import PublishFailure
from jetspark.jetstream.publisher import Publisher
from jetspark.jetstream.push import PushMessages
from jetspark.jetstream.templates import StreamTemplateConfig, StreamTemplateInfo

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
