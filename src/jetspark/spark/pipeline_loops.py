"""Finds sinks whose rows would come back to them: they would be read and written without an end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from jetspark.errors import ConfigError
from jetspark.spark.options import SourceOptions
from jetspark.spark.sink_options import SinkOptions
from jetspark.subjects import subjects_overlap


def check_no_loop(
    name: str, writes: Mapping[str, SinkOptions], reads: Mapping[str, Sequence[SourceOptions]]
) -> None:
    """Raises ConfigError if the sink `name` reads what it writes, also by way of other sinks.

    `writes` and `reads`: what each sink of the pipeline writes, and the sources of its rows.
    """
    way = _way_back(name, [name], writes, reads)
    if way is None:
        return
    others = "".join(
        f", from which the sink {one} writes into {writes[one].stream!r}" for one in way[1:]
    )
    raise ConfigError(
        f"it writes into the stream {writes[name].stream!r}{others}, which is read for it again: "
        "its rows would come back without an end. Write into another stream, or give the source "
        "'subjects' to which it does not write."
    )


def _way_back(
    first: str,
    way: list[str],
    writes: Mapping[str, SinkOptions],
    reads: Mapping[str, Sequence[SourceOptions]],
) -> list[str] | None:
    """The sinks on the way from the first one's rows back to it."""
    for name, sources in reads.items():
        if name in way and name != first:
            continue
        if any(_feeds(writes[way[-1]], one) for one in sources):
            if name == first:
                return way
            if name in writes and (found := _way_back(first, [*way, name], writes, reads)):
                return found
    return None


def _feeds(sink: SinkOptions, source: SourceOptions) -> bool:
    """Whether a source reads what a sink writes, as far as the options tell."""
    there, here = sink.connection, source.connection
    # With other credentials it may be another account, which has other streams.
    if not set(there.urls()) & set(here.urls()) or replace(there, servers=here.servers) != here:
        return False
    pattern = source.stream_pattern
    if sink.stream not in source.streams and not (
        pattern is not None and re.fullmatch(pattern, sink.stream)
    ):
        return False
    if not source.subjects:
        return True
    # A column of subjects is not known before the rows are.
    return sink.subject is not None and any(
        subjects_overlap(sink.subject, one) for one in source.subjects
    )
