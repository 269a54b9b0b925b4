"""Hooks: the user's code around what is sent, delivered and acknowledged.

Each client has a `HookRunner`, which does nothing without hooks. Senders have `hooked`, None
without hooks, and call themselves again inside the hook. For each subscription the runner wraps the
callback, or gives a queue that reports what is taken from it.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from types import MethodType
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

import jetspark.errors as errors
from jetspark.client.messages import MessageView, PreparedMessage, Reporter
from jetspark.connection.events import ConnectionEvent
from jetspark.connection.options import ConnectOptions
from jetspark.connection.session import Statistics
from jetspark.payload_bytes import Payload, Value, payload_bytes
from jetspark.validation import check_kind
from jetspark.wire.headers import Headers, HeadersLike
from jetspark.wire.kernel import MessageFrame, frame_of
from jetspark.wire.reply_subject import Metadata, parse_reply_subject
from jetspark.wire.status import status_of

Around: TypeAlias = AbstractContextManager[Any] | None

Measured: TypeAlias = Literal["request", "process"]
AckKind: TypeAlias = Literal["ack", "ack_sync", "nak", "in_progress", "term"]


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """An acknowledgement to send."""

    kind: AckKind
    metadata: Metadata
    """The subject of the acknowledged message."""


class HookedClient(Protocol):
    """A client, as its hooks may see it."""

    options: ConnectOptions

    @property
    def stats(self) -> Statistics:
        """Traffic so far."""

    @property
    def is_connected(self) -> bool:
        """Whether there is a link now."""


class Hooks:
    """Inherit from it, override some methods, and give an object to `connect(hooks=…)`.

    Most methods return a context manager, or None. It is entered before the work, in the caller's
    task or thread, and left after it, with its error if there is one: `@contextmanager` is the
    easiest way to write one. Hooks are plain functions called for each message, and must not
    block. Their exceptions are reported and change nothing; they cannot suppress an error. The
    messages of the JetStream API have no hooks. What a class does not override costs nothing.

    Example:
        ```python
        class Stamp(jetspark.Hooks):
            def publish(self, message):
                message.headers["Shop"] = "7"

        nc = await jetspark.connect("nats://127.0.0.1:4222", hooks=Stamp())
        await nc.close()
        ```
    """

    def bind(self, client: HookedClient) -> Hooks:
        """The hooks of a new client: by default this object, for every client."""
        return self

    def publish(self, message: PreparedMessage) -> Around:
        """Around buffering a message; changes of `message.headers` are sent.

        Also for JetStream's publishers and batches, `request_many`, and answers.
        """
        return None

    def request(self, message: PreparedMessage) -> Around:
        """Around a request, until its reply; changes of `message.headers` are sent.

        Also for a JetStream publish, until its ack.
        """
        return None

    def deliver(self, message: MessageView, *, handled: bool) -> Around:
        """Around the delivery of a message, or of a request to a service.

        `handled`: a callback or handler gets it, and the hook lasts until that has ended. Otherwise
        an iterator, `next` or `fetch` gets it, and the hook ends at once.
        """
        return None

    def given(self, messages: Sequence[MessageView]) -> Iterable[MessageView]:
        """An iterator, `next` or `fetch` gets these; `deliver` is called for what it returns."""
        return messages

    def ack(self, ack: Acknowledgement) -> Around:
        """Around an acknowledgement; around `ack_sync` until the server has confirmed it."""
        return None

    def measured(self, kind: Measured, seconds: float, error: BaseException | None) -> None:
        """A "request" has ended, or a callback or handler had to "process" a message."""

    def event(self, event: ConnectionEvent) -> None:
        """The connection changed."""


HooksLike: TypeAlias = Hooks | Sequence[Hooks]
"""Hooks as `connect` takes them: of several, the first is the outermost."""


class _Together(Hooks):
    """Several hooks as one."""

    def __init__(self, every: Sequence[Hooks]) -> None:
        self._every = every
        self._takers: dict[int, list[Hooks]] = {}
        """Whose `deliver` is called next, by the messages' ids."""
        for name in ("publish", "request", "deliver", "given", "ack", "measured", "event"):
            if not any(overrides(hook, name) for hook in every):
                setattr(self, name, MethodType(getattr(Hooks, name), self))

    def publish(self, message: PreparedMessage) -> Around:
        return _all(hook.publish(message) for hook in self._every)

    def request(self, message: PreparedMessage) -> Around:
        return _all(hook.request(message) for hook in self._every)

    def deliver(self, message: MessageView, *, handled: bool) -> Around:
        takers = self._every if handled else self._takers.pop(id(message), ())
        return _all(hook.deliver(message, handled=handled) for hook in takers)

    def given(self, messages: Sequence[MessageView]) -> Iterable[MessageView]:
        for hook in self._every:
            for message in hook.given(messages):
                self._takers.setdefault(id(message), []).append(hook)
        return [message for message in messages if id(message) in self._takers]

    def ack(self, ack: Acknowledgement) -> Around:
        return _all(hook.ack(ack) for hook in self._every)

    def measured(self, kind: Measured, seconds: float, error: BaseException | None) -> None:
        for hook in self._every:
            hook.measured(kind, seconds, error)

    def event(self, event: ConnectionEvent) -> None:
        for hook in self._every:
            hook.event(event)


