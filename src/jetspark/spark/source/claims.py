"""Streams from which a query removes what it has read: `soleReader`, `interestConsumer`, `trim`.

What such a query has in its checkpoint is gone for everybody else. So it must be the only query
that reads the stream for its purpose, and has a *claim* there: a paused durable consumer with the
query's token, which delivers nothing. The token is random and part of every offset. Spark logs an
offset before it asks for the partitions of the batch; then the query creates its claim, and only
then it reads. So after a crash at any moment the query knows its claim. The server creates only one
consumer of a name, so one of two queries is refused before it reads.

A work queue: the claim has no filter, and a work queue accepts no other consumer beside it.
Removing what was read would also remove messages before the query's start, so a start after waiting
messages is refused, as is another choice of subjects later.

A stream by limits (`trim`): the same, but it may have other consumers, for which `trimming` looks.

In a stream by interest, which `interest_consumer` explains, the claim has a filter that no message
matches, so it keeps none. It is created only if the consumer that keeps messages fits the query's
checkpoint: all that was not read is kept, and nothing from before the start.

A query that is abandoned leaves its consumers behind: delete them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import jetspark.err_codes as err_codes
from jetspark.errors import APIError, ConfigError, named
from jetspark.links.leaders import linearizable_read
from jetspark.links.stream_api import StreamAPI
from jetspark.links.stream_facts import StreamFacts
from jetspark.ranges.losses import CONTINUE_ADVICE, Loss, raise_or_report
from jetspark.spark.source import interest_consumer, planning
from jetspark.spark.source.offsets import StreamOffset
from jetspark.spark.source.options import SourceOptions

logger = logging.getLogger("jetspark.spark")

SOLE_READER = "jetspark-sole-reader"
"""The claim in a work queue."""
TRIMMER = "jetspark-trim"
"""The claim in a stream with retention limits, from which a query removes what it has."""
_CLAIM_DESCRIPTION = (
    "jetspark: the claim of the Spark query that reads this stream; nobody reads from it"
)
_TOKEN_KEY, _SUBJECTS_KEY = "jetspark-query", "jetspark-subjects"
_FILTER_OF_NO_MESSAGE = "_jetspark.claim"
_PAUSED_UNTIL = "2200-01-01T00:00:00Z"
_NAME_TAKEN_ERRORS = {
    err_codes.CONSUMER_ALREADY_EXISTS,
    err_codes.CONSUMER_NAME_EXIST,
    err_codes.CONSUMER_WQ_CONSUMER_NOT_UNIQUE,
    err_codes.CONSUMER_WQ_MULTIPLE_UNFILTERED,
}


class QueryClaims:
    """The claims of one query in its streams, which keep other queries from reading them.

    A claim is a paused durable consumer that has the query's token, a random text, and that
    delivers nothing. It is needed where a query removes what it has read.

    Every method raises ConfigError for another query's claim, or this one's with other subjects,
    DataLossError if the claim in a work queue is gone, and the errors of `StreamAPI.call`. Those
    that say so also raise ConfigError for a claim by which the query would remove messages unread.
    """

    def __init__(self, api: StreamAPI, options: SourceOptions, token: str | None = None) -> None:
        """Check and create the claims with which one query keeps others from its streams.

        `token`: the random text by which the query knows its claims; None if it is new, or its
        checkpoint is from before tokens.
        """
        self._api, self._options, self._token = api, options, token
        interest = options.interest_consumer
        self._name = TRIMMER if options.trim else SOLE_READER
        if interest is not None:
            self._name = f"{interest}-claim"

    @property
    def _purges(self) -> bool:
        """Whether removing what was read also removes what lies before the query's start."""
        return self._options.interest_consumer is None

    def check(
        self, facts: Mapping[str, StreamFacts], offsets: Mapping[str, StreamOffset] | None = None
    ) -> None:
        """Raise if another query has claimed one of the streams, or this query has lost its claim.

        `offsets`: the query's position; None for a batch read. In a stream without a claim it also
        raises as `check_nothing_skipped`: in a work queue if the query has not begun, and by
        interest if it has, since it begins where its consumer stands.
        """
        for stream, stream_facts in facts.items():
            offset = (offsets or {}).get(stream)
            claimed_at = _offset_of_claim(stream_facts, self._token, offset)
            claimed = self._check_claim(stream, claimed_at)
            if claimed or offset is None:
                continue
            if offset.initial and self._purges:
                check_nothing_skipped(self._api, self._options, stream, offset.next)
            elif claimed_at is not None and self._options.interest_consumer is not None:
                interest_consumer.check_nothing_skipped(
                    self._api, self._options, stream, claimed_at.start
                )

    def create(
        self,
        facts: Mapping[str, StreamFacts],
        start: Mapping[str, StreamOffset],
        end: Mapping[str, StreamOffset],
        *,
        start_token: str | None,
    ) -> None:
        """Claim the streams of a batch that this query has not claimed, before any is read.

        `start`, `end`: the offsets of the batch; `start_token`: the token in the start, None if the
        query had none yet. Raises the errors of `check`, and by interest DataLossError if the
        consumer has not kept the batch.
        """
        for stream, stream_facts in facts.items():
            offset = end.get(stream)
            if offset is None or offset.missing or offset.created != stream_facts.created:
                continue  # nothing is read of it, or the read raises the error
            claimed_at = _offset_of_claim(stream_facts, start_token, start.get(stream))
            if not self._check_claim(stream, claimed_at) and self._token is not None:
                if self._purges:
                    check_nothing_skipped(self._api, self._options, stream, offset.start)
                else:
                    first = planning.plan_range(stream, start.get(stream), offset, ()).start
                    interest_consumer.check_kept(
                        self._api, self._options, stream, first, offset.last_known
                    )
                    interest_consumer.check_nothing_skipped(
                        self._api, self._options, stream, offset.start
                    )
                self._create(stream, self._token)

    def has_claim(self, stream: str) -> bool:
        """Whether this query has its claim in a stream; raises for another query's claim."""
        return self._token is not None and self._check_claim(stream, None)

    def _check_claim(self, stream: str, claimed_at: StreamOffset | None) -> bool:
        """Whether this query has its claim in a stream; raises for another query's claim, or this
        one's with other subjects.

        `claimed_at`: the query's offset, if it has claimed the stream before, so that a missing
        claim is a loss; else None.
        """
        name, options = self._name, self._options
        # A server may not know of a claim yet, so for one that must be there it is asked again. For
        # a new query that is not needed: of several, only the first to create the claim has it.
        retries = {} if claimed_at else {"not_found_for": 0.0}
        info = self._api.consumer(stream, name, **retries)
        if info is None:
            if claimed_at is not None and options.sole_reader:
                report_lost_claim(options, stream, claimed_at)
            return False
        metadata: dict[str, str] = info["config"].get("metadata") or {}
        if self._token is None or metadata.get(_TOKEN_KEY) != self._token:
            raise ConfigError(self._other_query_message(stream))
        old_subjects, new_subjects = metadata.get(_SUBJECTS_KEY, ""), _subjects_text(options)
        if old_subjects != new_subjects:
            consequence = (
                f"with {_subjects_in_words(new_subjects)} it would remove unread messages"
                if self._purges
                else f"what has come under others was not kept for it, so with "
                f"{_subjects_in_words(new_subjects)} it would leave out messages"
            )
            raise ConfigError(
                f"The query has read the stream {stream!r} with {_subjects_in_words(old_subjects)} "
                f"until now, and {consequence}: give the same {named('subjects')} as before, or "
                f"begin a new query with a new checkpoint, after nats consumer rm {stream} {name}."
            )
        return True

    def _create(self, stream: str, token: str) -> None:
        """Create the query's claim in a stream: a paused consumer with its token.

        Raises ConfigError if another query or consumer was faster.
        """
        config: dict[str, Any] = {
            "name": self._name,
            "durable_name": self._name,
            "description": _CLAIM_DESCRIPTION,
            "metadata": {_TOKEN_KEY: token, _SUBJECTS_KEY: _subjects_text(self._options)},
            "ack_policy": "explicit",
            "deliver_policy": "all",
            "replay_policy": "instant",
            "pause_until": _PAUSED_UNTIL,
        }
        if not self._options.sole_reader:
            # A stream by interest keeps what a consumer has not acknowledged.
            config["filter_subject"] = _FILTER_OF_NO_MESSAGE
        try:
            self._api.create_consumer(stream, config, ())
        except APIError as error:
            if error.err_code not in _NAME_TAKEN_ERRORS:
                raise
            # It may be our own, from an attempt whose answer was lost.
            if not self._check_claim(stream, None):
                raise ConfigError(other_readers_message(stream)) from None

    def _other_query_message(self, stream: str) -> str:
        """The message for a stream that another query has claimed, and what the user can do."""
        name, interest = self._name, self._options.interest_consumer
        given_up = f"If that query was given up: nats consumer rm {stream} {name}"
        if self._options.trim:
            return (
                f"Another query, or another source of this one, trims the stream {stream!r}: its "
                f"claim is the consumer {name!r}. What it removes this one could not read any "
                f"more: leave {named('trim')} out of one of them, and give that one a "
                f"{named('progress_consumer')}, which keeps its messages. {given_up}."
            )
        if interest is None:
            return (
                f"The work queue {stream!r} is read by another query, or by another source of this "
                f"one, whose claim is the consumer {name!r}, and only one can read it: write its "
                "rows to several tables (foreachBatch), read its table, or read a stream with "
                f"retention 'limits' that has the queue as a source. {given_up}."
            )
        return (
            f"The consumer {interest!r} of stream {stream!r} keeps messages for another query, "
            f"whose claim is the consumer {name!r}: give each query an "
            f"{named('interest_consumer')} of its "
            f"own. {given_up}; this one then begins where that one stopped."
        )


