"""Spans of `jetspark.traces`, one by one, in both clients and through Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

import jetspark
from jetspark import Message, blocking
from jetspark.errors import NoRespondersError
from jetspark.traces import Traces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.conftest import Unique

    from jetspark.jetstream.message import JsMsg
    from jetspark.server import NatsServer
    from jetspark.services import Request

pytestmark = pytest.mark.server

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = (f"00-{TRACE}-{SPAN}-{flags}" for flags in ("01", "00"))


class Spans:
    """What is exported: a tracer provider's spans, and what they are children of."""

    def __init__(self, sampler: Any = None) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    @property
    def all(self) -> list[ReadableSpan]:
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def lines(self, told: str) -> list[str]:
        """ "name < parent" of each span, in the order of their starts, without the name `told`."""
        names = {span.context.span_id: span.name for span in self.all}
        parents = (names.get(one.parent.span_id, "?") if one.parent else "-" for one in self.all)
        lines = (f"{one.name} < {up}" for one, up in zip(self.all, parents, strict=True))
        return [line.replace(told, "S") for line in lines]

    def attributes(self, name: str) -> dict[str, Any]:
        [found] = [dict(one.attributes or {}) for one in self.all if one.name == name]
        return found


@pytest.fixture
def spans() -> Iterator[Spans]:
    spans = Spans()
    yield spans
    spans.provider.shutdown()


def traceparent(message: Any) -> list[str]:
    return message.headers.values("traceparent") if message.headers else []


# -- one trace -------------------------------------------------------------------------------------


async def test_one_trace_leads_from_the_publisher_over_stream_and_consumer_to_the_reply(
    shared_server: NatsServer, stream: str, spans: Spans
) -> None:
    traces, done = Traces(spans.provider), asyncio.Event()
    url, price = shared_server.url, f"{stream}_price"
    async with (
        jetspark.connect(url, hooks=traces) as publisher,
        jetspark.connect(url, hooks=traces) as consumer,
        jetspark.connect(url, hooks=traces) as seller,
        await seller.add_service("prices", "1.0.0") as service,
    ):

        @service.endpoint("price", subject=price)
        async def answer(request: Request) -> None:
            await request.respond(b"42")

        async def bill(message: JsMsg) -> None:
            assert (await consumer.request(price, message.data)).data == b"42"
            await message.ack_sync()
            done.set()

        await seller.flush()
        js = consumer.jetstream()
        pull = await js.stream(stream).create_consumer(durable_name="billing")
        async with pull.consume(callback=bill):
            with spans.tracer.start_as_current_span("checkout"):
                await publisher.jetstream().publish(f"{stream}.eu", b"apples", msg_id="m-1")
            await asyncio.wait_for(done.wait(), 20)
    assert spans.lines(stream) == [
        *("checkout < -", "send S.eu < checkout", "process S.eu < send S.eu"),
        *("send S_price < process S.eu", "process S_price < send S_price"),
        *("send (temporary) < process S_price", "ack_sync S < process S.eu"),
    ]
    assert len({span.context.trace_id for span in spans.all}) == 1
    assert {span.status.status_code for span in spans.all} == {trace.StatusCode.UNSET}
    kinds = [span.kind.name for span in spans.all[1:]]
    assert kinds == ["PRODUCER", "CONSUMER", "PRODUCER", "CONSUMER", "PRODUCER", "CLIENT"]
    sent = {
        "messaging.system": "nats",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": f"{stream}.eu",
        "messaging.message.id": "m-1",
        "messaging.message.body.size": 6,
    }
    assert spans.attributes(f"send {stream}.eu") == sent
    stored = {
        "messaging.consumer.group.name": "billing",
        "messaging.nats.stream": stream,
        "messaging.nats.sequence": 1,
    }
    process = {"messaging.operation.name": "process", "messaging.operation.type": "process"}
    assert spans.attributes(f"process {stream}.eu") == sent | process | stored
    settle = {"messaging.operation.name": "ack_sync", "messaging.operation.type": "settle"}
    assert spans.attributes(f"ack_sync {stream}") == {
        "messaging.system": "nats",
        "messaging.destination.name": stream,
        **(settle | stored),
    }
    assert spans.attributes("send (temporary)")["messaging.destination.temporary"] is True


def test_blocking_what_is_fetched_is_processed_in_its_trace(
    shared_server: NatsServer, unique: Unique, spans: Spans
) -> None:
    stream, traces = unique("S"), Traces(spans.provider)
    with blocking.connect(shared_server.url, hooks=traces) as nc:
        js = nc.jetstream()
        js.create_stream(name=stream, subjects=[f"{stream}.>"], storage="memory")
        pull = js.stream(stream).create_consumer(durable_name="billing")
        nc.subscribe(f"{stream}_price", callback=lambda message: message.respond(b"42"))
        with js.publisher() as publisher:
            publisher.publish(f"{stream}.eu", b"apples")
        [message] = pull.fetch(1, timeout=20)
        with traces.process(message):
            nc.request(f"{stream}_price", timeout=20)
            message.in_progress()
        message.ack()  # belongs to no trace
        nc.barrier()
        js.delete_stream(stream)
    assert spans.lines(stream) == [
        *("send S.eu < -", "receive S.eu < send S.eu", "process S.eu < send S.eu"),
        *("send S_price < process S.eu", "process S_price < send S_price"),
        *("send (temporary) < process S_price", "in_progress S < process S.eu"),
    ]
    assert len({span.context.trace_id for span in spans.all}) == 1