@contextmanager
def _all(arounds: Iterable[Around]) -> Iterator[None]:
    with ExitStack() as stack:
        for manager in arounds:
            if manager is not None:
                stack.enter_context(manager)
        yield


def overrides(hooks: Hooks, name: str) -> bool:
    """Whether this hook does something."""
    return getattr(getattr(hooks, name), "__func__", None) is not getattr(Hooks, name)


def bound(hooks: HooksLike, client: HookedClient) -> Hooks:
    """The hooks of a new client."""
    if isinstance(hooks, Hooks):
        return hooks.bind(client)
    expectation = "a jetspark.Hooks, or several"
    return _Together([check_kind("hooks", hook, Hooks, expectation).bind(client) for hook in hooks])


FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
T = TypeVar("T")
Failed: TypeAlias = Callable[[MessageFrame, Exception], None]

_OF_HEADERS: Final = (
    errors.MaxPayloadError,
    errors.BadHeaderError,
    errors.HeadersNotSupportedError,
)
"""Errors that the headers added by a hook may cause."""

_ACK: Final = "$JS.ACK."
_JETSTREAM: Final = "$JS."


class HookRunner:
    """Calls `hooks`, and reports what they raise; `report` may be called in any thread.

    `quiet`: for the asyncio client inside a blocking one, which has hooks in callers' threads.
    """

    def __init__(
        self,
        hooks: Hooks | None,
        report: Callable[[errors.JetsparkError], None],
        api_prefix: str,
        *,
        quiet: bool = False,
    ) -> None:
        self.hooks = hooks or Hooks()
        self.report = report
        self._protocol = (_JETSTREAM, f"{api_prefix}.")
        self._quiet = quiet
        self._wraps = self.tells("request", "ack")
        self._delivers = self.tells("deliver")
        self._measures = self.tells("measured")

    def tells(self, *names: str) -> bool:
        """Whether one of these hooks was overridden."""
        return any(overrides(self.hooks, name) for name in names)

    # -- sending -------------------------------------------------------------------------------

    def send(
        self,
        subject: str,
        payload: Value,
        reply: str | None,
        headers: HeadersLike | None,
        put: Callable[[HeadersLike | None], T],
        *,
        asking: bool = False,
    ) -> T:
        """Call `put` with the headers that the hook leaves.

        `asking`: `put` sends a request and returns its reply.
        """
        with _Clock(self, "request", subject) if asking else nullcontext():
            if asking and not self._wraps:
                return put(headers)
            with self._sending(subject, payload, reply, headers, asking=asking) as (own, changed):
                if changed is not None:
                    try:
                        return put(changed)
                    except _OF_HEADERS as error:
                        self.report(errors.user_error("Sending with the headers of a hook", error))
                return put(own)

    async def request(
        self,
        subject: str,
        payload: Payload,
        headers: HeadersLike | None,
        ask: Callable[[HeadersLike | None], Awaitable[Any]],
        read: Callable[[Any], T],
    ) -> T:
        """`send` for a coroutine that sends a request; `read` is called for its reply."""
        with _Clock(self, "request", subject):
            if not self._wraps:
                return read(await ask(headers))
            with self._sending(subject, payload, None, headers, asking=True) as (own, changed):
                if changed is not None:
                    try:
                        return read(await ask(changed))
                    except _OF_HEADERS as error:
                        self.report(errors.user_error("Sending with the headers of a hook", error))
                return read(await ask(own))

    @contextmanager
    def _sending(
        self,
        subject: str,
        payload: Value,
        reply: str | None,
        headers: HeadersLike | None,
        *,
        asking: bool,
    ) -> Iterator[tuple[Headers | None, Headers | None]]:
        """The caller's headers, and whatever the hook changed in them."""
        own = None if headers is None else Headers(headers)  # a copy, since it may be an iterator
        if subject.startswith(self._protocol):
            with self._acknowledging(subject, payload, asking=asking):
                yield own, None
            return
        message = PreparedMessage(subject, payload_bytes(payload), reply=reply, headers=own or ())
        before = message.headers.to_dict()
        name, hook = ("request", self.hooks.request) if asking else ("publish", self.hooks.publish)
        with self._guarded(name, lambda: hook(message)):
            yield own, self._changed_headers(message, before)

    def _changed_headers(
        self, message: PreparedMessage, before: dict[str, list[str]]
    ) -> Headers | None:
        try:
            headers = Headers(message.headers or ())
        except Exception as error:
            self.report(errors.user_error("The headers that a hook has set", error))
            return None
        return None if headers.to_dict() == before else headers

    def _acknowledging(
        self, subject: str, payload: Value, *, asking: bool
    ) -> AbstractContextManager[None]:
        if not subject.startswith(_ACK):
            return nullcontext()
        try:
            metadata = parse_reply_subject(subject.encode())
        except errors.NotJetStreamMessageError:
            return nullcontext()
        ack = Acknowledgement("ack_sync" if asking else _kind(payload_bytes(payload)), metadata)
        return self._guarded("ack", lambda: self.hooks.ack(ack))

    # -- receiving -----------------------------------------------------------------------------

    def callback(self, function: FunctionT, failed: Failed | None = None) -> FunctionT:
        """The function to call in place of a callback of messages, or a handler of requests.

        `failed` answers an Exception of a handler, so that the hook includes the answer; the call
        then raises nothing.
        """
        if self._quiet:
            return function
        if self._measures:
            function = self._inside(function, lambda message: _Clock(self, "process"))
        if self._delivers:
            function = self._inside(function, lambda message: self._delivery(message, failed))
        return function

    def _inside(
        self, function: Any, block_of: Callable[[MessageView], AbstractContextManager[Any]]
    ) -> Any:
        def call(message: Any) -> Any:
            if not isinstance(message, MessageView) or message.status is not None:
                return function(message)
            with ExitStack() as stack:
                stack.enter_context(block_of(message))
                result = function(message)
                if result is None or not inspect.isawaitable(result):
                    return result
                return _rest(result, stack.pop_all())
            return None  # `failed` answered it

        return call

    @contextmanager
    def _delivery(self, message: MessageView, failed: Failed | None) -> Iterator[None]:
        deliver = partial(self.hooks.deliver, message, handled=True)
        if failed is None:
            with self._guarded("deliver", deliver):
                yield
            return
        with suppress(Exception), self._guarded("deliver", deliver):
            try:
                yield
            except Exception as error:
                failed(frame_of(message), error)
                raise

    def queue(self, client: Reporter, callback: Callable[..., Any] | None) -> deque[MessageFrame]:
        """The queue of a subscription or consumer. `client`: the client of its messages."""
        # A callback itself is wrapped.
        if self._quiet or not self._delivers or callback is not None:
            return deque()
        return _HookedQueue(self, client)

    def handed_out(self, messages: Sequence[MessageView]) -> None:
        """The user gets these messages, other than in a callback."""
        if self._quiet or not self._delivers or not messages:
            return
        selected: list[MessageView] = []
        with self._guarded("given", lambda: selected.extend(self.hooks.given(messages))):
            pass
        for message in selected:
            with self._guarded("deliver", partial(self.hooks.deliver, message, handled=False)):
                pass

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Subscriptions inside the block are the client's own. The block must not await."""
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before

    # -- events --------------------------------------------------------------------------------

    def event_callback(
        self, callback: Callable[[ConnectionEvent], T] | None
    ) -> Callable[[ConnectionEvent], T | None]:
        """An event callback that also calls the hook."""

        def call(event: ConnectionEvent) -> T | None:
            with self._guarded("event", lambda: self.hooks.event(event)):
                pass
            return None if callback is None else callback(event)

        return call

    # -- safely --------------------------------------------------------------------------------

    @contextmanager
    def _guarded(self, name: str, make: Callable[[], Around]) -> Iterator[None]:
        """A hook's context manager, which can neither raise nor suppress an error here."""
        manager: Around = None
        try:
            if (candidate := make()) is not None:
                candidate.__enter__()
                manager = candidate
        except BaseException as error:
            self._raised(name, error)
        try:
            yield
        except BaseException as error:
            self._leave(name, manager, error)
            raise
        self._leave(name, manager, None)

    def _leave(self, name: str, manager: Around, error: BaseException | None) -> None:
        if manager is None:
            return
        try:
            if error is None:
                manager.__exit__(None, None, None)
            else:
                manager.__exit__(type(error), error, error.__traceback__)
        except BaseException as raised:
            if raised is not error:
                self._raised(name, raised)

    def ended(
        self, kind: Measured, begin: float, error: BaseException | None, subject: str
    ) -> None:
        """Call the hook `measured` for what began at that `perf_counter()`."""
        try:
            if not subject.startswith(self._protocol):
                self.hooks.measured(kind, perf_counter() - begin, error)
        except BaseException as raised:
            self._raised("measured", raised)

    def _raised(self, name: str, error: BaseException) -> None:
        self.report(errors.user_error(f"The hook {name}", error))
        if isinstance(error, SystemExit | KeyboardInterrupt):
            raise error


class _HookedQueue(deque[MessageFrame]):
    """A queue that calls the hook for each message taken from it."""

    __slots__ = ("_client", "_runner")

    def __init__(self, runner: HookRunner, client: Reporter) -> None:
        super().__init__()
        self._runner = runner
        self._client = client

    def popleft(self) -> MessageFrame:
        frame = super().popleft()
        if status_of(frame.headers) is None:  # users do not get the server's own
            self._runner.handed_out((MessageView(self._client, frame),))
        return frame


async def _rest(result: Awaitable[Any], stack: ExitStack) -> Any:
    with stack:
        return await result


class _Clock:
    """Around what `measured` is told of; a `@contextmanager` would cost three times."""

    __slots__ = ("_begin", "_kind", "_runner", "_subject")

    def __init__(self, runner: HookRunner, kind: Measured, subject: str = "") -> None:
        self._runner, self._kind, self._subject = runner, kind, subject
        self._begin = perf_counter()

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._runner.ended(self._kind, self._begin, error, self._subject)


def _kind(payload: bytes) -> AckKind:
    if payload.startswith(b"-NAK"):
        return "nak"
    if payload.startswith(b"+TERM"):
        return "term"
    return "in_progress" if payload.startswith(b"+WPI") else "ack"
