"""Finds sinks whose rows would come back to them: they would be read and written without an end."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from jetspark.connection.options import ConnectOptions
from jetspark.errors import ConfigError
from jetspark.spark.options import SourceOptions
from jetspark.spark.sink_options import SinkOptions
from jetspark.subjects import subjects_overlap

Created: TypeAlias = Callable[[ConnectOptions, str], str]
"""When a stream was created, to the nanosecond, which identifies it; "" where there is none."""


def check_no_loop(
    name: str,
    writes: Mapping[str, SinkOptions],
    reads: Mapping[str, Sequence[SourceOptions]],
    created: Created,
) -> None:
    """Raises ConfigError if the sink `name` reads what it writes, also by way of other sinks.

    `writes` and `reads`: what each sink of the pipeline writes, and the sources of its rows.
    """
    way = _way_back(name, [name], writes, reads, created)
    if way is None:
        return
    others = "".join(
        f", from which the sink {one} writes into {writes[one].stream!r}" for one in way[1:]
    )
    fed = next(one for one in reads[name] if _feeds(writes[way[-1]], one, created))
    what, chosen = ("stream", "subjects") if fed.bucket is None else ("bucket", "keys")
    raise ConfigError(
        f"it writes into the stream {writes[name].stream!r}{others}, which is read for it again: "
        f"its rows would come back without an end. Write into another {what}, or give the source "
        f"{chosen!r} to which it does not write."
    )


def _way_back(
    first: str,
    way: list[str],
    writes: Mapping[str, SinkOptions],
    reads: Mapping[str, Sequence[SourceOptions]],
    created: Created,
) -> list[str] | None:
    """The sinks on the way from the first one's rows back to it."""
    for name, sources in reads.items():
        if name in way and name != first:
            continue
        if any(_feeds(writes[way[-1]], one, created) for one in sources):
            if name == first:
                return way
            if name in writes:
                found = _way_back(first, [*way, name], writes, reads, created)
                if found is not None:
                    return found
    return None


def _feeds(sink: SinkOptions, source: SourceOptions, created: Created) -> bool:
    """Whether a source reads what a sink writes, as far as the options and servers tell."""
    pattern = source.stream_pattern
    if sink.stream not in source.streams and not (
        pattern is not None and re.fullmatch(pattern, sink.stream)
    ):
        return False
    # A column of subjects is not known before the rows are.
    if source.subjects and not (
        sink.subject is not None
        and any(subjects_overlap(sink.subject, one) for one in source.subjects)
    ):
        return False
    there, here = sink.connection, source.connection
    if set(there.urls()) & set(here.urls()) and replace(there, servers=here.servers) == here:
        return True
    # Another name of the server or another server of the cluster, another user of the account.
    when = created(there, sink.stream)
    return bool(when) and when == created(here, sink.stream)
