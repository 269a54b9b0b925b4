"""Consumers: create, change, bind, list, pause, reset, delete; pull and push."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, TypeAlias, TypedDict, Unpack

import jetspark.errors as errors
from jetspark.client.client import PENDING_BYTES_LIMIT, PENDING_MSGS_LIMIT, CoreClient
from jetspark.client.messages import Message
from jetspark.client.subscription import MessageReader, weakly
from jetspark.client.tasks import background
from jetspark.documents.configuration import Configuration, changes_to_wire, merged
from jetspark.documents.consumers import (
    AckPolicy,
    ConsumerConfig,
    ConsumerInfo,
    ConsumerOptions,
    PauseState,
    PriorityPolicy,
)
from jetspark.documents.document import from_wire, text_of_time
from jetspark.documents.requirements import check_consumer, check_feature, consumer_needs
from jetspark.err_codes import CONSUMER_ALREADY_EXISTS
from jetspark.jetstream.api import Api, Paged
from jetspark.jetstream.consume import (
    EXPIRES,
    ConsumerMessages,
    JsMsgCallback,
    make_consume_options,
)
from jetspark.jetstream.differences import differing, with_differences
from jetspark.jetstream.fetch import (
    CHECKS_PER_HEARTBEAT,
    GROUPS_SINCE,
    FetchResult,
    GapDetector,
    Priority,
    Pull,
    fate_of_missing,
    make_priority,
    missing_deliveries_error,
    silence_error,
)
from jetspark.jetstream.message import JsMsg
from jetspark.jetstream.stream_handle import StreamHandle
from jetspark.jetstream.stream_requests import change_peer, step_down
from jetspark.subjects import check_name, check_subscribe_subject
from jetspark.timestamps import Seconds, in_seconds
from jetspark.validation import check_moment, check_sequence
from jetspark.wire import js_api
from jetspark.wire.kernel import MessageFrame
from jetspark.wire.status import CONFLICT, CONTROL, status_of

# -------------------------------------------------------------------------------------------------
# What pull and push consumers share: info, pause, resume, reset, delete.


async def consumer_info(api: Api, stream: str, name: str) -> ConsumerInfo:
    """Configuration and state of a consumer. Raises the errors of `Consumer.info`."""
    answer = await api.call(js_api.CONSUMER_INFO, stream=stream, consumer=name)
    return from_wire(ConsumerInfo, answer)


class Consumer:
    """A consumer of a stream, by name. Its only state is `cached_info`.

    Example:
        ```python
        consumer = await js.stream("ORDERS").create_consumer(name="worker")
        await consumer.update(max_ack_pending=100)
        print((await consumer.info()).num_pending)  # 3
        await consumer.delete()
        ```
    """

    def __init__(self, api: Api, info: ConsumerInfo) -> None:
        self._api = api
        self.cached_info = info
        """The result of the last `info`, or of the call that created this object."""

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self.cached_info.stream_name

    @property
    def name(self) -> str:
        """The consumer's name."""
        return self.cached_info.name

    @property
    def _names(self) -> dict[str, str]:
        return {"stream": self.stream, "consumer": self.name}

    async def info(self) -> ConsumerInfo:
        """The consumer as it is now. Raises ConsumerNotFoundError, StreamNotFoundError."""
        self.cached_info = await consumer_info(self._api, self.stream, self.name)
        return self.cached_info

    async def delete(self) -> None:
        """Delete the consumer. Raises the errors of `info`."""
        await self._api.call(js_api.CONSUMER_DELETE, **self._names)

    async def update(
        self, config: ConsumerConfigLike | None = None, /, **options: Unpack[ConsumerOptions]
    ) -> ConsumerInfo:
        """Change the consumer. Options not given keep their values; None removes one.

        It reads the current configuration first, so one of two concurrent updates may undo the
        other. Raises ConfigError, also for the name of another consumer, UnsupportedByServerError,
        and the errors of `info`.
        """
        wire = _checked(self._api, config, options)
        if _name_of(wire) not in (None, self.name):
            raise errors.ConfigError(f"A consumer cannot be renamed: this is {self.name!r}.")
        self.cached_info = await _update(self._api, self.stream, self.name, wire)
        return self.cached_info

    async def pause(self, until: datetime) -> PauseState:
        """Deliver nothing until `until` (server 2.11).

        `until`: an aware datetime; one in the past resumes. Raises ConfigError,
        UnsupportedByServerError, and the errors of `info`.
        """
        return await self._pause(check_moment("until", until))

    async def resume(self) -> PauseState:
        """Deliver again (server 2.11). Raises the errors of `pause`."""
        return await self._pause(None)

    async def _pause(self, until: datetime | None) -> PauseState:
        """Pause until a time; None resumes."""
        body = {} if until is None else {"pause_until": text_of_time(until)}
        needs = check_feature("pausing a consumer", (2, 11), self._api.server)
        return from_wire(
            PauseState, await self._api.call(js_api.CONSUMER_PAUSE, body, needs, **self._names)
        )

    async def reset(self, seq: int | None = None) -> ConsumerInfo:
        """Deliver unacknowledged messages again, or everything from `seq` on (server 2.14).

        The server forgets acknowledgements and delivery counts from there on. `seq` needs a
        deliver_policy of "all" or one with a start, and must not be before that start; otherwise
        APIError. Raises ConfigError, UnsupportedByServerError, and the errors of `info`.
        """
        api, names = self._api, self._names
        needs = check_feature("resetting a consumer", (2, 14), api.server)
        body = None if seq is None else {"seq": check_sequence("seq", seq)}
        # The consumer itself answers a reset, so for a missing consumer, or on a server without
        # resets, the call would time out.
        await api.call(js_api.CONSUMER_INFO, None, needs, **names)
        return _to_info(await api.call(js_api.CONSUMER_RESET, body, needs, **names))

    async def step_down_leader(self, *, preferred: str | None = None) -> None:
        """Make the consumer's leader step down; `preferred` names the next one (server 2.11).

        Raises APIError on a server that is not clustered, UnsupportedByServerError, and the errors
        of `info`.
        """
        await step_down(self._api, js_api.CONSUMER_LEADER_STEPDOWN, preferred, **self._names)

    async def evacuate_peer(self, peer: str) -> None:
        """Move the consumer's replica of the server named `peer` to another one (server 2.15).

        The other server needs a replica of the stream. Returns when the move is ordered; `cluster`
        of `info` shows how far it is. Raises ClusterPeerNotMemberError for a server without a
        replica, PeerRemapError when no other server can take it, ClusterRequiredError on a server
        that is not clustered, UnsupportedByServerError, and the errors of `info`.
        """
        await change_peer(self._api, js_api.CONSUMER_PEER_EVACUATE, peer, **self._names)

    async def remove_peer(self, peer: str) -> None:
        """Drop the consumer's replica of the server named `peer`, and make one on another server
        (server 2.15).

        For a server that is lost: the new replica is copied from the others, so that a consumer
        with a single replica forgets what was acknowledged. Raises the errors of `evacuate_peer`.
        """
        await change_peer(self._api, js_api.CONSUMER_PEER_REMOVE, peer, **self._names)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(stream={self.stream!r}, name={self.name!r})"


