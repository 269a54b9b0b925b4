"""JetStream without async: publishing in the caller's thread, events, lists, backups.

See `jetspark.jetstream`. A callback runs in its own thread and may use the blocking client.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar, Unpack

from jetspark.backup import BackupProgress, StreamBackup
from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.client import CoreClient
from jetspark.blocking.consumers import (
    Consumer,
    ConsumerMessages,
    FetchResult,
    JsMsg,
    JsMsgCallback,
    OrderedMessages,
    PullConsumer,
    PushConsumer,
    PushMessages,
)
from jetspark.blocking.dead_letters import DeadLetters
from jetspark.blocking.groups import ConsumerGroups
from jetspark.blocking.iterators import (
    ItemT,
    Listing,
    MessageSource,
    SingleIterator,
)
from jetspark.blocking.kv import Bucket
from jetspark.blocking.objects import ObjectStore
from jetspark.blocking.publish import AtomicBatch, FastIngest, Publisher
from jetspark.blocking.twin import AsyncBlock, Read, Twin, awaits, makes, twin_of
from jetspark.blocking.worker import plain_callback
from jetspark.client.client import PENDING_BYTES_LIMIT, PENDING_MSGS_LIMIT
from jetspark.client.messages import Sendable, parts_of
from jetspark.documents.consumers import ReplayPolicy
from jetspark.documents.events import DEFAULT_EVENT_PREFIX, Event
from jetspark.documents.streams import (
    PubAck,
    StoredMsg,
    StreamInfo,
    UnnamedStreamOptions,
)
from jetspark.errors import NoRespondersError
from jetspark.full_client import JetStream as AsyncJetStream
from jetspark.jetstream.api import ContextOptions
from jetspark.jetstream.api import Paged as AsyncPaged
from jetspark.jetstream.consume import EXPIRES
from jetspark.jetstream.events import Events as AsyncEvents
from jetspark.jetstream.ordered import HEARTBEAT, INACTIVE_THRESHOLD
from jetspark.jetstream.publish_request import (
    PublishMsgOptions,
    PublishOptions,
    PublishTries,
    headers_of,
    parse_pub_ack,
    publish_headers,
)
from jetspark.jetstream.stored import StoredMsgs as AsyncStoredMsgs
from jetspark.jetstream.stream import Stream as AsyncStream
from jetspark.jetstream.stream_requests import StreamConfigLike
from jetspark.payload_bytes import Value, payload_bytes
from jetspark.timestamps import Seconds, in_seconds
from jetspark.wire.documents import ServerInfo
from jetspark.wire.headers import PayloadCodec, codec_of

__all__ = [
    "AtomicBatch",
    "Consumer",
    "ConsumerMessages",
    "Events",
    "FastIngest",
    "FetchResult",
    "JetStream",
    "JsMsg",
    "OrderedMessages",
    "Paged",
    "Publisher",
    "PullConsumer",
    "PushConsumer",
    "PushMessages",
    "StoredMsgs",
    "Stream",
]

T = TypeVar("T")


# -------------------------------------------------------------------------------------------------
# Events and lists


EventCallback: TypeAlias = Callable[[Event], None]
ProgressCallback: TypeAlias = Callable[[BackupProgress], None]


@twin_of(AsyncEvents)
class Events(MessageSource[Event], SingleIterator[Event], AsyncBlock):
    _inner: AsyncEvents
    active = Read[bool]()
    subjects = Read[list[str]]()
    pending = Read[int]()
    dropped = Read[int]()
    next = awaits(AsyncEvents.next)

    def close(self) -> None:
        self._thread.leave(None, self._inner.close)


@twin_of(AsyncPaged)
class Paged(Listing[ItemT]):
    """Iterate it, or `paged.all()` for a list."""

    _batch_size = 256  # at most the server's smallest page, so that no page is requested early
    missing = Read[list[str]]()
    offline = Read[dict[str, str]]()


@twin_of(AsyncStoredMsgs)
class StoredMsgs(Listing[StoredMsg]):
    """Stored messages in order of their sequences: iterate it, or `msgs.all()` for a list.

    The first request is sent when iteration begins; each iteration starts anew.
    """


# -------------------------------------------------------------------------------------------------
# A stream: its messages and consumers


@twin_of(AsyncStream)
class Stream(Twin):
    """A stream, as `JetStream.create_stream` and `JetStream.stream` return it.

    Its calls raise StreamNotFoundError, and the errors of every API call (see `JetStream`).
    """

    _inner: AsyncStream
    name = Read[str]()
    cached_info = Read[StreamInfo]()
    info = awaits(AsyncStream.info)
    update = awaits(AsyncStream.update)
    purge = awaits(AsyncStream.purge)
    step_down_leader = awaits(AsyncStream.step_down_leader)
    evacuate_peer = awaits(AsyncStream.evacuate_peer)
    remove_peer = awaits(AsyncStream.remove_peer)
    cancel_move = awaits(AsyncStream.cancel_move)
    get = awaits(AsyncStream.get)
    get_many = makes(AsyncStream.get_many, StoredMsgs)
    get_last = makes(AsyncStream.get_last, StoredMsgs)
    get_last_together = awaits(AsyncStream.get_last_together)
    delete_msg = awaits(AsyncStream.delete_msg)
    get_counter = awaits(AsyncStream.get_counter)
    get_counters = makes(AsyncStream.get_counters, Listing)
    cancel_schedule = awaits(AsyncStream.cancel_schedule)
    create_consumer = awaits(AsyncStream.create_consumer, PullConsumer)
    create_push_consumer = awaits(AsyncStream.create_push_consumer, PushConsumer)
    create_or_update_consumer = awaits(AsyncStream.create_or_update_consumer, PullConsumer)
    create_or_update_push_consumer = awaits(
        AsyncStream.create_or_update_push_consumer, PushConsumer
    )
    consumer = awaits(AsyncStream.consumer, PullConsumer)
    push_consumer = awaits(AsyncStream.push_consumer, PushConsumer)
    delete_consumer = awaits(AsyncStream.delete_consumer)
    consumer_names = makes(AsyncStream.consumer_names, Paged)
    consumers = makes(AsyncStream.consumers, Paged)

    def ordered(
        self,
        *,
        subjects: str | Sequence[str] | None = None,
        deliver_policy: str | None = None,
        start_seq: int | None = None,
        start_time: datetime | None = None,
        headers_only: bool = False,
        replay_policy: str = ReplayPolicy.INSTANT,
        name_prefix: str | None = None,
        callback: JsMsgCallback | None = None,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        expires: Seconds = EXPIRES,
        heartbeat: Seconds = HEARTBEAT,
        inactive_threshold: Seconds = INACTIVE_THRESHOLD,
    ) -> OrderedMessages:
        return OrderedMessages(
            self._caller,
            lambda forward: self._inner.ordered(
                subjects=subjects,
                deliver_policy=deliver_policy,
                start_seq=start_seq,
                start_time=start_time,
                headers_only=headers_only,
                replay_policy=replay_policy,
                name_prefix=name_prefix,
                callback=forward,
                max_messages=max_messages,
                max_bytes=max_bytes,
                expires=expires,
                heartbeat=heartbeat,
                inactive_threshold=inactive_threshold,
            ),
            callback,
        )


# -------------------------------------------------------------------------------------------------
# Backing up and restoring: `progress` is called in the caller's thread, and the transfer waits for
# it. When it raises, or Ctrl-C interrupts the call, the transfer first ends and cleans up.


class _Transfer(Generic[T]):
    """A transfer in the event loop that pauses after each step until the caller calls `next`.

    Otherwise it could be complete when the caller's `progress` raises.
    """

    def __init__(self, call: Callable[..., Coroutine[Any, Any, T]]) -> None:
        self._step: BackupProgress | None = None
        self._news = asyncio.Event()
        self._step_taken = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(call(progress=self._on_step))
        self._task.add_done_callback(lambda _: self._news.set())

    async def _on_step(self, step: BackupProgress) -> None:
        self._step = step
        self._step_taken.clear()
        self._news.set()
        await self._step_taken.wait()

    async def next(self) -> BackupProgress | None:
        """The next progress; None at the end of the transfer."""
        self._step_taken.set()
        await self._news.wait()
        if self._task.done():
            return None
        self._news.clear()
        return self._step

    async def result(self) -> T:
        try:
            return await self._task
        finally:
            del self._task  # in this thread: see `blocking.loop_thread`

    async def cancel(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})
        del self._task


@twin_of(AsyncJetStream)
class JetStream(Twin):
    _inner: AsyncJetStream
    _caller: CallerSide
    publisher = makes(AsyncJetStream.publisher, Publisher)
    atomic_batch = makes(AsyncJetStream.atomic_batch, AtomicBatch)
    fast_ingest = makes(AsyncJetStream.fast_ingest, FastIngest)
    increment = awaits(AsyncJetStream.increment)
    schedule = awaits(AsyncJetStream.schedule)
    end_schedule = awaits(AsyncJetStream.end_schedule)
    create_stream = awaits(AsyncJetStream.create_stream, Stream)
    create_or_update_stream = awaits(AsyncJetStream.create_or_update_stream, Stream)
    delete_stream = awaits(AsyncJetStream.delete_stream)
    stream_names = makes(AsyncJetStream.stream_names, Paged)
    streams = makes(AsyncJetStream.streams, Paged)
    timeout = Read[float]()
    api_prefix = Read[str]()
    server_info = Read[ServerInfo | None]()
    account_info = awaits(AsyncJetStream.account_info)
    api_request = awaits(AsyncJetStream.api_request)
    create_or_update_dead_letters = awaits(
        AsyncJetStream.create_or_update_dead_letters, DeadLetters
    )
    dead_letters = awaits(AsyncJetStream.dead_letters, DeadLetters)
    delete_dead_letters = awaits(AsyncJetStream.delete_dead_letters)
    create_object_store = awaits(AsyncJetStream.create_object_store, ObjectStore)
    update_object_store = awaits(AsyncJetStream.update_object_store, ObjectStore)
    create_or_update_object_store = awaits(
        AsyncJetStream.create_or_update_object_store, ObjectStore
    )
    object_store = awaits(AsyncJetStream.object_store, ObjectStore)
    delete_object_store = awaits(AsyncJetStream.delete_object_store)
    object_store_names = makes(AsyncJetStream.object_store_names, Listing)
    object_stores = makes(AsyncJetStream.object_stores, Listing)
    create_bucket = awaits(AsyncJetStream.create_bucket, Bucket)
    update_bucket = awaits(AsyncJetStream.update_bucket, Bucket)
    create_or_update_bucket = awaits(AsyncJetStream.create_or_update_bucket, Bucket)
    create_bucket_aggregate = awaits(AsyncJetStream.create_bucket_aggregate, Bucket)
    create_bucket_mirror = awaits(AsyncJetStream.create_bucket_mirror, Stream)
    bucket = awaits(AsyncJetStream.bucket, Bucket)
    delete_bucket = awaits(AsyncJetStream.delete_bucket)
    bucket_names = makes(AsyncJetStream.bucket_names, Listing)
    buckets = makes(AsyncJetStream.buckets, Listing)
    consumer_groups = makes(AsyncJetStream.consumer_groups, ConsumerGroups)

    def __init__(self, client: CoreClient, **options: Unpack[ContextOptions]) -> None:
        super().__init__(client._caller, AsyncJetStream(client._caller.inner, **options))
        self._client = client

    @property
    def client(self) -> CoreClient:
        return self._client

    def stream(self, name: str) -> Stream:
        """A handle for the stream of this name.

        Nothing is sent, so that `js.stream("ORDERS").purge()` is one request; a missing stream
        shows there, or in `info`. Raises BadNameError.
        """
        return Stream(self._caller, self._inner.stream(name))

    def publish(
        self,
        subject: str,
        payload: Value = b"",
        *,
        timeout: Seconds | None = None,
        codec: PayloadCodec | None = None,
        **options: Unpack[PublishOptions],
    ) -> PubAck:
        if codec is not None:
            payload, options["headers"] = codec_of(codec).encode(payload, options.get("headers"))
        all_headers = publish_headers(self._inner.api.server, **options) if options else None
        tries = PublishTries(
            subject, self._inner.timeout if timeout is None else in_seconds(timeout)
        )
        payload = payload_bytes(payload)  # encoded once, since every attempt sends the same bytes
        while True:
            try:
                with tries:
                    return parse_pub_ack(
                        self._caller.ask(subject, payload, tries.left, all_headers).payload
                    )
            except NoRespondersError:
                pause = tries.pause()
            time.sleep(pause)

    def publish_msg(
        self,
        message: Sendable,
        *,
        timeout: Seconds | None = None,
        **options: Unpack[PublishMsgOptions],
    ) -> PubAck:
        subject, data, _, _ = parts_of(message)
        return self.publish(
            subject,
            data,
            headers=headers_of(message),
            timeout=timeout,
            **options,
        )

    def events(
        self,
        *,
        kinds: str | Iterable[str] | None = None,
        stream: str | None = None,
        consumer: str | None = None,
        callback: EventCallback | None = None,
        prefix: str = DEFAULT_EVENT_PREFIX,
        pending_msgs_limit: int = PENDING_MSGS_LIMIT,
        pending_bytes_limit: int = PENDING_BYTES_LIMIT,
    ) -> Events:
        return Events(
            self._caller,
            lambda forward: self._inner.events(
                kinds=kinds,
                stream=stream,
                consumer=consumer,
                callback=forward,
                prefix=prefix,
                pending_msgs_limit=pending_msgs_limit,
                pending_bytes_limit=pending_bytes_limit,
            ),
            callback,
        )

    def backup_stream(
        self,
        name: str,
        folder: str | os.PathLike[str],
        *,
        consumers: bool = True,
        check: bool = False,
        chunk_size: int | None = None,
        window_size: int | None = None,
        progress: ProgressCallback | None = None,
        timeout: Seconds | None = None,
    ) -> StreamBackup:
        call = partial(
            self._inner.backup_stream,
            name,
            folder,
            consumers=consumers,
            check=check,
            chunk_size=chunk_size,
            window_size=window_size,
            timeout=timeout,
        )
        return self._transfer(call, progress)

    def restore_stream(
        self,
        folder: str | os.PathLike[str],
        config: StreamConfigLike | None = None,
        /,
        *,
        progress: ProgressCallback | None = None,
        timeout: Seconds | None = None,
        **options: Unpack[UnnamedStreamOptions],
    ) -> Stream:
        call = partial(self._inner.restore_stream, folder, config, timeout=timeout, **options)
        return Stream(self._caller, self._transfer(call, progress))

    def _transfer(
        self, call: Callable[..., Coroutine[Any, Any, T]], progress: ProgressCallback | None
    ) -> T:
        """Run a transfer in the event loop, and call `progress` in the caller's thread."""
        thread = self._thread
        if progress is None:
            return thread.run(call)
        progress = plain_callback(progress)
        transfer = thread.call(_Transfer, call)
        try:
            while (step := thread.run(transfer.next)) is not None:
                progress(step)
        except BaseException as error:
            thread.leave(error, transfer.cancel)
            raise
        return thread.run(transfer.result)
