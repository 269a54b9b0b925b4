"""Ordered consumers, and the watches on subjects that use them."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple

import jetspark.errors as errors
from jetspark.client.tasks import background, move_on_after
from jetspark.documents.configuration import config_to_wire
from jetspark.documents.consumers import (
    AckPolicy,
    ConsumerConfig,
    ConsumerInfo,
    DeliverPolicy,
    ReplayPolicy,
)
from jetspark.documents.document import exact_ns
from jetspark.documents.requirements import check_consumer
from jetspark.err_codes import CONSUMER_NOT_FOUND
from jetspark.jetstream.api import Api
from jetspark.jetstream.consume import (
    EXPIRES,
    ConsumeOptions,
    ConsumerMessages,
    ContinuousPull,
    JsMsgCallback,
    StopReason,
    make_consume_options,
)
from jetspark.jetstream.consumers import consumer_info, create_ephemeral
from jetspark.jetstream.message import JsMsg
from jetspark.jetstream.stored import leader_get
from jetspark.jetstream.stream_handle import StreamHandle
from jetspark.jetstream.stream_requests import stream_info
from jetspark.retries import RECREATING
from jetspark.subjects import check_name, check_subscribe_subject
from jetspark.timestamps import Seconds, ns_to_datetime
from jetspark.validation import check_moment, check_sequence, texts_of
from jetspark.wire import js_api
from jetspark.wire.kernel import MessageFrame
from jetspark.wire.pull import ConsumerOrder

# -------------------------------------------------------------------------------------------------
# Whether the stream of a recreated consumer is still the same one.


LAG_SECONDS = 15.0
"""A stream with replicas may be this much shorter than what was delivered, while a new leader lacks
its last messages. An only replica cannot be behind.
"""

_EVER: Final = datetime.max.replace(tzinfo=UTC)


class StreamOrigin(NamedTuple):
    """When a stream was created, and a sequence that it has reached."""

    created: datetime
    last_seq: int
    """It once had messages up to this sequence."""


class Reached(NamedTuple):
    """The last message received, and when it was stored; 0: none, or unknown."""

    seq: int = 0
    time_ns: int = 0


class SameStream:
    """Checks that a stream is still the one read so far, with all of its messages."""

    def __init__(self, api: Api, stream: str) -> None:
        self._api = api
        self._stream = stream
        self.origin: StreamOrigin | None = None
        self.reached = Reached()
        """The next consumer continues after this."""
        self.began = _EVER
        """When the first consumer was created."""
        self._behind_since = math.inf

    async def expected_last_seq(self) -> int:
        """The stream's last sequence, from now on expected; 0 if that may not be asked.

        Raises StreamNotFoundError and the errors of every API call.
        """
        if self.origin is None:
            try:
                info = await stream_info(self._api, self._stream)
            except (errors.PermissionsError, errors.JetStreamNotEnabledError):
                return 0
            self.origin = StreamOrigin(info.created, info.state.last_seq)
        return self.origin.last_seq

    async def check(self) -> None:
        """Raise StreamRecreatedError, or DataLossError where the stream ends too early or is
        another copy: the consumer would silently skip messages, or wait for ever."""
        try:
            info = await stream_info(self._api, self._stream)
        except (errors.PermissionsError, errors.JetStreamNotEnabledError):
            return  # not permitted, or not imported from the stream's account
        expected = self.origin.created if self.origin is not None else None
        if info.created > self.began if expected is None else info.created != expected:
            before = f"or before {self.began}" if expected is None else str(expected)
            raise errors.StreamRecreatedError(self._stream, before, str(info.created))
        expected_seq = max(self.reached.seq, self.origin.last_seq if self.origin else 0)
        self.origin = StreamOrigin(info.created, max(expected_seq, info.state.last_seq))
        if info.state.last_seq < expected_seq:
            alone = info.config.num_replicas == 1
            self._behind_since = -math.inf if alone else min(self._behind_since, time.monotonic())
            raise errors.DataLossError(
                self._stream,
                info.state.last_seq + 1,
                expected_seq,
                f"Stream {self._stream!r} ends at sequence {info.state.last_seq}, but had "
                f"{expected_seq} before: the server has lost stored messages, or has an older "
                "copy of them.",
            )
        self._behind_since = math.inf
        if self.reached.time_ns and info.state.first_seq <= self.reached.seq:
            await self._check_reached()

    async def _check_reached(self) -> None:
        """Raise DataLossError when the sequence of the last message now has another message."""
        seq, time_ns = self.reached
        try:
            stored = await leader_get(self._api, self._stream, {"seq": seq})
        except (errors.PermissionsError, errors.APIError):
            return  # unknown: not permitted, or removed since
        if exact_ns(stored.time) == time_ns:
            return
        self._behind_since = -math.inf
        raise errors.DataLossError(
            self._stream,
            seq,
            seq,
            f"Stream {self._stream!r} has a message of {stored.time} at sequence {seq}, but had "
            f"one of {ns_to_datetime(time_ns)} there: it is another copy of the stream, "
            "which may not have what was read before.",
        )

    @property
    def never_again(self) -> bool:
        """Whether the DataLossError just raised is final, not a passing state of a new leader."""
        return time.monotonic() > self._behind_since + LAG_SECONDS


# -------------------------------------------------------------------------------------------------
# Ordered consumers: a stream, or part of it, in order and without a gap (ADR-17).
#
# - It reads through an ephemeral pull consumer without acks, in memory, with one replica. Entering
#   its block creates it, or else the first message needed. It is created again after the last
#   message in order when deliveries or heartbeats are missing, it was deleted, its leader is gone,
#   or the link was lost. The next delivery shows that one is missing, or the next heartbeat, which
#   has the last consumer sequence.
#   So every message that the stream has comes once, in stream order; the consumer's name changes.
# - "last_per_subject" gives the last messages that the stream had at the start, except those that
#   are superseded before a lost consumer is replaced, and then every later one. Without permission
#   for the stream's info every message after a lost consumer's last one comes, with older values.
# - `last_error`, the log and the error callback have the reason. It is tried again for ever, with
#   growing pauses, unless the stream is gone (StreamNotFoundError) or another one of the same name
#   (StreamRecreatedError), ends before what was delivered (DataLossError), the server does not
#   understand the pulls or the next message is larger than max_bytes (PullError), or the connection
#   is closed. Then buffered messages come first, and the iterator raises; with a callback, the
#   error is reported. The first consumer is made within the context's timeout, or else the caller
#   gets the error, RequestTimeoutError if there was no answer.
# - Each later consumer must be one of the same stream, by its creation time; by default, that is
#   not later than the first consumer's, which the same clock has written. An older copy of the
#   stream has the same creation time, so the last message that came is compared by its time with
#   the one that is there now (DataLossError). Without permissions for the stream's info and
#   messages, or their import from another account, this is not checked.
# - It ends as consuming does (`jetspark.jetstream.consume`), and deletes the consumer; if that
#   request is lost, the server removes it after `inactive_threshold`.
# - One task while a consumer is being created; with a callback, one more.


_FIRST_TIMEOUT = 1.0
"""Seconds for the first attempt to recreate the consumer; later ones get up to the timeout."""

# Creating the consumer determines their first message, which stays the first.
_DECIDED_ONCE = (DeliverPolicy.NEW, DeliverPolicy.LAST, DeliverPolicy.BY_START_TIME)


CreateConsumer = Callable[[str, Mapping[str, Any], str], Awaitable[ConsumerInfo]]


class OrderedMessages(ConsumerMessages):
    """The result of `Stream.ordered`: iterate it, or give it a callback.

    Example:
        ```python
        async with js.stream("ORDERS").ordered(start_seq=2) as messages:
            msg = await messages.next(timeout=2)
            print(msg.seq, msg.data)  # 2 b'2 pears'
        ```
    """

    def __init__(
        self,
        api: Api,
        stream: str,
        config: Mapping[str, Any],
        limits: ConsumeOptions,
        callback: JsMsgCallback | None,
        name_prefix: str | None = None,
    ) -> None:
        self._create: CreateConsumer = partial(create_ephemeral, api)
        self._config = dict(config)
        self._name_prefix = "" if name_prefix is None else f"{name_prefix}_"
        self._order = ConsumerOrder()
        self._same_stream = SameStream(api, stream)
        self._checks = False
        """Whether to check the next consumer's stream."""
        self._last_error: errors.JetsparkError | None = None
        super().__init__(api, stream, "", limits, callback, None, alone=True)

    # -- what it is ----------------------------------------------------------------------------

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self._names["stream"]

    @property
    def name(self) -> str:
        """The name of the present consumer; empty without one."""
        return self._names["consumer"]

    @property
    def last_error(self) -> errors.JetsparkError | None:
        """Why the consumer was last recreated, or could not be."""
        return self._last_error

    async def info(self) -> ConsumerInfo:
        """Configuration and state of the present consumer.

        Raises ConsumerNotFoundError, also when there is none now, StreamNotFoundError, and the
        errors of every API call (see `JetStream`).
        """
        if not self.name:
            raise errors.ConsumerNotFoundError(
                404, CONSUMER_NOT_FOUND, "consumer not found", "There is no consumer at the moment."
            )
        return await consumer_info(self._api, self.stream, self.name)

    # -- the consumer --------------------------------------------------------------------------

    def _begin(self) -> None:
        """Start, with a callback only: an iterator starts with its block or its first message."""
        if self._callback is not None:
            self._make(first=True)

    def _make(self, *, first: bool = False) -> None:
        if first:
            self._client.require_open()
        self._retry = background(
            self._make_consumer(first=first),
            f"Making an ordered consumer of stream {self.stream!r}",
            self._end,
            name=f"jetspark-ordered-{self.stream}",
        )

    async def _make_consumer(self, *, first: bool) -> None:
        is_behind = False
        timeout = self._api.timeout if first else min(_FIRST_TIMEOUT, self._api.timeout)
        for attempts in count(1):
            # Named here, so that it can be deleted even when the answer is lost.
            self._names["consumer"] = self._name_prefix + secrets.token_hex(8)
            try:
                info = await self._attempt(timeout, first)
                break
            except (errors.StreamNotFoundError, errors.ConnectionClosedError) as error:
                self._names["consumer"] = ""
                self._end(error)
                return
            except errors.StreamRecreatedError as error:
                self._end(error)
                return
            except errors.DataLossError as error:
                if self._same_stream.never_again:
                    self._end(error)
                    return
                if not is_behind:  # report it once, since each attempt finds it again
                    self._tell(error)
                is_behind = True
            except errors.JetsparkError as error:
                if not isinstance(error, errors.RequestTimeoutError):
                    self._names["consumer"] = ""  # refused, so there is nothing to delete
                if first:
                    self._end(error)
                    return
                self._tell(error)
                timeout = min(2 * timeout, self._api.timeout)
            self._delete()
            await asyncio.sleep(RECREATING.pause(attempts))
        self._names["consumer"] = info.name
        if first:
            self._same_stream.began, self._checks = info.created, True
            if self._config["deliver_policy"] in _DECIDED_ONCE:
                self._start_from(info.delivered.stream_seq + 1)
        self._retry = None
        self._start()

    async def _attempt(self, timeout: float, first: bool) -> ConsumerInfo:
        """Make a consumer of the same stream. A server that shuts down may drop the request."""
        async with move_on_after(timeout):
            if first and self._config["deliver_policy"] == DeliverPolicy.LAST_PER_SUBJECT:
                self._order.snapshot_end = await self._same_stream.expected_last_seq()
            info = await self._created()
            if self._checks:
                await self._same_stream.check()
            return info
        raise errors.RequestTimeoutError(f"No consumer was made within {timeout:g} s.")

    async def _created(self) -> ConsumerInfo:
        """Wait for the answer; when interrupted, delete the consumer after it.

        A DELETE sent at once could overtake the CREATE, and delete nothing.
        """
        names = dict(self._names)
        creating = asyncio.ensure_future(self._create(self.stream, self._config, self.name))
        try:
            return await asyncio.shield(creating)
        except asyncio.CancelledError:
            creating.add_done_callback(partial(_delete_late, self._api, names))
            raise

    def _delivered(self) -> int:
        return 0  # it was just created

    def _start_from(self, seq: int) -> None:
        self._config.pop("opt_start_time", None)
        self._config["deliver_policy"] = DeliverPolicy.BY_START_SEQUENCE
        self._config["opt_start_seq"] = seq

    def _delete(self) -> None:
        _delete(self._api, self._names)

    def _ending(self) -> Callable[[], None]:
        return partial(_end, self._pull, self._api, self._names)

    # -- failures ------------------------------------------------------------------------------

    def _on_stop(self, reason: StopReason, error: errors.JetsparkError | None) -> None:
        if self._draining:
            return
        if reason is StopReason.CLOSED or reason is StopReason.INVALID:
            self._end(error)
            return
        if error is not None:
            self._tell(error)
        elif reason is StopReason.RECONNECTED:
            # Not reported: the client has reported why the link was lost.
            self._last_error = errors.BrokenSocketError(
                f'The connection was lost: the ordered consumer of stream "{self.stream}" is '
                f"recreated after sequence {self._order.stream_seq}."
            )
        self._make_again()

    def _tell(self, error: errors.JetsparkError) -> None:
        self._last_error = error
        self._client.report(error)

    def _make_again(self) -> None:
        """Continue after the last buffered message in order; drop those after a gap."""
        self._pull.stop()
        order = self._order.copy()
        frames = self._frames
        good = 0
        for frame in frames:
            if not (order.follows(frame.reply) or order.is_repeated):
                break
            good += 1
        while len(frames) > good:
            frames.pop()
        if order.stream_seq:
            self._same_stream.reached = Reached(order.stream_seq, order.time_ns)
            if not order.is_amid_snapshot:
                self._start_from(order.stream_seq + 1)
        elif order.snapshot_end:
            self._order.replace_first()
        if self._retry is None:
            self._delete()
            self._make()

    def _on_refused(self) -> None:
        if self._order.is_repeated:
            return
        if self._order.is_past_snapshot:
            self._order.end_snapshot()
            self._make_again()
            return
        self._tell(
            errors.SequenceMismatchError(
                f'Ordered consumer of stream "{self.stream}": delivery {self._order.expected} is '
                f"missing; it is recreated after sequence {self._order.stream_seq}."
            )
        )
        self._make_again()

    def _end(self, error: errors.JetsparkError | None) -> None:
        if not self._ended:
            self._delete()
        super()._end(error)

    # -- taking messages -----------------------------------------------------------------------

    def _take(self) -> JsMsg | None:
        frame = self._pull.take()
        if self._order.follows(frame.reply):
            return JsMsg(self._client, frame)
        self._on_refused()
        return None

    async def _begin_block(self) -> None:
        self._client.check_loop()
        self._make_first()
        while self._retry is not None and not self._ended:
            await asyncio.wait({self._retry})
        if self._ended:
            raise self._error or self._over()

    async def _fill(self) -> None:
        self._make_first()
        await super()._fill()

    def _make_first(self) -> None:
        if not self.name and self._retry is None and not self._ended:
            self._make(first=True)

    def take_queued(self, limit: int) -> list[MessageFrame]:
        """Up to `limit` buffered frames, taken as if by iterating.

        For callers that create messages of another class from many frames.
        """
        accepted = []
        for frame in super().take_queued(limit):
            if self._order.follows(frame.reply):
                accepted.append(frame)
            elif not self._order.is_repeated:
                self._on_refused()
                break
        return accepted

    def __repr__(self) -> str:
        state = "active" if self.active else "ended"
        return f"OrderedMessages({self.stream!r}, {state}, {self.pending_msgs} here)"