# -------------------------------------------------------------------------------------------------
# Pull consumers (ADR-13, ADR-37, ADR-42). Pulls are checked against the configuration that the
# consumer had when the object was created.


class PriorityOptions(TypedDict, total=False):
    """The priority of a pull, for consumers with priority groups (ADR-42; server 2.11).

    `group` is then required. "overflow": deliver only while at least `min_pending` messages wait
    for delivery, or at least `min_ack_pending` for acknowledgement. "prioritized" (2.12):
    `priority` is 0 to 9; lower ones are served first. "pinned_client": the consumer's object keeps
    the pin id.
    """

    group: str | None
    min_pending: int | None
    min_ack_pending: int | None
    priority: int | None


class PullConsumer(Consumer):
    """A consumer that delivers on request.

    Example:
        ```python
        consumer = await js.stream("ORDERS").create_consumer(name="worker")
        for msg in await consumer.fetch(100, timeout=1):
            print(msg.data)  # b'1 apple' b'2 pears' b'3 plums'
            await msg.ack()
        ```
    """

    def __init__(self, api: Api, info: ConsumerInfo) -> None:
        super().__init__(api, info)
        self._pins: dict[str, bytes] = {}

    async def fetch(
        self,
        batch: int,
        *,
        timeout: Seconds | None = None,
        max_bytes: int | None = None,
        heartbeat: Seconds | None = None,
        **priority: Unpack[PriorityOptions],
    ) -> FetchResult:
        """Up to `batch` messages, as a list that also says how the fetch ended.

        Without `timeout`: what can be delivered at once, perhaps nothing. A message published a
        moment ago may be missing, since the consumer hears of it after the publisher's ack. With
        `timeout` (seconds): waits until the batch is full or the time is over; the server's own
        timeout is 10 ms shorter, so that it ends first. `max_bytes`: stop before this many bytes of
        messages (subjects and headers count). `heartbeat` (seconds, at most half of `timeout`): a
        server silent for twice as long raises MissedHeartbeatError at once, not at the timeout; the
        clock stops while the connection is down.

        `priority`: options for a consumer with priority groups, such as `group`
        (`PriorityOptions`).

        An error after the first message is in the list's `.error`: also SequenceMismatchError when
        the server's last status shows that a delivery was lost (with acks it comes again after
        ack_wait), and RequestTimeoutError when that status is missing half a second after the
        timeout. Without a message: an empty list if the server says that there are none; otherwise
        raises RequestTimeoutError, SequenceMismatchError, MissedHeartbeatError,
        ConsumerNotFoundError, StreamNotFoundError, ConsumerDeletedError, ConsumerIsPushError,
        PullError, PermissionsError or ConnectionClosedError; ConfigError, UnsupportedByServerError
        before anything is sent.

        With a timeout, a fetch survives a lost connection: it sends its request again. An
        interrupted fetch returns its messages to the consumer (NAK), which counts that as a
        delivery: with `max_deliver` it may give up messages that no program has seen, and without
        acks they are lost. There, let `timeout` end the fetch.

        Example:
            ```python
            consumer = await js.stream("ORDERS").create_consumer(name="worker")
            for msg in await consumer.fetch(2, timeout=5):
                print(msg.seq, msg.data)  # 1 b'1 apple' 2 b'2 pears'
                await msg.ack()
            ```
        """
        pulled = self._priority(priority)
        pull = Pull(
            self._api,
            self.stream,
            self.name,
            batch,
            timeout,
            max_bytes,
            heartbeat,
            pulled,
            acks=self._acks,
        )
        return await pull.run()

    async def next(
        self, timeout: Seconds | None = None, **priority: Unpack[PriorityOptions]
    ) -> JsMsg:
        """One message, within `timeout` seconds (default: the context's).

        Raises RequestTimeoutError when none came, and the errors of `fetch`, which explains the
        other options and what an interruption costs.

        Example:
            ```python
            consumer = await js.stream("ORDERS").create_consumer(name="worker")
            msg = await consumer.next(timeout=5)
            print(msg.data)  # b'1 apple'
            await msg.ack()
            ```
        """
        seconds = self._api.timeout if timeout is None else in_seconds(timeout)
        result = await self.fetch(1, timeout=seconds, **priority)
        if not result:
            raise errors.RequestTimeoutError(
                f"No message from consumer {self.name!r} within {seconds:g} s."
            )
        return result[0]

    def consume(
        self,
        *,
        callback: JsMsgCallback | None = None,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        expires: Seconds = EXPIRES,
        heartbeat: Seconds | None = None,
        threshold_messages: int | None = None,
        threshold_bytes: int | None = None,
        **priority: Unpack[PriorityOptions],
    ) -> ConsumerMessages:
        """Continuous messages: iterate the result, or give a `callback`.

        It buffers up to `max_messages` messages (default: 500, and up to 8,000 for a reader that
        takes half of them within 5 ms), or `max_bytes` bytes, received or requested. When these
        fall to `threshold_messages` or `threshold_bytes` (default: half), it sends the next pull
        request. `expires`: seconds that a request may wait at the server, at least 1, default 30.
        `heartbeat`: seconds between the server's heartbeats, 0.5 to 30, at most half of `expires`
        (the default); after twice as long without one, it reports that and sends a new request. The
        other options are those of `fetch`.

        How it ends and what it survives: see `jetspark.jetstream.consume`. Raises ConfigError,
        UnsupportedByServerError, ConnectionClosedError.

        Example:
            ```python
            consumer = await js.stream("ORDERS").create_consumer(name="worker")
            async with consumer.consume() as messages:
                async for msg in messages:
                    print(msg.seq, msg.data)  # 1 b'1 apple' 2 b'2 pears' 3 b'3 plums'
                    await msg.ack()
            ```
        """
        limits = make_consume_options(
            self.cached_info.config,
            max_messages=max_messages,
            max_bytes=max_bytes,
            expires=expires,
            heartbeat=heartbeat,
            threshold_messages=threshold_messages,
            threshold_bytes=threshold_bytes,
        )
        pulled = self._priority(priority)
        return ConsumerMessages(
            self._api, self.stream, self.name, limits, callback, pulled, acks=self._acks
        )

    async def unpin(self, group: str) -> None:
        """Let the server pin another client of a priority group (ADR-42; server 2.11).

        Raises ConfigError for a consumer whose policy is not "pinned_client",
        UnsupportedByServerError, ConsumerNotFoundError, StreamNotFoundError.
        """
        needs = check_feature("unpin", GROUPS_SINCE, self._api.server)
        if self.cached_info.config.priority_policy != PriorityPolicy.PINNED_CLIENT:
            raise errors.ConfigError("unpin needs a consumer with priority_policy 'pinned_client'.")
        await self._api.call(js_api.CONSUMER_UNPIN, {"group": group}, needs, **self._names)

    @property
    def _acks(self) -> bool:
        return self.cached_info.config.ack_policy != AckPolicy.NONE

    def _priority(self, options: PriorityOptions) -> Priority | None:
        return make_priority(self.cached_info.config, self._api.server, self._pins, **options)


