"""The options of format("jetstream") for reading: checked at load, secrets in no repr."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from jetspark.connection.options import ConnectOptions
from jetspark.errors import ConfigError, DocumentError, named
from jetspark.kv_rules import STREAM_PREFIX
from jetspark.nearest import check_column
from jetspark.options import values
from jetspark.options.scopes import (
    BACKFILLS,
    CONNECTION,
    PayloadScope,
    SchemaScope,
    SourceScope,
    StreamSinkScope,
    connection_options,
    readers,
)
from jetspark.options.values import only_one, refuse, select
from jetspark.payloads.decoding import Decoding
from jetspark.payloads.framing import Framing
from jetspark.payloads.tolerant import Decoder
from jetspark.ranges.arrow import BUCKET_COLUMNS, COLUMNS
from jetspark.ranges.fixed_range import NS_PER_MS, AtTime, Position, PositionOrTime
from jetspark.ranges.sequence_range import ReadLimits
from jetspark.timestamps import parse_isotime
from jetspark.wire.documents import decode_document

# -------------------------------------------------------------------------------------------------
# Where reading begins and ends: one position for all streams, or one for each.
#
# The names are the Kafka connector's: startingOffsets, startingTimestamp,
# startingOffsetsByTimestamp, and the same three for the end. Only one of each three may be given.


_FIRST_MS = 10**11  # in March 1973; seconds are below it until the year 5138
_LAST_MS = 253_402_300_799_999  # the end of the year 9999, after which times have no text form


@dataclass(frozen=True, slots=True)
class Positions:
    """A position for all streams (`everywhere`), or one for each, as the option `option` said."""

    option: str
    everywhere: PositionOrTime | None = None
    by_stream: Mapping[str, PositionOrTime] = field(default_factory=dict)

    def check(self, streams: Iterable[str]) -> None:
        """Raise ConfigError if positions are by stream, but not for exactly these streams."""
        streams = list(streams)
        if self.everywhere is None and set(streams) != set(self.by_stream):
            raise ConfigError(
                f"names {', '.join(self.by_stream)}, but what is read is "
                f"{', '.join(streams)}: give a position for each of these.",
                option=self.option,
            )

    def of(self, stream: str) -> PositionOrTime:
        """The position for one stream, after `check`."""
        return self.by_stream[stream] if self.everywhere is None else self.everywhere

    def all(self) -> list[PositionOrTime]:
        """All given positions."""
        return list(self.by_stream.values()) if self.everywhere is None else [self.everywhere]


def _offsets(name: str, value: str) -> Positions:
    """earliest, latest, a sequence, or a JSON object of these by stream."""
    words = "latest" if name.startswith("ending") else "earliest, latest"
    return _parse(name, value, _position, f"{words} or a sequence number of at least 1")


def _times(name: str, value: str) -> Positions:
    """A time, or a JSON object of times by stream."""
    expected = "a time (2026-01-31T12:00:00Z) or milliseconds since 1970"
    return _parse(name, value, partial(_time, name), expected)


def _parse(
    name: str, value: str, read_position: Callable[[Any], PositionOrTime | None], expected: str
) -> Positions:
    bare = value.strip()
    if not bare.startswith("{"):
        if (position := read_position(bare)) is not None:
            return Positions(name, position)
        raise ConfigError(
            f"must be {expected}, or JSON of these by stream, not {value!r}.", option=name
        )
    try:
        document = decode_document(bare, name)
    except DocumentError as error:
        raise ConfigError(
            f'must be JSON such as {{"ORDERS": …}}: {error.reason}.', option=name
        ) from None
    if not document:
        raise ConfigError("names no stream.", option=name)
    by_stream: dict[str, PositionOrTime] = {}
    for stream, item in document.items():
        if (position := read_position(item)) is None:
            text = msgspec.json.encode(item).decode()
            raise ConfigError(f"must be {expected} for {stream!r}, not {text}.", option=name)
        by_stream[stream] = position
    return Positions(name, None, by_stream)


def _position(value: Any) -> Position | None:
    folded = str(value).strip().casefold()
    if folded == "earliest":
        return "earliest"
    if folded == "latest":
        return "latest"
    return int(folded) if folded.isdecimal() and int(folded) >= 1 else None


def _time(name: str, value: Any) -> AtTime | None:
    bare = str(value).strip()
    if bare.isdecimal():
        if 0 < int(bare) < _FIRST_MS:  # 0 is written for "from the beginning"
            raise ConfigError(
                f"is in milliseconds since 1970, and {bare} of them end before "
                "any stream began: multiply seconds by 1000.",
                option=name,
            )
        return AtTime(int(bare) * NS_PER_MS) if int(bare) <= _LAST_MS else None
    try:
        return AtTime(parse_isotime(bare))
    except ValueError:
        return None


_READING: values.Table = {
    **readers(SourceScope),
    "starting_offsets": _offsets,
    "starting_timestamp": _times,
    "starting_offsets_by_timestamp": _times,
    "ending_offsets": _offsets,
    "ending_timestamp": _times,
    "ending_offsets_by_timestamp": _times,
}
OF_SCHEMA = readers(SchemaScope)
_PAYLOADS = readers(PayloadScope)
"""Options of decoding: the arguments of `Decoding.make`, with `lookup` in parts."""
_REGISTRY = "registry"
_SELECTION = ("stream", "streams", "stream_pattern", "bucket", "backup")
_OF_BUCKETS = ("keys", "history", "present_values")
_OF_STREAMS = ("subjects", "sole_reader", "interest_consumer")
_CONSUMERS = ("interest_consumer", "progress_consumer")
_OF_SERVERS = (*CONNECTION, "read_timeout", "backfill", "sole_reader", *_CONSUMERS)
READING_ONLY = frozenset({**_READING, **_PAYLOADS}) - {"stream", "bucket", *OF_SCHEMA}
"""Names that have no meaning for writing."""
_FOR_WRITING = readers(StreamSinkScope).keys() - {"stream", "bucket"}
_FOR_READ_STREAM = {
    **{
        name: "for readStream; a batch read takes the whole range (bound it with "
        f"{named('ending_offsets')})."
        for name in _READING
        if name.endswith("_per_trigger") or name == "max_trigger_delay"
    },
    **dict.fromkeys(_CONSUMERS, "for readStream; a batch read leaves nothing on the server."),
    "available_now": "for readStream; a batch read ends anyway.",
    "present_values": "for readStream; a batch read of a bucket has its present values anyway, "
    f"unless {named('history')} is true.",
    "orders_by_seq": "for readStream; a batch read sees only one stream of a name.",
}
_STARTS = ("starting_offsets", "starting_timestamp", "starting_offsets_by_timestamp")
ENDINGS = ("ending_offsets", "ending_timestamp", "ending_offsets_by_timestamp")
_FOR_READ = {
    "history": "for spark.read; a streaming query reads every change anyway.",
    "backup": "for spark.read: nothing is added to a backup.",
}


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The source's options; docs/options.md explains each."""

    connection: ConnectOptions = dataclasses.field(repr=False)
    option_names: frozenset[str] = frozenset()
    """Names of the given options."""
    streams: tuple[str, ...] = ()
    stream_pattern: str | None = None
    """A regular expression for whole names, in place of `streams`."""
    subjects: tuple[str, ...] = ()
    columns: tuple[str, ...] = COLUMNS
    decoding: Decoding | None = None
    """Decoding of payloads to columns; None: they stay as they are."""
    framing: Framing | None = None
    """Frame of payloads that are not decoded here."""
    starting: Positions | None = None
    ending: Positions = Positions("", "latest")
    starting_offsets_by_timestamp_strategy: str = SourceScope.starting_offsets_by_timestamp_strategy
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    max_trigger_delay: float = SourceScope.max_trigger_delay
    min_partitions: int = SourceScope.min_partitions
    max_records_per_partition: int = SourceScope.max_records_per_partition
    fail_on_data_loss: bool = SourceScope.fail_on_data_loss
    max_rows_per_batch: int = SourceScope.max_rows_per_batch
    max_bytes_per_batch: int = SourceScope.max_bytes_per_batch
    read_timeout: float = SourceScope.read_timeout
    sole_reader: bool = False
    interest_consumer: str | None = None
    progress_consumer: str | None = None
    backfill: str = SourceScope.backfill
    """Way to read a batch read, or the first micro-batch of a query."""
    backup: str | None = None
    """The folder of a backup, in place of a server."""
    bucket: str | None = None
    keys: tuple[str, ...] = ()
    history: bool = False
    present_values: bool = False
    """Only the last change of each key in a stream matters, since the rows are merged."""
    orders_by_seq: bool = False
    """The rows are ordered by `seq` in their table, so sequences that begin anew end the query."""
    available_now: bool = False
    """The query has nothing more to read after what is there when it starts."""

    @property
    def decoder(self) -> Decoder | None:
        """Decoder of payloads, for one task."""
        return None if self.decoding is None else self.decoding.decoder()

    @property
    def payload_framing(self) -> Framing:
        """Frame of payloads, decoded here or not."""
        if self.decoding is not None:
            return self.decoding.framing
        return Framing() if self.framing is None else self.framing

    def decodes(self, format_: str) -> bool:
        """Whether this is the format of the payloads."""
        return self.decoding is not None and self.decoding.schema.format == format_

    def without_decoder(self) -> SourceOptions:
        """Options that leave payloads undecoded."""
        return dataclasses.replace(self, decoding=None)

    def as_stored(self) -> SourceOptions:
        """Options that leave payloads as they are stored: framed, compressed, undecoded."""
        return dataclasses.replace(self, decoding=None, framing=None)

    @property
    def removes(self) -> bool:
        """Whether messages are removed once they are in the checkpoint.

        They are read by direct gets, since a consumer would remove them.
        """
        return self.sole_reader or self.interest_consumer is not None

    @property
    def is_snapshot(self) -> bool:
        """Whether a batch read has the present values of a bucket."""
        return self.bucket is not None and not self.history

    @property
    def by_snapshot(self) -> bool:
        """Whether batch reads, and a query's first micro-batch, use a snapshot."""
        return self.backfill != BACKFILLS[0]

    @property
    def blocks_deletes(self) -> bool:
        """Whether to use snapshots of servers before 2.15, which block deletes."""
        return self.backfill == BACKFILLS[2]

    @property
    def batch_start(self) -> Positions:
        """Start of a batch read; by default the first message."""
        return self.starting or Positions("", "earliest")

    @property
    def streaming_start(self) -> Positions:
        """Start of a streaming query: by default the end, for a sole reader the first message."""
        return self.starting or Positions("", "earliest" if self.sole_reader else "latest")

    def limits(self) -> ReadLimits:
        """Limits of reading ranges."""
        return ReadLimits(
            max_rows=self.max_rows_per_batch,
            max_bytes=self.max_bytes_per_batch,
            timeout=self.read_timeout,
        )

    def for_batch(self) -> SourceOptions:
        """The options for spark.read. Raises ConfigError for options of readStream only."""
        refuse(self.option_names, _FOR_READ_STREAM)
        if self.by_snapshot and "max_records_per_partition" in self.option_names:
            raise ConfigError(
                f"has no effect in a batch read with {named('backfill')}: each partition takes a "
                f"snapshot of its own, so set {named('min_partitions')} for more than one, or "
                "repartition the DataFrame.",
                option="max_records_per_partition",
            )
        if self.is_snapshot and self.by_snapshot:
            raise ConfigError(
                f"is for streams, and for a bucket with {named('history')}; its present values "
                "are read by a consumer.",
                option="backfill",
            )
        if self.is_snapshot and (self.starting or self.ending.option):
            raise ConfigError(
                f"A bucket's snapshot has neither start nor end; set {named('history')} to true to "
                "read a range of revisions."
            )
        if "latest" in self.batch_start.all():
            raise ConfigError("cannot be latest in a batch read.", option=self.batch_start.option)
        self._check_ending()
        return self

    def _check_ending(self) -> None:
        if "earliest" in self.ending.all():
            raise ConfigError("cannot be earliest.", option=self.ending.option)

    def for_streaming(self) -> SourceOptions:
        """The options for spark.readStream. Raises ConfigError for options of read only."""
        refuse(self.option_names, _FOR_READ)
        self._check_ending()
        if self.ending.option and self.present_values:
            raise ConfigError(
                f"cannot be used with {named('present_values')}: a value that "
                "was replaced after the end is no longer there.",
                option=self.ending.option,
            )
        if "max_trigger_delay" in self.option_names and self.min_offsets_per_trigger is None:
            raise ConfigError(
                f"needs {named('min_offsets_per_trigger')}: without it no batch waits.",
                option="max_trigger_delay",
            )
        max_offsets, min_offsets = self.max_offsets_per_trigger, self.min_offsets_per_trigger
        if max_offsets is not None and min_offsets is not None and min_offsets > max_offsets:
            raise ConfigError(
                f"({min_offsets}) is more than {named('max_offsets_per_trigger')} ({max_offsets}).",
                option="min_offsets_per_trigger",
            )
        if self.present_values and not self.fail_on_data_loss:
            raise ConfigError(
                f"cannot be false with {named('present_values')}: values that expire "
                "are no loss, and after any other loss newer values may have smaller revisions.",
                option="fail_on_data_loss",
            )
        if self.removes and self.progress_consumer is not None:
            raise ConfigError(
                f"cannot be used with {named('sole_reader')} or {named('interest_consumer')}: a "
                "further consumer would keep messages that were read; what is left in the stream "
                "already shows where the query is.",
                option="progress_consumer",
            )
        return self


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Raises ConfigError for unknown names (with the nearest known one), bad values, no stream."""
    elsewhere = dict.fromkeys(_FOR_WRITING, "writing")
    parsed = values.read_options(
        options, {**CONNECTION, **_READING, **_PAYLOADS}, elsewhere=elsewhere
    )
    _check_selection(parsed, options)
    reading = select(parsed, _READING)
    known_columns = BUCKET_COLUMNS if "bucket" in reading else COLUMNS
    if "stream" in reading:
        reading["streams"] = (reading.pop("stream"),)
    if "bucket" in reading:
        bucket = reading["bucket"]
        reading["streams"] = (STREAM_PREFIX + bucket,)
        reading["subjects"] = tuple(f"$KV.{bucket}.{key}" for key in reading.get("keys", ()))
    starting, ending = only_one(parsed, _STARTS), only_one(parsed, ENDINGS)
    connection = connection_options(parsed)
    payloads = select(parsed, _PAYLOADS)
    read = SourceOptions(
        connection=connection,
        option_names=frozenset(parsed),
        decoding=_decoding(payloads, connection),
        framing=_framing(payloads),
        starting=starting,
        ending=SourceOptions.ending if ending is None else ending,
        **{"columns": known_columns}
        | {name: value for name, value in reading.items() if name not in (*_STARTS, *ENDINGS)},
    )
    for name in read.columns:
        check_column(named("columns"), name, known_columns)
    if read.decoding is not None:
        _check_columns(read, "decode", read.decoding.needs)
    elif read.framing is not None:
        _check_columns(read, "framing", ["headers"] * read.framing.needs_headers)
    for positions in (read.starting, read.ending) if read.streams else ():
        if positions is not None:
            positions.check(read.streams)
    if read.by_snapshot and read.removes:
        name = "sole_reader" if read.sole_reader else "interest_consumer"
        raise ConfigError(
            f"cannot be used with {named(name)}: such a stream is read by direct gets.",
            option="backfill",
        )
    return read


def _framing(options: Mapping[str, Any]) -> Framing | None:
    """The frame of payloads that are not decoded."""
    if "decode" in options or not options:
        return None
    return Framing(options.get("framing", "none"), options.get("compression", "header")).checked()


def _decoding(payload_options: dict[str, Any], connection: ConnectOptions) -> Decoding | None:
    if payload_options.keys() <= {"framing", "compression"}:
        return None
    if "decode" not in payload_options:
        raise ConfigError(
            f"goes with {named('decode')}, the format of the payloads.",
            option=next(name for name in _PAYLOADS if name in payload_options),
        )
    return Decoding.make(**with_lookup(payload_options, connection))


def with_lookup(arguments: dict[str, Any], connection: ConnectOptions) -> dict[str, Any]:
    """The arguments of `Decoding.make`, or of `Codec`, with the registry in one piece."""
    of_registry = {
        name.removeprefix(f"{_REGISTRY}_"): arguments.pop(name)
        for name in list(arguments)
        if name.startswith(_REGISTRY)
    }
    address = of_registry.pop(_REGISTRY, None)
    if address is None and of_registry:
        raise ConfigError(
            f"goes with {named(_REGISTRY)}, the URL of one, or nats.",
            option=f"{_REGISTRY}_{min(of_registry)}",
        )
    if address is not None:
        # Its imports are not for every worker.
        from jetspark.registry.lookup import schema_lookup

        arguments["lookup"] = schema_lookup(address, connection, **of_registry)
    return arguments


def _check_columns(options: SourceOptions, name: str, needed_columns: list[str]) -> None:
    """That the payload is there, and the other columns that an option needs."""
    if options.bucket is not None:
        raise ConfigError("is for streams: a bucket's values stay as they are.", option=name)
    for needed in ("data", *needed_columns):
        if needed not in options.columns:
            raise ConfigError(
                f"needs the column {needed}, which {named('columns')} leaves out.", option=name
            )


def _check_selection(parsed: Mapping[str, object], options: Mapping[str, str]) -> None:
    chosen = [name for name in _SELECTION if name in parsed]
    if len(chosen) > 1:
        raise ConfigError(f"Give only one of {', '.join(map(named, chosen))}.")
    if not chosen:
        hint = (
            ""
            if options
            else " (Spark 4.3 forgets the options of CREATE TABLE … USING jetstream: repeat them, "
            "SELECT … FROM t WITH (stream = '…', servers = '…'), or use a TEMPORARY VIEW.)"
        )
        raise ConfigError(
            f"is missing: name the stream to read (or several with {named('streams')}, or a "
            f"{named('stream_pattern')}), a {named('bucket')} or a {named('backup')}.{hint}",
            option="stream",
        )
    reasons: dict[str, str] = {}
    if chosen == ["backup"]:
        reasons = dict.fromkeys(_OF_SERVERS, "for servers; a backup is read without one.")
    misplaced, kind = (_OF_STREAMS, "streams") if "bucket" in parsed else (_OF_BUCKETS, "a bucket")
    refuse(parsed, reasons | dict.fromkeys(misplaced, f"for reading {kind}."))
