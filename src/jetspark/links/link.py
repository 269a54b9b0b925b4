"""A blocking connection: one socket, no event loop, no threads.

For reading many messages at once, for example in a Spark worker. It uses the same handshake as the
asyncio client, and answers the server's PINGs whenever it reads. Only one thread at a time may use
it. It does not reconnect: the caller opens another link and continues at its position.
"""

from __future__ import annotations

import random
import secrets
import ssl
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import jetspark.errors as errors
from jetspark.connection.handshake import (
    Receive,
    Send,
    StartTLS,
    closed,
    handshake,
    may_be_silent,
    no_answer,
    no_nats,
)
from jetspark.connection.opening import tls_failure, too_early
from jetspark.connection.options import ConnectOptions
from jetspark.connection.server_errors import meaning_of
from jetspark.connection.urls import ServerURL
from jetspark.links._sockets import broken_connection, dial, start_tls
from jetspark.links.leader_terms import LeaderTerm
from jetspark.version import __version__
from jetspark.wire import frames
from jetspark.wire.control import Err, Info, Ping, Pong
from jetspark.wire.documents import ServerInfo, parse_info
from jetspark.wire.kernel import (
    OTHER_FRAME,
    Deliveries,
    DeliveryDecoder,
    Event,
    MessageFrame,
    split_frames,
)
from jetspark.wire.parser import Frame, ReceiveBuffer, one_by_one
from jetspark.wire.status import NO_RESPONDERS, status_of

_RECEIVE_BYTES = 256 << 10
_REQUEST_SID = 1
_AT_ONCE = 64  # unanswered requests; a server accepts some thousands
_TRUSTED_SECONDS = 5.0  # a link idle for longer is checked with a PING before its use


def connect(options: ConnectOptions) -> BlockingLink:
    """Connect; tries each server once, in random order if the options say so.

    Only clients use the options for later attempts and discovered servers, `first_connect` and
    `choose_server`.

    Raises the server's own error when there is one server, else NoServersError with the last error
    as its cause.
    """
    urls = list(options.urls())
    if options.randomize:
        random.shuffle(urls)
    last: errors.JetsparkError = errors.NoServersError("No server named.")
    for url in urls:
        try:
            return BlockingLink(options, url)
        except (errors.ConnectionFailure, errors.ProtocolError) as error:
            last = error
    if len(urls) == 1:
        raise last
    names = ", ".join(str(url) for url in urls)
    raise errors.NoServersError(f"None of the servers {names} could be reached: {last}") from last