# -------------------------------------------------------------------------------------------------
# Push consumers.

_STALLED = "Nats-Consumer-Stalled"

QUIET = 20.0
"""Seconds of silence after which a consumer without heartbeats is looked up."""


class PushMessages(MessageReader[JsMsg]):
    """The result of `PushConsumer.subscribe`: iterate it, or give it a callback.

    Nothing is acknowledged automatically. Control messages are hidden: a flow control request, or a
    heartbeat saying that its answer was lost, is answered when the messages before it were taken,
    so that a slow reader gets no more than the server's window. At a pending limit new messages are
    dropped, and SlowConsumerError is reported.

    A consumer silent for twice its `idle_heartbeat` is reported as MissedHeartbeatError, once for
    each silence; not in a deliver group, where one member gets the heartbeats. A deleted consumer
    sends nothing, so a silent one (QUIET seconds without heartbeats or in a group) is looked up. If
    it or its stream is gone, the iterator raises that error after the queue; with a callback it is
    reported.

    Heartbeats also say how much was delivered: a lost message, even the last one, is reported as
    SequenceMismatchError within twice the interval. With acks it is delivered again after ack_wait;
    without acks it is gone.

    Example:
        ```python
        consumer = await js.stream("ORDERS").create_push_consumer(deliver_subject="billing")
        async with consumer.subscribe() as messages:
            msg = await messages.next(timeout=2)
            print(msg.subject, msg.data)  # orders.eu b'1 apple'
        ```
    """

    _client: CoreClient
    _waits_for_reader = True

    def __init__(
        self,
        api: Api,
        info: ConsumerInfo,
        callback: JsMsgCallback | None,
        delivered: int | None,
        pending_msgs_limit: int,
        pending_bytes_limit: int,
    ) -> None:
        config, client = info.config, api.client
        subject = config.deliver_subject or ""
        super().__init__(client, callback, subject, pending_msgs_limit, pending_bytes_limit)
        self._api = api
        self._stream = info.stream_name
        self._name = info.name
        self._heartbeat = 0.0
        if config.idle_heartbeat is not None and not config.deliver_group:
            self._heartbeat = config.idle_heartbeat.total_seconds()
        self._heard = self._silent = 0
        self._asking: asyncio.Task[None] | None = None
        self._acks = config.ack_policy != AckPolicy.NONE
        self._gaps = GapDetector(delivered)
        self._handled = 0  # frames, including the server's own
        self._dropped = 0  # as of the last heartbeat
        self._listener = client.listen(
            subject,
            self._incoming.on_frame,
            queue=config.deliver_group or None,
            on_run=self._incoming.on_run,
            on_end=weakly(self._end_reading),
        )
        self._begin_reading(f"jetspark-push-{info.name}", self._listener.close)
        self._set_clock()

    @property
    def source(self) -> str:
        """The consumer, for errors."""
        return f"consumer {self._name!r}"

    # -- taking messages -----------------------------------------------------------------------

    def _take(self) -> JsMsg | None:
        frame = self._frames.popleft()
        self._incoming.pending_bytes -= len(frame.payload)
        return None if self._is_control(frame) else JsMsg(self._client, frame)

    def take_queued(self, limit: int) -> list[MessageFrame]:
        return [frame for frame in super().take_queued(limit) if not self._is_control(frame)]

    # -- control messages ----------------------------------------------------------------------

    def _is_control(self, frame: MessageFrame) -> bool:
        """Tell whether a frame is a control message, and answer it if necessary."""
        self._handled += 1
        block = frame.headers
        status = None if block is None or frame.payload else status_of(block)
        if status is None or status.code != CONTROL:
            if self._gaps.before is None:
                self._gaps.first(frame.reply, self._handled - 1)
            return False
        self._gaps.non_deliveries += 1
        message = Message(self._client, frame)
        if status.is_flow_control:
            self._answer(message.reply)
        elif message.headers is not None:
            self._answer(message.headers.get(_STALLED))
            self._compare(block)
        return True

    def _answer(self, subject: str | None) -> None:
        if subject:
            try:
                self._client.publish_nowait(subject)
            except errors.JetsparkError as error:
                self._client.report(error)

    def _compare(self, heartbeat: bytes | None) -> None:
        """Compare what the consumer had sent at this heartbeat with what was taken."""
        gaps, dropped = self._gaps, self.dropped
        if dropped != self._dropped:
            self._dropped, gaps.before = dropped, None
        if self._heartbeat and (missing := gaps.missing(heartbeat, self._handled)):
            gaps.doubt(missing, self._handled)

    # -- time ----------------------------------------------------------------------------------

    def _set_clock(self) -> None:
        pause = (self._heartbeat or QUIET / 2) / CHECKS_PER_HEARTBEAT
        self._clock = self._client.loop.call_later(pause, weakly(self._on_clock))

    def _on_clock(self) -> None:
        if self._ended:
            return
        received = self._listener.received
        # Count checks, not seconds: a loop blocked by user code received nothing either.
        self._silent = self._silent + 1 if received == self._heard else 0
        self._heard = received
        if not self._client.is_connected:
            self._silent = 0
        if missing := self._gaps.check(self._handled + self.pending_msgs):
            source, consequence = f"push consumer {self._name!r}", fate_of_missing(self._acks)
            self._client.report(missing_deliveries_error(source, missing, consequence))
        if self._silent == 2 * CHECKS_PER_HEARTBEAT and self._heartbeat:
            self._client.report(silence_error(f"Push consumer {self._name!r}", self._heartbeat))
        if self._silent and self._silent % (2 * CHECKS_PER_HEARTBEAT) == 0:
            work = f"Looking for push consumer {self._name!r}"
            self._asking = background(self._look_for_it(), work, self._client.report)
        self._set_clock()

    async def _look_for_it(self) -> None:
        try:
            await consumer_info(self._api, self._stream, self._name)
        except (errors.ConsumerNotFoundError, errors.StreamNotFoundError) as error:
            if self._callback is not None:
                self._client.report(error)
            self._end(error)
        except errors.JetsparkError:
            pass  # unknown without a leader, link or permission

    # -- ending --------------------------------------------------------------------------------

    def stop(self) -> None:
        """End it now, and discard messages not taken. May be called again."""
        if self._asking is not None:
            self._asking.cancel()
        self._discard()
        self._end(None)

    def _end(self, error: errors.JetsparkError | None) -> None:
        if self._clock is not None:
            self._clock.cancel()
        self._listener.close()
        self._end_reading(error)

    async def _stop_deliveries(self, timeout: float | None) -> None:
        self._listener.stop()
        await self._client.flush(timeout)

    def _leave(self) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "active" if self.active else "ended"
        return f"PushMessages({self._name!r}, {state}, {self.pending_msgs} here)"


