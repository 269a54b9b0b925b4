"""What a user may see of the traffic: the protocol of hooks."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar

from jetspark.client.messages import MessageView, PreparedMessage, Reporter
from jetspark.connection.events import ConnectionEvent
from jetspark.errors import (
    BadHeaderError,
    ConfigError,
    HeadersNotSupportedError,
    JetsparkError,
    MaxPayloadError,
    NotJetStreamMessageError,
    shown,
    user_error,
)
from jetspark.payloads import Payload
from jetspark.subjects import nearest_name
from jetspark.wire.events import MessageFrame
from jetspark.wire.headers import Headers, HeadersLike
from jetspark.wire.kernel import frame_of
from jetspark.wire.reply_subject import Metadata, parse_reply_subject
from jetspark.wire.status import status_of

Around: TypeAlias = AbstractContextManager[Any] | None
"""Entered before, and left after; None: not interested."""

AckKind: TypeAlias = Literal["ack", "ack_sync", "nak", "in_progress", "term"]


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """An acknowledgement that is sent."""

    kind: AckKind
    metadata: Metadata
    """Of the message: stream, consumer, sequences, deliveries."""


class Hooks:
    """Inherit from it, override some methods, and give an object of it to `connect(hooks=…)`.

    All but `event` return a context manager, or None: it is entered before the work, in the task or
    thread of whoever asked for it, and left after it, with the error if there was one. So
    `@contextmanager` is the easiest way to write one. They are plain functions, are called for each
    message, and must not block. What a hook raises is reported and changes nothing, nor does it
    whether it suppresses an error. The JetStream API's own messages are not told.
    """

    def publish(self, message: PreparedMessage) -> Around:
        """A message is sent. `message.headers` may be changed: they are sent.

        Also by JetStream's publishers and batches, `request_many`, and as an answer; it is over
        when the message is buffered.
        """
        return None

    def request(self, message: PreparedMessage) -> Around:
        """A request is sent and its reply awaited; `message.headers` may be changed.

        A publish of JetStream whose ack is awaited is one, too. It is over when the reply came.
        """
        return None

    def deliver(self, message: MessageView, *, handled: bool) -> Around:
        """A message of a subscription or consumer, or a request to a service, is given out.

        `handled`: to a callback or handler, and it is over when that has ended. Otherwise to an
        iterator, `next` or `fetch`: it is over at once, since nobody knows when it is handled.
        """
        return None

    def ack(self, ack: Acknowledgement) -> Around:
        """A message is acknowledged; `ack_sync` is over when the server has confirmed it."""
        return None

    def event(self, event: ConnectionEvent) -> None:
        """The connection changed."""


# -------------------------------------------------------------------------------------------------
# How hooks come into the client.
#
# What sends has `hooked`, None without hooks, and calls itself again inside of the hook. What
# receives asks `hooking` once for each subscription: `Hooking` hands back what it gets, and
# `Hooked` wraps callbacks and gives queues that tell what is taken from them.


FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Failed: TypeAlias = Callable[[MessageFrame, Exception], None]
T = TypeVar("T")

_NAMES: Final = ("publish", "request", "deliver", "ack", "event")
_OF_HEADERS: Final = (MaxPayloadError, BadHeaderError, HeadersNotSupportedError)
"""What headers that a hook has added can cause."""

_ACK: Final = "$JS.ACK."
_OWN: Final = "$JS."
"""The subjects of JetStream's protocol."""


def check_hooks(hooks: object) -> Hooks:
    """Raises ConfigError for what is none."""
    if not isinstance(hooks, Hooks):
        raise ConfigError(f"hooks is an object of a class that inherits Hooks, not {shown(hooks)}.")
    for name in _NAMES:
        if inspect.iscoroutinefunction(getattr(hooks, name)):
            raise ConfigError(f"The hook {name} is a plain function, not an async one.")
    for name in sorted(set(dir(hooks)) - set(dir(Hooks))):
        meant = nearest_name(name, _NAMES, cutoff=0.8)
        # `published` or `requests` are names of their own.
        if meant is not None and not name.startswith(meant) and callable(getattr(hooks, name)):
            raise ConfigError(f"There is no hook {name!r}; did you mean {meant!r}?")
    return hooks