def _delete(api: Api, names: dict[str, str]) -> None:
    """Delete without waiting for the answer: if it fails, the server removes the consumer later."""
    replaced_names, names["consumer"] = dict(names), ""
    client = api.client
    if replaced_names["consumer"] and client.is_connected:
        subject = js_api.subject_of(api.prefix, js_api.CONSUMER_DELETE, replaced_names)
        try:
            client.publish_nowait(subject, reply=client.new_inbox())
        except errors.JetsparkError as error:
            client.report(error)


def _delete_late(api: Api, names: dict[str, str], created: asyncio.Future[ConsumerInfo]) -> None:
    """Delete a consumer that nobody waits for any more."""
    if created.cancelled() or not isinstance(
        created.exception(), errors.RequestTimeoutError | None
    ):
        return  # refused, so there is nothing to delete
    _delete(api, names)


def _end(pull: ContinuousPull, api: Api, names: dict[str, str]) -> None:
    """End one that nothing refers to any more."""
    pull.stop()
    _delete(api, names)


def expect(
    messages: OrderedMessages, origin: StreamOrigin, reached: Reached, *, at_once: bool
) -> None:
    """Read only this stream, from after `reached`. `at_once`: check the first consumer's, too."""
    messages._same_stream.origin = origin
    messages._same_stream.reached = reached
    messages._checks = at_once