class PushConsumer(Consumer):
    """A consumer that delivers to a subject.

    Example:
        ```python
        stream = await js.stream("ORDERS")
        consumer = await stream.create_push_consumer(deliver_subject="billing", deliver_group="b")
        async with consumer.subscribe() as messages:
            msg = await messages.next(timeout=2)
            await msg.ack()
        ```
    """

    def __init__(self, api: Api, info: ConsumerInfo) -> None:
        super().__init__(api, info)
        # Nothing is delivered without a subscription, so this is right until the first one.
        self._delivered: int | None = None if info.push_bound else info.delivered.consumer_seq

    @property
    def deliver_subject(self) -> str:
        """The subject that it delivers to."""
        return self.cached_info.config.deliver_subject or ""

    def subscribe(
        self,
        *,
        callback: JsMsgCallback | None = None,
        pending_msgs_limit: int = PENDING_MSGS_LIMIT,
        pending_bytes_limit: int = PENDING_BYTES_LIMIT,
    ) -> PushMessages:
        """Receive the messages: iterate the result, or give a `callback`.

        It answers flow control requests and watches heartbeats. Members of a `deliver_group` share
        the messages. The limits are those of `Client.subscribe`. Raises ConfigError,
        ConnectionClosedError; `PushMessages` says what it survives and how it ends.

        Example:
            ```python
            consumer = await js.stream("ORDERS").create_push_consumer(deliver_subject="billing")
            async with consumer.subscribe() as messages:
                async for msg in messages:
                    print(msg.data)  # b'1 apple' b'2 pears' b'3 plums'
                    await msg.ack()
            ```
        """
        delivered, self._delivered = self._delivered, None
        return PushMessages(
            self._api,
            self.cached_info,
            callback,
            delivered,
            pending_msgs_limit,
            pending_bytes_limit,
        )


