"""OpenTelemetry's spans of what a client sends, gets and acknowledges: `connect(hooks=Traces())`.

They follow the conventions for messaging. The context of a sender travels in the headers of the
propagator, by default `traceparent` and `tracestate` of W3C, and is the parent of what is done with
the message: one trace leads from a publisher over streams and services to the last reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, TracerProvider

from jetspark.client.hooks import Acknowledgement, Around, Hooks
from jetspark.client.messages import MessageView, PreparedMessage
from jetspark.errors import NotJetStreamMessageError
from jetspark.payload_bytes import byte_view
from jetspark.version import __version__
from jetspark.wire.headers import Headers
from jetspark.wire.kernel import frame_of


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

    @contextmanager
    def publish(self, message: PreparedMessage) -> Iterator[None]:
        """See `Hooks.publish`."""
        with self._span("send", SpanKind.PRODUCER, message.subject, _of_message(message)):
            _inject(message.headers)
            yield

    request = publish

    def given(self, messages: Sequence[MessageView]) -> Iterable[MessageView]:
        """See `Hooks.given`."""
        if len(messages) == 1:
            return messages if _is_sampled(messages[0]) else ()
        more = {"messaging.batch.message_count": len(messages), **_of_jetstream(messages[0])}
        with self._span("receive", SpanKind.CLIENT, messages[0].metadata.stream, more) as span:
            for message in filter(_is_sampled, messages if span.is_recording() else ()):
                sender = trace.get_current_span(_context(message.headers))
                span.add_link(sender.get_span_context())
        return ()

    def deliver(self, message: MessageView, *, handled: bool) -> Around:
        """See `Hooks.deliver`."""
        return self.process(message, "process" if handled else "receive")

    def process(self, message: MessageView, name: str = "process") -> AbstractContextManager[Any]:
        """The span of processing a message, whose sender's span is its parent."""
        more = _of_message(message)
        with suppress(NotJetStreamMessageError):
            more |= _of_jetstream(message)
        kind = SpanKind.CONSUMER if name == "process" else SpanKind.CLIENT
        return self._span(name, kind, message.subject, more, _context(message.headers))

    def ack(self, ack: Acknowledgement) -> Around:
        """See `Hooks.ack`."""
        if not trace.get_current_span().is_recording():
            return None
        more = _of_jetstream(ack) | {"messaging.operation.type": "settle"}
        return self._span(ack.kind, SpanKind.CLIENT, ack.metadata.stream, more)

    @contextmanager
    def _span(
        self, name: str, kind: SpanKind, at: str, more: Any, parent: Context | None = None
    ) -> Iterator[Span]:
        """`at`: a subject, or a stream. `parent`: by default that of the current span."""
        temporary = at.startswith("_INBOX.")
        attributes = {
            "messaging.system": "nats",
            "messaging.operation.name": name,
            "messaging.operation.type": name,
            "messaging.destination.name": at,
            **({"messaging.destination.temporary": True} if temporary else {}),
            **more,
        }
        name = f"{name} {'(temporary)' if temporary else self._template(at)}"
        with self._tracer.start_as_current_span(name, parent, kind, attributes) as span:
            try:
                yield span
            except BaseException as error:
                span.set_attribute("error.type", type(error).__qualname__)
                raise


def _is_sampled(message: MessageView) -> bool:
    """Whether the sender sampled the message; 2 is the flag of a random id.

    Only a search in the header block, since most messages are not sampled.
    """
    block = frame_of(message).headers
    return block is not None and (b"-01\r\n" in block or b"-03\r\n" in block)


def _of_message(message: MessageView | PreparedMessage) -> dict[str, Any]:
    attributes: dict[str, Any] = {"messaging.message.body.size": byte_view(message.data).nbytes}
    if message.headers and (name := message.headers.get("Nats-Msg-Id")):
        attributes["messaging.message.id"] = name
    return attributes


def _of_jetstream(message: MessageView | Acknowledgement) -> dict[str, Any]:
    return {
        "messaging.consumer.group.name": message.metadata.consumer,
        "messaging.nats.stream": message.metadata.stream,
        "messaging.nats.sequence": message.metadata.stream_seq,
    }


def _context(headers: Headers | None) -> Context:
    """The sender's. Names in small letters: clients in Go send `Traceparent`."""
    values_by_name = {} if headers is None else headers.to_dict()
    return propagate.extract({name.casefold(): values for name, values in values_by_name.items()})


def _inject(headers: Headers) -> None:
    """Replace what a forwarded message has of an older span."""
    for name in list(headers):
        if name.casefold() in propagate.get_global_textmap().fields:
            del headers[name]
    propagate.inject(headers)
