"""The NATS client for scripts, notebooks and threads: the names of `jetspark`, without `await`.

::

    from jetspark.blocking import connect

    with connect("nats://127.0.0.1:4222") as nc, nc.subscribe("orders.*") as orders:
        for message in orders: ...

Options, events, errors, headers and documents are the same classes as in `jetspark`.
"""

from jetspark.blocking.events import EventStream
from jetspark.blocking.full_client import Client
from jetspark.blocking.generated.connecting import connect
from jetspark.blocking.jetstream import JetStream
from jetspark.blocking.messages import Message
from jetspark.blocking.replies import Replies
from jetspark.blocking.subscription import Subscription

__all__ = [
    "Client",
    "EventStream",
    "JetStream",
    "Message",
    "Replies",
    "Subscription",
    "connect",
]
