"""The base of both readers: facts of streams, partitions, reading a partition."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from jetspark.bulk import fixed_range
from jetspark.bulk.current_values import read_current_values as read_bucket
from jetspark.bulk.fixed_range import AtTime, Position, check_exists, resolve_position, tail
from jetspark.bulk.leaders import Leaders, confirmed_facts, linearizable_read
from jetspark.bulk.many_streams import fetch_message_times, fetch_stream_facts
from jetspark.bulk.ranges import SequenceRange
from jetspark.bulk.reader import read_range
from jetspark.bulk.retry import NOT_FOUND_SECONDS
from jetspark.bulk.stream_api import StreamAPI
from jetspark.bulk.stream_facts import LastMessage, StreamFacts
from jetspark.codecs.tolerant import decode_in_parts
from jetspark.connection.options import ConnectOptions
from jetspark.errors import ConfigError, StreamNotFoundError, UnsupportedByServerError
from jetspark.kv_rules import STREAM_PREFIX
from jetspark.nearest import instead
from jetspark.spark import planning
from jetspark.spark.claims import SOLE_READER, Claims, other_readers
from jetspark.spark.offsets import StreamOffset
from jetspark.spark.options import Positions, SourceOptions

logger = logging.getLogger("jetspark.spark")

# -- facts of streams ----------------------------------------------------------------------------

_NAMED = 20  # streams in a message


def leaders(options: SourceOptions) -> Leaders:
    """The streams' leaders, for questions from the driver."""
    return Leaders(options.connection, options.read_timeout, at_once_if_new=True)


def created(connection: ConnectOptions, stream: str) -> str:
    """The stream's creation time, which identifies it; "" without one. Raises as `Leaders.call`."""
    try:
        return Leaders(connection, 5.0, at_once_if_new=True).call(
            lambda api: api.stream(stream).created
        )
    except StreamNotFoundError:
        return ""


def streams_facts(
    options: SourceOptions, *, running: bool = False, sure: bool = False
) -> dict[str, StreamFacts]:
    """The facts of the chosen streams, by name; for a `running` query, of those that still exist.

    `sure`: from leaders that are proven to lead. Otherwise they may be slightly outdated, which is
    enough where the next batch reads the rest. Raises StreamNotFoundError for a stream that the
    options name; ConfigError for a pattern that matches nothing, for subjects that cannot occur,
    and for retentions under which reading would remove messages; UnsupportedByServerError; and the
    errors of `Leaders.call`.
    """
    try:
        return leaders(options).call(lambda api: _facts(options, api, running, sure))
    except ConfigError:
        if sure:
            raise
        return streams_facts(options, running=running, sure=True)


def _facts(
    options: SourceOptions, api: StreamAPI, running: bool, sure: bool
) -> dict[str, StreamFacts]:
    names: Iterable[str] = options.streams
    if options.stream_pattern is not None:
        every = sorted(api.all_stream_names() if sure else api.stream_names())
        names = [name for name in every if re.fullmatch(options.stream_pattern, name)]
        if not names and not running:
            raise ConfigError(
                f"No stream matches streamPattern {options.stream_pattern!r}, a regular expression "
                "for the whole name (M.*, not M*); there are "
                f"{', '.join(every[:_NAMED]) or 'none'}"
                f"{f' and {len(every) - _NAMED:,} more' if len(every) > _NAMED else ''}."
            )
    # A caller in doubt asks again with `sure`.
    patience = 0.0 if running and not sure else NOT_FOUND_SECONDS
    facts, missing = fetch_stream_facts(api, names, not_found_for=patience)
    must_exist = not running and options.stream_pattern is None
    for error in missing.values() if must_exist else ():
        raise error if options.bucket is None else _no_bucket(options.bucket, api)
    while sure:
        try:
            facts = confirmed_facts(api, facts)
            break
        except StreamNotFoundError:
            # Deleted since; treated like those missing before.
            facts, missing = fetch_stream_facts(api, facts, not_found_for=patience)
            if must_exist or not missing:
                raise
    if options.present_values:
        facts = {name: replace(one, keeps_last_per_subject=True) for name, one in facts.items()}
    for one in facts.values():
        _check_stream(options, one, api)
    if options.by_snapshot and not options.blocks_deletes and not api.link.info.at_least(2, 15):
        raise UnsupportedByServerError(
            "Option 'backfill' with the value 'snapshot' (older servers refuse deletes meanwhile; "
            "'snapshot-blocking-deletes' accepts that)",
            "2.15",
            api.link.info.version,
        )
    if not running:
        check_subjects(options, api, facts)
    return facts