async def test_what_is_sent_again_has_the_context_of_its_last_sender_alone(
    shared_server: NatsServer, unique: Unique, spans: Spans
) -> None:
    first, second = unique("first"), unique("second")
    async with jetspark.connect(shared_server.url, hooks=Traces(spans.provider)) as nc:
        sub = nc.subscribe(second)

        async def forward(message: Message) -> None:
            await nc.publish(second, message.data, headers=message.headers)

        nc.subscribe(first, callback=forward)
        # As clients in Go write it.
        async with jetspark.connect(shared_server.url) as other:
            await nc.flush()
            await other.publish(first, headers={"Traceparent": SAMPLED, "Tracestate": "a=b"})
        message = await sub.next(20)
    assert message.headers is not None
    assert list(message.headers) == ["traceparent", "tracestate"]
    sender = spans.all[1].context
    assert traceparent(message) == [f"00-{TRACE}-{sender.span_id:016x}-01"]
    assert spans.all[0].parent is not None
    assert f"{spans.all[0].parent.span_id:016x}" == SPAN


# -- sampling --------------------------------------------------------------------------------------


async def test_what_is_given_has_a_span_in_sampled_traces_only(
    shared_server: NatsServer, stream: str, spans: Spans
) -> None:
    async with (
        jetspark.connect(shared_server.url, hooks=Traces(spans.provider)) as nc,
        jetspark.connect(shared_server.url) as other,
    ):
        js, sub = nc.jetstream(), nc.subscribe(f"{stream}.>")
        pull = await js.stream(stream).create_consumer()
        await nc.flush()
        for value in (SAMPLED, UNSAMPLED, SAMPLED[:-2] + "03", None, "no trace-01"):
            headers = {} if value is None else {"traceparent": value}
            await other.jetstream().publish(f"{stream}.eu", headers=headers)
        assert len([await sub.next(20) for _ in range(5)]) == 5
        assert len(await pull.fetch(5, timeout=20)) == 5
    *given, fetched = spans.all
    parents = [span.parent and f"{span.parent.span_id:016x}" for span in given]
    assert parents == [SPAN, SPAN, None]  # the last one only ends like a sampled one
    assert {span.name for span in given} == {f"receive {stream}.eu"}
    assert (fetched.name, fetched.parent) == (f"receive {stream}", None)
    linked = [f"{link.context.trace_id:032x} {link.context.span_id:016x}" for link in fetched.links]
    assert linked == [f"{TRACE} {SPAN}"] * 2
    assert spans.attributes(fetched.name)["messaging.batch.message_count"] == 5


async def test_a_trace_that_is_not_sampled_goes_on_without_spans(
    shared_server: NatsServer, unique: Unique
) -> None:
    spans, first, second = Spans(ParentBased(ALWAYS_OFF)), unique("first"), unique("second")
    async with jetspark.connect(shared_server.url, hooks=Traces(spans.provider)) as nc:
        sub = nc.subscribe(second)
        nc.subscribe(first, callback=lambda _: nc.publish(second))
        async with jetspark.connect(shared_server.url) as other:
            await nc.flush()
            await other.publish(first, headers={"traceparent": UNSAMPLED})
        [context] = traceparent(await sub.next(20))
    assert context.startswith(f"00-{TRACE}-")
    assert context.endswith("-00")
    assert spans.all == []


# -- names and errors ------------------------------------------------------------------------------


async def test_an_error_is_in_its_span(shared_server: NatsServer, spans: Spans) -> None:
    async with jetspark.connect(shared_server.url, hooks=Traces(spans.provider)) as nc:
        with pytest.raises(NoRespondersError):
            await nc.request("nobody.is.there")
    [span] = spans.all
    assert span.status.status_code is trace.StatusCode.ERROR
    assert spans.attributes(span.name)["error.type"] == "NoRespondersError"


async def test_names_of_spans_have_a_template(shared_server: NatsServer, spans: Spans) -> None:
    traces = Traces(spans.provider, template=lambda subject: f"{subject.partition('.')[0]}.*")
    async with jetspark.connect(shared_server.url, hooks=traces) as nc:
        await nc.publish("orders.17")
    assert spans.attributes("send orders.*")["messaging.destination.name"] == "orders.17"


# -- Spark -----------------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_trace_leads_through_spark_into_a_second_stream(
    spark: SparkSession, shared_server: NatsServer, unique: Unique, spans: Spans
) -> None:
    first, second, url = unique("FIRST"), unique("SECOND"), shared_server.url
    traces = Traces(spans.provider)
    with blocking.connect(url, hooks=traces) as nc, blocking.connect(url) as other:
        js = nc.jetstream()
        for name in (first, second):
            js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
        js.publish(f"{first}.eu", b"traced")
        other.jetstream().publish(f"{first}.eu", b"plain")
        options = {"servers": url, "stream": first, "startingOffsets": "earliest"}
        rows = spark.read.format("jetstream").options(**options).load()
        rows = rows.selectExpr(f"'{second}.eu' AS subject", "data", "headers")
        target = {"servers": url, "stream": second}
        rows.write.format("jetstream").options(**target).mode("append").save()
        pull = js.stream(second).create_consumer()
        for _ in range(2):
            with traces.process(pull.next(timeout=20)):
                pass
        for name in (first, second):
            js.delete_stream(name)
    lines = [line.replace(second, "T") for line in spans.lines(first)]
    assert sorted(lines) == [
        "process T.eu < -",
        "process T.eu < send S.eu",
        "receive T.eu < send S.eu",
        "send S.eu < -",
    ]
    assert len({span.context.trace_id for span in spans.all}) == 2
