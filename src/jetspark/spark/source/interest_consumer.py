"""The option `interestConsumer`: a durable consumer that keeps messages of a stream for a query.

A stream with retention `interest` keeps a message until all its consumers have acknowledged it, and
stores none while it has no consumer. So the query has a durable consumer there, with the option's
name, positioned before the first message that Spark's checkpoint does not cover. All messages from
there on stay stored, and are read by direct gets, which acknowledge nothing. When a batch is
committed the consumer moves, and the server removes messages that no other consumer needs.

The consumer has no filter, whatever subjects the query selects, so missing first messages were
lost, and that is reported. So messages under other subjects go unread, and another choice of
subjects later is refused. The first start of the query creates the consumer, so a new query begins
at its position, where a failed start may have left it. A query that has begun elsewhere does not
take over such a consumer, for it would release messages that nobody has read. So its checkpoint has
the consumer's name, and with another one it is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from msgspec.structs import replace

from jetspark.errors import ConfigError, RequestTimeoutError, named
from jetspark.links.leaders import linearizable_read
from jetspark.links.standing_consumer import StandingConsumer
from jetspark.links.stream_api import StreamAPI
from jetspark.links.stream_facts import StreamFacts
from jetspark.ranges.fixed_range import head
from jetspark.ranges.losses import CONTINUE_ADVICE, Loss, raise_or_report
from jetspark.spark.source.offsets import StreamOffset
from jetspark.spark.source.options import SourceOptions

logger = logging.getLogger("jetspark.spark")

DESCRIPTION = "jetspark: keeps messages for a Spark query until they are in its checkpoint"


def start_at_consumers(
    api: StreamAPI, name: str, offsets: Mapping[str, StreamOffset], created: set[str]
) -> dict[str, StreamOffset]:
    """Ensure that each stream has the consumer `name`, which keeps messages for a new query, and
    return the offsets at which the query begins.

    It begins where an existing consumer stands, or else at the given offset, where a consumer is
    created. `created`: a set to which the streams are added whose consumer was missing, and which
    the caller keeps when it repeats the call after an error. Raises ConfigError for a consumer of
    another purpose, and the errors of `StreamAPI.call`.
    """
    starts = {}
    for stream, offset in offsets.items():
        consumer = _consumer(api, stream, name)
        position = consumer.position()
        if position is None:
            created.add(stream)
            # None: from the first message on.
            consumer.create(sequence=None if offset.earliest else offset.next)
            # Whether the query has a checkpoint that outlives it is not said to a Python source.
            logger.warning(
                "The consumer %s of stream %s keeps messages for this query from now on, also "
                "while it does not run. A query that has no checkpoint, or is given up, leaves it "
                "behind: delete it then (nats consumer rm %s %s).",
                *(name, stream, stream, name),
            )
            position = consumer.position() or offset.next
        # What came before the new consumer may not be stored, so it begins at what is.
        if stream in created:
            position = max(position, head(api.stream(stream)))
        starts[stream] = replace(offset, next=position, start=position)
    return starts


def ensure_consumers(
    api: StreamAPI,
    name: str,
    facts: Mapping[str, StreamFacts],
    offsets: Mapping[str, StreamOffset],
    *,
    fail_on_data_loss: bool,
    created: set[str],
) -> None:
    """Ensure that each stream has the consumer `name`, which keeps the messages that a running
    query has not read yet.

    `facts`, `offsets`: of the streams, and the query's position in them. `created`: a set to which
    the streams are added whose consumer was missing. A consumer that is gone, or has moved past
    unread messages, raises DataLossError with `fail_on_data_loss`, and else is logged. Also raises
    the errors of `start_at_consumers`.
    """
    for stream, stream_facts in facts.items():
        consumer = _consumer(api, stream, name)
        position, offset = consumer.position(), offsets.get(stream)
        # In a stream that is new, or was recreated, nothing can have been missed.
        if offset is not None and not offset.initial and offset.created == stream_facts.created:
            _check_position(
                stream,
                name,
                position,
                offset.next,
                stream_facts.last_seq,
                fail_on_data_loss=fail_on_data_loss,
            )
        if position is None:
            created.add(stream)
            if offset is not None and offset.created == stream_facts.created:
                consumer.create(sequence=offset.start)  # so that nothing more is lost
            else:
                consumer.create()  # from the first message on, as the query reads a new stream


def check_kept(api: StreamAPI, options: SourceOptions, stream: str, first: int, last: int) -> None:
    """Raise DataLossError, or with `failOnDataLoss=false` log, that a query's consumer has not kept
    the messages from `first` on, which the query will read now.

    `last`: the last sequence that the stream is known to have. Also raises ConfigError for a
    consumer of another purpose, and the errors of `StreamAPI.call`.
    """
    name, fail = str(options.interest_consumer), options.fail_on_data_loss
    position = _consumer(api, stream, name).position()
    _check_position(stream, name, position, first, last, fail_on_data_loss=fail)


def check_nothing_skipped(api: StreamAPI, options: SourceOptions, stream: str, start: int) -> None:
    """Raise ConfigError if a query's consumer keeps messages from before the sequence at which the
    query began, which it would release unread.

    So it is if another query's failed start has left the consumer. Only the query's subjects count.
    Also raises the errors of `linearizable_read`.
    """
    name = str(options.interest_consumer)
    position = _consumer(api, stream, name).position()
    if position is None or position >= start:
        return
    waiting = linearizable_read(
        api, [stream], lambda api: api.next_sequence(stream, position, options.subjects)
    )
    if waiting is not None and waiting < start:
        raise ConfigError(
            f"The consumer {name!r} of stream {stream!r} keeps messages from sequence {waiting} on "
            f"for a query that has not read them. This query began at {start}, and would remove "
            f"those before unread: give it the {named('interest_consumer')} that it had before, or "
            "begin a new query, with a new checkpoint, which reads all that the consumer keeps."
        )


def release_messages(api: StreamAPI, stream: str, name: str, sequence: int) -> None:
    """Move the consumer `name`, which keeps messages for a query, to a sequence, so that the server
    may remove what is before it, since the query's checkpoint covers that.

    Raises the errors of `StreamAPI.call`, but only logs a timeout.
    """
    consumer = _consumer(api, stream, name)
    try:
        if consumer.position() is not None:  # `ensure_consumers` reports a missing consumer
            consumer.reset(sequence)
    except RequestTimeoutError as error:  # as in an election; the next batch releases these, too
        logger.warning("Stream %s keeps its messages a batch longer: %s", stream, error)


def _consumer(api: StreamAPI, stream: str, name: str) -> StandingConsumer:
    """The query's durable consumer in a stream, which need not exist."""
    return StandingConsumer(api, stream, name, option="interest_consumer", description=DESCRIPTION)


def _check_position(
    stream: str, name: str, position: int | None, first: int, last: int, *, fail_on_data_loss: bool
) -> None:
    """Raise DataLossError, or report, that the consumer `name` has not kept all messages from the
    sequence `first` on, which its query has not read.

    `position`: the sequence that the consumer would deliver next; None if the consumer is gone.
    `last`: the last sequence that the stream is known to have.
    """
    if position is None:
        problem = (
            f"The consumer {name!r}, which kept messages of stream {stream!r} for this query, is "
            f"gone: messages from sequence {first} on may have been removed unread."
        )
    elif position > first:
        problem = (
            f"The consumer {name!r} of stream {stream!r} stands before sequence {position}, but "
            f"the query has read only up to {first - 1}: what lies between may have been "
            "removed unread, or by this query itself, if its checkpoint is an older copy."
        )
    else:
        return
    loss = Loss(stream, problem)
    raise_or_report(logger, loss, first, last, fail=fail_on_data_loss, advice=CONTINUE_ADVICE)
