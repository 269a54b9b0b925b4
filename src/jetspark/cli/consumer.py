"""`jetspark consumer`: shows a stream's consumers, takes messages from them, and pauses them."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from jetspark.cli import console
from jetspark.cli.app import command, group
from jetspark.cli.flags import JsonLines, JsonOption
from jetspark.cli.formatting import format_duration, format_limit, format_time
from jetspark.cli.listings import show_list, show_result
from jetspark.cli.scopes import NO_SCHEMA, SchemaFlags, codec_of
from jetspark.cli.server_flags import DEFAULT_SERVER, ServerFlags
from jetspark.cli.show_message import show_delivered
from jetspark.cli.start_end import parse_time
from jetspark.documents.consumers import AckPolicy
from jetspark.documents.document import to_wire
from jetspark.errors import ConfigError, ConsumerIsPushError, RequestTimeoutError
from jetspark.options.parsers import parse_duration
from jetspark.timestamps import NANOSECONDS, ns_to_datetime
from jetspark.validation import check_whole

if TYPE_CHECKING:
    from jetspark.documents.consumers import ConsumerConfig, ConsumerInfo, PauseState
    from jetspark.full_client import JetStream
    from jetspark.jetstream.consumers import PullConsumer
    from jetspark.jetstream.message import JsMsg

_Answer = Literal["ack", "nak", "term"]

consumer = group(
    "consumer",
    "jetspark consumer ls ORDERS",
    "jetspark consumer info ORDERS worker --json",
    "jetspark consumer next ORDERS worker --answer ack",
    "jetspark consumer pause ORDERS worker 30m",
)
_COLUMNS: dict[str, Callable[[ConsumerInfo], object]] = {
    "consumer": lambda info: info.name,
    "kind": lambda info: _describe_kind(info.config),
    "delivered": lambda info: f"{info.delivered.stream_seq:,}",
    "acknowledged": lambda info: f"{info.ack_floor.stream_seq:,}",
    "unacked": lambda info: f"{info.num_ack_pending:,}",
    "pending": lambda info: f"{info.num_pending:,}",
    "waiting": lambda info: info.num_waiting,
}


@command(consumer, "jetspark consumer ls ORDERS")
def ls(
    stream: str, /, *, connection: ServerFlags = DEFAULT_SERVER, json: JsonOption = False
) -> None:
    """List the consumers of a stream.

    Args:
        stream: Name of the stream.
    """

    infos = connection.jetstream(lambda js: js.stream(stream).consumers().all(), stream=stream)
    show_list(sorted(infos, key=lambda info: info.name), _COLUMNS, as_json=json)


def _describe_kind(config: ConsumerConfig) -> str:
    """The kind of a consumer as a text: "pull" or "push", with ", ephemeral" if it is that."""
    kind = "push" if config.deliver_subject else "pull"
    return kind if config.durable_name else f"{kind}, ephemeral"


@command(consumer, "jetspark consumer info ORDERS worker --json")
def info(
    stream: str, name: str, /, *, connection: ServerFlags = DEFAULT_SERVER, json: JsonOption = False
) -> None:
    """Show a consumer's configuration and position.

    Args:
        stream: Name of the stream.
        name: Name of the consumer.
    """
    from jetspark.jetstream.consumers import consumer_info

    info = connection.jetstream(
        lambda js: consumer_info(js.api, stream, name), stream=stream, consumer=name
    )
    show_result(_describe_consumer(info), to_wire(info), as_json=json)


def _describe_consumer(info: ConsumerInfo) -> dict[str, object]:
    """The configuration and position of a consumer as `consumer info` prints them, by label."""
    config = info.config
    filters = config.filter_subjects or [config.filter_subject or ">"]
    return {
        "consumer": info.name,
        "stream": info.stream_name,
        "description": config.description,
        "kind": _describe_kind(config),
        "delivers to": config.deliver_subject,
        "queue group": config.deliver_group,
        "subjects": ", ".join(filters),
        "created": format_time(info.created),
        "leader": info.cluster and info.cluster.leader,
        "begins at": config.deliver_policy,
        "acks": f"{config.ack_policy}, within {format_duration(config.ack_wait)}",
        "max deliveries": format_limit(config.max_deliver),
        "delivered": f"sequence {info.delivered.stream_seq:,} of the stream",
        "acknowledged": f"up to sequence {info.ack_floor.stream_seq:,}",
        "unacknowledged": f"{info.num_ack_pending:,}, {info.num_redelivered:,} redelivered",
        "to be delivered": f"{info.num_pending:,}",
        "waiting pulls": info.num_waiting,
        "paused until": config.pause_until and format_time(config.pause_until),
        "priority groups": ", ".join(config.priority_groups or ()),
    }


@command(
    consumer,
    "jetspark consumer next ORDERS worker",
    "jetspark consumer next ORDERS worker --count 10 --answer ack --json",
)
def next(
    stream: str,
    name: str,
    /,
    *,
    count: int = 1,
    answer: _Answer | None = None,
    timeout: float = 5.0,
    group: str | None = None,
    connection: ServerFlags = DEFAULT_SERVER,
    decode: str | None = None,
    schema: SchemaFlags = NO_SCHEMA,
    json: JsonLines = False,
) -> None:
    """Take the next messages from a pull consumer, and show them.

    Each message is acknowledged only after it was printed, and only with --answer. Without that it
    stays unacknowledged, and is delivered again after the consumer's ack wait.

    Args:
        stream: Name of the stream.
        name: Name of the consumer.
        count: Messages to take; fewer within --timeout is an error.
        answer: Answer each message with ack (done), nak (deliver it again now) or term (never
            deliver it again).
        timeout: Seconds to wait for each message.
        group: Priority group, for a consumer that has some.
        decode: Format of the payloads: avro, protobuf, json or cloudevents. They are shown as JSON.
    """
    check_whole("--count", count)
    codec = codec_of(schema, "decode", decode, connection)

    async def take(js: JetStream) -> None:
        """Take, print and answer one message after the other."""
        consumer = await _open_pull_consumer(js, stream, name)
        _check_answer(consumer.cached_info.config, answer)
        for taken in range(count):
            try:
                # One at a time: what is fetched and not printed would count as delivered.
                message = await consumer.next(timeout, group=group)
            except RequestTimeoutError:
                paused = (await consumer.info()).config.pause_until
                reason = f", which is paused until {format_time(paused)}" if paused else ""
                raise RequestTimeoutError(
                    f"{taken} of {count} messages from consumer {name!r}{reason}, within "
                    f"{timeout:g} s."
                ) from None
            show_delivered(message, as_json=json, codec=codec)
            console.finish()  # it raises if nobody has got what was printed
            await _answer(message, answer)

    connection.jetstream(take, stream=stream, consumer=name)


async def _open_pull_consumer(js: JetStream, stream: str, name: str) -> PullConsumer:
    """Open a pull consumer. Raises ConfigError for a push consumer."""
    try:
        return await js.stream(stream).consumer(name)
    except ConsumerIsPushError:
        subject = (await js.stream(stream).push_consumer(name)).cached_info.config.deliver_subject
        raise ConfigError(
            f'Consumer "{name}" is a push consumer, which delivers to {subject}: '
            f"`jetspark sub {subject}` shows its messages."
        ) from None


def _check_answer(config: ConsumerConfig, answer: _Answer | None) -> None:
    """Raise ConfigError for an answer that means nothing to the consumer, or means too much."""
    if answer is None:
        return
    if config.ack_policy == AckPolicy.NONE:
        raise ConfigError(
            "The consumer's ack policy is none: what is delivered counts as acknowledged. Leave "
            "--answer out."
        )
    if config.ack_policy == AckPolicy.ALL:
        raise ConfigError(
            "The consumer's ack policy is all: an answer to one message would be one to all before "
            "it, which were perhaps not printed here. Leave --answer out, or take the messages "
            "with your program."
        )


async def _answer(message: JsMsg, answer: _Answer | None) -> None:
    """Send the answer that the user has chosen; for an ack, wait until the server has it."""
    if answer == "ack":
        await message.ack_sync()
    elif answer == "nak":
        await message.nak()
    elif answer == "term":
        await message.term()


@command(
    consumer,
    "jetspark consumer pause ORDERS worker 30m",
    "jetspark consumer pause ORDERS worker 2027-01-31T06:00:00Z",
)
def pause(
    stream: str,
    name: str,
    until: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    connection: ServerFlags = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Deliver nothing from a consumer until a time (nats-server 2.11).

    Messages wait in the stream. What was delivered before can still be acknowledged.

    Args:
        stream: Name of the stream.
        name: Name of the consumer.
        until: For how long, such as 30m or 2d; or until when, such as 2027-01-31T06:00:00Z.
    """
    moment = _parse_until(until)
    _change_pause(connection, stream, name, moment, as_json=json)


