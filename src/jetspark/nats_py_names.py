"""Names that nats-py has and jetspark does not: the error says what takes their place.

Contract: in a class such a name is an attribute that raises AttributeError, so lookups of the
other names cost nothing (a `__getattr__` slows all of them before Python 3.12). To `hasattr`,
`copy`, `pickle`, the `dir` of an object and type checkers it does not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import unwrap
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

# Of a class, a module of jetspark, or the arguments of a call: {names in nats-py: here}.
_TABLE: dict[str, dict[str, str]] = {
    "jetspark": {
        "NATS": "connect(), which returns a Client", "Msg": "Message",
        "aio": "jetspark itself, with connect(), Client and Message",
        "js": "jetspark.jetstream, with the configurations in jetspark.documents",
        "micro": "Client.add_service()",
    },
    "errors": {
        "Error": "JetsparkError",
        "TimeoutError FlushTimeoutError DrainTimeoutError": "RequestTimeoutError",
        "FetchTimeoutError": "an empty result of fetch()",
        "MsgAlreadyAckdError": "MessageAlreadyAckedError",
        "NotJSMessageError": "NotJetStreamMessageError",
        "NotFoundError": "StreamNotFoundError, ConsumerNotFoundError or MessageNotFoundError",
        "KeyDeletedError": "KeyNotFoundError, with operation and revision",
        "KeyWrongLastSequenceError": "WrongLastSequenceError; KeyExistsError after create()",
        "NoKeysError": "an empty list of keys() or history()",
    },
    "connect": {
        "error_cb": "error_callback",
        "disconnected_cb reconnected_cb closed_cb": "event_callback, called with each change",
        "discovered_server_cb lame_duck_mode_cb": "event_callback, called with each change",
        "allow_reconnect": "reconnect", "reconnect_time_wait": "reconnect_wait",
        "dont_randomize": "randomize=False", "no_echo": "echo=False",
        "tls_handshake_first": "tls_first",
        "drain_timeout flush_timeout": "the timeout of drain() and flush()",
        "flusher_queue_size": "pending_size, in bytes",
        "signature_cb": "sign, which returns the 64 bytes of the signature",
        "user_jwt_cb": "jwt, which may be a function",
        "user_credentials": "creds_file, or creds for the text",
        "nkeys_seed nkeys_seed_str": "nkey_seed_file, or nkey_seed for the text",
        "ws_connection_headers": "ws_headers",
        "reconnect_to_server_handler": "choose_server, with reconnect_delay for the pause",
        "skip_subject_validation": "check_subjects=False",
    },
    "Client.subscribe": {"cb": "callback", "future": "the result's next()"},
    "Client.request": {"old_style": "False"}, "Bucket.keys": {"filters": "keys"},
    "Message.respond Request.respond Request.respond_error": {"data": "payload"},
    "Subscription.unsubscribe": {"limit": "max_msgs"}, "Client.jetstream": {"prefix": "api_prefix"},
    "JetStream.publish": {"stream": "expect_stream", "msg_ttl": "ttl"},
    "JetStream.create_stream JetStream.update_stream JetStream.create_consumer "
    "JetStream.create_push_consumer JetStream.create_bucket JetStream.create_object_store": {
        "bucket config": "an argument without a name",
    },
    "JetStream.consumer_info JetStream.pause_consumer JetStream.reset_consumer "
    "JetStream.resume_consumer JetStream.delete_consumer": {
        "consumer": "name", "timeout": "the timeout of jetstream()", "pause_until": "until",
    },
    "JetStream.delete_msg JetStream.get_msg": {"stream_name": "stream"},
    "JetStream.get_msg": {"subject": "last_by_subject", "next": "next_by_subject, with seq"},
    "JetStream.purge_stream": {"subject": "filter"}, "JetStream.stream_info PullConsumer.fetch": {},
    "JetStream.bucket JetStream.delete_bucket": {"bucket": "name"},
    "JetStream.object_store JetStream.delete_object_store": {"bucket": "name"},
    "JetStream.create_bucket": {"max_bytes": "max_bucket_size", "direct": "nothing: it always is"},
    "Bucket.create Bucket.purge": {"msg_ttl": "ttl"}, "Bucket.update": {"last": "revision"},
    "Bucket.get Bucket.put Bucket.create Bucket.update Bucket.delete": {"validate_keys": "True"},
    "Bucket.delete": {"last": "revision", "msg_ttl": "ttl, of purge()"},
    "Bucket.watch": {"headers_only": "meta_only", "inactive_threshold": "nothing: it is 5 minutes"},
    "Bucket.purge_deletes": {"olderthan": "older_than"}, "Bucket.history": {"key": "keys"},
    "ObjectStore.get": {"writeinto": "get_into()", "show_deleted": "include_deleted, of info()"},
    "ObjectStore.put ObjectStore.update_meta": {"meta": "description, headers and metadata"},
    "ObjectStore.watch": {"include_history meta_only": "nothing: it gives each object's info"},
    "Service.add_endpoint Group.add_endpoint Service.add_group Group.add_group": {
        "config": "its fields, as arguments",
    },
    "Client": {
        "is_closed is_connecting is_reconnecting is_draining is_draining_pubs": "status",
        "CLOSED CONNECTED CONNECTING DISCONNECTED": "jetspark.ConnectionStatus",
        "DRAINING_PUBS DRAINING_SUBS RECONNECTING": "jetspark.ConnectionStatus",
        "connected_url": "current_server",
        "connected_server_version client_id client_ip": "server_info, with version and the like",
        "discovered_servers server_pool": "servers", "set_server_pool": "set_servers()",
        "ssl_context": "tls", "jsm": "jetstream(), which has those calls, too",
        "pending_data_size": "flush(), which waits until it is sent",
        "msg_class": "jetspark.Message",
    },
    "MessageView": {
        "header": "headers", "sid": "nothing: the subscription gave it",
        "Ack Metadata": "ack() and metadata",
    },
    "Metadata": {"num_delivered": "deliveries", "num_pending": "pending", "sequence": "stream_seq"},
    "Subscription": {"messages": "the subscription, iterated", "next_msg": "next()"},
    "JetStream": {
        "add_stream": "create_stream()",
        "add_consumer": "create_consumer(), or create_push_consumer()",
        "subscribe subscribe_bind": "ordered() to read, create_consumer(…).consume() to work",
        "pull_subscribe pull_subscribe_bind": "create_consumer() or consumer(), and its fetch()",
        "PullSubscription PushSubscription": "a class in jetspark.jetstream",
        "key_value": "bucket()", "create_key_value": "create_bucket()",
        "delete_key_value": "delete_bucket()", "consumers_info": "consumers()",
        "streams_info streams_info_iterator": "streams()",
        "find_stream_name_by_subject": "stream_names(subject)",
        "get_last_msg": "get_msg(stream, last_by_subject=…)",
        "publish_async publish_async_completed publish_async_pending": "publisher(), with submit()",
        "is_status_msg": "Message.status",
    },
    "ConsumerMessages PushMessages": {
        "messages": "the result of consume() or subscribe(), iterated", "next_msg": "next()",
        "unsubscribe": "stop(), or drain()",
        "consumer_info delivered pending_bytes queue subject": "the consumer's info()",
    },
    "PullConsumer": {
        "consumer_info delivered pending_msgs pending_bytes": "info()",
        "unsubscribe": "delete(), which removes the consumer; there is nothing else to end",
    },
    "Bucket": {"watchall": "watch()", "BucketStatus Entry KeyWatcher": "a class in jetspark.kv"},
    "ObjectStore": {
        "get_info": "info()", "list": "objects()",
        "ObjectResult ObjectStoreStatus ObjectWatcher": "a class in jetspark.objects",
    },
    "ObjectReader": {"data": "all(), or ObjectStore.get_bytes()"},
    "Watcher ObjectWatcher": {"updates": "next()", "STOP_ITER": "stop()"},
    "StoredMsg": {"header": "headers", "sequence": "seq", "stream": "what get_msg() was given"},
    "Service": {"start": "Client.add_service(), which starts it", "stopped": "active"},
}  # fmt: skip
_HERE: dict[str, dict[str, str]] = {}
for owners, table in _TABLE.items():
    split = {name: here for names, here in table.items() for name in names.split()}
    for owner in owners.split():
        _HERE[owner] = _HERE.get(owner, {}) | split


def told(owner: str, name: str) -> str:
    """What is said of a name that nats-py has: "" for any other. `owner`: as in the table."""
    here = _HERE[owner].get(name)
    return "" if here is None else f"{name!r} is nats-py's name: in jetspark it is {here}."


class _Told:
    """An attribute that there is not."""

    def __init__(self, owner: str, name: str) -> None:
        self.__doc__ = told(owner, name)

    def __get__(self, instance: object, owner: type) -> Any:
        raise AttributeError(f"{owner.__name__}: {self.__doc__}")


def tell(cls: type) -> None:
    """Give a class of the table, or the blocking one of the same name, nats-py's names."""
    table = _HERE.get(cls.__name__, {})
    for name in table:
        setattr(cls, name, _Told(cls.__name__, name))
    if table:

        def names(self: object) -> list[str]:
            return sorted(set(object.__dir__(self)) - table.keys())

        cls.__dir__ = names  # type: ignore[method-assign, assignment]
    for owner in _HERE:
        of, _, call = owner.partition(".")
        if of == cls.__name__ and call in dir(cls):
            setattr(cls, call, telling(owner, getattr(cls, call)))


def telling(owner: str, call: F) -> F:
    """The call, which tells nats-py's arguments, and those that need a name. `owner`: as there."""
    table = _HERE[owner]

    @wraps(call)
    def refusing(*args: Any, **options: Any) -> Any:
        for name in options:
            if name in table:
                raise TypeError(f"{owner}: {told(owner, name)}")
        try:
            return call(*args, **options)
        except TypeError:
            code = unwrap(call).__code__
            if len(args) > (taken := code.co_argcount) and code.co_kwonlyargcount:
                names = code.co_varnames[taken : taken + code.co_kwonlyargcount]
                raise TypeError(f"{owner}: give these by name: {', '.join(names)}.") from None
            raise

    return refusing  # type: ignore[return-value]
