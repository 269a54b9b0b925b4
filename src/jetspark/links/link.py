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
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

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
from jetspark.wire.status import status_of

_RECEIVE_BYTES = 256 << 10
_REQUEST_SID = 1
_MAX_UNANSWERED = 64  # requests; a server accepts some thousands


class Reply(NamedTuple):
    """A reply to one of several requests (`BlockingLink.replies`)."""

    request_index: int
    frame: MessageFrame
    sent: float
    """A `time.monotonic()` before the request was sent."""


def connect(options: ConnectOptions) -> BlockingLink:
    """Open a link to the first server of the options that accepts it.

    Tries each server once, in random order if the options say so. Only asyncio clients use the
    options for later attempts and discovered servers, `first_connect` and `choose_server`.

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
    """A blocking connection to one server, which has accepted it. `connect` creates it."""

    def __init__(self, options: ConnectOptions, server: ServerURL) -> None:
        """Connect to `server`, perform the handshake, and subscribe to replies."""
        self.server = str(server)
        self.api_prefix = options.api_prefix
        """Prefix of the subjects of the JetStream API."""
        self._timeout = options.connect_timeout
        self._buffer = ReceiveBuffer(_RECEIVE_BYTES)
        self._ready: deque[Frame] = deque()
        """Frames received but not handled yet."""
        self._sids = _REQUEST_SID  # the last subscription id in use
        self._inbox = f"{options.inbox_prefix}.{secrets.token_hex(11)}"
        self._requests = 0  # requests sent so far, which number the reply subjects
        self._pongs = 0  # PONGs received so far
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
        """Perform the handshake within the connect timeout; returns the server's INFO.

        An error says what the other side did: it was silent, closed the connection, or does not
        speak NATS.
        """
        deadline = time.monotonic() + self._timeout
        steps = handshake(options, server, __version__)  # a generator, which returns the INFO
        answer: Frame | None = None
        greeted = False  # whether the server has sent anything of the protocol
        # A server that expects TLS at once (tls_first) says nothing to other clients.
        may_wait_for_tls = may_be_silent(server, options)
        try:
            while True:
                step = steps.send(answer)
                greeted = greeted or answer is not None
                match step:
                    case Receive():
                        answer = self._next_frame(deadline)
                    case Send(data):
                        answer = None
                        self.send(data)
                    case StartTLS(hostname):
                        answer = None
                        # Bytes sent in the clear must not pass for bytes that came through TLS.
                        if self._buffer.pending or self._ready:
                            raise too_early(str(server), options)
                        self._socket = start_tls(self._socket, options, server, hostname)
        except StopIteration as done:
            info: ServerInfo = done.value
            return info
        except errors.RequestTimeoutError:
            raise no_answer(
                str(server),
                self._timeout,
                greeted=greeted or not may_wait_for_tls,
                received=self._buffer.pending,
            ) from None
        except errors.BrokenSocketError as error:
            if isinstance(error.__cause__, ssl.SSLError):  # TLS 1.3 refuses a certificate late
                raise tls_failure(str(server), error.__cause__, options) from error
            if greeted or not may_wait_for_tls or error.__cause__ is not None:
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
        """Receive once; returns the unparsed bytes, or None while a large frame is incomplete.

        Raises RequestTimeoutError at the deadline, and BrokenSocketError.
        """
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
        """Close the link; returns the error for a socket that failed or, with None, has ended."""
        self.close()
        return broken_connection(self.server, error)

    # -- frames ----------------------------------------------------------------------------

    def _next_frame(self, deadline: float) -> Frame:
        """The next frame of any kind. Raises RequestTimeoutError at the deadline."""
        while not self._ready:
            self._receive_frames(deadline)
        return self._ready.popleft()

    def _receive_frames(self, deadline: float) -> None:
        """Wait for bytes once, and queue the complete frames in `_ready`.

        The bytes of an incomplete frame stay in the buffer.
        """
        data = self._receive(deadline)
        if data is not None:
            runs: list[Event] = []
            self._buffer.consumed(*split_frames(data, runs))
            self._ready.extend(one_by_one(runs))

    def _next_message(self, deadline: float) -> MessageFrame | None:
        """Take the next frame: the message, or None for another frame, which is handled."""
        return self._handle(self._next_frame(deadline))

    def _handle(self, frame: Frame) -> MessageFrame | None:
        """Return a message; or act on another frame (PING, PONG, INFO, -ERR), and return None.

        Raises the error of a -ERR.
        """
        if isinstance(frame, MessageFrame):  # not a case, which takes twice as long
            return frame
        match frame:
            case Ping():
                self.send(frames.PONG)
            case Pong():
                self._pongs += 1
            case Info():
                self.info = parse_info(frame.document)
            case Err():
                error, ends = meaning_of(frame.text, self.server)  # what the error ends
                if ends == "link":
                    self.close()
                raise error
        return None

    def _handle_all(self, queued: Iterable[Frame]) -> list[MessageFrame]:
        """Return the messages among some frames, and act on the other frames."""
        return [message for frame in queued if (message := self._handle(frame)) is not None]

    def deliveries(
        self, decoder: DeliveryDecoder, into: Deliveries, deadline: float
    ) -> list[MessageFrame]:
        """Wait for bytes once; append a consumer's deliveries to `into`, return other messages.

        Other messages are statuses of pull requests, for example. The decoder stops at each frame
        that is no delivery, and it is handled here. Raises the errors of `messages`.
        """
        messages: list[MessageFrame] = []
        if self._ready:
            # Messages left from a request, or for subscriptions that have ended, are dropped.
            self._handle_all(self._ready)
            self._ready.clear()
        data = self._receive(deadline)
        if data is None:
            return messages
        position = need = 0  # where the rest begins, and the bytes that its frame needs
        try:
            while True:
                position, need = decoder.decode(data, position, into)
                if need != OTHER_FRAME:
                    break
                runs: list[Event] = []
                end, need = split_frames(data, runs, position, one=True)
                if end == position:  # the other frame is incomplete
                    break
                position = end
                messages += self._handle_all(one_by_one(runs))
        finally:
            self._buffer.consumed(position, max(need, 0))
        return messages

    @property
    def incomplete_bytes(self) -> int:
        """The bytes that have arrived of an incomplete frame."""
        return self._buffer.pending

    def messages(self, deadline: float) -> list[MessageFrame]:
        """Wait for bytes once; returns the messages in them, possibly none.

        Raises RequestTimeoutError at the deadline, BrokenSocketError, ProtocolError; ServerError or
        AuthError for a -ERR.
        """
        if not self._ready:
            self._receive_frames(deadline)
        queued, self._ready = self._ready, deque()
        return self._handle_all(queued)

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
        prefix = self._inbox.rpartition(".")[0]
        return f"{prefix}.{secrets.token_hex(11)}"

    def _new_reply_subject(self) -> str:
        """A reply subject for one request, under the inbox of this link's requests."""
        self._requests += 1
        return f"{self._inbox}.{self._requests}"

    def request(
        self, subject: str, payload: bytes, timeout: float, headers: bytes | None = None
    ) -> MessageFrame:
        """Send a request and return the reply; messages of subscriptions are dropped meanwhile.

        `headers`: an encoded header block. Raises NoRespondersError, RequestTimeoutError,
        BrokenSocketError, ProtocolError, and ServerError or AuthError for a -ERR.
        """
        deadline = time.monotonic() + timeout
        reply_subject = self._new_reply_subject()
        if headers is None:
            self.send(frames.pub(subject, payload, reply_subject))
        else:
            self.send(frames.hpub(subject, headers, payload, reply_subject))
        expected = reply_subject.encode()
        while True:
            message = self._next_message(deadline)
            if message is None or message.subject != expected:
                continue
            if has_no_responders(message):
                raise errors.NoRespondersError(subject)
            return message

    def replies(
        self,
        subjects: Sequence[str],
        silence: float,
        *,
        payloads: Sequence[bytes] = (),
        max_unanswered: int = _MAX_UNANSWERED,
    ) -> Iterator[Reply]:
        """Send a request to each of `subjects`, several at a time, and yield replies as they come.

        `payloads`: one for each subject; default: empty requests. Ends after `silence` seconds
        without a reply; a request without responders has none. Raises BrokenSocketError,
        ProtocolError, and ServerError or AuthError for a -ERR.
        """
        sent: list[float] = []  # when each request was sent
        unanswered: dict[bytes, int] = {}  # indexes of requests, by reply subject
        deadline = time.monotonic() + silence
        while unanswered or len(sent) < len(subjects):
            # Send more once half of the requests have their replies.
            if len(unanswered) <= max_unanswered // 2 and len(sent) < len(subjects):
                now, requests = time.monotonic(), b""
                for index in range(len(sent), len(subjects))[: max_unanswered - len(unanswered)]:
                    reply_subject = self._new_reply_subject()
                    payload = payloads[index] if payloads else b""
                    requests += frames.pub(subjects[index], payload, reply_subject)
                    unanswered[reply_subject.encode()] = index
                    sent.append(now)
                self.send(requests)
            try:
                message = self._next_message(deadline)
            except errors.RequestTimeoutError:
                return
            if message is None or message.subject not in unanswered:
                continue
            index = unanswered.pop(message.subject)
            deadline = time.monotonic() + silence
            if not has_no_responders(message):
                yield Reply(index, message, sent[index])

    def check(self) -> bool:
        """Send a PING; whether the server answers it. If not, close the link. Raises nothing."""
        if self.closed:
            return False
        try:
            expected = self._pongs + 1
            self.send(frames.PING)
            deadline = time.monotonic() + self._timeout
            while self._pongs < expected:
                self._next_message(deadline)
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


def has_no_responders(message: MessageFrame) -> bool:
    """Whether a message is the server's reply that nobody has subscribed to the subject."""
    status = status_of(message.headers)
    return status is not None and status.is_no_responders
