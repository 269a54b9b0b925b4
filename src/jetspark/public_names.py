"""The public names of `jetspark`, which has them from here when they are first used."""

from jetspark.client.client import Statistics
from jetspark.client.hooks import Acknowledgement, Hooks
from jetspark.client.messages import Message, PreparedMessage
from jetspark.client.requests import Replies
from jetspark.client.subscription import Listener, Subscription
from jetspark.connection.events import (
    Closed,
    Connected,
    ConnectionEvent,
    ConnectionStatus,
    Disconnected,
    Draining,
    LameDuck,
    Reconnected,
    ServersDiscovered,
)
from jetspark.connection.options import ConnectOptions
from jetspark.connection.pool import PoolServer
from jetspark.connection.transports import TLSState
from jetspark.errors import (
    AuthError,
    AuthorizationError,
    BadSubjectError,
    BadSubscriptionError,
    ConfigError,
    ConnectionClosedError,
    ConnectionFailure,
    ConnectionLostError,
    HeadersNotSupportedError,
    JetsparkError,
    JetStreamError,
    MaxPayloadError,
    NoRespondersError,
    NoServersError,
    OutboundBufferError,
    PermissionsError,
    RequestTimeoutError,
    ServiceError,
    SlowConsumerError,
)
from jetspark.full_client import Client, JetStream, connect
from jetspark.rows import Rows, read
from jetspark.services.service import Service
from jetspark.tracing.tree import MessageTrace
from jetspark.version import __version__
from jetspark.wire.documents import ServerInfo
from jetspark.wire.headers import Headers, HeadersLike
from jetspark.wire.reply_subject import Metadata
from jetspark.wire.status import Status

__all__ = [
    "Acknowledgement",
    "AuthError",
    "AuthorizationError",
    "BadSubjectError",
    "BadSubscriptionError",
    "Client",
    "Closed",
    "ConfigError",
    "ConnectOptions",
    "Connected",
    "ConnectionClosedError",
    "ConnectionEvent",
    "ConnectionFailure",
    "ConnectionLostError",
    "ConnectionStatus",
    "Disconnected",
    "Draining",
    "Headers",
    "HeadersLike",
    "HeadersNotSupportedError",
    "Hooks",
    "JetStream",
    "JetStreamError",
    "JetsparkError",
    "LameDuck",
    "Listener",
    "MaxPayloadError",
    "Message",
    "MessageTrace",
    "Metadata",
    "NoRespondersError",
    "NoServersError",
    "OutboundBufferError",
    "PermissionsError",
    "PoolServer",
    "PreparedMessage",
    "Reconnected",
    "Replies",
    "RequestTimeoutError",
    "Rows",
    "ServerInfo",
    "ServersDiscovered",
    "Service",
    "ServiceError",
    "SlowConsumerError",
    "Statistics",
    "Status",
    "Subscription",
    "TLSState",
    "__version__",
    "connect",
    "read",
]