def _offset_of_claim(
    facts: StreamFacts, token: str | None, offset: StreamOffset | None
) -> StreamOffset | None:
    """The query's offset in a stream if the query must have claimed the stream before; else None.

    It has no claim there before its first batch, or after the stream was recreated.
    """
    if token is None or offset is None or offset.initial or offset.created != facts.created:
        return None
    return offset


def check_nothing_skipped(api: StreamAPI, options: SourceOptions, stream: str, start: int) -> None:
    """Raise ConfigError if a work queue has messages before the sequence at which a query begins.

    Removing what the query has read would remove them unread. Only the query's subjects count. Also
    raises the errors of `linearizable_read`.
    """
    waiting = linearizable_read(
        api, [stream], lambda api: api.next_sequence(stream, 1, options.subjects)
    )
    if waiting is not None and waiting < start:
        chosen = "".join(f" --subject '{subject}'" for subject in options.subjects)
        if len(options.subjects) > 1:  # the command takes only one
            chosen = " --subject …"
        raise ConfigError(
            f"Messages are in the stream {stream!r} from sequence {waiting} on, and a query with "
            f"{named('trim' if options.trim else 'sole_reader')} that begins at {start} would "
            f"remove them unread: begin at 'earliest', or remove them first (jetspark stream purge "
            f"{stream}{chosen} --before {start})."
        )


def report_lost_claim(options: SourceOptions, stream: str, offset: StreamOffset) -> None:
    """Raise DataLossError, or with `failOnDataLoss=false` log, that a query's claim in a work queue
    is gone, so that other consumers may have taken messages."""
    problem = (
        f"The consumer {SOLE_READER!r}, which kept other readers out of the work queue {stream!r}, "
        f"is gone: they may have taken messages from sequence {offset.next} on."
    )
    raise_or_report(
        logger,
        Loss(stream, problem, key="the claim"),
        offset.next,
        offset.last_known,
        fail=options.fail_on_data_loss,
        advice=CONTINUE_ADVICE,
    )


def other_readers_message(stream: str) -> str:
    """The message for a work queue that other consumers read, and what the user can do."""
    return (
        f"Other consumers read the work queue {stream!r}, so this query is not its sole reader: "
        "delete them, or read a stream with retention 'limits' that has this one as a source."
    )


def _subjects_text(options: SourceOptions) -> str:
    """The query's subjects as a claim's metadata has them; empty for all subjects."""
    return ",".join(sorted(options.subjects))


def _subjects_in_words(subjects: str) -> str:
    return f"the subjects {subjects}" if subjects else "all subjects"