# -------------------------------------------------------------------------------------------------
# The calls. Creating never changes an existing consumer: servers guarantee that from 2.10 on; for
# older ones it is looked up first.

ConsumerConfigLike: TypeAlias = ConsumerConfig | Configuration
_DEFAULTS: Final = {"ack_policy": "explicit"}


class ConsumerCalls(StreamHandle):
    """The calls of a stream that make, find and delete its consumers."""

    async def create_consumer(
        self, config: ConsumerConfigLike | None = None, /, **options: Unpack[ConsumerOptions]
    ) -> PullConsumer:
        """Create a pull consumer, or bind to it when it exists with the same configuration.

        Options are the fields of ConsumerConfig. With a `name` (or `durable_name`) it stays until
        it is deleted; with `name` and `inactive_threshold`, until it was unused for that long;
        without a name, until it was unused for 5 s. A `config` is sent unchanged: only its
        `durable_name` makes the consumer durable.

        Raises ConfigError, UnsupportedByServerError, NameInUseError when it exists with another
        configuration (use `create_or_update_consumer` to change it, `consumer` to bind to it).

        Example:
            ```python
            consumer = await js.stream("ORDERS").create_consumer(
                name="worker", filter_subject="orders.eu", ack_wait=60, max_deliver=5
            )
            print(consumer.cached_info.num_pending)  # 2
            ```
        """
        wire = merged(_DEFAULTS, _pull(_checked(self._api, config, options)))
        info = await _create(self._api, self.name, _durable(wire, config))
        return PullConsumer(self._api, info)

    async def create_push_consumer(
        self, config: ConsumerConfigLike | None = None, /, **options: Unpack[ConsumerOptions]
    ) -> PushConsumer:
        """Create a push consumer with a `deliver_subject`. Raises as `create_consumer`.

        Example:
            ```python
            consumer = await js.stream("ORDERS").create_push_consumer(
                deliver_subject=nc.new_inbox(), flow_control=True, idle_heartbeat=5
            )
            ```
        """
        wire = merged(_DEFAULTS, _push(_checked(self._api, config, options)))
        info = await _create(self._api, self.name, _durable(wire, config))
        return PushConsumer(self._api, info)

    async def create_or_update_consumer(
        self, config: ConsumerConfigLike | None = None, /, **options: Unpack[ConsumerOptions]
    ) -> PullConsumer:
        """Update a pull consumer, or create it when none has that name.

        Options not given keep their values in an update. None is the server's default in both
        cases. Raises the errors of `create_consumer` and `Consumer.update`, and
        ConsumerIsPushError.
        """
        wire = _pull(_checked(self._api, config, options))
        info = await _create_or_update(self._api, self.name, wire, config)
        return PullConsumer(self._api, _is_pull(info))

    async def create_or_update_push_consumer(
        self, config: ConsumerConfigLike | None = None, /, **options: Unpack[ConsumerOptions]
    ) -> PushConsumer:
        """Update a push consumer, or create it with a `deliver_subject` when none has that name.

        Raises as `create_or_update_consumer`, and ConfigError for a pull consumer.
        """
        wire = _push(_checked(self._api, config, options))
        info = await _create_or_update(self._api, self.name, wire, config)
        return PushConsumer(self._api, _is_push(info))

    async def consumer(self, name: str) -> PullConsumer:
        """Bind to an existing pull consumer.

        Raises ConsumerNotFoundError, ConsumerIsPushError for a push consumer.
        """
        return PullConsumer(self._api, _is_pull(await consumer_info(self._api, self.name, name)))

    async def push_consumer(self, name: str) -> PushConsumer:
        """Bind to an existing push consumer.

        Raises ConsumerNotFoundError, ConfigError for a pull consumer.
        """
        return PushConsumer(self._api, _is_push(await consumer_info(self._api, self.name, name)))

    async def delete_consumer(self, name: str) -> None:
        """Delete a consumer. Raises ConsumerNotFoundError."""
        await self._api.call(js_api.CONSUMER_DELETE, stream=self.name, consumer=name)

    def consumer_names(self) -> Paged[str]:
        """The names of the stream's consumers. While iterating it raises StreamNotFoundError."""
        return Paged(self._api, js_api.CONSUMER_NAMES, "consumers", str, {}, stream=self.name)

    def consumers(self) -> Paged[ConsumerInfo]:
        """The stream's consumers. Raises the errors of `consumer_names`."""
        return Paged(self._api, js_api.CONSUMER_LIST, "consumers", _to_info, {}, stream=self.name)


