"""OpenTelemetry's spans of what a client sends, gets and acknowledges: `connect(hooks=Traces())`.

They follow the conventions for messaging. The context of a sender travels in the headers of the
propagator, by default `traceparent` and `tracestate` of W3C, and is the parent of what is done with
the message: one trace leads from a publisher over streams and services to the last reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry import propagate, trace
from opentelemetry.trace import Span, SpanKind, TracerProvider

from jetspark.client.hooks import Acknowledgement, Hooks
from jetspark.client.messages import MessageView, PreparedMessage
from jetspark.connection.events import Connected, ConnectionEvent, Reconnected
from jetspark.errors import NotJetStreamMessageError
from jetspark.payloads import byte_view
from jetspark.version import __version__
from jetspark.wire.headers import Headers, HeadersLike
from jetspark.wire.kernel import frame_of

_INBOX: Final = "_INBOX."
_SAMPLED: Final = b"-01\r\n", b"-03\r\n"
"""How the header of a sampled trace ends; 2 is the flag of a random id."""


class Traces(Hooks):
    """Spans "send", "receive", "process", and those of acknowledgements.

    `provider`: by default the global one. `template`: what names of spans have of a subject, such
    as "orders.*" of "orders.17", since backends group spans by name.

    What an iterator or `next` gives has a span "receive" in a sampled trace only; that of a `fetch`
    has links to the traces of its messages. Process them in `with traces.process(message):`.
    Acknowledgements have a span inside of another one.
    """

    def __init__(
        self, provider: TracerProvider | None = None, *, template: Callable[[str], str] = str
    ) -> None:
        self._tracer = trace.get_tracer("jetspark", __version__, provider)
        self._template = template
        self._server: dict[str, str | int] = {}

    def publish(self, message: PreparedMessage) -> AbstractContextManager[Any]:
        """See `Hooks.publish`."""
        return self._send(message)

    def request(self, message: PreparedMessage) -> AbstractContextManager[Any]:
        """See `Hooks.request`."""
        return self._send(message)

    def given(self, messages: Sequence[MessageView]) -> Iterable[MessageView]:
        """See `Hooks.given`."""
        if len(messages) == 1:
            return messages if _is_sampled(messages[0]) else ()
        more = {"messaging.batch.message_count": len(messages), **_of_jetstream(messages[0])}
        with self._span("receive", SpanKind.CLIENT, messages[0].metadata.stream, more) as span:
            for message in messages if span.is_recording() else ():
                if _is_sampled(message):
                    sender = propagate.extract(_folded(message.headers or Headers()))
                    span.add_link(trace.get_current_span(sender).get_span_context())
        return ()

    def deliver(self, message: MessageView, *, handled: bool) -> AbstractContextManager[Any]:
        """See `Hooks.deliver`."""
        return self.process(message) if handled else self._got("receive", SpanKind.CLIENT, message)

    def process(self, message: MessageView) -> AbstractContextManager[Any]:
        """The span of processing a message, whose sender's span is its parent."""
        return self._got("process", SpanKind.CONSUMER, message)

    def ack(self, ack: Acknowledgement) -> AbstractContextManager[Any] | None:
        """See `Hooks.ack`."""
        if not trace.get_current_span().is_recording():
            return None
        more = _of_jetstream(ack) | {"messaging.operation.type": "settle"}
        return self._span(ack.kind, SpanKind.CLIENT, ack.metadata.stream, more)

    def event(self, event: ConnectionEvent) -> None:
        """See `Hooks.event`."""
        if isinstance(event, Connected | Reconnected):
            url = urlsplit(event.server)
            self._server = {"server.address": url.hostname or "", "server.port": url.port or 4222}

    def forwarded(self, headers: HeadersLike | None, name: str) -> list[tuple[str, str]] | None:
        """The headers of a row that becomes a message, with a span "process `name`" between both.

        For rows of Spark, in a function for their column `headers`. A row without headers has no
        span.
        """
        if not headers:
            return None
        carried = Headers(headers)
        with self._span("process", SpanKind.CONSUMER, name, {}, carried):
            _inject(carried)
        return list(carried.items())

    @contextmanager
    def _send(self, message: PreparedMessage) -> Iterator[None]:
        with self._span("send", SpanKind.PRODUCER, message.subject, _of_message(message)):
            _inject(message.headers)
            yield

    def _got(
        self, operation: str, kind: SpanKind, message: MessageView
    ) -> AbstractContextManager[Any]:
        more = _of_message(message)
        with suppress(NotJetStreamMessageError):
            more |= _of_jetstream(message)
        return self._span(operation, kind, message.subject, more, message.headers or Headers())

    @contextmanager
    def _span(
        self,
        operation: str,
        kind: SpanKind,
        destination: str,
        more: dict[str, Any],
        sender: Headers | None = None,
    ) -> Iterator[Span]:
        """`sender`: the headers with the parent, if it is not the current span."""
        temporary = destination.startswith(_INBOX)
        place = "(temporary)" if temporary else self._template(destination)
        attributes = {
            "messaging.system": "nats",
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            "messaging.destination.name": destination,
            **({"messaging.destination.temporary": True} if temporary else {}),
            **self._server,
            **more,
        }
        parent = None if sender is None else propagate.extract(_folded(sender))
        with self._tracer.start_as_current_span(
            f"{operation} {place}", parent, kind, attributes
        ) as span:
            try:
                yield span
            except BaseException as error:
                span.set_attribute("error.type", type(error).__qualname__)
                raise


def _is_sampled(message: MessageView) -> bool:
    """By a look that costs little, since most messages are not."""
    block = frame_of(message).headers
    return block is not None and any(end in block for end in _SAMPLED)


def _of_message(message: MessageView | PreparedMessage) -> dict[str, Any]:
    found: dict[str, Any] = {"messaging.message.body.size": byte_view(message.data).nbytes}
    if message.headers and (name := message.headers.get("Nats-Msg-Id")):
        found["messaging.message.id"] = name
    return found


def _of_jetstream(one: MessageView | Acknowledgement) -> dict[str, Any]:
    about = one.metadata
    return {
        "messaging.consumer.group.name": about.consumer,
        "messaging.nats.stream": about.stream,
        "messaging.nats.sequence": about.stream_seq,
    }


def _folded(headers: Headers) -> dict[str, list[str]]:
    """Names in small letters: clients in Go send `Traceparent`."""
    return {name.casefold(): values for name, values in headers.to_dict().items()}


def _inject(headers: Headers) -> None:
    """Replace what a forwarded message has of an older span."""
    fields = propagate.get_global_textmap().fields
    for name in [name for name in headers if name.casefold() in fields]:
        del headers[name]
    propagate.inject(headers)
