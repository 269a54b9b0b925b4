"""The option `progressConsumer` shows a query's progress to NATS tools.

Each stream gets a durable pull consumer of that name, which stands after the last message of the
finished batches, so that tools and exporters show the unread messages as unprocessed. Nobody reads
through it, and nothing depends on it: if it cannot be moved, a warning is logged, and the move is
tried again a minute later. It stays when the query ends.

A query that finds its consumer moved back leaves it to the other query that must have moved it,
and is behind.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import jetspark.errors as errors
from jetspark.links.link_pool import pool
from jetspark.links.standing_consumer import StandingConsumer
from jetspark.links.stream_api import StreamAPI
from jetspark.spark.source.offsets import StreamOffset
from jetspark.spark.source.options import SourceOptions

logger = logging.getLogger("jetspark.spark")


DESCRIPTION = "jetspark: shows where a Spark query is; nobody reads from it"

_CALL_TIMEOUT = 2.0  # it is only displayed, and must not delay a query
_RETRY_SECONDS = 60.0


@dataclass
class ProgressConsumer:
    """Shows a query's progress to NATS tools, by a durable consumer in each stream.

    Nobody reads through these consumers; the driver moves them after the last message read.
    """

    options: SourceOptions
    name: str
    _shown: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By stream, the creation time and the next sequence that its consumer shows."""
    _not_before: float = -math.inf
    """The time before which the consumers are not moved, on the monotonic clock."""

    def show(self, offsets: Mapping[str, StreamOffset]) -> None:
        """Move the consumers to the query's position, by stream.

        A JetsparkError or OSError is only logged, and the next try is a minute later.
        """
        moved = {
            stream: offset
            for stream, offset in offsets.items()
            if self._shown.get(stream) != (offset.created, offset.next)
        }
        if not moved or time.monotonic() < self._not_before:
            return
        try:
            with pool.link(self.options.connection) as link:
                api = StreamAPI(link, timeout=_CALL_TIMEOUT)
                for stream, offset in moved.items():
                    self._move(api, stream, offset.next)
                    self._shown[stream] = (offset.created, offset.next)
        except (errors.JetsparkError, OSError) as error:
            self._not_before = time.monotonic() + _RETRY_SECONDS
            logger.warning("The progress consumer %s was not moved: %s", self.name, error)

    def _move(self, api: StreamAPI, stream: str, sequence: int) -> None:
        """Make a stream's consumer stand before a sequence, so that it shows what is unprocessed.

        If another query has moved it back, this query gives up all its consumers, with a warning.
        """
        consumer = StandingConsumer(
            api, stream, self.name, option="progress_consumer", description=DESCRIPTION
        )
        position = consumer.position()
        _, shown_sequence = self._shown.get(stream, ("", 0))
        if position is not None and position < shown_sequence:
            self._not_before = math.inf  # no more moves
            logger.warning(
                "The progress consumer %s shows another query, which is behind this one. For each "
                "to be shown, give each query a progress consumer of its own.",
                self.name,
            )
        elif position is None:
            consumer.create(sequence, self.options.subjects)
        # A reset moves the consumer. But it is created again the first time, since an earlier run
        # may have had other subjects; to move it back, since the server refuses a reset to before
        # its start; and by servers before 2.14, which have no reset.
        elif stream in self._shown and position <= sequence and api.link.info.at_least(2, 14):
            consumer.reset(sequence)
        else:
            consumer.delete()
            consumer.create(sequence, self.options.subjects)
