"""One fetch from a pull consumer (ADR-13, ADR-37).

Contract
- A fetch has its own inbox, subscribed while it lasts. When it is cancelled, the server drops its
  request, and delivered messages are returned, which are otherwise delivered again only after
  ack_wait, and lost without acks. The read loop creates the messages; one future wakes the caller.
- It ends normally with a full batch, or status 404, 408 or 409 Batch Completed. Other statuses are
  errors: raised when no message came, otherwise attached to the result.
- Without a leader (409 Leadership Change, Server Shutdown, 503) it sends the request again every
  250 ms until the timeout. A missing consumer gives 503 too, so it asks the API.
- The server ends a fetch shortly before its timeout; silence until GRACE after the timeout is an
  error. The last status says how many messages were not delivered; if more are missing, they were
  lost on the way, which is an error.
- A server does not answer a fetch without timeout while the consumer is paused or has reached
  max_ack_pending: after SILENCE it asks the API, and ends normally.
- A pull that lost its pin (423) is sent again without it.
- A lost connection ends the inbox too, so that a request that outlived the connection cannot
  deliver to it. The missing messages are requested again on the new link. The deadline keeps
  running, but the heartbeat clock does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any, TypeVar

import jetspark.errors as errors
from jetspark.client.client import CoreClient
from jetspark.client.subscription import Listener
from jetspark.client.tasks import background, move_on_after, yielding
from jetspark.connection.waiting import start_task
from jetspark.documents.consumers import ConsumerConfig, PriorityPolicy
from jetspark.documents.requirements import check_feature
from jetspark.jetstream.api import Api
from jetspark.jetstream.message import NAK, JsMsg
from jetspark.retries import PAUSE
from jetspark.timestamps import Seconds, duration_to_ns, in_seconds
from jetspark.validation import check_whole
from jetspark.wire import js_api
from jetspark.wire import status as statuses
from jetspark.wire.documents import ServerInfo
from jetspark.wire.headers import VERSION
from jetspark.wire.kernel import MessageFrame, deliver, frame_of, reply_fields
from jetspark.wire.pull import (
    LAST_CONSUMER,
    PENDING_MESSAGES,
    PullEnd,
    PullRequest,
    delivery_size,
    number_in,
    pull_end,
    pull_error,
)
from jetspark.wire.status import NO_RESPONDERS, Status, status_of

# -------------------------------------------------------------------------------------------------
# Gap detection: the deliveries received, compared with those that the consumer has sent.
#
# A consumer numbers its deliveries from 1 without a gap (consumer sequences), and each idle
# heartbeat names the last one (Nats-Last-Consumer). Counting the deliveries received is enough to
# notice a lost one even when none follows it, and the route counts them anyway.
#
# Other clients that pull from the same consumer get sequences too: a missing delivery was lost or
# went to them. A consumer with replicas and acks delays a delivery until the replicas know of it,
# but not a heartbeat, so a delivery counts as missing only a while later.


CHECKS_PER_HEARTBEAT = 4
"""Checks of the received messages within one heartbeat interval."""


class GapDetector:
    """Finds deliveries that are missing on one subscription.

    `before`: the consumer sequence before the first delivery; None: unknown. `received`: the
    number of frames so far, of any kind.
    """

    def __init__(self, before: int | None) -> None:
        self.before = before
        self.non_deliveries = 0
        """Frames that are not deliveries."""
        self._doubted = 0
        self._checks_left = self._checks = 0
        self._heard: set[bytes] = set()
        self._heard_before: set[bytes] = set()

    def first(self, reply: bytes | None, received: int) -> None:
        """Take `before` from a delivery; `received` does not count that one."""
        try:
            self.before = reply_fields(reply)[4] - 1 - (received - self.non_deliveries)
        except errors.NotJetStreamMessageError:
            pass  # anyone may publish to an inbox

    def last(self, received: int) -> int | None:
        """The sequence up to which all deliveries came or were given up; None: unknown."""
        return None if self.before is None else self.before + received - self.non_deliveries

    def missing(self, heartbeat: bytes | None, received: int) -> int:
        """The number of deliveries missing from before this heartbeat."""
        sent = number_in(heartbeat, LAST_CONSUMER)
        if sent is None:
            return 0
        last = self.last(received)
        if last is None or self.before is None:
            self.before = sent - (received - self.non_deliveries)
            return 0
        if sent < last:  # the consumer was reset, or a frame came twice
            self.before -= last - sent
        return max(sent - last, 0)

    # -- when others may have got them, or they are on their way -------------------------------

    def doubt(self, missing: int, received: int) -> None:
        """Note missing deliveries; they count if they do not come within half an interval."""
        last = self.last(received)
        if not self._checks_left and last is not None:
            self._doubted, self._checks_left = last + missing, CHECKS_PER_HEARTBEAT // 2

    def check(self, received: int) -> int:
        """Count the deliveries that are now missing for certain.

        Call it CHECKS_PER_HEARTBEAT times in an interval.
        """
        self._checks += 1
        if self._checks % CHECKS_PER_HEARTBEAT == 0:
            self._heard_before, self._heard = self._heard, set()
        last = self.last(received)
        if not self._checks_left or last is None or self.before is None:
            return 0
        self._checks_left -= 1
        if self._checks_left or last >= self._doubted:
            return 0
        self.before += self._doubted - last
        return self._doubted - last

    def beat(self, reply: bytes) -> None:
        """A heartbeat arrived for the request with this reply subject."""
        self._heard.add(reply)

    def ended(self, reply: bytes) -> None:
        """The request with this reply subject ended."""
        self._heard.discard(reply)
        self._heard_before.discard(reply)

    @property
    def waiting(self) -> int:
        """Requests that wait at the server: those with a heartbeat in the last interval."""
        return len(self._heard | self._heard_before)


def fate_of_missing(acks: bool) -> str:
    """The fate of deliveries that did not come, for error messages."""
    return "they are delivered again after its ack_wait" if acks else "they are lost"


def missing_deliveries_error(
    source: str, missing: int, consequence: str
) -> errors.SequenceMismatchError:
    """The error for missing deliveries; `consequence`: what happens to them."""
    messages = "message" if missing == 1 else "messages"
    return errors.SequenceMismatchError(
        f"{missing} {messages} sent by {source} did not come: {consequence}."
    )


_ONE_ANSWER = (
    " Each request got one answer only: if the API is imported from another account, its export "
    "needs response_type: stream."
)


def silence_error(
    source: str, heartbeat: float, *, one_answer: bool = False
) -> errors.MissedHeartbeatError:
    """The error for a consumer that was silent for two heartbeat intervals (seconds).

    `one_answer`: no request had a second answer. A server forgets the reply subject of a request to
    another account after the first answer, unless the export says otherwise.
    """
    return errors.MissedHeartbeatError(
        f"{source} sent nothing for {2 * heartbeat:g} s, twice the heartbeat interval."
        f"{_ONE_ANSWER if one_answer else ''}"
    )


# -------------------------------------------------------------------------------------------------
# The result of a fetch: messages, and the error that ended it.


MessageT = TypeVar("MessageT")


class Fetched(list[MessageT]):
    """Messages of one fetch: the base of the asyncio and the blocking result."""

    __slots__ = ("error",)

    def __init__(
        self, messages: Iterable[MessageT] = (), error: errors.JetsparkError | None = None
    ) -> None:
        super().__init__(messages)
        self.error = error


class FetchResult(Fetched[JsMsg]):
    """The messages of a fetch. `error`: the error that ended it after these messages, or None.

    Example:
        ```python
        consumer = await js.stream("ORDERS").create_consumer(name="worker")
        messages = await consumer.fetch(10, timeout=0.5)
        print(len(messages), messages.error)  # 3 None
        ```
    """

    __slots__ = ()


# -------------------------------------------------------------------------------------------------
# Pull requests of priority groups (ADR-42; server 2.11, "prioritized" 2.12).
#
# Contract: what the consumer's configuration does not allow is refused before anything is sent.
# The `PullConsumer` keeps the pin id of each group: the server sends it in a header of every
# delivery, later requests repeat it, and a status 423 removes it.


GROUPS_SINCE = (2, 11)
_PRIORITIZED_SINCE = (2, 12)
_HIGHEST = 9
_PIN = b"\r\nNats-Pin-Id: "


class Priority:
    """The group's fields of a request. `pins`: the consumer's pin ids by group."""

    def __init__(self, fields: dict[str, Any], pins: dict[str, bytes], *, pinned: bool) -> None:
        self._fields = fields
        self._group: str = fields["group"]
        self._pins = pins
        self.pinned = pinned
        """Whether deliveries have a pin id for `notice`."""

    def fields(self) -> dict[str, Any]:
        """The fields of the next `PullRequest`."""
        pin = self._pins.get(self._group)
        return self._fields if pin is None else {**self._fields, "id": pin.decode()}

    def notice(self, frame: MessageFrame) -> None:
        """Keep the pin id of a delivery."""
        block = frame.headers
        if block is None:
            return
        pin = self._pins.get(self._group)
        # Nearly always the known one: one comparison, no copy.
        if pin is not None and block.endswith(_PIN + pin + b"\r\n\r\n"):
            return
        begin = block.rfind(_PIN)
        if begin >= 0:
            begin += len(_PIN)
            self._pins[self._group] = block[begin : block.index(b"\r\n", begin)]

    def added(self, frame: MessageFrame) -> int:
        """Bytes of the pin id's header, which the server does not count for max_bytes."""
        block = frame.headers or b""
        begin = block.rfind(_PIN)
        if begin < 0:
            return 0
        # If the publisher set no headers, the server added the whole block.
        return len(block) if begin == len(VERSION) else len(block) - begin - 4

    def lost(self) -> None:
        """Another client is pinned: later requests have no pin id."""
        self._pins.pop(self._group, None)


