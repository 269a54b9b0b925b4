"""The sequences at which a query or a batch read begins and ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from jetspark.errors import named
from jetspark.links.leaders import linearizable_read
from jetspark.links.stream_api import StreamAPI
from jetspark.links.stream_facts import StreamFacts
from jetspark.ranges import fixed_range
from jetspark.ranges.fixed_range import AtTime, Position, check_exists, resolve_position, tail
from jetspark.spark.source import planning
from jetspark.spark.source.claims import QueryClaims
from jetspark.spark.source.offsets import StreamOffset
from jetspark.spark.source.options import SourceOptions
from jetspark.spark.source.position_options import Positions
from jetspark.spark.source.source_streams import fetch_source_facts, leaders


def resolve_positions(
    options: SourceOptions, positions: Positions, streams: Iterable[str], *, end: bool
) -> dict[str, Position]:
    """Find the position in each stream at which reading begins, or with `end` ends, as an option
    says: a time becomes the first sequence stored at or after it.

    A time after the last message is "latest" for an end, or if `startingOffsetsByTimestampStrategy`
    says so; otherwise it raises ConfigError. Also raises the errors of `Leaders.call`.
    """
    positions.check(streams := list(streams))
    by_stream = {stream: positions.of(stream) for stream in streams}
    strategy_is_latest = end or options.starting_offsets_by_timestamp_strategy == "latest"

    def resolve(api: StreamAPI) -> dict[str, Position]:
        """Look up the first sequence at or after each time; other positions stay as they are."""
        return {
            stream: resolve_position(
                position,
                stream,
                partial(api.sequence_at, stream),
                none_is_latest=strategy_is_latest,
            )
            for stream, position in by_stream.items()
        }

    # Only times are looked up on the servers, which must then know all messages of these streams.
    by_time = [stream for stream, position in by_stream.items() if isinstance(position, AtTime)]
    return leaders(options).call(lambda api: linearizable_read(api, by_time, resolve))


def resolve_ends(options: SourceOptions, facts: Mapping[str, StreamFacts]) -> dict[str, int]:
    """Find the sequence in each stream before which an AvailableNow run ends: what the option for
    the end says, or else the present end of the stream.

    `facts`: from leaders that are proven to lead. Raises the errors of
    `resolve_positions`, and ConfigError for a position behind the end of a stream.
    """
    if not options.ending.option:
        return {name: tail(stream) for name, stream in facts.items()}
    sequences: dict[str, int] = {}
    for name, end in resolve_positions(options, options.ending, facts, end=True).items():
        sequences[name] = end if isinstance(end, int) else tail(facts[name])
        check_exists(facts[name], sequences[name], named(options.ending.option))
    return sequences


def resolve_start(
    options: SourceOptions, facts: Mapping[str, StreamFacts]
) -> dict[str, StreamOffset]:
    """Find the offsets at which a new streaming query begins, as the options say.

    `facts`: from leaders that are proven to lead. Raises the errors of
    `resolve_ends`, and ConfigError for an end before the start, and for a start in the future.
    """
    start = resolve_positions(options, options.streaming_start, facts, end=False)
    for name, position in start.items():
        asked = options.streaming_start.of(name)
        if position == "latest" and isinstance(asked, AtTime):
            fixed_range.check_not_future(asked, name)
    offsets = {name: planning.initial_offset(stream, start[name]) for name, stream in facts.items()}
    if options.ending.option:
        names = named(options.streaming_start.option), named(options.ending.option)
        for name, end in resolve_ends(options, facts).items():
            first = offsets[name].next if start[name] == "latest" else start[name]
            fixed_range.fixed_range(facts[name], first, end, names=names)  # only checks
    return offsets


def check_start(options: SourceOptions) -> None:
    """Check, before Spark is started, that a new query could begin: its positions exist, and no
    other query has claimed its streams.

    The servers are asked only if the options have something to check. Raises the errors of
    `fetch_source_facts`, `resolve_start` and `QueryClaims`.
    """
    given_positions = set(options.streaming_start.all()) - {"earliest", "latest"}
    if options.removes_read_messages or options.ending.option or given_positions:
        facts = fetch_source_facts(options, linearizable=True)
        offsets = resolve_start(options, facts)
        if options.removes_read_messages:
            leaders(options).call(lambda api: QueryClaims(api, options).check(facts, offsets))