def _pull(wire: dict[str, Any]) -> dict[str, Any]:
    if wire.get("deliver_subject"):
        raise errors.ConfigError("deliver_subject makes a push consumer: use create_push_consumer.")
    return wire


def _push(wire: dict[str, Any]) -> dict[str, Any]:
    if not wire.get("deliver_subject"):
        raise errors.ConfigError("A push consumer needs deliver_subject.")
    return wire


def _is_pull(info: ConsumerInfo) -> ConsumerInfo:
    if info.config.deliver_subject:
        raise errors.ConsumerIsPushError(CONFLICT, "Consumer is push based")
    return info


def _is_push(info: ConsumerInfo) -> ConsumerInfo:
    if not info.config.deliver_subject:
        raise errors.ConfigError(
            f'Consumer "{info.name}" of stream "{info.stream_name}" is a pull consumer.'
        )
    return info


async def _create(api: Api, stream: str, wire: dict[str, Any]) -> ConsumerInfo:
    """Create a consumer with a whole configuration. Raises as `ConsumerCalls.create_consumer`."""
    name = _name_of(wire)
    if name is not None and not _knows_actions(api):
        existing = await _existing(api, stream, name)
        if existing is not None and "ts" not in existing:  # of a server before 2.10
            return _same_or_in_use(existing, wire, stream, name)
    try:
        return await _send(api, stream, wire, "create")
    except errors.NameInUseError as error:
        with suppress(errors.JetsparkError):  # not permitted to look it up
            if name is not None and (existing := await _existing(api, stream, name)) is not None:
                different = differing(ConsumerConfig, existing["config"], wire)
                error = with_differences(error, different)
        raise error from None