class Hooking:
    """No hooks."""

    def callback(self, function: FunctionT) -> FunctionT:
        """What to call in place of a callback of messages."""
        return function

    def handler(self, function: FunctionT, failed: Failed) -> FunctionT:
        """What to call in place of a handler of requests.

        `failed` is told of an Exception that it raises, and answers it. Where that is done in the
        call, so that the answer is sent inside of the hook, the call raises nothing.
        """
        return function

    def queue(self, client: Reporter, callback: Callable[..., Any] | None) -> deque[MessageFrame]:
        """The queue of a subscription or consumer. `client`: of its messages."""
        return deque()

    def handed_out(self, messages: Iterable[MessageView]) -> None:
        """A fetch returns these."""

    def quiet(self) -> AbstractContextManager[object]:
        """What is subscribed inside belongs to the client itself."""
        return nullcontext()


NO_HOOKS: Final = Hooking()


class Guarded:
    """A hook's context manager: what it raises is reported, and it suppresses nothing."""

    __slots__ = ("_make", "_manager", "_report", "_what")

    def __init__(
        self, what: str, make: Callable[[], Around], report: Callable[[JetsparkError], None]
    ) -> None:
        self._what = what
        self._make = make
        self._report = report
        self._manager: Around = None

    def __enter__(self) -> Self:
        try:
            manager = self._make()
            if manager is not None:
                manager.__enter__()
                self._manager = manager
        except BaseException as error:
            self._raised(error)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._manager is None:
            return
        try:
            self._manager.__exit__(kind, error, traceback)
        except BaseException as raised:
            if raised is not error:
                self._raised(raised)

    def _raised(self, error: BaseException) -> None:
        self._report(user_error(f"The hook {self._what}", error))
        if isinstance(error, SystemExit | KeyboardInterrupt):
            raise error


class Hooked(Hooking):
    """`report` may be called in any thread that uses the client.

    `quiet`: of the asyncio client inside a blocking one, whose callers' threads are where messages
    go.
    """

    def __init__(
        self,
        hooks: Hooks,
        report: Callable[[JetsparkError], None],
        api_prefix: str,
        *,
        quiet: bool = False,
    ) -> None:
        self.hooks = hooks
        self.report = report
        self._own = (_OWN, f"{api_prefix}.")
        self._quiet = quiet

    # -- sending -------------------------------------------------------------------------------

    def send(
        self,
        subject: str,
        payload: Payload,
        reply: str | None,
        headers: HeadersLike | None,
        put: Callable[[Headers | None], T],
        *,
        asking: bool = False,
    ) -> T:
        """`put` with the headers that the hook leaves; an ack is told as such.

        `asking`: it returns when the reply came.
        """
        own = None if headers is None else Headers(headers)  # a copy: it may be an iterator
        if subject.startswith(self._own):
            with self._ack(subject, payload, "ack_sync" if asking else None):
                return put(own)
        message = PreparedMessage(subject, payload, reply=reply, headers=own or ())
        before = message.headers.to_dict()
        hook = self.hooks.request if asking else self.hooks.publish
        with self._guarded("request" if asking else "publish", lambda: hook(message)):
            if (others := self._others(message, before)) is None:
                return put(own)
            try:
                return put(others)
            except _OF_HEADERS as error:
                self._gives_way(error)
                return put(own)

    async def asked(
        self,
        subject: str,
        payload: Payload,
        headers: HeadersLike | None,
        ask: Callable[[HeadersLike | None], Awaitable[T]],
    ) -> T:
        """What `ask` returns, which sends a request with the headers that the hook leaves, and
        reads its reply."""
        own = None if headers is None else Headers(headers)  # a copy: it may be an iterator
        if subject.startswith(self._own):
            with self._ack(subject, payload, "ack_sync"):
                return await ask(own)
        message = PreparedMessage(subject, payload, headers=own or ())
        before = message.headers.to_dict()
        with self._guarded("request", lambda: self.hooks.request(message)):
            if (others := self._others(message, before)) is None:
                return await ask(own)
            try:
                return await ask(others)
            except _OF_HEADERS as error:
                self._gives_way(error)
                return await ask(own)

    def _others(self, message: PreparedMessage, before: dict[str, list[str]]) -> Headers | None:
        """The headers that the hook has left, or set; None if they are those before."""
        try:
            left: Any = message.headers
            headers = left if isinstance(left, Headers) else Headers(left or ())
        except Exception as error:
            self._gives_way(user_error("The headers that a hook has set", error))
            return None
        return None if headers.to_dict() == before else headers

    def _gives_way(self, error: JetsparkError) -> None:
        """The message is sent as its sender gave it."""
        self.report(user_error("Sending with the headers of a hook", error))

    def _ack(
        self, subject: str, payload: Payload, kind: AckKind | None = None
    ) -> AbstractContextManager[object]:
        if not subject.startswith(_ACK):
            return nullcontext()
        try:
            metadata = parse_reply_subject(subject.encode())
        except NotJetStreamMessageError:
            return nullcontext()
        acknowledgement = Acknowledgement(kind or _kind(bytes(payload)), metadata)
        return self._guarded("ack", lambda: self.hooks.ack(acknowledgement))

    def _guarded(self, what: str, make: Callable[[], Around]) -> Guarded:
        return Guarded(what, make, self.report)

    # -- receiving -----------------------------------------------------------------------------

    def callback(self, function: FunctionT) -> FunctionT:
        """As `Hooking.callback`."""
        return function if self._quiet else _Delivering(function, self)  # type: ignore[return-value]

    def handler(self, function: FunctionT, failed: Failed) -> FunctionT:
        """As `Hooking.handler`."""
        made = _Delivering(function, self, failed)
        return function if self._quiet else made  # type: ignore[return-value]

    def queue(self, client: Reporter, callback: Callable[..., Any] | None) -> deque[MessageFrame]:
        """As `Hooking.queue`: a callback tells for itself."""
        if self._quiet or callback is not None:
            return deque()
        return _ToldFrames(self, client)

    def handed_out(self, messages: Iterable[MessageView]) -> None:
        """As `Hooking.handed_out`."""
        for message in () if self._quiet else messages:
            self.taken(message)

    def taken(self, message: MessageView) -> None:
        """An iterator gives out this message."""
        with self._guarded("deliver", lambda: self.hooks.deliver(message, handled=False)):
            pass

    def delivering(self, message: MessageView) -> Guarded:
        """Around the call of a handler."""
        return self._guarded("deliver", lambda: self.hooks.deliver(message, handled=True))

    @contextmanager
    def _hushed(self) -> Iterator[None]:
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before

    def quiet(self) -> AbstractContextManager[object]:
        """As `Hooking.quiet`. Nothing may be awaited inside."""
        return self._hushed()

    # -- events --------------------------------------------------------------------------------

    def telling(
        self, callback: Callable[[ConnectionEvent], T] | None
    ) -> Callable[[ConnectionEvent], T | None]:
        """The event callback that tells the hook, too."""

        def told(event: ConnectionEvent) -> Around:
            self.hooks.event(event)
            return None

        def tell(event: ConnectionEvent) -> T | None:
            with self._guarded("event", lambda: told(event)):
                pass
            return None if callback is None else callback(event)

        return tell


