"""Streams that sinks of one pipeline cannot share: read twice, or read and written in a circle."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from jetspark.connection.options import ConnectOptions
from jetspark.errors import ConfigError, named
from jetspark.spark.source.options import SourceOptions
from jetspark.spark.source.source_streams import fetch_source_facts
from jetspark.spark.stream_sink.options import SinkOptions
from jetspark.subjects import subjects_overlap


def check_read_once(
    name: str, sources: Iterable[SourceOptions], readers: dict[tuple[str, ...], str]
) -> None:
    """Raise ConfigError if a source of a sink removes what it reads from a stream, and another
    source does so, too: each would miss what the other has removed.

    `name`: the sink's; `sources`: its sources; `readers`: for each stream from which sinks before
    this one remove what they read, the name of the sink; those of this sink are added.
    """
    for source in sources:
        consumer = source.interest_consumer or ""
        for stream in fetch_source_facts(source).values() if source.removes_read_messages else ():
            # Each consumer of a stream with retention "interest" gets all messages, so sources
            # with different ones do not take them from each other.
            key = (stream.name, stream.created, consumer)
            if (reader := readers.get(key)) is not None:
                twice = (
                    "twice for this sink (a join of a source with itself reads it twice), and what "
                    "is read once is gone for the other: use one source, without such a join,"
                    if reader == name
                    else f"for the sink {reader}, too, with a query of its own, and what one query "
                    "has read is gone for the other: leave out one of the sinks and read the "
                    "other's table,"
                )
                advice = "a stream with retention 'limits' that has this one as a source"
                if consumer:
                    advice = f"a source with another {named('interest_consumer')} than {consumer!r}"
                raise ConfigError(f"the stream {stream.name!r} is read {twice} or read {advice}.")
            readers[key] = name


FetchCreationTime: TypeAlias = Callable[[ConnectOptions, str], str]
"""Asks when a stream was created, to the nanosecond, which identifies it; "" if there is none."""


def check_no_loop(
    name: str,
    writes: Mapping[str, SinkOptions],
    reads: Mapping[str, Iterable[SourceOptions]],
    fetch_creation_time: FetchCreationTime,
) -> None:
    """Raise ConfigError if the sink `name` of a pipeline reads what it writes, perhaps by way of
    other sinks: its rows would be read and written without an end.

    `writes` and `reads`: what each sink of the pipeline writes, and the sources of its rows.
    """
    # Sinks that get rows of this one, and those of them whose readers were not looked for yet.
    fed, waiting = {name}, [name]
    while waiting:
        sink = waiting.pop()
        for reader, sources in reads.items():
            fed_sources = (
                source
                for source in sources
                if _reads_what_is_written(source, writes[sink], fetch_creation_time)
            )
            if (source := next(fed_sources, None)) is None:
                continue
            if reader == name:
                way = "" if sink == name else f", by way of the sink {sink}"
                kind, chosen = ("bucket", "keys") if source.bucket else ("stream", "subjects")
                raise ConfigError(
                    f"it writes into the stream {writes[name].stream!r}, which is read for it "
                    f"again{way}: its rows would come back without an end. Write into another "
                    f"{kind}, or give the source {chosen!r} to which it does not write.",
                    about="bucket" if writes[name].bucket else "stream",
                )
            if reader in writes and reader not in fed:
                fed.add(reader)
                waiting.append(reader)


def _reads_what_is_written(
    source: SourceOptions, sink: SinkOptions, fetch_creation_time: FetchCreationTime
) -> bool:
    """Whether a source would read messages that a sink writes: the same stream, on the same
    servers, and subjects that overlap.

    False also if neither the options nor the servers show it. `fetch_creation_time`: asks a server
    when a stream was created, which shows whether two addresses lead to the same stream.
    """
    pattern = source.stream_pattern
    if sink.stream not in source.streams and not (
        pattern is not None and re.fullmatch(pattern, sink.stream)
    ):
        return False
    # Without `sink.subject` each row has its own, which is not known before the rows are.
    if source.subjects and not (
        sink.subject is not None
        and any(subjects_overlap(sink.subject, subject) for subject in source.subjects)
    ):
        return False
    to, from_ = sink.connection, source.connection
    if set(to.urls()) & set(from_.urls()) and replace(to, servers=from_.servers) == from_:
        return True
    # The same server may have another name, the cluster another server, the account another user.
    created = fetch_creation_time(to, sink.stream)
    return bool(created) and created == fetch_creation_time(from_, sink.stream)