def make_priority(
    config: ConsumerConfig,
    server: ServerInfo | None,
    pins: dict[str, bytes],
    *,
    group: str | None = None,
    min_pending: int | None = None,
    min_ack_pending: int | None = None,
    priority: int | None = None,
) -> Priority | None:
    """None for a consumer without groups. Raises ConfigError, UnsupportedByServerError."""
    if group is not None:
        check_feature("a pull of a priority group", GROUPS_SINCE, server)
    if priority is not None:
        check_feature("a pull's priority", _PRIORITIZED_SINCE, server)
    groups, policy = config.priority_groups or [], config.priority_policy
    existing = ", ".join(map(repr, groups))
    if group is None and groups:
        raise errors.ConfigError(
            f"The consumer has priority groups; name one as group: {existing}."
        )
    if group is not None and not groups:
        raise errors.ConfigError("group: the consumer has no priority groups.")
    if group is not None and group not in groups:
        raise errors.ConfigError(
            f"The consumer has no priority group {group!r}; it has {existing}."
        )
    for name, value in (("min_pending", min_pending), ("min_ack_pending", min_ack_pending)):
        if value is not None and policy != PriorityPolicy.OVERFLOW:
            raise errors.ConfigError(f"{name} needs a consumer with priority_policy 'overflow'.")
        if value is not None:
            check_whole(name, value)
    if priority is not None and policy != PriorityPolicy.PRIORITIZED:
        raise errors.ConfigError("priority needs a consumer with priority_policy 'prioritized'.")
    if priority is not None:
        check_whole("priority", priority, 0, _HIGHEST)
    if group is None:
        return None
    conditions = {
        "min_pending": min_pending,
        "min_ack_pending": min_ack_pending,
        "priority": priority,
    }
    request_fields = {name: value for name, value in conditions.items() if value is not None}
    return Priority(
        {"group": group, **request_fields}, pins, pinned=policy == PriorityPolicy.PINNED_CLIENT
    )