# -------------------------------------------------------------------------------------------------
# The call that creates an ordered consumer (ADR-17).


HEARTBEAT = 5.0
INACTIVE_THRESHOLD = timedelta(minutes=5)


class OrderedCalls(StreamHandle):
    """The call of a stream that creates an ordered consumer."""

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
        """The stream in order, without a gap and without acks: iterate it, or give a callback.

        `subjects`: only matching ones; several need server 2.10. `deliver_policy`: a DeliverPolicy,
        default "all"; or `start_seq` or `start_time` instead. `headers_only`: without payloads;
        their sizes are in the header Nats-Msg-Size. `replay_policy`: "original" keeps the pace of
        publishing. `name_prefix`: the start of the consumers' names, before an underscore and a
        random number, for those who look at the stream's consumers.

        It buffers up to `max_messages` messages (default: 500, and up to 8,000 for a fast reader),
        or `max_bytes` bytes, received or requested. `expires`: seconds that a pull request may wait
        at the server. `heartbeat`: seconds between the server's heartbeats; after twice as long
        without one, the consumer is recreated. `inactive_threshold`: how long the server keeps the
        consumer after its reader is gone.

        It begins when its block is entered, at once with a callback, or else when the first message
        is needed: with "new", messages from then on come. There it raises StreamNotFoundError,
        RequestTimeoutError after the context's timeout, and the errors of every API call. Raises
        ConfigError, BadNameError, BadSubjectError, UnsupportedByServerError; how it ends: see
        `jetspark.jetstream.ordered`.

        Example:
            ```python
            async for msg in js.stream("ORDERS").ordered(subjects="orders.eu"):
                print(msg.seq, msg.data)  # 1 b'1 apple' 3 b'3 plums'
                if msg.metadata.pending == 0:  # no more for now
                    break
            ```
        """
        if name_prefix is not None:
            check_name("consumer", name_prefix)
        config = _config(
            subjects=subjects,
            deliver_policy=deliver_policy,
            start_seq=start_seq,
            start_time=start_time,
            headers_only=headers_only or None,
            replay_policy=replay_policy,
            inactive_threshold=inactive_threshold,
        )
        check_consumer(config, self._api.server)
        limits = make_consume_options(
            ConsumerConfig(),
            max_messages=max_messages,
            max_bytes=max_bytes,
            expires=expires,
            heartbeat=heartbeat,
        )
        return OrderedMessages(self._api, self.name, config, limits, callback, name_prefix)


