"""The options of format("jetstream") for reading: checked at load, secrets in no repr."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from jetspark.bulk.arrow import BUCKET_COLUMNS, COLUMNS
from jetspark.bulk.fixed_range import NS_PER_MS, AtTime, Position, PositionOrTime
from jetspark.bulk.ranges import ReadLimits
from jetspark.codecs.decoding import Decoding
from jetspark.codecs.framing import Framing
from jetspark.codecs.tolerant import Decoder
from jetspark.connection.options import ConnectOptions
from jetspark.errors import ConfigError, DocumentError
from jetspark.kv_rules import STREAM_PREFIX, check_bucket
from jetspark.nearest import check_column
from jetspark.spark import option_values as values
from jetspark.spark.option_values import CONNECTION, connection_options, fields_of, refuse
from jetspark.subjects import check_name
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
    """A position for all streams (`everywhere`), or `each` by name; from the option `option`."""

    option: str
    everywhere: PositionOrTime | None = None
    each: Mapping[str, PositionOrTime] = field(default_factory=dict)

    def check(self, streams: Iterable[str]) -> None:
        """Raise ConfigError if positions are by stream, but not for exactly these streams."""
        streams = list(streams)
        if self.everywhere is None and set(streams) != set(self.each):
            raise ConfigError(
                f"Option {self.option!r} names {', '.join(self.each)}, but what is read is "
                f"{', '.join(streams)}: give a position for each of these."
            )

    def of(self, stream: str) -> PositionOrTime:
        """The position for one stream, after `check`."""
        return self.each[stream] if self.everywhere is None else self.everywhere

    def all(self) -> list[PositionOrTime]:
        """All given positions."""
        return list(self.each.values()) if self.everywhere is None else [self.everywhere]


def _offsets(name: str, value: str) -> Positions:
    """earliest, latest, a sequence, or a JSON object of these by stream."""
    words = "latest" if name.startswith("ending") else "earliest, latest"
    return _parse(name, value, _position, f"{words} or a sequence number of at least 1")


def _times(name: str, value: str) -> Positions:
    """A time, or a JSON object of times by stream."""
    expected = "a time (2026-01-31T12:00:00Z) or milliseconds since 1970"
    return _parse(name, value, partial(_time, name), expected)


def _parse(
    name: str, value: str, one: Callable[[Any], PositionOrTime | None], expected: str
) -> Positions:
    bare = value.strip()
    if not bare.startswith("{"):
        if (wanted := one(bare)) is not None:
            return Positions(name, wanted)
        raise ConfigError(
            f"Option {name!r} must be {expected}, or JSON of these by stream, not {value!r}."
        )
    try:
        document = decode_document(bare, name)
    except DocumentError as error:
        raise ConfigError(
            f'Option {name!r} must be JSON such as {{"ORDERS": …}}: {error.why}.'
        ) from None
    if not document:
        raise ConfigError(f"Option {name!r} names no stream.")
    each: dict[str, PositionOrTime] = {}
    for stream, given in document.items():
        if (wanted := one(given)) is None:
            text = msgspec.json.encode(given).decode()
            raise ConfigError(f"Option {name!r} must be {expected} for {stream!r}, not {text}.")
        each[stream] = wanted
    return Positions(name, None, each)


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
                f"Option {name!r} is in milliseconds since 1970, and {bare} of them end before "
                "any stream began: multiply seconds by 1000."
            )
        return AtTime(int(bare) * NS_PER_MS) if int(bare) <= _LAST_MS else None
    try:
        return AtTime(parse_isotime(bare))
    except ValueError:
        return None


# -------------------------------------------------------------------------------------------------


DEFAULT_RECORDS_PER_PARTITION = 250_000
BACKFILLS = ("consumer", "snapshot", "snapshot-blocking-deletes")

_READING: values.Table = {
    "stream": ("stream", values.stream),
    "streams": ("streams", values.streams),
    "streamPattern": ("stream_pattern", values.pattern),
    "subjects": ("subjects", values.subjects),
    "columns": ("columns", values.columns),
    "startingOffsets": ("starting", _offsets),
    "startingTimestamp": ("starting", _times),
    "startingOffsetsByTimestamp": ("starting", _times),
    "startingOffsetsByTimestampStrategy": ("strategy", values.word("error", "latest")),
    "endingOffsets": ("ending", _offsets),
    "endingTimestamp": ("ending", _times),
    "endingOffsetsByTimestamp": ("ending", _times),
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", values.whole),
    "minOffsetsPerTrigger": ("min_offsets_per_trigger", values.whole),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", values.whole),
    "maxTriggerDelay": ("max_trigger_delay", values.duration),
    "minPartitions": ("min_partitions", values.whole),
    "maxRecordsPerPartition": ("max_records_per_partition", values.whole),
    "failOnDataLoss": ("fail_on_data_loss", values.truth),
    "maxRowsPerBatch": ("max_rows_per_batch", values.whole),
    "maxBytesPerBatch": ("max_bytes_per_batch", values.whole),
    "readTimeout": ("read_timeout", values.seconds),
    "soleReader": ("sole_reader", values.truth),
    "interestConsumer": ("interest_consumer", lambda _, value: check_name("consumer", value)),
    "progressConsumer": ("progress_consumer", lambda _, value: check_name("consumer", value)),
    "backfill": ("backfill", values.word(*BACKFILLS)),
    "backup": ("backup", values.name),
    "bucket": ("bucket", lambda _, value: check_bucket(value)),
    "keys": ("keys", values.keys),
    "history": ("history", values.truth),
    "presentValues": ("present_values", values.truth),
    "ordersBySeq": ("orders_by_seq", values.truth),
    "availableNow": ("available_now", values.truth),
}
OF_SCHEMA: values.Table = {
    "schema": ("schema", values.name),
    "schemaFile": ("schema_file", values.name),
    "schemaName": ("schema_name", values.name),
    "schemaVersion": ("schema_version", values.whole),
    "registry": ("registry", values.name),
    "registryUser": ("registry_user", values.text),
    "registryPassword": ("registry_password", values.text),
    "registryToken": ("registry_token", values.text),
    "registryCaFile": ("registry_ca_file", values.text),
    "messageName": ("message", values.name),
    "framing": ("framing", values.name),
    "compression": ("compression", values.name),
}
"""The schema and the frame of payloads."""
_PAYLOADS: values.Table = {
    **OF_SCHEMA,
    "decode": ("decode", values.name),
    "fields": ("fields", values.columns),
    "keepPayload": ("keep_payload", values.truth),
    "onNewVersion": ("on_new_version", values.word("ignore", "stop")),
    "unavailableValue": ("unavailable_value", values.name),
    "rename": ("rename", values.renames),
}
"""How payloads are decoded: the arguments of `Decoding.make`, with `lookup` in parts."""
_REGISTRY = "registry"
_SELECTION = ("stream", "streams", "streamPattern", "bucket", "backup")
_OF_BUCKETS = ("keys", "history", "presentValues")
_OF_STREAMS = ("subjects", "soleReader", "interestConsumer")
_CONSUMERS = ("interestConsumer", "progressConsumer")
_OF_SERVERS = (*CONNECTION, "readTimeout", "backfill", "soleReader", *_CONSUMERS)
READING_ONLY = frozenset({**_READING, **_PAYLOADS}) - {"stream", "bucket", *OF_SCHEMA}
"""Names that have no meaning for writing."""
_FOR_WRITING = (
    *("subject", "guarantee", "transactionId", "lanes", "prepareStream", "adoptLedger"),
    *("writerName", "publishTimeout", "encode"),
)
_FOR_READ_STREAM = {
    **{
        name: "for readStream; a batch read takes the whole range (bound it with 'endingOffsets')."
        for name, (field, _) in _READING.items()
        if field.endswith("_per_trigger") or field == "max_trigger_delay"
    },
    **dict.fromkeys(_CONSUMERS, "for readStream; a batch read leaves nothing on the server."),
    "availableNow": "for readStream; a batch read ends anyway.",
    "presentValues": "for readStream; a batch read of a bucket has its present values anyway, "
    "unless 'history' is true.",
    "ordersBySeq": "for readStream; a batch read sees only one stream of a name.",
}
ENDINGS = tuple(name for name, (field, _) in _READING.items() if field == "ending")
_FOR_READ = {
    "history": "for spark.read; a streaming query reads every change anyway.",
    "backup": "for spark.read: nothing is added to a backup.",
}


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The source's options; docs/options.md explains each."""

    connection: ConnectOptions = dataclasses.field(repr=False)
    given: frozenset[str] = frozenset()
    """Names of the given options."""
    streams: tuple[str, ...] = ()
    stream_pattern: str | None = None
    """A regular expression for whole names, in place of `streams`."""
    subjects: tuple[str, ...] = ()
    columns: tuple[str, ...] = COLUMNS
    decoding: Decoding | None = None
    """How payloads become columns."""
    framing: Framing | None = None
    """How payloads are packed that are not decoded here."""
    starting: Positions | None = None
    ending: Positions = Positions("", "latest")
    strategy: str = "error"
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    max_trigger_delay: float = 15 * 60.0
    min_partitions: int = 1
    max_records_per_partition: int = DEFAULT_RECORDS_PER_PARTITION
    fail_on_data_loss: bool = True
    max_rows_per_batch: int = ReadLimits.max_rows
    max_bytes_per_batch: int = ReadLimits.max_bytes
    read_timeout: float = ReadLimits.timeout
    sole_reader: bool = False
    interest_consumer: str | None = None
    progress_consumer: str | None = None
    backfill: str = BACKFILLS[0]
    """How to read a batch read, or the first micro-batch of a query."""
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
        """What makes columns of payloads, for one task."""
        return None if self.decoding is None else self.decoding.decoder()

    @property
    def around(self) -> Framing:
        """What is around payloads."""
        if self.decoding is not None:
            return self.decoding.framing
        return Framing() if self.framing is None else self.framing

    def decodes(self, format_: str) -> bool:
        """Whether this is the format of the payloads."""
        return self.decoding is not None and self.decoding.schema.format == format_

    def without_decoder(self) -> SourceOptions:
        """The same, for payloads as they are."""
        return dataclasses.replace(self, decoding=None)

    def as_stored(self) -> SourceOptions:
        """The same, for messages as they are in the stream."""
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
        """Where a batch read begins; by default at the first message."""
        return self.starting or Positions("", "earliest")

    @property
    def streaming_start(self) -> Positions:
        """Where a streaming query begins: by default at the end, a sole reader at what waits."""
        return self.starting or Positions("", "earliest" if self.sole_reader else "latest")

    def limits(self) -> ReadLimits:
        """How ranges are read and divided."""
        return ReadLimits(
            max_rows=self.max_rows_per_batch,
            max_bytes=self.max_bytes_per_batch,
            timeout=self.read_timeout,
        )

    def for_batch(self) -> SourceOptions:
        """The options for spark.read. Raises ConfigError for options of readStream only."""
        refuse(self.given, _FOR_READ_STREAM)
        if self.by_snapshot and "maxRecordsPerPartition" in self.given:
            raise ConfigError(
                "Option 'maxRecordsPerPartition' has no effect in a batch read with 'backfill': "
                "each partition takes a snapshot of its own, so set 'minPartitions' for more "
                "than one, or repartition the DataFrame."
            )
        if self.is_snapshot and self.by_snapshot:
            raise ConfigError(
                "Option 'backfill' is for streams, and for a bucket with 'history'; its present "
                "values are read by a consumer."
            )
        if self.is_snapshot and (self.starting or self.ending.option):
            raise ConfigError(
                "A bucket's snapshot has neither start nor end; set 'history' to true to read a "
                "range of revisions."
            )
        if "latest" in self.batch_start.all():
            raise ConfigError(
                f"Option {self.batch_start.option!r} cannot be latest in a batch read."
            )
        self._check_ending()
        return self

    def _check_ending(self) -> None:
        if "earliest" in self.ending.all():
            raise ConfigError(f"Option {self.ending.option!r} cannot be earliest.")

    def for_streaming(self) -> SourceOptions:
        """The options for spark.readStream. Raises ConfigError for options of read only."""
        refuse(self.given, _FOR_READ)
        self._check_ending()
        if self.ending.option and self.present_values:
            raise ConfigError(
                f"Option {self.ending.option!r} cannot be used with 'presentValues': a value that "
                "was replaced after the end is no longer there."
            )
        if "maxTriggerDelay" in self.given and self.min_offsets_per_trigger is None:
            raise ConfigError(
                "Option 'maxTriggerDelay' needs 'minOffsetsPerTrigger': without it no batch waits."
            )
        most, least = self.max_offsets_per_trigger, self.min_offsets_per_trigger
        if most is not None and least is not None and least > most:
            raise ConfigError(
                f"Option 'minOffsetsPerTrigger' ({least}) is more than 'maxOffsetsPerTrigger' "
                f"({most})."
            )
        if self.present_values and not self.fail_on_data_loss:
            raise ConfigError(
                "Option 'failOnDataLoss' cannot be false with 'presentValues': values that expire "
                "are no loss, and after any other loss newer values may have smaller revisions."
            )
        if self.removes and self.progress_consumer is not None:
            raise ConfigError(
                "Option 'progressConsumer' cannot be used with 'soleReader' or "
                "'interestConsumer': a further consumer would keep messages that were read; what "
                "is left in the stream already shows where the query is."
            )
        return self


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Raises ConfigError for unknown names (with the nearest known one), bad values, no stream."""
    elsewhere = dict.fromkeys(_FOR_WRITING, "writing")
    given = values.read_options(
        options, {**CONNECTION, **_READING, **_PAYLOADS}, elsewhere=elsewhere
    )
    _check_selection(given, options)
    reading = fields_of(given, _READING)
    known = BUCKET_COLUMNS if "bucket" in reading else COLUMNS
    if "stream" in reading:
        reading["streams"] = (reading.pop("stream"),)
    if "bucket" in reading:
        bucket = reading["bucket"]
        reading["streams"] = (STREAM_PREFIX + bucket,)
        reading["subjects"] = tuple(f"$KV.{bucket}.{key}" for key in reading.get("keys", ()))
    connection = connection_options(given)
    found = SourceOptions(
        connection=connection,
        given=frozenset(given),
        decoding=_decoding(packed := fields_of(given, _PAYLOADS), connection),
        framing=_framing(packed),
        **{"columns": known, **reading},
    )
    for name in found.columns:
        check_column("Option 'columns'", name, known)
    if found.decoding is not None:
        _check_columns(found, "decode", found.decoding.needs)
    elif found.framing is not None:
        _check_columns(found, "framing", ["headers"] * found.framing.needs_headers)
    for wanted in (found.starting, found.ending) if found.streams else ():
        if wanted is not None:
            wanted.check(found.streams)
    if found.by_snapshot and found.removes:
        name = "soleReader" if found.sole_reader else "interestConsumer"
        raise ConfigError(
            f"Option 'backfill' cannot be used with {name!r}: such a stream is read by direct gets."
        )
    return found


def _framing(given: Mapping[str, Any]) -> Framing | None:
    """That of payloads that are not decoded."""
    if "decode" in given or not given:
        return None
    return Framing(given.get("framing", "none"), given.get("compression", "header")).checked()


def _decoding(given: dict[str, Any], connection: ConnectOptions) -> Decoding | None:
    if given.keys() <= {"framing", "compression"}:
        return None
    given = with_lookup(given, connection)
    if "decode" in given:
        return Decoding.make(**given)
    if given:
        names = [name for name, (argument, _) in _PAYLOADS.items() if argument in given]
        raise ConfigError(
            f"Option {[*names, _REGISTRY][0]!r} goes with 'decode', the format of the payloads."
        )
    return None


def with_lookup(given: dict[str, Any], connection: ConnectOptions) -> dict[str, Any]:
    """The arguments of `Decoding.make`, or of `Codec`, with the registry in one piece."""
    of_registry = {
        name.removeprefix(f"{_REGISTRY}_"): given.pop(name)
        for name in list(given)
        if name.startswith(_REGISTRY)
    }
    where = of_registry.pop(_REGISTRY, None)
    if where is None and of_registry:
        raise ConfigError("Options 'registry…' go with 'registry', the URL of one, or nats.")
    if where is not None:
        # Its imports are not for every worker.
        from jetspark.registry.lookup import schema_lookup

        given["lookup"] = schema_lookup(where, connection, **of_registry)
    return given


def _check_columns(options: SourceOptions, name: str, others: list[str]) -> None:
    """That the payload is there, and the other columns that an option needs."""
    if options.bucket is not None:
        raise ConfigError(f"Option {name!r} is for streams: a bucket's values stay as they are.")
    for needed in ("data", *others):
        if needed not in options.columns:
            raise ConfigError(
                f"Option {name!r} needs the column {needed}, which 'columns' leaves out."
            )


def _check_selection(given: Mapping[str, object], options: Mapping[str, str]) -> None:
    chosen = [name for name in _SELECTION if name in given]
    if len(chosen) > 1:
        raise ConfigError(f"Give only one of the options {', '.join(map(repr, chosen))}.")
    if not chosen:
        hint = (
            ""
            if options
            else " (Spark 4.3 forgets the options of CREATE TABLE … USING jetstream: repeat them, "
            "SELECT … FROM t WITH (stream = '…', servers = '…'), or use a TEMPORARY VIEW.)"
        )
        raise ConfigError(
            "Option 'stream' is missing: name the stream to read (or several with 'streams', or "
            f"a 'streamPattern'), a 'bucket' or a 'backup'.{hint}"
        )
    reasons: dict[str, str] = {}
    if chosen == ["backup"]:
        reasons = dict.fromkeys(_OF_SERVERS, "for servers; a backup is read without one.")
    others, kind = (_OF_STREAMS, "streams") if "bucket" in given else (_OF_BUCKETS, "a 'bucket'")
    refuse(given, reasons | dict.fromkeys(others, f"for reading {kind}."))
