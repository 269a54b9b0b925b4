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

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

import jetspark.errors as errors
from jetspark.bulk.fixed_range import tail
from jetspark.bulk.link_pool import pool
from jetspark.bulk.losses import Loss, report_loss
from jetspark.bulk.stream_api import StreamAPI
from jetspark.bulk.stream_facts import StreamFacts, Witness
from jetspark.spark import interest_consumer, planning
from jetspark.spark.claims import Claims
from jetspark.spark.failures import without_traceback
from jetspark.spark.offsets import StreamOffset, from_json, to_json, token_of
from jetspark.spark.options import SourceOptions
from jetspark.spark.partitions import RangePartition, backfilled, plan, read_partition
from jetspark.spark.positions import begin, ends
from jetspark.spark.progress_consumer import ProgressConsumer
from jetspark.spark.source_streams import check_subjects, leaders, streams_facts
from jetspark.spark.stream_identity import check_go_on, copies_found
from jetspark.spark.versions import limits

logger = logging.getLogger("jetspark.spark")


@contextmanager
def gc_paused() -> Iterator[None]:
    """Without Python's cyclic garbage collector, for a block or as a decorator.

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


_BEGIN_ANEW = (
    "This query would remove what came since then unread: begin a new one, with a new checkpoint; "
    "if the stream has the query's claim, delete that first (nats consumer rm)."
)


class JetStreamStreamReader(DataSourceStreamReader, limits.SupportsTriggerAvailableNow):
    """Micro-batches of explicit sequence ranges.

    On the driver it raises the errors of `streams_facts`, `begin` and `Claims`; ConfigError for
    another query's offset; DataLossError, StreamRecreatedError and StreamNotFoundError for losses.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options.for_streaming()
        pool.known.add(self._options.connection)
        self._initial: dict[str, StreamOffset] | None = None
        self._targets: dict[str, int] | None = None
        self._asked: dict[str, StreamFacts] | None = None
        self._last_batch = -math.inf
        self._subjects_checked = False
        self._logged_losses: dict[str, str] = {}
        self._compared_on: str | None = None
        name = options.progress_consumer
        self._progress_consumer = None if name is None else ProgressConsumer(options, name)

    # -- offsets, on the driver ------------------------------------------------------------

    @without_traceback
    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins; the same if Spark asks twice before the first batch."""
        if self._initial is None:
            options = self._options
            offsets = begin(options, streams_facts(options, sure=True))
            self._subjects_checked = True
            if (name := options.interest_consumer) is not None:
                made: set[str] = set()
                offsets = leaders(options).call(
                    lambda api: interest_consumer.begin(api, name, offsets, made)
                )
            self._initial = offsets
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> limits.ReadLimit:
        """One limit of the options, since Spark takes only one; `latestOffset` applies them all."""
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
        """Determine where this run ends."""
        facts = streams_facts(self._options, running=True, sure=True)
        self._targets = ends(self._options, facts)

    @without_traceback
    @gc_paused()
    def latestOffset(self, start: dict[str, Any], limit: limits.ReadLimit) -> dict[str, Any]:
        """The end of the next batch; `start` itself, unchanged, when there is nothing to read."""
        options = self._options
        if options.available_now and self._targets is None:
            self.prepareForTriggerAvailableNow()
        if options.ending.option and self._targets is None:
            raise errors.ConfigError(
                f"Option {options.ending.option!r} is for trigger(availableNow=True), or a batch "
                "read: with another trigger the query would wait behind its end for ever."
            )
        offsets = self._offsets(start)
        # Trigger.Once reads everything, regardless of the options.
        limited = not isinstance(limit, limits.ReadAllAvailable)
        waits = time.monotonic() - self._last_batch < options.max_trigger_delay
        facts = streams_facts(options, running=True)
        if planning.in_doubt(facts, offsets):
            facts = streams_facts(options, running=True, sure=True)
        if options.present_values:
            advice = "Its revisions begin anew: begin a new table, with a new checkpoint."
            planning.check_same(facts, offsets, advice)
        if options.orders_by_seq:
            check_go_on(options, facts, offsets)
        if options.removes:
            planning.check_not_older(facts, offsets, _BEGIN_ANEW)
        self._check_copies(offsets, next((one.asked for one in facts.values()), None))
        token = token_of(start) if options.removes else None
        facts = self._held(facts, offsets, token)
        self._asked = facts
        ends = planning.next_offsets(
            facts,
            offsets,
            max_offsets=options.max_offsets_per_trigger if limited else None,
            max_bytes=options.max_bytes_per_trigger if limited else None,
            min_offsets=options.min_offsets_per_trigger
            if limited and waits and self._targets is None
            else None,
            targets=self._targets,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        self._log_losses(facts, offsets)
        if not self._subjects_checked and offsets.keys() <= facts.keys():
            # Once for a resumed query: the user may have changed the option.
            leaders(options).call(lambda api: check_subjects(options, api, facts))
            self._subjects_checked = True
        if self._progress_consumer is not None:
            # Spark asks for the next batch when everything before `start` is done.
            self._progress_consumer.show(
                {name: one for name, one in offsets.items() if name in facts}
            )
        if options.removes and token is None:
            token = secrets.token_hex(8)
        elif ends == offsets:
            return start
        self._last_batch = time.monotonic()
        return to_json(ends | self._with_witnesses(ends, offsets, facts), token)

    @without_traceback
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The streams' ends, for the lag in the query's progress.

        From this trigger's `latestOffset`, which Spark calls just before, so that the streams are
        asked once per trigger.
        """
        asked, self._asked = self._asked, None
        if asked is None:
            asked = streams_facts(self._options, running=True)
        tails = {name: (one.created, tail(one)) for name, one in asked.items()}
        return to_json({name: StreamOffset(made, at, at) for name, (made, at) in tails.items()})

    @without_traceback
    @gc_paused()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        """The same partitions for the same offsets, however often Spark asks."""
        options = self._options
        offsets, ends = self._offsets(start), self._offsets(end)
        if self._compared_on is None:  # a batch planned by an earlier process
            self._check_copies(ends, None)
        token, logged = token_of(end), token_of(start)
        if options.removes or token is not None:  # the options may have changed
            facts = streams_facts(options, running=True)
        if options.removes:
            leaders(options).call(
                lambda api: Claims(api, options, token).make(facts, offsets, ends, logged)
            )
        ranges = planning.batch_ranges(offsets, ends, options.subjects)
        if options.by_snapshot:
            # A stream's first batch is its backlog. The rows of a range are the same either way.
            ranges = [
                backfilled(options, one)
                if one.stream not in offsets or offsets[one.stream].initial
                else one
                for one in ranges
            ]
        if options.present_values:
            ranges = [replace(one, last_values=True) for one in ranges]
        return plan(options, ranges)

    @without_traceback
    def commit(self, end: dict[str, Any]) -> None:
        """Let the server remove messages that were kept for this query."""
        options = self._options
        if not options.removes:
            return
        offsets, token = from_json(end), token_of(end)
        facts = streams_facts(options, running=True, sure=True)

        def remove(api: StreamAPI) -> None:
            for name, offset in offsets.items():
                # In a recreated stream these sequences are other messages.
                if name not in facts or facts[name].created != offset.created:
                    continue
                if not Claims(api, options, token).is_in(name):
                    continue  # they stay until the claim exists
                if options.interest_consumer is None:
                    api.purge(name, offset.next, options.subjects)
                else:
                    interest_consumer.release(api, name, options.interest_consumer, offset.next)

        leaders(options).call(remove)

    def stop(self) -> None:
        """Nothing to do: nothing of the query is left on the server."""

    # -- rows, on executors ----------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        return read_partition(self._options, partition)

    # -- streams ---------------------------------------------------------------------------

    def _held(
        self, facts: dict[str, StreamFacts], offsets: dict[str, StreamOffset], token: str | None
    ) -> dict[str, StreamFacts]:
        """The facts, once nobody else removes messages, and the streams keep the unread ones."""
        options, made = self._options, set[str]()
        if not options.removes:
            return facts
        name, strict = options.interest_consumer, options.fail_on_data_loss

        def look(api: StreamAPI) -> None:
            Claims(api, options, token).check(facts, offsets)
            if name is not None:
                interest_consumer.hold(
                    api, name, facts, offsets, fail_on_data_loss=strict, made=made
                )

        leaders(options).call(look)
        return streams_facts(options, running=True) if made else facts

    def _check_copies(self, offsets: dict[str, StreamOffset], asked: str | None) -> None:
        """Raise DataLossError if a stream was replaced by another copy of itself, or log it.

        Checked once in a process, and again after each start of the server, whose ID is `asked`;
        None: unknown.
        """
        if asked is not None and asked == self._compared_on:
            return
        options = self._options
        strict = options.fail_on_data_loss or options.removes
        advice = "Set failOnDataLoss to false to go on without them." if strict else ""
        if options.removes:
            advice = _BEGIN_ANEW
        server, found = "", list[errors.DataLossError]()
        if any(one.last is not None for one in offsets.values()):
            try:
                server, found = leaders(options).call(
                    lambda api: (api.link.info.server_id, copies_found(api, offsets, advice))
                )
            except errors.PermissionsError as error:
                logger.info("Whether a stream was replaced by a copy is not known: %s", error)
        for loss in found:
            if strict:
                raise loss
            report_loss(logger, str(loss), Loss(loss.stream, str(loss)))
        self._compared_on = asked or server

    def _with_witnesses(
        self,
        ends: dict[str, StreamOffset],
        offsets: dict[str, StreamOffset],
        facts: dict[str, StreamFacts],
    ) -> dict[str, StreamOffset]:
        """The new ends, with witnesses in streams where newer messages replace older ones."""
        wanted = {
            name: min(end.next, facts[name].last_seq)
            for name, end in ends.items()
            if end != offsets.get(name)
            and name in facts
            and facts[name].keeps_last_per_subject
            and facts[name].messages
        }
        if not wanted or self._options.present_values:
            return {}
        chosen = (self._options.subjects or (">",))[0]

        def question(api: StreamAPI) -> dict[str, StreamOffset]:
            found = {
                name: api.message(name, seq=sequence, next_by_subj=chosen)
                for name, sequence in wanted.items()
            }
            return {
                name: replace(ends[name], witness=Witness(one.seq, one.subject))
                for name, one in found.items()
                if one is not None
            }

        try:
            return leaders(self._options).call(question)
        except (errors.PermissionsError, errors.StreamNotFoundError) as error:
            logger.info("What a purge removes may not be noticed: %s", error)
            return {}

    def _log_losses(self, facts: dict[str, StreamFacts], offsets: dict[str, StreamOffset]) -> None:
        """Log the messages or streams that the query skips, once for each loss."""
        losses = {
            name: loss
            for name, offset in offsets.items()
            if (loss := planning.loss(name, facts.get(name), offset))
        }
        for name, loss in losses.items():
            if self._logged_losses.get(name) != loss.key:
                report_loss(logger, loss.said, loss)
        self._logged_losses = {name: loss.key for name, loss in losses.items()}

    def _offsets(self, document: dict[str, Any]) -> dict[str, StreamOffset]:
        offsets = from_json(document)
        wanted = set(self._options.streams)
        if wanted and offsets.keys() != wanted:
            raise errors.ConfigError(
                f"The checkpoint belongs to a query on {', '.join(offsets)}, not on "
                f"{', '.join(sorted(wanted))}: use another checkpoint (the option "
                "checkpointLocation; in the file of a pipeline, the key checkpoint)."
            )
        return offsets
