"""Reading streams with retention `interest`: option `interestConsumer`.

Such a stream keeps a message until all its consumers have acknowledged it, and stores none while it
has no consumer. So the query has a durable consumer in each stream, positioned before the first
message that Spark's checkpoint does not cover. All messages from there on stay stored, and are read
by direct gets, which acknowledge nothing. When a batch is committed the consumer is moved, and the
server removes the messages that no other consumer needs. The consumer has no filter, whatever
subjects the query selects: if first messages are missing, they were lost, and that is reported.

A query that is abandoned leaves its consumer behind, and the stream grows: delete the consumer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from jetspark.bulk.facts import StreamFacts
from jetspark.bulk.losses import Loss, left_out
from jetspark.bulk.standing_consumer import StandingConsumer
from jetspark.bulk.stream_api import StreamAPI
from jetspark.errors import ConfigError, DataLossError, RequestTimeoutError
from jetspark.spark.offsets import StreamOffset

logger = logging.getLogger("jetspark.spark")

DESCRIPTION = "jetspark: keeps messages for a Spark query until they are in its checkpoint"


def hold(
    api: StreamAPI,
    name: str,
    facts: Mapping[str, StreamFacts],
    offsets: Mapping[str, StreamOffset],
    *,
    fail_on_data_loss: bool,
    made: set[str],
) -> None:
    """Make sure that each stream has its consumer, at the position that the query needs.

    `made`: gets the streams in which one was missing. Raises DataLossError when a consumer is gone,
    or has moved past messages that were not read; ConfigError for a consumer of another purpose,
    or a stream that would remove ours; and as `StreamAPI.call`.
    """
    for stream, one in facts.items():
        consumer = _consumer(api, stream, name)
        position, offset = consumer.position(), offsets.get(stream)
        lost = None
        # In a stream that is new, or was recreated, nothing can have been missed.
        if offset is not None and not offset.initial and offset.created == one.created:
            lost = _loss(stream, name, position, offset)
        if lost is not None and fail_on_data_loss:
            raise DataLossError(
                stream,
                offset.next if offset else 1,
                one.last_seq,
                f"{lost} Set failOnDataLoss to false to go on with what there is.",
            )
        if lost is not None:
            left_out(logger, lost, Loss(stream, lost))
        if position is None:
            _check_lasting(one)
            consumer.make()
            made.add(stream)


def release(api: StreamAPI, stream: str, name: str, sequence: int) -> None:
    """Release all messages before a sequence, which the checkpoint covers. Raises as
    `StreamAPI.call`."""
    consumer = _consumer(api, stream, name)
    try:
        if consumer.position() is not None:  # `hold` reports one that is gone
            consumer.reset(sequence)
    except (
        RequestTimeoutError
    ) as error:  # e.g. a leader election: the next batch releases this, too
        logger.warning("Stream %s keeps its messages a batch longer: %s", stream, error)


def _consumer(api: StreamAPI, stream: str, name: str) -> StandingConsumer:
    return StandingConsumer(api, stream, name, option="interestConsumer", description=DESCRIPTION)


def _loss(stream: str, name: str, position: int | None, offset: StreamOffset) -> str | None:
    if position is None:
        return (
            f"The consumer {name!r}, which kept messages of stream {stream!r} for this query, is "
            f"gone: messages from sequence {offset.next} on may have been removed unread."
        )
    if position > offset.next:
        return (
            f"The consumer {name!r} of stream {stream!r} stands before sequence {position}, but "
            f"the query has read only up to {offset.next - 1}: what lies between may have been "
            "removed unread."
        )
    return None


def _check_lasting(facts: StreamFacts) -> None:
    if facts.longest_inactive is not None:
        raise ConfigError(
            f"Stream {facts.name!r} removes consumers that are idle for "
            f"{facts.longest_inactive:g} s (consumer_limits), so none can keep messages for a "
            "query that is not running."
        )
