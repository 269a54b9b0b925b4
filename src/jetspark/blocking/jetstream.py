# Written by `python scripts/delegations.py`: change by_hand/, or the asyncio class.
"""JetStream without async.

Of docstrings it has the first paragraphs; `help()` shows all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack

from jetspark.backup.folder import StreamBackup
from jetspark.blocking.by_hand.consumers import FetchResult, JsMsg, JsMsgCallback
from jetspark.blocking.by_hand.jetstream import (
    BaseEvents,
    BaseJetStream,
    EventCallback,
    Paged,
    ProgressCallback,
    StoredMsgs,
    transfer,
)
from jetspark.blocking.by_hand.publish import AtomicBatch, FastIngest, Publisher
from jetspark.blocking.consumers import (
    Consumer,
    ConsumerMessages,
    OrderedMessages,
    PullConsumer,
    PushConsumer,
    PushMessages,
)
from jetspark.blocking.dead_letters import DeadLetters
from jetspark.blocking.docstrings import twin_of
from jetspark.blocking.groups import ElasticGroup, StaticGroup
from jetspark.blocking.iterators import Listing
from jetspark.blocking.kv import Bucket
from jetspark.blocking.objects import ObjectStore
from jetspark.client.client import PENDING_BYTES_LIMIT, PENDING_MSGS_LIMIT
from jetspark.documents.configuration import Configuration
from jetspark.documents.consumers import ConsumerInfo, ConsumerOptions, PauseState, ReplayPolicy
from jetspark.documents.events import DEFAULT_EVENT_PREFIX, Event
from jetspark.documents.streams import (
    AccountInfo,
    PubAck,
    Source,
    StoredMsg,
    StreamInfo,
    StreamOptions,
    StreamSettings,
    UnnamedStreamOptions,
)
from jetspark.full_client import JetStream as AsyncJetStream
from jetspark.groups.documents import PartitioningFilter
from jetspark.jetstream.consume import EXPIRES
from jetspark.jetstream.consumers import ConsumerConfigLike
from jetspark.jetstream.events import Events as AsyncEvents
from jetspark.jetstream.ordered import HEARTBEAT, INACTIVE_THRESHOLD
from jetspark.jetstream.publish import Counter
from jetspark.jetstream.publish_request import TimeToLive
from jetspark.jetstream.stored import BATCH, BATCH_BYTES, LastMsgs
from jetspark.jetstream.streams import StreamConfigLike, StreamTemplateInfo
from jetspark.kv.config import BucketConfig, BucketOptions, BucketSettings, BucketStatus, Origin
from jetspark.objects.info import ObjectStoreConfig, ObjectStoreOptions, ObjectStoreStatus
from jetspark.payloads import Payload
from jetspark.timestamps import Seconds
from jetspark.wire.documents import ServerInfo
from jetspark.wire.headers import HeadersLike

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
]


@twin_of(AsyncEvents)
class Events(BaseEvents):
    """The result of `JetStream.events`: iterate it, or give it a callback."""

    _inner: AsyncEvents

    @property
    def active(self) -> bool:
        """Whether more messages may arrive."""
        return self._inner.active

    @property
    def subjects(self) -> list[str]:
        """The subjects subscribed to."""
        return self._inner.subjects

    @property
    def pending(self) -> int:
        """Messages received and not taken yet."""
        return self._inner.pending

    @property
    def dropped(self) -> int:
        """Messages dropped at a pending limit."""
        return self._inner.dropped

    def next(self, timeout: Seconds | None = None) -> Event:
        """The next event; waits `timeout` seconds, None: for ever."""
        return self._thread.run(self._inner.next, timeout)


@twin_of(AsyncJetStream)
class JetStream(BaseJetStream):
    """JetStream of a client, as returned by `Client.jetstream`."""

    _inner: AsyncJetStream

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
        """Advisories, metrics and API audits from now on: iterate the result, or give a
        callback.
        """
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

    def ordered(
        self,
        stream: str,
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
        """A stream in order, without a gap and without acks: iterate it, or give a callback."""
        return OrderedMessages(
            self._caller,
            lambda forward: self._inner.ordered(
                stream,
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

    def create_consumer(
        self,
        stream: str,
        config: ConsumerConfigLike | None = None,
        /,
        **options: Unpack[ConsumerOptions],
    ) -> PullConsumer:
        """Create a pull consumer, or bind to it when it exists with the same configuration."""
        return PullConsumer(
            self._caller, self._thread.run(self._inner.create_consumer, stream, config, **options)
        )

    def create_push_consumer(
        self,
        stream: str,
        config: ConsumerConfigLike | None = None,
        /,
        **options: Unpack[ConsumerOptions],
    ) -> PushConsumer:
        """Create a push consumer with a `deliver_subject`. Raises as `create_consumer`."""
        return PushConsumer(
            self._caller,
            self._thread.run(self._inner.create_push_consumer, stream, config, **options),
        )

    def update_consumer(
        self,
        stream: str,
        config: ConsumerConfigLike | None = None,
        /,
        **options: Unpack[ConsumerOptions],
    ) -> ConsumerInfo:
        """Change a consumer. Other options keep their values; a name is required."""
        return self._thread.run(self._inner.update_consumer, stream, config, **options)

    def create_or_update_consumer(
        self,
        stream: str,
        config: ConsumerConfigLike | None = None,
        /,
        **options: Unpack[ConsumerOptions],
    ) -> ConsumerInfo:
        """Update a consumer, or create it, pull or push, when none has that name."""
        return self._thread.run(self._inner.create_or_update_consumer, stream, config, **options)

    def consumer(self, stream: str, name: str) -> PullConsumer:
        """Bind to an existing pull consumer."""
        return PullConsumer(self._caller, self._thread.run(self._inner.consumer, stream, name))

    def push_consumer(self, stream: str, name: str) -> PushConsumer:
        """Bind to an existing push consumer."""
        return PushConsumer(self._caller, self._thread.run(self._inner.push_consumer, stream, name))

    def consumer_info(self, stream: str, name: str) -> ConsumerInfo:
        """Configuration and state of a consumer."""
        return self._thread.run(self._inner.consumer_info, stream, name)

    def delete_consumer(self, stream: str, name: str) -> None:
        """Delete a consumer. Raises ConsumerNotFoundError, StreamNotFoundError."""
        self._thread.run(self._inner.delete_consumer, stream, name)

    def consumer_names(self, stream: str) -> Paged[str]:
        """The names of a stream's consumers."""
        return Paged(self._caller, self._inner.consumer_names(stream))

    def consumers(self, stream: str) -> Paged[ConsumerInfo]:
        """A stream's consumers. Raises the errors of `consumer_names`."""
        return Paged(self._caller, self._inner.consumers(stream))

    def pause_consumer(self, stream: str, name: str, until: datetime) -> PauseState:
        """Deliver nothing until `until` (server 2.11)."""
        return self._thread.run(self._inner.pause_consumer, stream, name, until)

    def resume_consumer(self, stream: str, name: str) -> PauseState:
        """Deliver again (server 2.11). Raises the errors of `pause_consumer`."""
        return self._thread.run(self._inner.resume_consumer, stream, name)

    def reset_consumer(self, stream: str, name: str, seq: int | None = None) -> ConsumerInfo:
        """Deliver unacknowledged messages again, or everything from `seq` on (server 2.14)."""
        return self._thread.run(self._inner.reset_consumer, stream, name, seq)

    def consumer_leader_stepdown(
        self, stream: str, name: str, *, preferred: str | None = None
    ) -> None:
        """Make the consumer's leader step down; `preferred` names the next one (server 2.11)."""
        self._thread.run(self._inner.consumer_leader_stepdown, stream, name, preferred=preferred)

    def get_msg(
        self,
        stream: str,
        seq: int | None = None,
        *,
        last_by_subject: str | None = None,
        next_by_subject: str | None = None,
        direct: bool | None = None,
    ) -> StoredMsg:
        """One stored message."""
        return self._thread.run(
            self._inner.get_msg,
            stream,
            seq,
            last_by_subject=last_by_subject,
            next_by_subject=next_by_subject,
            direct=direct,
        )

    def get_msgs(
        self,
        stream: str,
        seq: int | None = None,
        *,
        start_time: datetime | None = None,
        subject: str | None = None,
        up_to_seq: int | None = None,
        max_msgs: int | None = None,
        batch: int = BATCH,
        max_bytes: int = BATCH_BYTES,
        confirm: bool = True,
    ) -> StoredMsgs:
        """Stored messages in order, without a consumer."""
        return StoredMsgs(
            self._caller,
            self._inner.get_msgs(
                stream,
                seq,
                start_time=start_time,
                subject=subject,
                up_to_seq=up_to_seq,
                max_msgs=max_msgs,
                batch=batch,
                max_bytes=max_bytes,
                confirm=confirm,
            ),
        )

    def get_last_msgs(
        self,
        stream: str,
        subjects: str | Sequence[str],
        *,
        up_to_seq: int | None = None,
        up_to_time: datetime | None = None,
        batch: int = BATCH,
        max_bytes: int = BATCH_BYTES,
    ) -> StoredMsgs:
        """The last message of each subject that matches one of `subjects`, in stream order."""
        return StoredMsgs(
            self._caller,
            self._inner.get_last_msgs(
                stream,
                subjects,
                up_to_seq=up_to_seq,
                up_to_time=up_to_time,
                batch=batch,
                max_bytes=max_bytes,
            ),
        )

    def get_last_msgs_together(self, stream: str, subjects: str | Sequence[str]) -> LastMsgs:
        """The last message of each subject that matches, proven to be as of one sequence."""
        return self._thread.run(self._inner.get_last_msgs_together, stream, subjects)

    def delete_msg(self, stream: str, seq: int, *, erase: bool = False) -> None:
        """Delete one message; `erase` overwrites it with random bytes first (slower)."""
        self._thread.run(self._inner.delete_msg, stream, seq, erase=erase)

    def increment(
        self,
        subject: str,
        by: int = 1,
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        timeout: Seconds | None = None,
    ) -> int:
        """Add to a counter, even a negative number; returns its new value."""
        return self._thread.run(
            self._inner.increment, subject, by, headers=headers, msg_id=msg_id, timeout=timeout
        )

    def get_counter(self, stream: str, subject: str) -> Counter:
        """A counter's value, from the stream's leader."""
        return self._thread.run(self._inner.get_counter, stream, subject)

    def get_counters(self, stream: str, subjects: str | Sequence[str]) -> list[Counter]:
        """The counters of all matching subjects, as of one moment."""
        return self._thread.run(self._inner.get_counters, stream, subjects)

    def schedule(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        target: str,
        at: datetime | None = None,
        every: Seconds | None = None,
        cron: str | None = None,
        time_zone: str | None = None,
        source: str | None = None,
        target_ttl: TimeToLive | None = None,
        rollup: bool = False,
        ttl: TimeToLive | None = None,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        timeout: Seconds | None = None,
    ) -> PubAck:
        """Have the stream publish to `target`: once, or again and again."""
        return self._thread.run(
            self._inner.schedule,
            subject,
            payload,
            target=target,
            at=at,
            every=every,
            cron=cron,
            time_zone=time_zone,
            source=source,
            target_ttl=target_ttl,
            rollup=rollup,
            ttl=ttl,
            headers=headers,
            msg_id=msg_id,
            timeout=timeout,
        )

    def cancel_schedule(self, stream: str, subject: str) -> bool:
        """Delete a schedule; False when there is none."""
        return self._thread.run(self._inner.cancel_schedule, stream, subject)

    def end_schedule(
        self,
        schedule: str,
        subject: str,
        payload: Payload = b"",
        *,
        schedule_seq: int | None = None,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
        ttl: TimeToLive | None = None,
        timeout: Seconds | None = None,
    ) -> PubAck:
        """Publish a message and end a schedule, both or neither (2.14)."""
        return self._thread.run(
            self._inner.end_schedule,
            schedule,
            subject,
            payload,
            schedule_seq=schedule_seq,
            headers=headers,
            msg_id=msg_id,
            ttl=ttl,
            timeout=timeout,
        )

    def create_stream(
        self, config: StreamConfigLike | None = None, /, **options: Unpack[StreamOptions]
    ) -> StreamInfo:
        """Create a stream. Options are the fields of StreamConfig; `name` is required."""
        return self._thread.run(self._inner.create_stream, config, **options)

    def update_stream(
        self, config: StreamConfigLike | None = None, /, **options: Unpack[StreamOptions]
    ) -> StreamInfo:
        """Change the stream `name`. Other options keep their values."""
        return self._thread.run(self._inner.update_stream, config, **options)

    def create_or_update_stream(
        self, config: StreamConfigLike | None = None, /, **options: Unpack[StreamOptions]
    ) -> StreamInfo:
        """Update a stream, or create it. Raises as `update_stream` and `create_stream`."""
        return self._thread.run(self._inner.create_or_update_stream, config, **options)

    def delete_stream(self, name: str) -> None:
        """Delete a stream and its messages. Raises StreamNotFoundError."""
        self._thread.run(self._inner.delete_stream, name)

    def purge_stream(
        self,
        name: str,
        *,
        filter: str | None = None,
        keep: int | None = None,
        seq: int | None = None,
    ) -> int:
        """Delete all messages or some; returns how many."""
        return self._thread.run(self._inner.purge_stream, name, filter=filter, keep=keep, seq=seq)

    def stream_info(
        self, name: str, *, deleted_details: bool = False, subjects_filter: str | None = None
    ) -> StreamInfo:
        """Configuration and state of a stream."""
        return self._thread.run(
            self._inner.stream_info,
            name,
            deleted_details=deleted_details,
            subjects_filter=subjects_filter,
        )

    def stream_names(self, subject: str | None = None) -> Paged[str]:
        """The names of all streams, or of those that have `subject`."""
        return Paged(self._caller, self._inner.stream_names(subject))

    def streams(self, subject: str | None = None) -> Paged[StreamInfo]:
        """All streams, or those that have `subject`. Raises the errors of `stream_names`."""
        return Paged(self._caller, self._inner.streams(subject))

    def stream_leader_stepdown(self, stream: str, *, preferred: str | None = None) -> None:
        """Make the stream's leader step down; `preferred` names the next one (server 2.11)."""
        self._thread.run(self._inner.stream_leader_stepdown, stream, preferred=preferred)

    def create_template(
        self,
        name: str,
        config: StreamConfigLike | None = None,
        /,
        *,
        max_streams: int,
        **options: Unpack[UnnamedStreamOptions],
    ) -> StreamTemplateInfo:
        """Create a template: each new subject gets a stream of its own, named after it."""
        return self._thread.run(
            self._inner.create_template, name, config, max_streams=max_streams, **options
        )

    def template_info(self, name: str) -> StreamTemplateInfo:
        """A template and the names of its streams."""
        return self._thread.run(self._inner.template_info, name)

    def delete_template(self, name: str) -> None:
        """Delete a template and all its streams. Raises as `template_info`."""
        self._thread.run(self._inner.delete_template, name)

    def template_names(self) -> Paged[str]:
        """The names of all templates. Raises UnsupportedByServerError."""
        return Paged(self._caller, self._inner.template_names())

    @property
    def timeout(self) -> float:
        """Seconds for each API call and ack."""
        return self._inner.timeout

    @property
    def api_prefix(self) -> str:
        """The start of every API subject."""
        return self._inner.api_prefix

    @property
    def server_info(self) -> ServerInfo | None:
        """The server that answers API calls: the connected one."""
        return self._inner.server_info

    def account_info(self) -> AccountInfo:
        """What the account uses and may use."""
        return self._thread.run(self._inner.account_info)

    def api_request(self, subject: str, document: Configuration | None = None) -> dict[str, Any]:
        """Make any call of the JetStream API with a document of your own."""
        return self._thread.run(self._inner.api_request, subject, document)

    def restore_stream(
        self,
        folder: str | os.PathLike[str],
        config: StreamConfigLike | None = None,
        /,
        *,
        progress: ProgressCallback | None = None,
        timeout: Seconds | None = None,
        **options: Unpack[UnnamedStreamOptions],
    ) -> StreamInfo:
        """Restore a stream from a backup, with its messages, sequences, times and consumers."""
        return transfer(
            self._caller,
            lambda forward: self._inner.restore_stream(
                folder, config, progress=forward, timeout=timeout, **options
            ),
            progress,
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
        """Back up a stream with its messages into a folder, as `nats stream backup` does."""
        return transfer(
            self._caller,
            lambda forward: self._inner.backup_stream(
                name,
                folder,
                consumers=consumers,
                check=check,
                chunk_size=chunk_size,
                window_size=window_size,
                progress=forward,
                timeout=timeout,
            ),
            progress,
        )

    def create_dead_letters(
        self,
        name: str,
        streams: str | Iterable[str],
        *,
        consumers: str | Iterable[str] | None = None,
        **options: Unpack[StreamSettings],
    ) -> DeadLetters:
        """Store the messages that consumers of `streams` give up, from now on."""
        return DeadLetters(
            self._caller,
            self._thread.run(
                self._inner.create_dead_letters, name, streams, consumers=consumers, **options
            ),
        )

    def dead_letters(self, name: str) -> DeadLetters:
        """Bind to the dead letters of this name."""
        return DeadLetters(self._caller, self._thread.run(self._inner.dead_letters, name))

    def delete_dead_letters(self, name: str) -> None:
        """Delete the dead letters and what waits for a worker, and store no more."""
        self._thread.run(self._inner.delete_dead_letters, name)

    def create_object_store(
        self,
        name: str,
        config: ObjectStoreConfig | None = None,
        /,
        **options: Unpack[ObjectStoreOptions],
    ) -> ObjectStore:
        """Create an object store, or bind to it when it exists with the same configuration."""
        return ObjectStore(
            self._caller, self._thread.run(self._inner.create_object_store, name, config, **options)
        )

    def update_object_store(
        self,
        name: str,
        config: ObjectStoreConfig | None = None,
        /,
        **options: Unpack[ObjectStoreOptions],
    ) -> ObjectStore:
        """Change an object store; options not given keep their values."""
        return ObjectStore(
            self._caller, self._thread.run(self._inner.update_object_store, name, config, **options)
        )

    def object_store(self, name: str) -> ObjectStore:
        """Bind to an existing object store."""
        return ObjectStore(self._caller, self._thread.run(self._inner.object_store, name))

    def delete_object_store(self, name: str) -> None:
        """Delete an object store and its objects. Raises as `object_store`."""
        self._thread.run(self._inner.delete_object_store, name)

    def object_store_names(self) -> Listing[str]:
        """The names of all object stores."""
        return Listing(self._caller, self._inner.object_store_names())

    def object_stores(self) -> Listing[ObjectStoreStatus]:
        """The statuses of all stores."""
        return Listing(self._caller, self._inner.object_stores())

    def create_bucket(
        self, name: str, config: BucketConfig | None = None, /, **options: Unpack[BucketOptions]
    ) -> Bucket:
        """Create a bucket, or bind to it when it exists with the same configuration."""
        return Bucket(
            self._caller, self._thread.run(self._inner.create_bucket, name, config, **options)
        )

    def update_bucket(
        self, name: str, config: BucketConfig | None = None, /, **options: Unpack[BucketOptions]
    ) -> Bucket:
        """Change a bucket; options not given keep their values."""
        return Bucket(
            self._caller, self._thread.run(self._inner.update_bucket, name, config, **options)
        )

    def create_or_update_bucket(
        self, name: str, config: BucketConfig | None = None, /, **options: Unpack[BucketOptions]
    ) -> Bucket:
        """Update a bucket, or create it. Raises as `update_bucket` and `create_bucket`."""
        return Bucket(
            self._caller,
            self._thread.run(self._inner.create_or_update_bucket, name, config, **options),
        )

    def create_bucket_aggregate(
        self,
        name: str,
        origins: Iterable[Origin | Source],
        config: BucketConfig | None = None,
        /,
        *,
        writable: bool = True,
        **options: Unpack[BucketSettings],
    ) -> Bucket:
        """Create a bucket that also takes the entries of other buckets (server 2.10)."""
        return Bucket(
            self._caller,
            self._thread.run(
                self._inner.create_bucket_aggregate,
                name,
                origins,
                config,
                writable=writable,
                **options,
            ),
        )

    def create_bucket_mirror(
        self,
        name: str,
        origin: Origin,
        config: BucketConfig | None = None,
        /,
        **options: Unpack[BucketSettings],
    ) -> StreamInfo:
        """Create a mirror of a bucket, which answers direct gets nearer to some readers."""
        return self._thread.run(self._inner.create_bucket_mirror, name, origin, config, **options)

    def bucket(self, name: str) -> Bucket:
        """Bind to an existing bucket."""
        return Bucket(self._caller, self._thread.run(self._inner.bucket, name))

    def delete_bucket(self, name: str) -> None:
        """Delete a bucket and its entries. Raises as `bucket`."""
        self._thread.run(self._inner.delete_bucket, name)

    def empty_bucket(self, name: str) -> int:
        """Delete all entries, but not the bucket; returns how many there were."""
        return self._thread.run(self._inner.empty_bucket, name)

    def bucket_names(self) -> Listing[str]:
        """The names of all buckets."""
        return Listing(self._caller, self._inner.bucket_names())

    def buckets(self) -> Listing[BucketStatus]:
        """The statuses of all buckets."""
        return Listing(self._caller, self._inner.buckets())

    def create_elastic_group(
        self,
        stream: str,
        name: str,
        *,
        max_members: int,
        filters: Iterable[PartitioningFilter] | None = None,
        max_buffered_msgs: int = 0,
        max_buffered_bytes: int = 0,
    ) -> ElasticGroup:
        """Create a group whose members may change (server 2.11), or bind to the same one."""
        return ElasticGroup(
            self._caller,
            self._thread.run(
                self._inner.create_elastic_group,
                stream,
                name,
                max_members=max_members,
                filters=filters,
                max_buffered_msgs=max_buffered_msgs,
                max_buffered_bytes=max_buffered_bytes,
            ),
        )

    def create_static_group(
        self,
        stream: str,
        name: str,
        *,
        max_members: int,
        members: Iterable[str] | None = None,
        mappings: Mapping[str, Iterable[int]] | None = None,
        filters: Iterable[str] | None = None,
    ) -> StaticGroup:
        """Create a group with fixed members (server 2.11), or bind to the same one."""
        return StaticGroup(
            self._caller,
            self._thread.run(
                self._inner.create_static_group,
                stream,
                name,
                max_members=max_members,
                members=members,
                mappings=mappings,
                filters=filters,
            ),
        )

    def elastic_group(self, stream: str, name: str) -> ElasticGroup:
        """Bind to an elastic group."""
        return ElasticGroup(self._caller, self._thread.run(self._inner.elastic_group, stream, name))

    def static_group(self, stream: str, name: str) -> StaticGroup:
        """Bind to a static group. Raises the errors of `elastic_group`."""
        return StaticGroup(self._caller, self._thread.run(self._inner.static_group, stream, name))

    def elastic_group_names(self, stream: str) -> Listing[str]:
        """The names of a stream's elastic groups."""
        return Listing(self._caller, self._inner.elastic_group_names(stream))

    def static_group_names(self, stream: str) -> Listing[str]:
        """The names of a stream's static groups."""
        return Listing(self._caller, self._inner.static_group_names(stream))