class _ToldFrames(deque[MessageFrame]):
    """A queue that tells the hook what is taken from it."""

    __slots__ = ("_client", "_hooked")

    def __init__(self, hooked: Hooked, client: Reporter) -> None:
        super().__init__()
        self._hooked = hooked
        self._client = client

    def popleft(self) -> MessageFrame:
        frame = super().popleft()
        if status_of(frame.headers) is None:  # the server's own are not given out
            self._hooked.taken(MessageView(self._client, frame))
        return frame


class _Delivering:
    """A callback or handler, with the hook around each call of it."""

    def __init__(
        self, function: Callable[[Any], Any], hooked: Hooked, failed: Failed | None = None
    ) -> None:
        self._function = function
        self._hooked = hooked
        self._failed = failed

    def __call__(self, message: Any) -> Any:
        if not isinstance(message, MessageView) or message.status is not None:
            return self._function(message)
        with ExitStack() as stack:
            stack.enter_context(self._delivering(message))
            result = self._function(message)
            if result is None or not inspect.isawaitable(result):
                return result
            return self._rest(result, stack.pop_all())
        return None  # it was answered

    async def _rest(self, result: Awaitable[Any], stack: ExitStack) -> Any:
        with stack:
            return await result

    @contextmanager
    def _delivering(self, message: MessageView) -> Iterator[None]:
        if self._failed is None:
            with self._hooked.delivering(message):
                yield
            return
        with suppress(Exception), self._hooked.delivering(message):
            try:
                yield
            except Exception as error:
                self._failed(frame_of(message), error)
                raise


def _kind(payload: bytes) -> AckKind:
    if payload.startswith(b"-NAK"):
        return "nak"
    if payload.startswith(b"+TERM"):
        return "term"
    return "in_progress" if payload.startswith(b"+WPI") else "ack"