class BlockingLink:
    """An accepted connection to one server. Use `connect`; close it when done."""

    def __init__(self, options: ConnectOptions, server: ServerURL) -> None:
        self.server = str(server)
        self.api_prefix = options.api_prefix
        """Prefix of the subjects of the JetStream API."""
        self._timeout = options.connect_timeout
        self._buffer = ReceiveBuffer(_RECEIVE_BYTES)
        self._ready: list[Frame] = []
        self._sids = _REQUEST_SID
        self._inbox = f"{options.inbox_prefix}.{secrets.token_hex(11)}"
        self._requests = 0
        self._pongs = 0
        self.closed = False
        self.leader_terms: defaultdict[str, LeaderTerm] = defaultdict(LeaderTerm)
        """Leader of each stream, as far as answers over this link have shown it."""
        self._socket = dial(options, server)
        try:
            self.info: ServerInfo = self._shake_hands(options, server)
        except BaseException:
            self.close()
            raise
        self.send(frames.sub(f"{self._inbox}.*", _REQUEST_SID))

    # -- opening ---------------------------------------------------------------------------

    def _shake_hands(self, options: ConnectOptions, server: ServerURL) -> ServerInfo:
        deadline = time.monotonic() + self._timeout
        steps = handshake(options, server, __version__)
        answer: Frame | None = None
        greeted = False
        try:
            while True:
                step = steps.send(answer)
                greeted = greeted or answer is not None
                match step:
                    case Receive():
                        answer = self._next_event(deadline)
                    case Send(data):
                        answer = None
                        self.send(data)
                    case StartTLS(hostname):
                        answer = None
                        if self._buffer.pending or self._ready:
                            raise too_early(str(server), options)
                        self._socket = start_tls(self._socket, options, server, hostname)
        except StopIteration as done:
            info: ServerInfo = done.value
            return info
        except errors.RequestTimeoutError:
            greeted = greeted or not may_be_silent(server, options)
            waited, received = self._timeout, self._buffer.pending
            raise no_answer(str(server), waited, greeted=greeted, received=received) from None
        except errors.BrokenSocketError as error:
            if isinstance(error.__cause__, ssl.SSLError):  # TLS 1.3 refuses late
                raise tls_failure(str(server), error.__cause__, options) from error
            if greeted or not may_be_silent(server, options) or error.__cause__ is not None:
                raise
            raise closed(str(server), greeted=False) from None
        except errors.ProtocolError as error:
            if greeted:
                raise
            raise no_nats(str(server), error) from error

    # -- bytes -----------------------------------------------------------------------------

    def send(self, data: bytes, timeout: float | None = None) -> None:
        """Send all of `data` within `timeout` seconds (default: the connect timeout).

        Raises BrokenSocketError.
        """
        try:
            self._socket.settimeout(self._timeout if timeout is None else timeout)
            self._socket.sendall(data)
        except OSError as error:
            raise self._broken(error) from error

    def _receive(self, deadline: float) -> bytes | None:
        """Bytes that may contain complete frames; None while a large frame is incomplete."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise errors.RequestTimeoutError(f"Nothing from {self.server} in time.")
        try:
            self._socket.settimeout(left)
            count = self._socket.recv_into(self._buffer.room())
        except TimeoutError:
            raise errors.RequestTimeoutError(f"Nothing from {self.server} in time.") from None
        except OSError as error:
            raise self._broken(error) from error
        if count == 0:
            raise self._broken(None)
        return self._buffer.received(count)

    def _broken(self, error: OSError | None) -> errors.BrokenSocketError:
        self.close()
        return broken_connection(self.server, error)

    # -- events ----------------------------------------------------------------------------

    def _next_event(self, deadline: float) -> Frame:
        """The next event of any kind. Raises RequestTimeoutError at the deadline."""
        while not self._ready:
            data = self._receive(deadline)
            if data is not None:
                self._split(data)
                self._ready.reverse()
        return self._ready.pop()

    def _split(self, data: bytes) -> None:
        """Queue the complete frames of `data`; the rest stays in the buffer."""
        runs: list[Event] = []
        self._buffer.consumed(*split_frames(data, runs))
        self._ready = list(one_by_one(runs))

    def _message_of(self, event: Frame) -> MessageFrame | None:
        """The event if it is a message; None for a control event, which is handled here."""
        if isinstance(event, MessageFrame):
            return event
        if isinstance(event, Ping):
            self.send(frames.PONG)
        elif isinstance(event, Pong):
            self._pongs += 1
        elif isinstance(event, Info):
            self.info = parse_info(event.document)
        elif isinstance(event, Err):
            error, ends = meaning_of(event.text, self.server)
            if ends == "link":
                self.close()
            raise error
        return None

    def deliveries(
        self, decoder: DeliveryDecoder, into: Deliveries, deadline: float
    ) -> list[MessageFrame]:
        """Wait for bytes once and decode them: deliveries into columns, other messages returned.

        Raises RequestTimeoutError at the deadline, BrokenSocketError, ProtocolError; ServerError or
        AuthError for a -ERR.
        """
        messages: list[MessageFrame] = []
        if self._ready:
            # Left from a request, or for subscriptions that have ended.
            for event in reversed(self._ready):
                self._message_of(event)
            self._ready.clear()
        data = self._receive(deadline)
        if data is None:
            return messages
        position = need = 0
        event_list: list[Event] = []
        try:
            while True:
                position, need = decoder.decode(data, position, into)
                if need != OTHER_FRAME:
                    break
                end, need = split_frames(data, event_list, position, one=True)
                if end == position:
                    break
                position = end
                for event in one_by_one(event_list):
                    frame = self._message_of(event)
                    if frame is not None:
                        messages.append(frame)
                event_list.clear()
        finally:
            self._buffer.consumed(position, max(need, 0))
        return messages

    @property
    def receiving(self) -> int:
        """Whether a part of a frame has arrived, but not the rest."""
        return self._buffer.pending

    def messages(self, deadline: float) -> list[MessageFrame]:
        """Wait for bytes once; returns the messages in them, possibly none.

        Raises RequestTimeoutError at the deadline, BrokenSocketError, ProtocolError; ServerError or
        AuthError for a -ERR.
        """
        if not self._ready:
            data = self._receive(deadline)
            if data is None:
                return []
            self._split(data)
        else:
            self._ready.reverse()
        events, self._ready = self._ready, []
        return [frame for event in events if (frame := self._message_of(event)) is not None]

    # -- calls -----------------------------------------------------------------------------

    def subscribe(self, subject: str) -> int:
        """Subscribe; returns the subscription's id."""
        self._sids += 1
        self.send(frames.sub(subject, self._sids))
        return self._sids

    def unsubscribe(self, sid: int) -> None:
        """End a subscription. Messages in flight still arrive; its id identifies them."""
        self.send(frames.unsub(sid))

    def new_inbox(self) -> str:
        """A unique reply subject."""
        return f"{self._inbox[: self._inbox.rindex('.')]}.{secrets.token_hex(11)}"

    def request(
        self, subject: str, payload: bytes, timeout: float, headers: bytes | None = None
    ) -> MessageFrame:
        """Send a request and return the reply; messages of subscriptions are dropped meanwhile.

        `headers`: an encoded header block. Raises NoRespondersError, RequestTimeoutError,
        BrokenSocketError, ProtocolError, and ServerError or AuthError for a -ERR.
        """
        deadline = time.monotonic() + timeout
        self._requests += 1
        inbox = f"{self._inbox}.{self._requests}"
        if headers is None:
            self.send(frames.pub(subject, payload, inbox))
        else:
            self.send(frames.hpub(subject, headers, payload, inbox))
        expected = inbox.encode()
        while True:
            frame = self._message_of(self._next_event(deadline))
            if frame is None or frame.subject != expected:
                continue
            status = status_of(frame.headers)
            if status is not None and status.code == NO_RESPONDERS:
                raise errors.NoRespondersError(subject)
            return frame

    def replies(
        self,
        subjects: Sequence[str],
        silence: float,
        *,
        payloads: Sequence[bytes] = (),
        at_once: int = _AT_ONCE,
    ) -> Iterator[tuple[int, MessageFrame, float]]:
        """Send a request to each subject, `at_once` at a time; yield the replies as they come.

        `payloads`: one for each subject; default: empty requests. Yields with each reply its
        request's number, and a time (`time.monotonic()`) before that was sent. Ends after `silence`
        seconds without a reply; a request without responders has none. Raises BrokenSocketError,
        ProtocolError, and ServerError or AuthError for a -ERR.
        """
        first = self._requests
        self._requests += len(subjects)
        pending = {f"{self._inbox}.{first + n}".encode(): n for n in range(len(subjects))}
        times: list[float] = []
        deadline = time.monotonic() + silence
        while pending:
            open_ = len(times) - (len(subjects) - len(pending))
            if open_ <= at_once // 2 and len(times) < len(subjects):
                more = range(len(times), min(len(times) + at_once - open_, len(subjects)))
                times += [time.monotonic()] * len(more)
                self.send(
                    b"".join(
                        frames.pub(
                            subjects[n],
                            payloads[n] if payloads else b"",
                            f"{self._inbox}.{first + n}",
                        )
                        for n in more
                    )
                )
            try:
                frame = self._message_of(self._next_event(deadline))
            except errors.RequestTimeoutError:
                return
            number = None if frame is None else pending.pop(frame.subject, None)
            if frame is None or number is None:
                continue
            deadline = time.monotonic() + silence
            if (status := status_of(frame.headers)) is None or status.code != NO_RESPONDERS:
                yield number, frame, times[number]

    def check(self) -> bool:
        """Whether the server answers a PING; otherwise closes the link. Raises nothing."""
        if self.closed:
            return False
        try:
            expected = self._pongs + 1
            self.send(frames.PING)
            deadline = time.monotonic() + self._timeout
            while self._pongs < expected:
                self._message_of(self._next_event(deadline))
        except errors.JetsparkError:
            self.close()
            return False
        return True

    def close(self) -> None:
        """Close the socket; safe to call again."""
        self.closed = True
        self._socket.close()

    def __enter__(self) -> BlockingLink:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