# -------------------------------------------------------------------------------------------------
# Waiting between two pull requests while the consumer has no leader.
#
# A consumer without a leader gives 503, and so does a missing one; the API knows which it is. The
# question has a short timeout, because a server that shuts down may drop it.


_API_WAIT = 1.0
"""Seconds for the API to answer before the next pull request."""


async def wait_for_leader(
    api: Api, names: Mapping[str, str], status: int | None
) -> errors.JetsparkError | None:
    """Returns None after PAUSE or later, or at once the API's error about the consumer.

    `status`: the code that ended the request. `names`: stream and consumer.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + PAUSE
    if status == NO_RESPONDERS:
        try:
            async with move_on_after(_API_WAIT):
                await api.call(js_api.CONSUMER_INFO, **names)
        except errors.JetsparkError as error:
            if type(error) is not errors.RequestTimeoutError:  # the API has no leader either
                return error
    await asyncio.sleep(max(until - loop.time(), 0))
    return None


EXPIRES_EARLIER = 0.010
"""Seconds by which the server's timer is shorter than ours, so that the server ends first."""

GRACE = 0.5
"""Seconds after the timeout for the server's last status, on links with a long round trip."""

SILENCE = 0.25
"""Seconds without an answer until a fetch without timeout looks up the consumer."""