def _no_bucket(bucket: str, api: StreamAPI) -> ConfigError:
    buckets = [
        name.removeprefix(STREAM_PREFIX)
        for name in api.stream_names()
        if name.startswith(STREAM_PREFIX)
    ]
    without = bucket.removeprefix(STREAM_PREFIX)
    said = without if without in buckets else bucket
    return ConfigError(f"Bucket {bucket!r} not found{instead(said, buckets)}")


def check_subjects(
    options: SourceOptions, api: StreamAPI, facts: Mapping[str, StreamFacts]
) -> None:
    """Raises as `fixed_range.check_subjects`; a pattern may find further streams later."""
    fixed_range.check_subjects(
        "Option 'subjects'",
        options.subjects,
        api,
        facts,
        others_may_come=options.stream_pattern is not None,
    )


def _check_stream(options: SourceOptions, facts: StreamFacts, api: StreamAPI) -> None:
    """Raises ConfigError where the query and other readers would remove each other's messages, and
    where keys cannot be chosen."""
    name, retention = facts.name, facts.retention
    if options.keys and facts.is_mirror:
        raise ConfigError(
            f"Bucket {options.bucket!r} is a mirror, whose keys cannot be chosen by the server: "
            "read it without 'keys', or its origin."
        )
    for option, asked, needed in (
        ("soleReader", options.sole_reader, "workqueue"),
        ("interestConsumer", options.interest_consumer is not None, "interest"),
    ):
        if asked and retention != needed:
            keeps = " and keeps what is read" if retention == "limits" else ""
            raise ConfigError(
                f"Option {option!r} is for streams with retention {needed!r}; {name!r} has "
                f"{retention!r}{keeps}."
            )
    if retention == "interest" and options.interest_consumer is None:
        raise ConfigError(
            f"Stream {name!r} has retention 'interest': its messages go when all its consumers "
            "have acknowledged them, and are not even stored without any, so a table of it cannot "
            "be exact. Use a stream with retention 'limits' that has this one as a source, or "
            "readStream with an 'interestConsumer', which keeps the messages for the query."
        )
    if retention == "workqueue" and not options.sole_reader:
        raise ConfigError(
            f"Stream {name!r} has retention 'workqueue': its messages go when another consumer "
            "acknowledges them, so a table of it cannot be exact. If this query is the only "
            "reader, set the option 'soleReader' to true: what its checkpoint has is removed."
        )
    if not options.removes:
        return
    server = api.link.info
    if options.interest_consumer is not None and not server.at_least(2, 14):
        raise UnsupportedByServerError("Option 'interestConsumer'", "2.14", server.version)
    if options.sole_reader and (
        facts.consumers > 1 or (facts.consumers and api.consumer(name, SOLE_READER) is None)
    ):
        raise ConfigError(other_readers(name))
    if not facts.allows_direct:
        raise ConfigError(f"Stream {name!r} is read by direct gets here: set its allow_direct.")
    if facts.longest_inactive is not None:
        raise ConfigError(
            f"Stream {name!r} removes consumers that are idle for {facts.longest_inactive:g} s "
            "(consumer_limits), so the query's could not stay while it is not running."
        )


# -- positions -----------------------------------------------------------------------------------


def resolve_positions(
    options: SourceOptions, positions: Positions, streams: Iterable[str], *, end: bool
) -> dict[str, Position]:
    """Positions by stream, without times. Raises ConfigError, and the errors of `Leaders.call`."""
    positions.check(streams := list(streams))
    wanted = {stream: positions.of(stream) for stream in streams}
    strategy_is_latest = end or options.strategy == "latest"

    def question(api: StreamAPI) -> dict[str, Position]:
        return {
            stream: resolve_position(
                one, stream, api.sequence_at, none_is_latest=strategy_is_latest
            )
            for stream, one in wanted.items()
        }

    by_time = [stream for stream, one in wanted.items() if isinstance(one, AtTime)]
    return leaders(options).call(lambda api: linearizable_read(api, by_time, question))


def ends(options: SourceOptions, facts: Mapping[str, StreamFacts]) -> dict[str, int]:
    """Where a query ends that reads what there is, from proven facts: before these sequences.

    Raises as `resolve_positions`, and ConfigError for a position behind the end of a stream.
    """
    if not options.ending.option:
        return {name: tail(one) for name, one in facts.items()}
    found: dict[str, int] = {}
    for name, end in resolve_positions(options, options.ending, facts, end=True).items():
        found[name] = end if isinstance(end, int) else tail(facts[name])
        check_exists(facts[name], found[name], options.ending.option)
    return found


def begin(options: SourceOptions, facts: Mapping[str, StreamFacts]) -> dict[str, StreamOffset]:
    """Where a new streaming query begins, from proven facts. Raises as `ends`, and ConfigError for
    an end before it."""
    start = resolve_positions(options, options.streaming_start, facts, end=False)
    offsets = {name: planning.initial_offset(one, start[name]) for name, one in facts.items()}
    if options.ending.option:
        names = options.streaming_start.option, options.ending.option
        for name, end in ends(options, facts).items():
            first = offsets[name].next if start[name] == "latest" else start[name]
            fixed_range.fixed_range(facts[name], first, end, names=names)
    return offsets