def _config(
    *,
    subjects: str | Sequence[str] | None,
    deliver_policy: str | None,
    start_seq: int | None,
    start_time: datetime | None,
    **options: Any,
) -> dict[str, Any]:
    """The configuration of the first consumer, as a wire document. Raises ConfigError."""
    if [deliver_policy, start_seq, start_time].count(None) < 2:
        raise errors.ConfigError("Give one of deliver_policy, start_seq and start_time.")
    if start_seq is not None:
        check_sequence("start_seq", start_seq)
        deliver_policy = DeliverPolicy.BY_START_SEQUENCE
    elif start_time is not None:
        check_moment("start_time", start_time)
        deliver_policy = DeliverPolicy.BY_START_TIME
    elif deliver_policy in (DeliverPolicy.BY_START_SEQUENCE, DeliverPolicy.BY_START_TIME):
        raise errors.ConfigError("Give start_seq or start_time instead of this deliver_policy.")
    filters = texts_of("subjects", () if subjects is None else subjects)
    if subjects is not None and not filters:
        raise errors.ConfigError("subjects is empty: leave it out to read all of them.")
    for subject in filters:
        check_subscribe_subject(subject)
    if not filters and deliver_policy == DeliverPolicy.LAST_PER_SUBJECT:
        filters = [">"]  # required by this policy
    if len(filters) == 1:
        options["filter_subject"] = filters[0]
    elif filters:
        options["filter_subjects"] = filters
    return config_to_wire(
        ConsumerConfig,
        None,
        {
            **options,
            "deliver_policy": DeliverPolicy.ALL if deliver_policy is None else deliver_policy,
            "opt_start_seq": start_seq,
            "opt_start_time": start_time,
            "ack_policy": AckPolicy.NONE,
            "max_deliver": 1,
            "mem_storage": True,
            "num_replicas": 1,
        },
    )