async def _update(api: Api, stream: str, name: str, wire: dict[str, Any]) -> ConsumerInfo:
    """Change some fields of a consumer's configuration: it is read first."""
    answer = await api.call(js_api.CONSUMER_INFO, stream=stream, consumer=name)
    config = answer["config"]
    if "filter_subjects" in wire or "filter_subject" in wire:  # each replaces the other
        for kind in ("filter_subjects", "filter_subject"):
            config.pop(kind, None)
    return await _send(api, stream, merged(config, wire), "update")


async def _create_or_update(
    api: Api, stream: str, wire: dict[str, Any], config: ConsumerConfigLike | None
) -> ConsumerInfo:
    """Update a consumer, or create it. `config`: what the caller gave besides options."""
    name, new = _name_of(wire), merged(_DEFAULTS, wire)
    if name is None:
        return await _create(api, stream, new)
    try:
        return await _update(api, stream, name, wire)
    except errors.ConsumerNotFoundError:
        pass
    try:
        return await _create(api, stream, _durable(new, config))
    except errors.NameInUseError:  # created in between
        return await _update(api, stream, name, wire)


def _knows_actions(api: Api) -> bool:
    """Whether the server surely knows the action; behind a domain that is unknown."""
    return api.server is not None and api.server.at_least(2, 10)


