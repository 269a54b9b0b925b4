# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: consumer calls."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Unpack

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.jetstream.consume import JsMsgCallback
from jetspark.blocking.jetstream.consumers import PullConsumer, PushConsumer
from jetspark.blocking.jetstream.ordered import OrderedMessages
from jetspark.blocking.jetstream.paging import Paged
from jetspark.blocking.loop_thread import LoopThread
from jetspark.documents.consumers import ConsumerInfo, ConsumerOptions, PauseState, ReplayPolicy
from jetspark.full_client import JetStream as AsyncJetStream
from jetspark.jetstream.consume import EXPIRES
from jetspark.jetstream.consumers import ConsumerConfigLike
from jetspark.jetstream.ordered import HEARTBEAT, INACTIVE_THRESHOLD
from jetspark.timestamps import Seconds


class GeneratedConsumerCalls:
    """The calls of `ConsumerCalls` that hand on to its asyncio twin."""

    _thread: LoopThread
    _caller: CallerSide
    _inner: AsyncJetStream

    def create_consumer(
        self,
        stream: str,
        config: ConsumerConfigLike | None = None,
        /,
        **options: Unpack[ConsumerOptions],
    ) -> PullConsumer:
        """Create a pull consumer, or bind to it when it exists with the same configuration.

        Options are the fields of ConsumerConfig. With a `name` (or `durable_name`) it stays until
        it is deleted; with `name` and `inactive_threshold`, until it was unused for that long;
        without a name, until it was unused for 5 s. A `config` is sent as it is: only its
        `durable_name` makes the consumer durable.

        Raises ConfigError, UnsupportedByServerError, StreamNotFoundError, NameInUseError when it
        exists with another configuration (`update_consumer` changes it, `consumer` binds to it),
        and as every API call (see `JetStream`).
        """
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
        """Create a push consumer; `deliver_subject` is required. Raises as `create_consumer`."""
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
        """Change a consumer; options not given keep their values. A name is required.

        The current configuration is read first, so of two concurrent updates one may undo the
        other. Raises ConfigError, UnsupportedByServerError, ConsumerNotFoundError,
        StreamNotFoundError, and as every API call (see `JetStream`).
        """
        return self._thread.run(self._inner.update_consumer, stream, config, **options)

    def create_or_update_consumer(
        self,
        stream: str,
        config: ConsumerConfigLike | None = None,
        /,
        **options: Unpack[ConsumerOptions],
    ) -> ConsumerInfo:
        """Update a consumer, or create it, pull or push, when none has that name.

        Raises as `update_consumer` and `create_consumer`.
        """
        return self._thread.run(self._inner.create_or_update_consumer, stream, config, **options)

    def consumer(self, stream: str, name: str) -> PullConsumer:
        """Bind to an existing pull consumer.

        Raises ConsumerNotFoundError, StreamNotFoundError, ConsumerIsPushError for a push consumer,
        and as every API call (see `JetStream`).
        """
        return PullConsumer(self._caller, self._thread.run(self._inner.consumer, stream, name))

    def push_consumer(self, stream: str, name: str) -> PushConsumer:
        """Bind to an existing push consumer.

        Raises ConsumerNotFoundError, StreamNotFoundError, ConfigError for a pull consumer, and as
        every API call (see `JetStream`).
        """
        return PushConsumer(self._caller, self._thread.run(self._inner.push_consumer, stream, name))

    def consumer_info(self, stream: str, name: str) -> ConsumerInfo:
        """Configuration and state of a consumer.

        Raises ConsumerNotFoundError, StreamNotFoundError, and as every API call (see `JetStream`).
        """
        return self._thread.run(self._inner.consumer_info, stream, name)

    def delete_consumer(self, stream: str, name: str) -> None:
        """Delete a consumer.

        Raises ConsumerNotFoundError, StreamNotFoundError, and as every API call (see `JetStream`).
        """
        self._thread.run(self._inner.delete_consumer, stream, name)

    def consumer_names(self, stream: str) -> Paged[str]:
        """The names of a stream's consumers.

        Raises BadNameError; while iterating StreamNotFoundError, and as every API call (see
        `JetStream`).
        """
        return Paged(self._thread, self._inner.consumer_names(stream))

    def consumers(self, stream: str) -> Paged[ConsumerInfo]:
        """A stream's consumers. Raises as `consumer_names`."""
        return Paged(self._thread, self._inner.consumers(stream))

    def pause_consumer(self, stream: str, name: str, until: datetime) -> PauseState:
        """Deliver nothing until then (server 2.11).

        `until`: an aware datetime; one in the past resumes. Raises ConfigError,
        UnsupportedByServerError, ConsumerNotFoundError, StreamNotFoundError, and as every API
        call (see `JetStream`).
        """
        return self._thread.run(self._inner.pause_consumer, stream, name, until)

    def resume_consumer(self, stream: str, name: str) -> PauseState:
        """Deliver again (server 2.11). Raises as `pause_consumer`."""
        return self._thread.run(self._inner.resume_consumer, stream, name)

    def reset_consumer(self, stream: str, name: str, seq: int | None = None) -> ConsumerInfo:
        """Deliver unacknowledged messages again, or everything from `seq` on (server 2.14).

        Acknowledgements and delivery counts from there on are forgotten. `seq` needs a
        deliver_policy of "all" or one with a start, and must not be before that start; otherwise
        APIError. Raises ConfigError, UnsupportedByServerError, ConsumerNotFoundError,
        StreamNotFoundError, and as every API call (see `JetStream`).
        """
        return self._thread.run(self._inner.reset_consumer, stream, name, seq)

    def consumer_leader_stepdown(
        self, stream: str, name: str, *, preferred: str | None = None
    ) -> None:
        """Make the consumer's leader step down; `preferred` names the next one (server 2.11).

        Raises APIError on a server that is not clustered, UnsupportedByServerError,
        StreamNotFoundError, ConsumerNotFoundError, and as every API call (see `JetStream`).
        """
        self._thread.run(self._inner.consumer_leader_stepdown, stream, name, preferred=preferred)

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
        """A stream in order, without a gap and without acks: iterate it, or give a callback.

        `subjects`: only matching ones; several need server 2.10. `deliver_policy`: a
        DeliverPolicy, default "all"; or `start_seq` or `start_time` instead. `headers_only`:
        without payloads; their sizes are in the header Nats-Msg-Size. `replay_policy`: "original"
        keeps the pace of publishing. `name_prefix`: the consumers are called after it, an
        underscore and a random number, for those who look at the stream's consumers.

        It buffers: up to `max_messages` messages (default: 500, and up to 8,000 for a quick
        reader), or `max_bytes` bytes, are received or requested ahead. `expires`: seconds that a
        pull request may wait at the server. `heartbeat`: seconds between the server's heartbeats;
        when none comes for twice as long, the consumer is recreated. `inactive_threshold`: how long
        the server keeps the consumer of a reader that is gone.

        Nothing is sent before the first message is wanted, except with a callback. Raises
        ConfigError, BadNameError, BadSubjectError, UnsupportedByServerError; how it ends: see
        `jetspark.jetstream.ordered`.
        """
        return OrderedMessages(
            self._caller,
            stream,
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
