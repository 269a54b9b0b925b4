"""The options of format("jetstream") for reading: checked at load, secrets in no repr."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from jetspark.connection.options import ConnectOptions
from jetspark.errors import ConfigError, named, switching
from jetspark.kv_rules import STREAM_PREFIX
from jetspark.nearest import check_column
from jetspark.options.parsers import Parsers, parse_keep
from jetspark.options.scopes import (
    BACKFILLS,
    CONNECTION,
    ENDINGS,
    STARTS,
    PayloadScope,
    SchemaScope,
    SourceScope,
    StreamSinkScope,
    connection_options,
    parsers_of,
)
from jetspark.options.spark_options import (
    read_options,
    refuse_options,
    select_options,
    take_only_one,
)
from jetspark.payloads.decoding import Decoding
from jetspark.payloads.framing import Framing
from jetspark.payloads.schema import SchemaLookup
from jetspark.payloads.tolerant import Decoder
from jetspark.ranges.arrow import BUCKET_COLUMNS, COLUMNS
from jetspark.ranges.sequence_range import ReadLimits
from jetspark.spark.source.position_options import POSITION_PARSERS, Positions
from jetspark.tables.formats import STORAGE

_SOURCE_OPTIONS: Parsers = {**parsers_of(SourceScope), **POSITION_PARSERS}
SCHEMA_OPTIONS = parsers_of(SchemaScope)
_PAYLOAD_OPTIONS = parsers_of(PayloadScope)
"""Options of decoding: the arguments of `Decoding.make`, with `lookup` in parts."""
_LATEST = Positions("", "latest")
"""The end of a read for which no option names one."""
_REGISTRY_OPTIONS = tuple(name for name in SCHEMA_OPTIONS if name.startswith("registry"))
_SELECTING_OPTIONS = ("stream", "streams", "stream_pattern", "bucket", "backup")
_BUCKET_OPTIONS = ("keys", "history", "present_values")
_TRIM_OPTIONS = ("trim", "keep", "trim_unread")
_STREAM_OPTIONS = ("subjects", "sole_reader", "interest_consumer", *_TRIM_OPTIONS)
_CONSUMERS = ("interest_consumer", "progress_consumer")
_WITH_TABLE = frozenset(
    {*CONNECTION, "stream", "streams", "table", "table_format", "columns", "fail_on_data_loss"}
    | {"min_partitions", "max_records_per_partition", "max_rows_per_batch", "max_bytes_per_batch"}
    | {"read_timeout", *_REGISTRY_OPTIONS}
)
"""The options that go with `table`, whose query decides all others."""
_SERVER_OPTIONS = (
    *CONNECTION, "read_timeout", "backfill", "sole_reader", *_CONSUMERS, *_TRIM_OPTIONS
)  # fmt: skip
READING_ONLY = frozenset({**_SOURCE_OPTIONS, **_PAYLOAD_OPTIONS}) - {
    "stream",
    "bucket",
    *SCHEMA_OPTIONS,
}
"""Names that have no meaning for writing."""
_WRITING_ONLY = parsers_of(StreamSinkScope).keys() - {"stream", "bucket"}
_NOT_FOR_BATCH = {
    **{
        name: "for readStream; a batch read takes the whole range (bound it with "
        f"{named('ending_offsets')})."
        for name in _SOURCE_OPTIONS
        if name.endswith("_per_trigger") or name == "max_trigger_delay"
    },
    **dict.fromkeys(_TRIM_OPTIONS, "for readStream; a batch read removes nothing."),
    **dict.fromkeys(_CONSUMERS, "for readStream; a batch read leaves nothing on the server."),
    "available_now": "for readStream; a batch read ends anyway.",
    "present_values": "for readStream; a batch read of a bucket has its present values anyway, "
    f"unless {named('history')} is true.",
    "orders_by_seq": "for readStream; a batch read sees only one stream of a name.",
}
"""The reasons why a batch read refuses options."""
_NOT_FOR_STREAMING = {
    "history": "for spark.read; a streaming query reads every change anyway.",
    "backup": "for spark.read: nothing is added to a backup.",
    "table": "for spark.read; a query that reads the stream from its start has all of it.",
}
"""The reasons why a streaming query refuses options."""


@dataclass(frozen=True, kw_only=True)
class SourceOptions(SourceScope):
    """The options of format("jetstream") for reading, checked; docs/options.md explains each.

    The texts `starting_…` and `ending_…` are unset here, in place of which there are `starting` and
    `ending`; and so is `stream`, which is in `streams`.
    """

    connection: ConnectOptions = field(repr=False)
    option_names: frozenset[str] = frozenset()
    """Names of the options that the user gave."""
    columns: tuple[str, ...] = COLUMNS
    decoding: Decoding | None = None
    """Decoding of payloads to columns; None: they stay as they are."""
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of the storage of `table`, with their prefix."""
    lookup: SchemaLookup | None = field(default=None, repr=False)
    """With `table`: the registry of its payloads' schemas."""
    framing: Framing | None = None
    """Frame of payloads that are not decoded here."""
    starting: Positions | None = None
    ending: Positions = _LATEST

    @property
    def decoder(self) -> Decoder | None:
        """A new decoder of payloads, for one task; None if payloads are not decoded."""
        return None if self.decoding is None else self.decoding.decoder()

    @property
    def payload_framing(self) -> Framing:
        """What is around payloads, such as a registry's header or compression, decoded or not."""
        return self.decoding.framing if self.decoding else self.framing or Framing()

    def decodes(self, format_: str) -> bool:
        """Whether payloads are decoded, and have this format."""
        return self.decoding is not None and self.decoding.schema.format == format_

    @property
    def removes_read_messages(self) -> bool:
        """Whether messages are removed from the stream once they are in the checkpoint."""
        return self.trim or self.reads_by_direct_gets

    @property
    def reads_by_direct_gets(self) -> bool:
        """Whether messages are read by direct gets, since a consumer's acknowledgements would
        remove them."""
        return self.sole_reader or self.interest_consumer is not None

    @property
    def reads_current_values(self) -> bool:
        """Whether a batch read has the present values of a bucket, not all revisions."""
        return self.bucket is not None and not self.history

    @property
    def backfills_by_snapshot(self) -> bool:
        """Whether batch reads, and a query's first micro-batch, use a snapshot of the stream."""
        return self.backfill != BACKFILLS[0]

    @property
    def may_block_deletes(self) -> bool:
        """Whether the user accepts that servers before 2.15 block deletes during a snapshot."""
        return self.backfill == BACKFILLS[2]

    @property
    def batch_start(self) -> Positions:
        """Where a batch read begins; by default at the first message."""
        return self.starting or Positions("", "earliest")

    @property
    def streaming_start(self) -> Positions:
        """Where a streaming query begins: by default at the end, a sole reader at the start."""
        return self.starting or Positions("", "earliest" if self.sole_reader else "latest")

    def limits(self) -> ReadLimits:
        """The limits for reading ranges of messages: rows and bytes of a batch, and seconds."""
        return ReadLimits(
            max_rows=self.max_rows_per_batch,
            max_bytes=self.max_bytes_per_batch,
            timeout=self.read_timeout,
        )

    def for_batch(self) -> Self:
        """Check that the options fit a batch read (`spark.read`), and return them.

        Raises ConfigError, such as for options of readStream.
        """
        refuse_options(self.option_names, _NOT_FOR_BATCH)
        if self.backfills_by_snapshot and "max_records_per_partition" in self.option_names:
            raise ConfigError(
                f"has no effect in a batch read with {named('backfill')}: each partition takes a "
                f"snapshot of its own, so set {named('min_partitions')} for more than one, or "
                "repartition the DataFrame.",
                option="max_records_per_partition",
            )
        if self.reads_current_values and self.backfills_by_snapshot:
            raise ConfigError(
                f"is for streams, and for a bucket with {named('history')}; its present values "
                "are read by a consumer.",
                option="backfill",
            )
        if self.reads_current_values and (self.starting or self.ending.option):
            raise ConfigError(
                f"A bucket's snapshot has neither start nor end; {switching('history', True)} to "
                "read a range of revisions."
            )
        if "latest" in self.batch_start.all():
            raise ConfigError("cannot be latest in a batch read.", option=self.batch_start.option)
        self._check_ending()
        return self

    def _check_ending(self) -> None:
        """Raise ConfigError if the options let the read end at the first message, before any."""
        if "earliest" in self.ending.all():
            raise ConfigError("cannot be earliest.", option=self.ending.option)

    def for_streaming(self) -> Self:
        """Check that the options fit a streaming query (`spark.readStream`), and return them.

        Raises ConfigError, such as for options of `spark.read` only, or a limit that has no effect.
        """
        refuse_options(self.option_names, _NOT_FOR_STREAMING)
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
        if self.reads_by_direct_gets and self.progress_consumer is not None:
            raise ConfigError(
                f"cannot be used with {named('sole_reader')} or {named('interest_consumer')}: a "
                "further consumer would keep messages that were read; what is left in the stream "
                "already shows where the query is.",
                option="progress_consumer",
            )
        return self


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Parse and check the options of a source, which Spark passes as texts.

    A stream's name becomes `streams`, and a bucket its stream, with its keys as subjects. Raises
    ConfigError for unknown names (with the nearest known one), bad values, no stream.
    """
    elsewhere = dict.fromkeys(_WRITING_ONLY, "writing")
    storage = {name: text for name, text in options.items() if name.casefold().startswith(STORAGE)}
    options = {name: text for name, text in options.items() if name not in storage}
    parsed = read_options(
        options, {**CONNECTION, **_SOURCE_OPTIONS, **_PAYLOAD_OPTIONS}, elsewhere=elsewhere
    )
    _check_selection(parsed, options, has_storage=bool(storage))
    reading = select_options(parsed, _SOURCE_OPTIONS.keys() - POSITION_PARSERS.keys())
    known_columns = COLUMNS
    if "stream" in reading:
        reading["streams"] = (reading.pop("stream"),)
    if "bucket" in reading:
        known_columns, bucket = BUCKET_COLUMNS, reading["bucket"]
        reading["streams"] = (STREAM_PREFIX + bucket,)
        reading["subjects"] = tuple(f"$KV.{bucket}.{key}" for key in reading.get("keys", ()))
    connection, payloads = connection_options(parsed), select_options(parsed, _PAYLOAD_OPTIONS)
    if "table" in parsed:
        return SourceOptions(
            connection=connection,
            option_names=frozenset(parsed),
            storage=storage,
            lookup=with_lookup(payloads, connection).get("lookup"),
            **{"columns": ()} | reading,
        )
    read = SourceOptions(
        connection=connection,
        option_names=frozenset(parsed),
        decoding=_make_decoding(payloads, connection),
        framing=_make_framing(payloads),
        starting=take_only_one(parsed, STARTS),
        ending=take_only_one(parsed, ENDINGS) or _LATEST,
        **{"columns": known_columns} | reading,
    )
    for name in read.columns:
        check_column(named("columns"), name, known_columns)
    if read.decoding is not None:
        _check_payload_columns(read, "decode", read.decoding.needs)
    elif read.framing is not None:
        _check_payload_columns(read, "framing", ["headers"] * read.framing.needs_headers)
    # By a pattern or in a backup the streams are not known yet.
    for positions in (read.starting, read.ending) if read.streams else ():
        if positions is not None:
            positions.check(read.streams)
    if read.trim and read.reads_by_direct_gets:
        raise ConfigError(
            f"is for streams with retention 'limits'; {named('sole_reader')} and "
            f"{named('interest_consumer')} remove messages anyway.",
            option="trim",
        )
    if not read.trim and (read.keep is not None or read.trim_unread):
        raise ConfigError(
            f"goes with {named('trim')}.", option="keep" if read.keep is not None else "trim_unread"
        )
    if read.keep is not None:
        parse_keep(read.keep)
    if read.backfills_by_snapshot and read.reads_by_direct_gets:
        name = "sole_reader" if read.sole_reader else "interest_consumer"
        raise ConfigError(
            f"cannot be used with {named(name)}: such a stream is read by direct gets.",
            option="backfill",
        )
    return read


def _make_framing(payload_options: Mapping[str, Any]) -> Framing | None:
    """What to remove around payloads that are not decoded, by the options `framing` and
    `compression`.

    None if payloads are decoded (then `Decoding` has it), or no option names it.
    """
    if "decode" in payload_options or not payload_options:
        return None
    framing = payload_options.get("framing", "none")
    return Framing(framing, payload_options.get("compression", "header")).checked()


def _make_decoding(payload_options: dict[str, Any], connection: ConnectOptions) -> Decoding | None:
    """How payloads become columns, by the options for that; None if they are not decoded.

    Raises ConfigError for options that need `decode`.
    """
    if payload_options.keys() <= {"framing", "compression"}:
        return None
    if "decode" not in payload_options:
        raise ConfigError(
            f"goes with {named('decode')}, the format of the payloads.",
            option=next(name for name in _PAYLOAD_OPTIONS if name in payload_options),
        )
    return Decoding.make(**with_lookup(payload_options, connection))


def with_lookup(arguments: dict[str, Any], connection: ConnectOptions) -> dict[str, Any]:
    """Replace the options of a schema registry by the argument `lookup`, which finds schemas in it.

    The result are arguments of `Decoding.make` or `Codec`. `connection`: to NATS, for a registry in
    a bucket. Raises ConfigError.
    """
    registry = {name: arguments.pop(name) for name in _REGISTRY_OPTIONS if name in arguments}
    if not registry:
        return arguments
    if (address := registry.pop("registry", None)) is None:
        raise ConfigError(
            f"goes with {named('registry')}, the URL of one, or nats.",
            option=min(registry),
        )
    # Its imports are not for every worker.
    from jetspark.registry.lookup import schema_lookup

    login = {name.removeprefix("registry_"): value for name, value in registry.items()}
    return {**arguments, "lookup": schema_lookup(address, connection, **login)}


def _check_payload_columns(options: SourceOptions, option: str, further_columns: list[str]) -> None:
    """Raise ConfigError if the source's rows lack the payload, or other columns, which `option`
    (`decode` or `framing`) needs."""
    if options.bucket is not None:
        raise ConfigError("is for streams: a bucket's values stay as they are.", option=option)
    for column in ("data", *further_columns):
        if column not in options.columns:
            raise ConfigError(
                f"needs the column {column}, which {named('columns')} leaves out.", option=option
            )


def _check_selection(
    parsed: Mapping[str, object], options: Mapping[str, str], *, has_storage: bool
) -> None:
    """Raise ConfigError unless exactly one option says what to read (a stream, several, a bucket, a
    backup), and no other option is for something else.

    `options`: as the user gave them; `parsed`: with names as in Python; `has_storage`: there are
    options of a table's storage.
    """
    chosen = [name for name in _SELECTING_OPTIONS if name in parsed]
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
    if "backup" in parsed:
        refuse_options(
            parsed, dict.fromkeys(_SERVER_OPTIONS, "for servers; a backup is read without one.")
        )
    if "table" in parsed:
        reason = "decided by the query of the table; choose among the rows afterwards."
        refuse_options(parsed, dict.fromkeys(sorted(parsed.keys() - _WITH_TABLE), reason))
    elif "table_format" in parsed or has_storage:
        raise ConfigError(
            f"Options {named('table_format')} and {STORAGE}… go with {named('table')}."
        )
    if "bucket" in parsed:
        refuse_options(parsed, dict.fromkeys(_STREAM_OPTIONS, "for reading streams."))
    else:
        refuse_options(parsed, dict.fromkeys(_BUCKET_OPTIONS, "for reading a bucket."))