class Pull:
    """One fetch: create it, await `run` once. Raises ConfigError for arguments that cannot work."""

    def __init__(
        self,
        api: Api,
        stream: str,
        consumer: str,
        batch: int,
        timeout: Seconds | None,
        max_bytes: int | None,
        heartbeat: Seconds | None,
        priority: Priority | None = None,
        *,
        acks: bool = True,
    ) -> None:
        timeout, heartbeat = in_seconds(timeout), in_seconds(heartbeat)
        check_whole("batch", batch)
        if timeout is not None and not timeout > 0:
            raise errors.ConfigError(
                "timeout must be more than 0 seconds, or None for what is pending."
            )
        if max_bytes is not None:
            check_whole("max_bytes", max_bytes)
        if heartbeat is not None:
            if timeout is None:
                raise errors.ConfigError("heartbeat needs a timeout.")
            if not 0 < heartbeat <= _expires(timeout) / 2:
                raise errors.ConfigError(
                    "heartbeat must be more than 0 and at most half of timeout."
                )
        self._api = api
        self._client = api.client
        self._consumer = consumer
        self._names = {"stream": stream, "consumer": consumer}
        self._subject = js_api.subject_of(api.prefix, js_api.MSG_NEXT, self._names)
        self._batch = batch
        self._no_wait = timeout is None
        self._quiet: float | None = None
        """Seconds of silence after which something may be wrong; None: any are in order."""
        self._timeout = api.timeout if timeout is None else timeout
        self._max_bytes = max_bytes
        self._heartbeat = heartbeat
        self._priority = priority
        self._acks = acks
        self._messages: list[JsMsg] = []
        self._error: errors.JetsparkError | None = None
        self._retry_status: int | None = None
        self._heard = 0.0
        self._deadline = 0.0
        self._requested = False
        self._listener: Listener | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._consumer_check: asyncio.Task[None] | None = None
        self._clock: asyncio.TimerHandle | None = None

    async def run(self) -> FetchResult:
        """Fetch. Cancelling returns the messages. Raises the errors of `PullConsumer.fetch`."""
        self._client.check_loop()
        loop = self._client.loop
        self._deadline = loop.time() + self._timeout
        self._set_clock()
        try:
            while True:
                waiter = self._waiter = loop.create_future()
                async with yielding():
                    self._listen()
                if self._retry_status is not None:
                    # Listen meanwhile, so that the connection's end ends this wait too.
                    await self._wait_for_leader(self._retry_status, waiter)
                    self._retry_status = None
                if self._client.is_connected:
                    self._request()
                await waiter
                if self._retry_status is None:
                    break
        except asyncio.CancelledError:
            self._give_back()
            raise
        finally:
            self._waiter = None
            self._stop_listening()
            if self._clock is not None:
                self._clock.cancel()
            if self._consumer_check is not None:
                self._consumer_check.cancel()
        return self._result()

    def _result(self) -> FetchResult:
        if self._priority is not None and self._priority.pinned and self._messages:
            self._priority.notice(frame_of(self._messages[-1]))
        if not self._messages and self._error is not None:
            raise self._error
        self._client.hooks.handed_out(self._messages)
        return FetchResult(self._messages, self._error)

    # -- requests ----------------------------------------------------------------------------------

    def _listen(self) -> None:
        self._listener = self._client.listen(
            self._client.new_inbox(),
            self._on_frame,
            on_run=self._on_run,
            on_disconnect=self._on_disconnect,
            on_reconnect=self._on_reconnect,
            on_refused=self._on_refused,
            on_end=self._finish,
        )

    def _request(self) -> None:
        """Request the missing messages."""
        left = self._deadline - self._client.loop.time()
        if self._listener is None or left <= 0:
            return  # over, or the deadline's timer fires in this turn
        self._quiet = SILENCE if self._no_wait else None
        max_bytes = heartbeat = 0
        if self._max_bytes is not None:
            max_bytes = self._max_bytes - sum(
                delivery_size(frame_of(message)) for message in self._messages
            )
            if max_bytes <= 0:
                self._finish(None)
                return
        # The server refuses a heartbeat of more than half the time left.
        if self._heartbeat is not None and self._heartbeat <= _expires(left) / 2:
            heartbeat = duration_to_ns(self._heartbeat)
            self._quiet = 2 * self._heartbeat
        if self._quiet is not None:
            self._heard = self._client.loop.time()
            self._set_clock()
        payload = PullRequest(
            batch=self._batch - len(self._messages),
            max_bytes=max_bytes,
            no_wait=self._no_wait,
            expires=0 if self._no_wait else duration_to_ns(_expires(left)),
            idle_heartbeat=heartbeat,
            **({} if self._priority is None else self._priority.fields()),
        ).encode()
        self._api.note_request(self._subject, payload)
        self._requested = True
        try:
            self._client.publish_nowait(self._subject, payload, reply=self._listener.subject)
        except errors.JetsparkError as error:
            self._finish(error)

    async def _wait_for_leader(self, status: int, waiter: asyncio.Future[None]) -> None:
        """Wait between two requests. Ends the fetch when another request is pointless."""
        self._requested = False
        self._set_clock()
        work = wait_for_leader(self._api, self._names, status)
        waiting = start_task(work)
        try:
            either: set[asyncio.Future[Any]] = {waiting, waiter}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done() and (error := waiting.result()) is not None:
                self._finish(error)
        finally:
            waiting.cancel()

    def _give_back(self) -> None:
        if not self._requested or not self._acks or not self._client.is_connected:
            return
        # The listener takes the messages on their way, and is then closed.
        listener, self._listener = self._listener, None
        ending = _given_back(self._client, listener, self._messages)
        background(ending, "A cancelled fetch", self._client.report)

    def _stop_listening(self) -> None:
        """Expect no more answers, so that no clock runs for one."""
        self._quiet = None
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    # -- frames, in the read loop --------------------------------------------------------------

    def _on_frame(self, frame: MessageFrame) -> None:
        status = status_of(frame.headers)
        if status is not None:
            self._on_status(status, frame)

    def _on_run(self, frames: list[MessageFrame], size: int) -> bool:
        if self._quiet is not None:
            self._heard = self._client.loop.time()
        if frames[0].reply is None:
            return False  # statuses: deliveries have a reply subject to ack to
        client, missing = self._client, self._batch - len(self._messages)
        self._messages += deliver(JsMsg, client, frames[:missing])
        if len(frames) >= missing:
            self._finish(None)
        return True

    def _on_status(self, status: Status, frame: MessageFrame) -> None:
        if status.code == statuses.CONTROL:
            return
        end = pull_end(status)
        left = number_in(frame.headers, PENDING_MESSAGES)
        missing = 0 if left is None else self._batch - len(self._messages) - left
        if missing > 0 and end in (PullEnd.ORDINARY, PullEnd.TOO_LARGE):
            source, consequence = f"consumer {self._consumer!r}", fate_of_missing(self._acks)
            self._finish(missing_deliveries_error(source, missing, consequence))
        elif end is PullEnd.ORDINARY or (end is PullEnd.TOO_LARGE and self._messages):
            self._finish(None)
        elif end is PullEnd.PIN_LOST and self._priority is not None:
            self._priority.lost()
            if self._messages:
                self._finish(None)
            else:
                self._request()
        elif status.code == statuses.NO_RESPONDERS or (
            end is PullEnd.NO_LEADER and not self._messages
        ):
            # Messages that have come should not wait for a new leader.
            self._retry_status = None if self._messages else status.code
            self._finish(None)
        else:
            self._finish(pull_error(status))

    def _finish(self, error: errors.JetsparkError | None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._error = error
            self._waiter.set_result(None)
            # Now, not when the caller runs, since later messages are not ours.
            self._stop_listening()

    # -- time and the link -----------------------------------------------------------------------

    def _set_clock(self) -> None:
        """Call `_on_clock` when the fetch may be overdue."""
        loop = self._client.loop
        due = self._deadline if loop.time() < self._deadline else self._deadline + GRACE
        if self._quiet is not None:
            due = min(due, self._heard + self._quiet)
        if self._clock is None or due < self._clock.when():
            if self._clock is not None:
                self._clock.cancel()
            self._clock = loop.call_at(due, self._on_clock)

    def _on_clock(self) -> None:
        self._clock = None
        now = self._client.loop.time()
        grace = GRACE if self._client.is_connected and self._requested else 0
        if now >= self._deadline + grace:
            # Without a link no more could come: this is an ordinary partial batch.
            partial = self._messages and not self._client.is_connected
            source = f"consumer {self._consumer!r} within {self._timeout:g} s."
            hint = _ONE_ANSWER if len(self._messages) == 1 else ""
            late = errors.RequestTimeoutError(f"No answer to a fetch from {source}{hint}")
            self._finish(None if partial else late)
            return
        if self._quiet is not None and now >= self._heard + self._quiet:
            if self._heartbeat is not None:
                source, one_answer = f"Consumer {self._consumer!r}", len(self._messages) == 1
                self._finish(silence_error(source, self._heartbeat, one_answer=one_answer))
                return
            self._heard = now
            if self._consumer_check is None or self._consumer_check.done():
                work = f"A fetch from consumer {self._consumer!r}"
                looking = self._look_at_consumer(len(self._messages))
                self._consumer_check = background(looking, work, self._finish)
        self._set_clock()

    async def _look_at_consumer(self, frames: int) -> None:
        try:
            info = await self._api.call(js_api.CONSUMER_INFO, **self._names)
        except errors.RequestTimeoutError:
            return  # then the fetch is over too
        except errors.JetsparkError as error:
            self._finish(error)
            return
        limit = info["config"].get("max_ack_pending", 0)
        blocked = info.get("paused", False) or 0 < limit <= info["num_ack_pending"]
        if blocked and len(self._messages) == frames:
            self._finish(None)

    def _on_disconnect(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._stop_listening()
            self._listen()

    def _on_reconnect(self) -> None:
        if self._waiter is not None and not self._waiter.done() and self._retry_status is None:
            self._request()

    def _on_refused(self, name: str, error: errors.JetsparkError) -> None:
        if name == self._subject:
            self._finish(copy(error))


async def _given_back(client: CoreClient, listener: Listener | None, messages: list[JsMsg]) -> None:
    """Refuse the messages (NAK) after those on their way, which the listener's handler adds.

    None: all have come.
    """
    try:
        if listener is not None:
            listener.stop()
            await client.flush()
        for message in messages:
            if message.reply is not None:
                client.publish_nowait(message.reply, NAK)
    except errors.JetsparkError:
        pass  # without a link, ack_wait delivers them again
    finally:
        if listener is not None:
            listener.close()


def _expires(timeout: float) -> float:
    """The server's share of a timeout."""
    return max(timeout - EXPIRES_EARLIER, timeout / 2)
