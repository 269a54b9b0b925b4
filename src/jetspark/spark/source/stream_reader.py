"""spark.readStream.format("jetstream"): only Spark's checkpoint has the position.

The query acknowledges nothing, and has a durable consumer only where an option asks for one
(`progress_consumer`, `claims`). Spark calls `commit` one batch late and may never call `stop`, so
correctness depends on neither; a work queue, or a stream with retention `interest`, just keeps its
messages one batch longer. `offsets` explains the offsets.
"""

from __future__ import annotations

import gc
import logging
import math
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

import jetspark.errors as errors
from jetspark.links.link_pool import pool
from jetspark.links.stream_api import StreamAPI
from jetspark.links.stream_facts import StreamFacts, Witness
from jetspark.ranges.fixed_range import tail
from jetspark.ranges.losses import Loss, raise_or_report, report_loss
from jetspark.spark.failures import names_of_spark, without_traceback
from jetspark.spark.source import interest_consumer, planning
from jetspark.spark.source.claims import QueryClaims
from jetspark.spark.source.offsets import (
    StreamOffset,
    from_json,
    query_consumer,
    query_token,
    to_json,
)
from jetspark.spark.source.options import SourceOptions
from jetspark.spark.source.partitions import (
    RangePartition,
    choose_snapshot,
    plan_partitions,
    read_partition,
)
from jetspark.spark.source.positions import resolve_ends, resolve_start
from jetspark.spark.source.progress_consumer import ProgressConsumer
from jetspark.spark.source.source_streams import check_subjects, fetch_source_facts, leaders
from jetspark.spark.source.stream_identity import (
    OlderCopy,
    check_sequences_continue,
    find_older_copies,
)
from jetspark.spark.source.trimming import Trimmer
from jetspark.spark.versions import limits

logger = logging.getLogger("jetspark.spark")


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause Python's cyclic garbage collector, for a block or as a decorator.

    Planning thousands of streams makes thousands of small objects, which live to its end and have
    no cycles. The collector would walk over all of them again and again: with 10,000 streams a
    quarter of a trigger's time, with 1,000 a tenth.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


TRIM_INTERVAL = 10.0
"""Seconds from one trimming of the streams of a running query to the next."""
_START_OVER_ADVICE = (
    "This query would remove what came since then unread: begin a new one, with a new checkpoint; "
    "if the stream has the query's claim, delete that first (nats consumer rm)."
)


