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
    """The position in each stream, with sequences in place of times. `end`: whether it is an end.

    Raises ConfigError, and the errors of `Leaders.call`.
    """
    positions.check(streams := list(streams))
    by_stream = {stream: positions.of(stream) for stream in streams}
    strategy_is_latest = end or options.starting_offsets_by_timestamp_strategy == "latest"

    def resolve(api: StreamAPI) -> dict[str, Position]:
        return {
            stream: resolve_position(
                position,
                stream,
                partial(api.sequence_at, stream),
                none_is_latest=strategy_is_latest,
            )
            for stream, position in by_stream.items()
        }

    by_time = [stream for stream, position in by_stream.items() if isinstance(position, AtTime)]
    return leaders(options).call(lambda api: linearizable_read(api, by_time, resolve))


def resolve_ends(options: SourceOptions, facts: Mapping[str, StreamFacts]) -> dict[str, int]:
    """The sequence in each stream before which an AvailableNow run ends, from proven facts.

    Raises as `resolve_positions`, and ConfigError for a position behind the end of a stream.
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
    """The offsets at which a new streaming query begins, from proven facts.

    Raises as `resolve_ends`, and ConfigError for an end before the start.
    """
    start = resolve_positions(options, options.streaming_start, facts, end=False)
    offsets = {name: planning.initial_offset(stream, start[name]) for name, stream in facts.items()}
    if options.ending.option:
        names = named(options.streaming_start.option), named(options.ending.option)
        for name, end in resolve_ends(options, facts).items():
            first = offsets[name].next if start[name] == "latest" else start[name]
            fixed_range.fixed_range(facts[name], first, end, names=names)
    return offsets


def check_start(options: SourceOptions) -> None:
    """Check, before Spark is started, that a query could begin.

    Raises as `fetch_source_facts`, `resolve_start` and `QueryClaims`.
    """
    given_positions = set(options.streaming_start.all()) - {"earliest", "latest"}
    if options.removes_read_messages or options.ending.option or given_positions:
        facts = fetch_source_facts(options, linearizable=True)
        offsets = resolve_start(options, facts)
        if options.removes_read_messages:
            leaders(options).call(lambda api: QueryClaims(api, options).check(facts, offsets))
