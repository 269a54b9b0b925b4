"""JetStream without async: the twins of `jetspark.jetstream`."""

from jetspark.blocking.jetstream.batch import AtomicBatch
from jetspark.blocking.jetstream.consume import ConsumerMessages
from jetspark.blocking.jetstream.consumers import Consumer, PullConsumer, PushConsumer
from jetspark.blocking.jetstream.context import JetStream
from jetspark.blocking.jetstream.events import Events
from jetspark.blocking.jetstream.fast_ingest import FastIngest
from jetspark.blocking.jetstream.message import FetchResult, JsMsg
from jetspark.blocking.jetstream.ordered import OrderedMessages
from jetspark.blocking.jetstream.paging import Paged
from jetspark.blocking.jetstream.publisher import Publisher
from jetspark.blocking.jetstream.push import PushMessages
from jetspark.blocking.jetstream.stored import StoredMsgs

__all__ = ["AtomicBatch", "Consumer", "ConsumerMessages", "Events", "FastIngest", "FetchResult"]
__all__ += ["JetStream", "JsMsg", "OrderedMessages", "Paged", "Publisher", "PullConsumer"]
__all__ += ["PushConsumer", "PushMessages", "StoredMsgs"]