@command(consumer, "jetspark consumer resume ORDERS worker")
def resume(
    stream: str, name: str, /, *, connection: ServerFlags = DEFAULT_SERVER, json: JsonOption = False
) -> None:
    """Deliver again from a consumer that is paused (nats-server 2.11).

    Args:
        stream: Name of the stream.
        name: Name of the consumer.
    """
    _change_pause(connection, stream, name, None, as_json=json)


def _parse_until(text: str) -> datetime:
    """Parse how long to pause, or until when. Raises ConfigError, also for a time in the past."""
    now = time.time_ns()
    try:
        until = parse_time(text) or now + int(parse_duration("", text) * NANOSECONDS)
        moment = ns_to_datetime(until)
    except (ConfigError, OverflowError):
        raise ConfigError(
            f"{text!r} is no time: write how long to pause, such as 30m or 2d, or until when, such "
            "as 2027-01-31T06:00:00Z."
        ) from None
    if until <= now:
        raise ConfigError(
            f"{text!r} has passed: name a later time; `jetspark consumer resume` ends a pause."
        )
    return moment


def _change_pause(
    connection: ServerFlags, stream: str, name: str, until: datetime | None, *, as_json: bool
) -> None:
    """Pause a consumer until a time, or resume it (None), and print the outcome."""

    async def change(js: JetStream) -> PauseState:
        from jetspark.jetstream.consumers import Consumer, consumer_info

        # Its kind, pull or push, does not matter.
        consumer = Consumer(js.api, await consumer_info(js.api, stream, name))
        return await (consumer.resume() if until is None else consumer.pause(until))

    state = connection.jetstream(change, stream=stream, consumer=name)
    outcome = f"paused until {format_time(state.pause_until)}" if state.paused else "not paused"
    show_result(f"Consumer {name} of {stream} is {outcome}.", to_wire(state), as_json=as_json)