class JetStreamStreamReader(DataSourceStreamReader, limits.SupportsTriggerAvailableNow):
    """Reads streams for `spark.readStream`, in micro-batches of explicit ranges of sequences.

    Spark calls it on the driver to plan batches, and `read` on executors. Between calls it only
    remembers what saves requests: the position is in Spark's checkpoint.

    On the driver it raises the errors of `fetch_source_facts`, `resolve_start` and `QueryClaims`;
    ConfigError for another query's offset; DataLossError, StreamRecreatedError and
    StreamNotFoundError for losses.
    """

    def __init__(self, options: SourceOptions) -> None:
        """Create the reader of a streaming query, as Spark does in each process of the query."""
        self._options = options.for_streaming()
        # The query may be running already, so a server that does not answer is retried.
        pool.reachable.add(self._options.connection)
        self._initial_offsets: dict[str, StreamOffset] | None = None
        """The start of a new query, once Spark has asked for it."""
        self._targets: dict[str, int] | None = None
        """The sequences before which an AvailableNow run ends, by stream."""
        self._trigger_facts: dict[str, StreamFacts] | None = None
        """The facts of the last `latestOffset`, until `reportLatestOffset` has taken them."""
        self._last_batch_time = -math.inf
        """When the last batch was planned, on the monotonic clock, for `maxTriggerDelay`."""
        self._subjects_checked = False
        """Whether the option `subjects` was checked against the streams, once in a process."""
        self._logged_losses: dict[str, str] = {}
        """The keys of the losses that were logged, by stream."""
        self._checked_server_id: str | None = None
        """The server for which `_check_copies` has found no loss."""
        self._trimmer = Trimmer(self._options)
        self._trimmed_at = -math.inf
        """When the streams were trimmed, on the monotonic clock."""
        name = options.progress_consumer
        self._progress_consumer = None if name is None else ProgressConsumer(options, name)

    # -- offsets, on the driver ------------------------------------------------------------

    @without_traceback
    def initialOffset(self) -> dict[str, Any]:
        """Find where a new query begins; the same if Spark asks again before the first batch.

        With `interestConsumer` it also creates the consumers that keep the messages from there on.
        """
        if self._initial_offsets is None:
            options = self._options
            offsets = resolve_start(options, fetch_source_facts(options, linearizable=True))
            self._subjects_checked = True
            if (name := options.interest_consumer) is not None:
                created: set[str] = set()
                offsets = leaders(options).call(
                    lambda api: interest_consumer.start_at_consumers(api, name, offsets, created)
                )
            self._initial_offsets = offsets
        return to_json(self._initial_offsets)

    def getDefaultReadLimit(self) -> limits.ReadLimit:
        """Tell Spark the limit of a batch: one of the options, since Spark takes only one.

        Spark only passes it back to `latestOffset`, which applies all limits of the options.
        """
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return limits.ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return limits.ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return limits.ReadMinRows(options.min_offsets_per_trigger)
        return limits.ReadAllAvailable()

    @without_traceback
    @gc_paused()
    def prepareForTriggerAvailableNow(self) -> None:
        """Determine where a run with `Trigger.AvailableNow` ends in each stream."""
        facts = fetch_source_facts(self._options, running=True, linearizable=True)
        self._targets = resolve_ends(self._options, facts)

    @without_traceback
    @gc_paused()
    def latestOffset(self, start: dict[str, Any], limit: limits.ReadLimit) -> dict[str, Any]:
        """Plan where the batch from `start` on ends; returns `start` if there is nothing to read.

        It also checks that the streams are still those that the query has read, and that they keep
        what it needs. `limit`: from `getDefaultReadLimit`, or ReadAllAvailable for Trigger.Once.
        """
        options = self._options
        if options.available_now and self._targets is None:
            self.prepareForTriggerAvailableNow()
        if options.ending.option and self._targets is None:
            raise errors.ConfigError(
                "is for trigger(availableNow=True), or a batch "
                "read: with another trigger the query would wait behind its end for ever.",
                option=options.ending.option,
            )
        offsets = self._parse_offsets(start)
        token = query_token(start) if options.removes_read_messages else None
        facts = self._ensure_messages_kept(self._fetch_checked_facts(offsets), offsets, token)
        self._trigger_facts = facts
        # Trigger.Once reads everything, regardless of the options.
        limited = not isinstance(limit, limits.ReadAllAvailable)
        # Whether the batch may wait until there are `minOffsetsPerTrigger`.
        may_wait = (
            limited
            and self._targets is None
            and time.monotonic() - self._last_batch_time < options.max_trigger_delay
        )
        ends = planning.plan_next_offsets(
            facts,
            offsets,
            max_offsets=options.max_offsets_per_trigger if limited else None,
            max_bytes=options.max_bytes_per_trigger if limited else None,
            min_offsets=options.min_offsets_per_trigger if may_wait else None,
            targets=self._targets,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        self._log_losses(facts, offsets)
        if not self._subjects_checked and offsets.keys() <= facts.keys():
            # Once in a process, since the user of a resumed query may have changed the option.
            leaders(options).call(lambda api: check_subjects(options, api, facts))
            self._subjects_checked = True
        if self._progress_consumer is not None:
            # Spark asks for the next batch when everything before `start` is done.
            self._progress_consumer.show(
                {name: offset for name, offset in offsets.items() if name in facts}
            )
        if options.removes_read_messages and token is None:
            # A new query's token makes a new offset, even with nothing to read, so Spark logs it.
            token = secrets.token_hex(8)
        elif ends == offsets:
            return start
        self._last_batch_time = time.monotonic()
        ends |= self._find_witnesses(ends, offsets, facts)
        return to_json(ends, token, options.interest_consumer)

    @without_traceback
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Tell Spark the ends of the streams, from which it reports the query's lag.

        Spark calls this just after `latestOffset`, which has left the facts of the streams, so that
        the servers are asked only once per trigger.
        """
        facts, self._trigger_facts = self._trigger_facts, None
        if facts is None:
            facts = fetch_source_facts(self._options, running=True)
        return to_json(
            {
                name: StreamOffset(stream.created, next=tail(stream), start=tail(stream))
                for name, stream in facts.items()
            }
        )

    @without_traceback
    @gc_paused()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        """Plan what tasks read in the batch between two offsets; the same however often Spark asks.

        If the query removes what it has read, it first claims the streams, before anything is read.
        """
        options = self._options
        offsets, ends = self._parse_offsets(start), self._parse_offsets(end)
        if self._checked_server_id is None:  # a batch planned by an earlier process
            self._check_copies(ends, None)
        token, start_token = query_token(end), query_token(start)
        if options.removes_read_messages or token is not None:
            # Fetching also checks the options, which may have changed since the token was made.
            facts = fetch_source_facts(options, running=True)
        if options.removes_read_messages:
            leaders(options).call(
                lambda api: QueryClaims(api, options, token).create(
                    facts, offsets, ends, start_token=start_token
                )
            )
        ranges = [
            planning.plan_range(name, offsets.get(name), ends[name], options.subjects)
            for name in sorted(ends)
        ]
        if options.backfills_by_snapshot:
            # A stream's first batch may have a long backlog, for which a snapshot is faster. The
            # rows of a range are the same either way.
            ranges = [
                choose_snapshot(options, range_)
                if range_.stream not in offsets or offsets[range_.stream].initial
                else range_
                for range_ in ranges
            ]
        if options.present_values:
            ranges = [replace(range_, last_values=True) for range_ in ranges]
        return plan_partitions(options, ranges)

    @without_traceback
    def commit(self, end: dict[str, Any]) -> None:
        """Let the servers remove the messages before `end`, which the query's checkpoint covers, if
        the options say that the query removes what it has read."""
        options = self._options
        if not options.removes_read_messages:
            return
        if options.trim:
            # While a query runs, its streams need not be trimmed after each batch.
            if self._targets is None and time.monotonic() - self._trimmed_at < TRIM_INTERVAL:
                return
            self._trimmed_at = time.monotonic()
        offsets, token = from_json(end), query_token(end)
        facts = fetch_source_facts(options, running=True, linearizable=True)

        def remove(api: StreamAPI) -> None:
            """Purge a work queue, or move the consumer, up to the committed offset, by stream."""
            for name, offset in offsets.items():
                # In a recreated stream these sequences are other messages.
                if name not in facts or facts[name].created != offset.created:
                    continue
                if not QueryClaims(api, options, token).has_claim(name):
                    continue  # the messages stay until the claim exists
                if options.trim:
                    self._trimmer.trim(api, facts[name], offset.next)
                elif options.interest_consumer is None:
                    api.purge(name, offset.next, options.subjects)
                else:
                    interest_consumer.release_messages(
                        api, name, options.interest_consumer, offset.next
                    )

        leaders(options).call(remove)

    def stop(self) -> None:
        """Nothing to do: what the query has on the server stays, for it to go on."""

    # -- rows, on executors ----------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition; Spark calls this on an executor."""
        with names_of_spark():
            yield from read_partition(self._options, partition)

    # -- streams ---------------------------------------------------------------------------

    def _fetch_checked_facts(self, offsets: dict[str, StreamOffset]) -> dict[str, StreamFacts]:
        """Fetch the facts of the streams, from leaders that know what the query has read, and check
        that the query can go on from `offsets`.

        Raises for a stream that this query cannot continue, whatever `failOnDataLoss` says, and as
        `_check_copies`.
        """
        options = self._options
        facts = fetch_source_facts(options, running=True)
        if planning.may_be_outdated(facts, offsets):
            facts = fetch_source_facts(options, running=True, linearizable=True)
        for name, offset in offsets.items():
            if (stream := facts.get(name)) is None:
                continue
            if options.present_values:
                advice = "Its revisions begin anew: begin a new table, with a new checkpoint."
                planning.check_not_recreated(stream, offset, advice)
            if options.orders_by_seq:
                check_sequences_continue(options, stream, offset)
            if options.removes_read_messages:
                planning.check_not_shorter(stream, offset, _START_OVER_ADVICE)
        self._check_copies(offsets, next((stream.server_id for stream in facts.values()), None))
        return facts

    def _ensure_messages_kept(
        self, facts: dict[str, StreamFacts], offsets: dict[str, StreamOffset], token: str | None
    ) -> dict[str, StreamFacts]:
        """Ensure, for a query that removes what it has read, that no other query removes messages,
        and that the streams keep what it has not read.

        `token`: by which the query knows its claims (see `claims`). Returns the facts, fetched
        again if a consumer had to be created.
        """
        options, created = self._options, set[str]()
        if not options.removes_read_messages:
            return facts

        def check(api: StreamAPI) -> None:
            """Check the query's claims, and create or check the consumers that keep messages."""
            QueryClaims(api, options, token).check(facts, offsets)
            if (name := options.interest_consumer) is not None:
                strict = options.fail_on_data_loss
                interest_consumer.ensure_consumers(
                    api, name, facts, offsets, fail_on_data_loss=strict, created=created
                )

        leaders(options).call(check)
        return fetch_source_facts(options, running=True) if created else facts

    def _check_copies(self, offsets: dict[str, StreamOffset], server_id: str | None) -> None:
        """Raise DataLossError if a stream was replaced by an older copy of itself, as from a backup
        of the disk; with `failOnDataLoss=false` only log it.

        Such a copy can only appear while a server is down, so it is checked once in a process, and
        again when `server_id`, which each start of a server changes, is another one. None: unknown.
        """
        if server_id is not None and server_id == self._checked_server_id:
            return
        options = self._options
        advice = f"{errors.switching('fail_on_data_loss', False)} to go on without them."
        if options.removes_read_messages:
            advice = _START_OVER_ADVICE
        fail = options.fail_on_data_loss or options.removes_read_messages
        server, copies = "", list[OlderCopy]()
        if any(offset.last is not None for offset in offsets.values()):
            try:
                server, copies = leaders(options).call(
                    lambda api: (api.link.info.server_id, find_older_copies(api, offsets))
                )
            except errors.PermissionsError as error:
                logger.info("Whether a stream was replaced by a copy is not known: %s", error)
        for copy in copies:
            loss = Loss(copy.stream, copy.problem)
            raise_or_report(logger, loss, copy.seq, copy.seq, fail=fail, advice=advice)
        self._checked_server_id = server_id or server

    def _find_witnesses(
        self,
        ends: dict[str, StreamOffset],
        offsets: dict[str, StreamOffset],
        facts: dict[str, StreamFacts],
    ) -> dict[str, StreamOffset]:
        """Add a witness to the ends of streams in which newer messages replace older ones.

        A witness is a stored message, the first one after the end or else the last. If it is gone
        later, and its subject has no newer one, then messages were removed and not only replaced.
        Returns only the ends that get a witness.
        """
        sequences = {
            name: min(end.next, facts[name].last_seq)
            for name, end in ends.items()
            if end != offsets.get(name)
            and name in facts
            and facts[name].keeps_last_per_subject
            and facts[name].messages
        }
        if not sequences or self._options.present_values:
            return {}
        # Any message that the query reads will do, so only its first subject is asked for.
        subject = (self._options.subjects or (">",))[0]

        def fetch(api: StreamAPI) -> dict[str, StreamOffset]:
            """Fetch each stream's first message from `sequences` on, as the witness of its end."""
            messages = {
                name: api.message(name, seq=sequence, next_by_subj=subject)
                for name, sequence in sequences.items()
            }
            return {
                name: msgspec.structs.replace(
                    ends[name], witness=Witness(message.seq, message.subject)
                )
                for name, message in messages.items()
                if message is not None
            }

        try:
            return leaders(self._options).call(fetch)
        except (errors.PermissionsError, errors.StreamNotFoundError) as error:
            logger.info("What a purge removes may not be noticed: %s", error)
            return {}

    def _log_losses(self, facts: dict[str, StreamFacts], offsets: dict[str, StreamOffset]) -> None:
        """Log what the query loses because streams are gone or have changed, once for each loss."""
        losses = {
            name: loss
            for name, offset in offsets.items()
            if (loss := planning.describe_loss(name, facts.get(name), offset))
        }
        for name, loss in losses.items():
            if self._logged_losses.get(name) != loss.key:
                report_loss(logger, loss.text, loss)
        self._logged_losses = {name: loss.key for name, loss in losses.items()}

    def _parse_offsets(self, document: dict[str, Any]) -> dict[str, StreamOffset]:
        """Decode Spark's offset to the offsets by stream.

        Raises ConfigError if it is of other streams than the options name, or if another consumer
        keeps the query's messages.
        """
        offsets = from_json(document)
        streams = set(self._options.streams)
        if streams and offsets.keys() != streams:
            raise errors.ConfigError(
                f"The checkpoint belongs to a query on {', '.join(offsets)}, not on "
                f"{', '.join(sorted(streams))}: use another checkpoint."
            )
        consumer, name = query_consumer(document), self._options.interest_consumer
        if None not in (consumer, name) and consumer != name:
            raise errors.ConfigError(
                f"The consumer {consumer!r} keeps the messages that this query has not read, and "
                f"{name!r} has kept none for it: set {errors.named('interest_consumer')} to "
                f"{consumer!r} again, or begin a new query with a new checkpoint."
            )
        return offsets