async def _existing(api: Api, stream: str, name: str) -> dict[str, Any] | None:
    try:
        return await api.call(js_api.CONSUMER_INFO, stream=stream, consumer=name)
    except errors.ConsumerNotFoundError:
        return None


async def _send(api: Api, stream: str, wire: dict[str, Any], action: str) -> ConsumerInfo:
    body: dict[str, Any] = {"stream_name": stream, "config": wire}
    if api.server is None or _knows_actions(api):  # older ones ignore it
        body["action"] = action
    name, needs = _name_of(wire), consumer_needs(wire)
    if name is None:
        call = js_api.CONSUMER_CREATE_UNNAMED
        return _to_info(await api.call(call, body, needs, stream=stream))
    # With the name in the subject, the server wants it in the configuration too.
    wire.setdefault("name", name)
    call, names = js_api.CONSUMER_CREATE, {"stream": stream, "consumer": name}
    single = wire.get("filter_subject")
    if single and "*" not in single and ">" not in single:
        # With the filter in the subject, permissions can be given by filter. With wildcards
        # the subject would not be valid for publishing (in pedantic mode).
        call, names = js_api.CONSUMER_CREATE_FILTERED, {**names, "filter": single}
    return _to_info(await api.call(call, body, needs, **names))


async def create_ephemeral(
    api: Api, stream: str, config: Mapping[str, Any], name: str
) -> ConsumerInfo:
    """Create it with the call without a name in its subject, which a reader's permissions allow.

    The consumer has a name, so the request may be sent twice, and survives a lost link. Raises the
    errors of `ConsumerCalls.create_consumer`.
    """
    wire = {**merged(_DEFAULTS, _checked(api, config, {})), "name": name}
    body = {"stream_name": stream, "config": wire}
    call = js_api.CONSUMER_CREATE_UNNAMED._replace(question=True)
    return _to_info(await api.call(call, body, consumer_needs(wire), stream=stream))


def _checked(
    api: Api, config: ConsumerConfigLike | None, options: ConsumerOptions
) -> dict[str, Any]:
    """The configuration or its changes as a wire document.

    Raises ConfigError, BadNameError, BadSubjectError, UnsupportedByServerError.
    """
    wire = changes_to_wire(ConsumerConfig, config, options)
    name, durable = wire.get("name"), wire.get("durable_name")
    if name and durable and name != durable:
        raise errors.ConfigError(f"name {name!r} and durable_name {durable!r} must be equal.")
    for given_name in (name, durable):
        if given_name is not None:
            check_name("consumer", given_name)
    if wire.get("filter_subject") and wire.get("filter_subjects"):
        raise errors.ConfigError("Give either filter_subject or filter_subjects, not both.")
    for subject in (wire.get("filter_subject"), *(wire.get("filter_subjects") or [])):
        if subject:
            check_subscribe_subject(subject)
    check_consumer(wire, api.server)
    return wire


def _durable(wire: dict[str, Any], config: ConsumerConfigLike | None) -> dict[str, Any]:
    """A consumer named by options is durable, unless they set `inactive_threshold`."""
    if config is None and wire.get("name") and not wire.get("inactive_threshold"):
        wire.setdefault("durable_name", wire["name"])
    return wire


def _name_of(wire: Mapping[str, Any]) -> str | None:
    return wire.get("name") or wire.get("durable_name")


def _same_or_in_use(
    existing: dict[str, Any], wire: Mapping[str, Any], stream: str, name: str
) -> ConsumerInfo:
    if different := differing(ConsumerConfig, existing["config"], wire):
        sentence = js_api.consumer_in_use(stream, name)
        error = errors.ConsumerAlreadyExistsError(
            400, CONSUMER_ALREADY_EXISTS, "consumer already exists", sentence
        )
        raise with_differences(error, different)
    return _to_info(existing)


def _to_info(answer: dict[str, Any]) -> ConsumerInfo:
    return from_wire(ConsumerInfo, answer)
