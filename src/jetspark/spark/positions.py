"""The sequences at which a query or a batch read begins and ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jetspark.bulk import fixed_range
from jetspark.bulk.fixed_range import AtTime, Position, check_exists, resolve_position, tail
from jetspark.bulk.leaders import linearizable_read
from jetspark.bulk.stream_api import StreamAPI
from jetspark.bulk.stream_facts import StreamFacts
from jetspark.spark import planning
from jetspark.spark.claims import Claims
from jetspark.spark.offsets import StreamOffset
from jetspark.spark.options import Positions, SourceOptions
from jetspark.spark.source_streams import leaders, streams_facts


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
