"""The options of format("jetstream"): read once, checked at load, secrets in no repr.

Names follow Spark's Kafka connector where the meaning is the same. Spark folds the case of option
names, so ours are matched without case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jetspark.bulk.arrow import BUCKET_COLUMNS, COLUMNS
from jetspark.bulk.ranges import ReadLimits
from jetspark.connection.options import ConnectOptions
from jetspark.errors import ConfigError
from jetspark.kv_rules import STREAM_PREFIX, check_bucket
from jetspark.spark import option_values as values
from jetspark.spark import positions
from jetspark.spark.connection_options import CONNECTION, connection_options
from jetspark.spark.ddl import ambiguous
from jetspark.spark.option_names import named
from jetspark.spark.positions import Position, Positions
from jetspark.subjects import check_name, nearest_name

DEFAULT_RECORDS_PER_PARTITION = 250_000
DEFAULT_TRIGGER_DELAY = 15 * 60.0


def _strategy(name: str, value: str) -> str:
    if value not in ("error", "latest"):
        raise ConfigError(f"Option {name!r} must be error or latest, not {value!r}.")
    return value


def _consumer(name: str, value: str) -> str:
    return check_name("consumer", value)


BACKFILLS = ("consumer", "snapshot", "snapshot-blocking-deletes")


def _backfill(name: str, value: str) -> str:
    if value not in BACKFILLS:
        raise ConfigError(f"Option {name!r} must be {', '.join(BACKFILLS)}, not {value!r}.")
    return value


_READING: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "stream": ("streams", lambda name, value: (check_name("stream", value),)),
    "streams": ("streams", values.streams),
    "streamPattern": ("stream_pattern", values.pattern),
    "subjects": ("subjects", values.subjects),
    "columns": ("columns", values.columns),
    "jsonSchema": ("json_fields", values.json_fields),
    "startingOffsetsByTimestampStrategy": ("strategy", _strategy),
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
    "interestConsumer": ("interest_consumer", _consumer),
    "progressConsumer": ("progress_consumer", _consumer),
    "backfill": ("backfill", _backfill),
    "backup": ("backup", values.name),
    "bucket": ("bucket", lambda name, value: check_bucket(value)),
    "keys": ("keys", values.keys),
    "history": ("history", values.truth),
    "presentValues": ("present_values", values.truth),
}
_STARTING: dict[str, Callable[[str, str], Positions]] = {
    "startingOffsets": positions.offsets,
    "startingTimestamp": positions.times,
    "startingOffsetsByTimestamp": positions.times,
}
_ENDING: dict[str, Callable[[str, str], Positions]] = {
    "endingOffsets": positions.offsets,
    "endingTimestamp": positions.times,
    "endingOffsetsByTimestamp": positions.times,
}
_SELECTION = ("stream", "streams", "streamPattern", "bucket", "backup")
_OF_BUCKETS = ("keys", "history", "presentValues")
_OF_STREAMS = ("subjects", "soleReader", "interestConsumer")
_STREAMING_ONLY = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "maxTriggerDelay",
)
_CONSUMERS = ("interestConsumer", "progressConsumer")
_OF_SERVERS = (*CONNECTION, "readTimeout", "backfill", "soleReader", *_CONSUMERS)
_KNOWN = (*CONNECTION, *_READING, *_STARTING, *_ENDING)
READING_ONLY = frozenset({*_READING, *_STARTING, *_ENDING}) - {"stream", "bucket"}
"""Names that have no meaning for writing."""
_FOR_WRITING = (
    *("subject", "guarantee", "transactionId", "lanes", "prepareStream", "adoptLedger"),
    *("writerName", "publishTimeout"),
)


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The source's options; docs/guide-spark.md explains each."""

    connection: ConnectOptions = field(repr=False)
    given: frozenset[str] = frozenset()
    """Names of the options that were given."""
    streams: tuple[str, ...] = ()
    stream_pattern: str | None = None
    """A regular expression for whole names, instead of `streams`."""
    subjects: tuple[str, ...] = ()
    columns: tuple[str, ...] = COLUMNS
    json_fields: tuple[tuple[str, str], ...] = ()
    """Names and types of further columns, out of JSON payloads."""
    starting: Mapping[str, Positions] = field(default_factory=dict)
    ending: Mapping[str, Positions] = field(default_factory=dict)
    strategy: str = "error"
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    max_trigger_delay: float = DEFAULT_TRIGGER_DELAY
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
    """How a batch read, or the first micro-batch of a query, is read."""
    backup: str | None = None
    """The folder of a backup, in place of a server."""
    bucket: str | None = None
    keys: tuple[str, ...] = ()
    history: bool = False
    present_values: bool = False
    """Of a stream of changes only the last one of each key matters: the rows are merged."""

    @property
    def takes_nothing(self) -> bool:
        """Read by direct gets, since a consumer would remove the messages."""
        return self.sole_reader or self.interest_consumer is not None

    @property
    def is_snapshot(self) -> bool:
        """In a batch read: the present values of a bucket."""
        return self.bucket is not None and not self.history

    @property
    def by_snapshot(self) -> bool:
        """Batch reads, and the first micro-batch of a query, come through a snapshot."""
        return self.backfill != BACKFILLS[0]

    @property
    def blocks_deletes(self) -> bool:
        """Also from servers before 2.15, where a snapshot blocks deletes."""
        return self.backfill == BACKFILLS[2]

    def limits(self) -> ReadLimits:
        """How ranges are read and divided."""
        return ReadLimits(
            max_rows=self.max_rows_per_batch,
            max_bytes=self.max_bytes_per_batch,
            timeout=self.read_timeout,
        )

    def starting_positions(self, default: Position) -> Positions:
        """Where to begin. Raises ConfigError if several options give it."""
        return positions.one_of(self.starting, default)

    def streaming_start(self) -> Positions:
        """Where a streaming query begins: by default at the end, a sole reader at what waits.

        Raises as `starting_positions`.
        """
        return self.starting_positions("earliest" if self.sole_reader else "latest")

    def ending_positions(self) -> Positions:
        """Where to end. Raises ConfigError if several options give it."""
        return positions.one_of(self.ending, "latest")

    def for_batch(self) -> SourceOptions:
        """These options for spark.read; raises ConfigError for those of readStream only."""
        for name in _STREAMING_ONLY:
            if name in self.given:
                raise ConfigError(
                    f"Option {name!r} is for readStream; a batch read takes the whole range "
                    "(bound it with 'endingOffsets')."
                )
        for name in _CONSUMERS:
            if name in self.given:
                raise ConfigError(
                    f"Option {name!r} is for readStream; a batch read leaves nothing on the server."
                )
        if "presentValues" in self.given:
            raise ConfigError(
                "Option 'presentValues' is for readStream; a batch read of a bucket has its "
                "present values anyway, unless 'history' is true."
            )
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
        if self.is_snapshot and (self.starting or self.ending):
            raise ConfigError(
                "A bucket's snapshot has neither start nor end; set 'history' to true to read a "
                "range of revisions."
            )
        starting = self.starting_positions("earliest")
        if "latest" in starting.all():
            raise ConfigError(f"Option {starting.option!r} cannot be latest in a batch read.")
        if "earliest" in (ending := self.ending_positions()).all():
            raise ConfigError(f"Option {ending.option!r} cannot be earliest.")
        return self

    def for_streaming(self) -> SourceOptions:
        """These options for spark.readStream; raises ConfigError for those of read only."""
        if "history" in self.given:
            raise ConfigError(
                "Option 'history' is for spark.read; a streaming query reads every change anyway."
            )
        if self.backup is not None:
            raise ConfigError("Option 'backup' is for spark.read: nothing is added to a backup.")
        if self.ending:
            raise ConfigError(
                f"Option {next(iter(self.ending))!r} is for spark.read; a streaming query has no "
                "end (trigger(availableNow=True) stops at what is there when it starts)."
            )
        self.streaming_start()
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
        if self.takes_nothing and self.progress_consumer is not None:
            raise ConfigError(
                "Option 'progressConsumer' cannot be used with 'soleReader' or "
                "'interestConsumer': a further consumer would keep messages that were read; what "
                "is left in the stream already shows where the query is."
            )
        return self


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Raises ConfigError: unknown names (with the nearest known one), bad values, no stream."""
    connection: dict[str, Any] = {}
    reading: dict[str, Any] = {}
    starting: dict[str, Positions] = {}
    ending: dict[str, Positions] = {}
    given = set()
    elsewhere = dict.fromkeys(_FOR_WRITING, "writing")
    for name, value in named(options, _KNOWN, elsewhere=elsewhere):
        given.add(name)
        if name in CONNECTION:
            target, convert = CONNECTION[name]
            connection[target] = values.read(convert, name, value)
        elif name in _STARTING:
            starting[name] = _STARTING[name](name, value)
        elif name in _ENDING:
            ending[name] = _ENDING[name](name, value)
        else:
            target, convert = _READING[name]
            reading[target] = values.read(convert, name, value)
    _check_selection(given, options)
    if "bucket" in reading:
        bucket = reading["bucket"]
        reading["streams"] = (STREAM_PREFIX + bucket,)
        reading["subjects"] = tuple(f"$KV.{bucket}.{key}" for key in reading.get("keys", ()))
        reading.setdefault("columns", BUCKET_COLUMNS)
    _check_columns(reading.get("columns", COLUMNS), of_bucket="bucket" in reading)
    if "json_fields" in reading:
        _check_json(reading)
    for wanted in (*starting.values(), *ending.values()) if "streams" in reading else ():
        wanted.check(reading["streams"])
    if reading.get("backfill", BACKFILLS[0]) != BACKFILLS[0]:
        _check_backfill(reading)
    return SourceOptions(
        connection=connection_options(connection),
        given=frozenset(given),
        starting=starting,
        ending=ending,
        **reading,
    )


def _check_backfill(reading: Mapping[str, Any]) -> None:
    for name, target in (("soleReader", "sole_reader"), ("interestConsumer", "interest_consumer")):
        if reading.get(target):
            raise ConfigError(
                f"Option 'backfill' cannot be used with {name!r}: such a stream is read by direct "
                "gets."
            )


def _check_json(reading: Mapping[str, Any]) -> None:
    columns = reading.get("columns", COLUMNS)
    if "bucket" in reading:
        raise ConfigError("Option 'jsonSchema' is for streams: use from_json on a bucket's values.")
    if "data" not in columns:
        raise ConfigError("Option 'jsonSchema' needs the column data, which 'columns' leaves out.")
    if name := ambiguous(columns, dict(reading["json_fields"])):
        raise ConfigError(
            f"Option 'jsonSchema': there is another column {name}, which Spark could not "
            "distinguish: use from_json on data."
        )


def _check_columns(columns: Sequence[str], *, of_bucket: bool) -> None:
    known = BUCKET_COLUMNS if of_bucket else COLUMNS
    for name in columns:
        if name not in known:
            near = nearest_name(name, known)
            hint = f"did you mean {near!r}?" if near else f"there are {', '.join(known)}."
            raise ConfigError(f"Option 'columns': there is no column {name!r}; {hint}")


def _check_selection(given: set[str], options: Mapping[str, str]) -> None:
    chosen = [name for name in _SELECTION if name in given]
    if len(chosen) > 1:
        raise ConfigError(f"Give only one of the options {', '.join(map(repr, chosen))}.")
    if not chosen:
        hint = (
            ""
            if options
            else (
                " (Spark 4.3 forgets the options of CREATE TABLE … USING jetstream: repeat them, "
                "SELECT … FROM t WITH (stream = '…', servers = '…'), or use a TEMPORARY VIEW.)"
            )
        )
        raise ConfigError(
            "Option 'stream' is missing: name the stream to read (or several with 'streams', or "
            f"a 'streamPattern'), a 'bucket' or a 'backup'.{hint}"
        )
    for name in _OF_SERVERS if chosen == ["backup"] else ():
        if name in given:
            raise ConfigError(f"Option {name!r} is for servers; a backup is read without one.")
    of_others = _OF_STREAMS if chosen == ["bucket"] else _OF_BUCKETS
    for name in of_others:
        if name in given:
            kind = "streams" if chosen == ["bucket"] else "a 'bucket'"
            raise ConfigError(f"Option {name!r} is for reading {kind}.")