def check_start(options: SourceOptions) -> None:
    """Check that a query could begin. Raises as `streams_facts`, `begin`, `Claims`."""
    fixed = set(options.streaming_start.all()) - {"earliest", "latest"}
    if options.removes or options.ending.option or fixed:
        facts = streams_facts(options, sure=True)
        offsets = begin(options, facts)
        if options.removes:
            leaders(options).call(lambda api: Claims(api, options).check(facts, offsets))


# -- tables that are ordered by seq ---------------------------------------------------------------

ORDER_BY_TIME = (
    "Changes would be left out as older than what is there: take another table and another "
    "checkpoint, or order by time (sequenceBy=timestamp)."
)


def goes_on(options: SourceOptions, facts: StreamFacts, last: LastMessage) -> bool:
    """Whether a stream's sequences go on after a message, whose time counts in microseconds, as
    those of a restored stream do. Raises the errors of `Leaders.call`."""
    now = (
        leaders(options)
        .call(lambda api: fetch_message_times(api, {facts.name: last.seq}))
        .get(facts.name)
    )
    if facts.first_seq > last.seq or now is not None:
        return now is None or now // 1000 == last.ns // 1000
    return facts.last_seq >= last.seq and bool(facts.is_mirror or facts.another_than("").restored)


def check_go_on(
    options: SourceOptions, facts: Mapping[str, StreamFacts], offsets: Mapping[str, StreamOffset]
) -> None:
    """Raise StreamRecreatedError for a stream whose sequences begin anew, and as `goes_on`."""
    for name, one in offsets.items():
        now, last = facts.get(name), one.last or LastMessage(one.known, 0)
        if now and now.created != one.created and not goes_on(options, now, last):
            raise now.another_than(one.created, ORDER_BY_TIME)


# -- partitions ----------------------------------------------------------------------------------


class RangePartition(InputPartition):
    """Ranges that are read one after the other; plain values, since it is sent to an executor."""

    def __init__(self, *ranges: SequenceRange) -> None:
        super().__init__(None)
        self.ranges = ranges

    def __repr__(self) -> str:
        ranges = ", ".join(f"{one.stream} {one.start}..{one.end - 1}" for one in self.ranges)
        return f"RangePartition({ranges})"


def plan(options: SourceOptions, wanted: Iterable[SequenceRange]) -> list[RangePartition]:
    """The partitions of one batch.

    Every partition of a range with snapshot takes its own, so there are at most `minPartitions`.
    """
    ranges = [replace(one, direct=options.removes) for one in wanted]
    parts = planning.split_all(
        (one for one in ranges if not one.snapshot),
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
    shared = planning.shared(
        parts,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
    )
    backlog = planning.split_all(
        (one for one in ranges if one.snapshot),
        min_partitions=options.min_partitions,
        max_records=max(map(len, ranges), default=1),
    )
    return [*map(RangePartition, backlog), *(RangePartition(*one) for one in shared)]


def backfilled(options: SourceOptions, wanted: SequenceRange) -> SequenceRange:
    """The range, with snapshot if the options say so and it is long enough."""
    worth = options.by_snapshot and len(wanted) >= planning.TASK_COST
    return replace(wanted, snapshot=worth, blocking=worth and options.blocks_deletes)


def snapshot(options: SourceOptions, facts: StreamFacts) -> RangePartition:
    """The one partition of a bucket's current values."""
    return RangePartition(
        SequenceRange(
            facts.name,
            1,
            facts.last_seq + 1,
            facts.created,
            # A consumer of last messages needs a filter, even if no keys are chosen.
            options.subjects or (">",),
        )
    )


def read_partition(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a partition; runs on an executor. Raises the errors of `read_range`.

    Spark sends a placeholder when nothing was planned.
    """
    if not isinstance(partition, RangePartition):
        return
    read = partial(
        read_range,
        options.connection,
        limits=options.limits(),
        columns=options.columns,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    yield from decoded(options, chain.from_iterable(map(read, partition.ranges)))


def decoded(options: SourceOptions, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, with the fields of payloads if the options have any."""
    if options.framing is not None:
        batches = chain.from_iterable(map(options.framing.bare, batches))
    decoder = options.decoder
    return batches if decoder is None else decode_in_parts(decoder, batches)


def read_current_values(
    options: SourceOptions, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """A bucket's current values, on an executor. Raises the errors of `read_last_per_subject`."""
    if not isinstance(partition, RangePartition):
        return
    yield from read_bucket(
        options.connection, partition.ranges[0], options.limits(), columns=options.columns
    )
