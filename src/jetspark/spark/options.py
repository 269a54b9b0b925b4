"""The options of format("jetstream"): read once, checked at load, secrets in no repr.

Names follow Spark's Kafka connector where the meaning is the same. Spark folds the case of option
names, so ours are matched without case.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

import msgspec

from jetspark.bulk.arrow import BUCKET_COLUMNS, COLUMNS
from jetspark.bulk.ranges import ReadLimits
from jetspark.connection.options import ConnectOptions, make_options
from jetspark.connection.proxy import parse_proxy
from jetspark.connection.urls import parse_urls
from jetspark.errors import ConfigError, DocumentError
from jetspark.kv_rules import STREAM_PREFIX, check_bucket
from jetspark.spark import option_values as values
from jetspark.spark.ddl import ambiguous
from jetspark.subjects import check_name, nearest_name
from jetspark.timestamps import NANOSECONDS, format_isotime, parse_isotime
from jetspark.wire.documents import decode_document

# -------------------------------------------------------------------------------------------------
# The connection options of format("jetstream").
#
# They are read on the driver and used on the executors. Texts are sent with the plan's readers,
# and are in no repr. Files (`credsFile`, `nkeySeedFile`, `tls…File`, `tlsCaDir`) must exist on
# every machine under the same path, and are read at each connect. Spark shows the options of a
# write in its plans, and masks those whose names contain secret, password, token or credential:
# all options for secrets have such names, and URLs with secrets are refused. A context of the
# `nats` command and the NATS_… variables exist on the driver only: the credentials files that they
# name are read there, and their contents are sent.


def _servers(name: str, value: str) -> str:
    for url in parse_urls(value):
        if url.user is not None or url.token is not None:
            raise ConfigError(
                f"Option {name!r} holds a user or token: give them in the options 'user' and "
                "'password', or 'token', which Spark does not show."
            )
    return value


def _proxy(name: str, value: str) -> str:
    if parse_proxy(value).user is not None:
        raise ConfigError(
            f"Option {name!r} holds a user: name the proxy in a context of the nats command, whose "
            "secrets Spark does not show."
        )
    return value


CONNECTION: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "servers": ("servers", _servers),
    "context": ("context", values.text),
    "user": ("user", values.text),
    "password": ("password", values.text),
    "token": ("token", values.text),
    "credsFile": ("creds_file", values.text),
    "credentials": ("creds", values.text),
    "nkeySeedFile": ("nkey_seed_file", values.text),
    "nkeySecret": ("nkey_seed", values.text),
    "jwtToken": ("jwt", values.text),
    "proxy": ("proxy", _proxy),
    "tls": ("tls", values.truth),
    "tlsFirst": ("tls_first", values.truth),
    "tlsCaFile": ("tls_ca_file", values.text),
    "tlsCaDir": ("tls_ca_dir", values.text),
    "tlsCertFile": ("tls_cert_file", values.text),
    "tlsKeyFile": ("tls_key_file", values.text),
    "tlsKeyPassword": ("tls_key_password", values.text),
    "tlsHostname": ("tls_hostname", values.text),
    "connectTimeout": ("connect_timeout", values.seconds),
    "inboxPrefix": ("inbox_prefix", values.subject),
    "jetstreamDomain": ("jetstream_domain", lambda name, value: check_name("domain", value)),
    "jetstreamApiPrefix": ("jetstream_api_prefix", values.api_prefix),
}
"""By the name in Spark: the name in ConnectOptions, and the parser of the text."""

MASKED = {
    "creds": "credentials",
    "nkeyseed": "nkeySecret",
    "nkey_seed": "nkeySecret",
    "jwt": "jwtToken",
}
"""The client's names, folded, that Spark would show in plans, and the masked ones to use."""

CALLABLES = {
    "sign": "executors cannot call it; use credentials, credsFile, or jwtToken with nkeySecret",
    "nkey": "executors cannot call sign; use nkeySecret or nkeySeedFile",
    "dialer": "it cannot be sent to executors; use proxy",
    "sslcontext": "it cannot be sent to executors; use the tls… options",
    "ssl_context": "it cannot be sent to executors; use the tls… options",
}
"""Options of the client, folded, that Spark cannot have: the reason, and what to use."""


_HERE = {target: name for name, (target, _) in CONNECTION.items() if target != name}
# Not in quotation marks, which contain what the user wrote.
_CLIENT_NAME = re.compile(rf"(?<!['\"\w])(?:{'|'.join(_HERE)})(?!['\"\w])")


def with_names_of_spark(error: ConfigError) -> ConfigError:
    """The client's error with the names of the options in Spark."""
    said = str(error)
    here = _CLIENT_NAME.sub(lambda found: _HERE[found[0]], said)
    return error if here == said else ConfigError(here)


def connection_options(given: dict[str, Any]) -> ConnectOptions:
    """ConnectOptions from their fields and `context`. Raises ConfigError."""
    if {"jetstream_domain", "jetstream_api_prefix"} <= given.keys():
        raise ConfigError("Give either 'jetstreamDomain' or 'jetstreamApiPrefix', not both.")
    try:
        options = make_options(**given)
        named_here = {"creds_file", "nkey_seed_file"} & given.keys()
        return options if named_here else options.with_contents()
    except ConfigError as error:
        raise with_names_of_spark(error) from None


# -------------------------------------------------------------------------------------------------
# Matches the options that Spark passes with those of the format.


# A catalog table's own properties, which Spark passes in addition to the options.
_OF_CATALOG = frozenset(
    {"provider", "owner", "location", "comment", "collation", "external", "is_managed_location"}
)
_OPTION_OF_TABLE = "option."  # how a table keeps the options it was created with
_OF_KAFKA = {
    "kafka.bootstrap.servers": "'servers' here",
    "subscribe": "'stream' or 'streams' here",
    "subscribepattern": "'streamPattern' here",
    "topic": "'subject' here",
    "includeheaders": "'columns' here: headers are there unless it leaves them out",
    "kafkaconsumer.polltimeoutms": "'readTimeout' here, in seconds",
    "fetchoffset.numretries": "covered by 'readTimeout' here",
    "fetchoffset.retryintervalms": "covered by 'readTimeout' here",
    "assign": "not needed here: streams have no partitions to choose from",
    "groupidprefix": "not needed here: there are no consumer groups",
    "kafka.group.id": "not needed here: there are no consumer groups",
}
"""Options of Spark's Kafka connector, folded, that have another name here or none."""
_OF_TABLES = {
    "path": "is for files: load() without one, and the option 'stream', or 'backup' for a folder",
    "timestampasof": "is for tables with versions: 'endingTimestamp' here",
    "versionasof": "is for tables with versions: 'endingOffsets' here",
}
"""Options of Spark's other sources, folded, and what they are for."""


def named(
    options: Mapping[str, str],
    known: Iterable[str],
    *,
    elsewhere: Mapping[str, str],
    of_spark: frozenset[str] = frozenset(),
) -> Iterator[tuple[str, str]]:
    """(name as it is known, text) of each option; Spark folds the case of names.

    `elsewhere`: names that are known in another place, with that place; `of_spark`: names, folded,
    that Spark itself adds. Raises ConfigError for an unknown name, with the nearest known one.
    """
    by_folded = {name.casefold(): name for name in known}
    places = {name.casefold(): (name, place) for name, place in elsewhere.items()}
    for given, value in _without_catalog(options):
        folded = given.casefold()
        if folded in by_folded:
            yield by_folded[folded], value
        elif folded not in of_spark:
            raise ConfigError(_unknown(given, list(by_folded.values()), places))


def _without_catalog(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The user's options; those given with the read come last, so they override the table's."""
    for given, value in options.items():
        if given.casefold().startswith(_OPTION_OF_TABLE):
            yield given[len(_OPTION_OF_TABLE) :], value
    for given, value in options.items():
        folded = given.casefold()
        if folded not in _OF_CATALOG and not folded.startswith(_OPTION_OF_TABLE):
            yield given, value


def _unknown(given: str, known: list[str], places: Mapping[str, tuple[str, str]]) -> str:
    folded = given.casefold()
    if folded in CALLABLES:
        return f"Option {given!r} is for the client only: {CALLABLES[folded]}."
    if folded in MASKED:
        return f"Option {given!r} is called {MASKED[folded]!r} here, a name that Spark masks."
    if folded in places:
        name, place = places[folded]
        return f"Option {name!r} is for {place}."
    if folded in _OF_KAFKA:
        return f"Option {given!r} of Spark's Kafka connector is {_OF_KAFKA[folded]}."
    if folded in _OF_TABLES:
        return f"Option {given!r} {_OF_TABLES[folded]}."
    if folded.startswith("kafka."):
        return f"Option {given!r} is for Kafka; docs/kafka-options.md has the options here."
    near = nearest_name(given, known)
    if near is not None:
        return f"Unknown option {given!r} for format jetstream; did you mean {near!r}?"
    return f"Unknown option {given!r} for format jetstream; known: {', '.join(known)}."


# -------------------------------------------------------------------------------------------------
# The options for where reading begins and ends: one position for all streams, or one for each.
#
# The names are the Kafka connector's: startingOffsets, startingTimestamp,
# startingOffsetsByTimestamp, and the same three for the end. Only one of each three may be given.


Position: TypeAlias = Literal["earliest", "latest"] | int
"""The earliest stored message, after the latest, or a sequence."""

_NS_PER_MS = 1_000_000
_FIRST_MS = 10**11  # in March 1973; seconds are below it until the year 5138
_LIKELY_NS = (10**18, 4 * 10**18)  # 2001 to 2096
_LAST_MS = 253_402_300_799_999  # the end of the year 9999, after which times have no text form


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message stored at or after a time, nanoseconds since the epoch."""

    ns: int


Wanted: TypeAlias = Position | AtTime


@dataclass(frozen=True, slots=True)
class Positions:
    """`everywhere` for all streams, or `each` by the stream's name; from the option `option`."""

    option: str
    everywhere: Wanted | None = None
    each: Mapping[str, Wanted] = field(default_factory=dict)

    def check(self, streams: Iterable[str]) -> None:
        """Raise ConfigError if positions are given by stream, but not for exactly these streams."""
        if self.everywhere is not None:
            return
        streams = list(streams)
        for stream in streams:
            if stream not in self.each:
                raise ConfigError(
                    f"Option {self.option!r} names {', '.join(self.each)}, but not {stream!r}: "
                    "give a position for each stream."
                )
        for stream in self.each:
            if stream not in streams:
                near = nearest_name(stream, streams)
                hint = f"did you mean {near!r}?" if near else f"read is {', '.join(streams)}."
                raise ConfigError(
                    f"Option {self.option!r} names the stream {stream!r}, which is not read; {hint}"
                )

    def of(self, stream: str) -> Wanted:
        """The position for one stream, after `check`."""
        return self.each[stream] if self.everywhere is None else self.everywhere

    def all(self) -> list[Wanted]:
        """All given positions."""
        return list(self.each.values()) if self.everywhere is None else [self.everywhere]


def offsets(name: str, value: str) -> Positions:
    """earliest, latest, a sequence, or a JSON object of these by stream."""
    return _parse(name, value, _position, "earliest, latest or a sequence number of at least 1")


def times(name: str, value: str) -> Positions:
    """A time, or a JSON object of times by stream."""
    expected = "a time (2026-01-31T12:00:00Z) or milliseconds since 1970"
    return _parse(name, value, partial(_time, name), expected)


def _parse(name: str, value: str, one: Callable[[Any], Wanted | None], expected: str) -> Positions:
    bare = value.strip()
    if not bare.startswith("{"):
        wanted = one(bare)
        if wanted is None:
            raise ConfigError(
                f"Option {name!r} must be {expected}, or JSON of these by stream, not {value!r}."
            )
        return Positions(name, wanted)
    try:
        document = decode_document(bare, name)
    except DocumentError as error:
        raise ConfigError(
            f'Option {name!r} must be JSON such as {{"ORDERS": …}}: {error.why}.'
        ) from None
    each = {stream: one(given) for stream, given in document.items()}
    for stream, wanted in each.items():
        if wanted is None:
            raise ConfigError(
                f"Option {name!r} must be {expected} for {stream!r}, "
                f"not {msgspec.json.encode(document[stream]).decode()}."
            )
    if not each:
        raise ConfigError(f"Option {name!r} names no stream.")
    return Positions(name, None, {k: v for k, v in each.items() if v is not None})


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
        return AtTime(int(bare) * _NS_PER_MS) if int(bare) <= _LAST_MS else None
    try:
        return AtTime(parse_isotime(bare))
    except ValueError:
        return None


def if_time(option: str, number: int) -> str:
    """The end of a sentence about a sequence that is too high, if it looks like a time."""
    for unit in (NANOSECONDS, _NS_PER_MS):
        if _LIKELY_NS[0] <= number * unit < _LIKELY_NS[1]:
            name, text = option.replace("Offsets", "Timestamp"), format_isotime(number * unit)
            return f"; if you mean a time, give option {name!r} {text}"
    return ""


def one_of(given: Mapping[str, Positions], default: Position) -> Positions:
    """The option that was given, or the default. Raises ConfigError for several."""
    if len(given) > 1:
        raise ConfigError(f"Give only one of the options {', '.join(map(repr, given))}.")
    return next(iter(given.values()), Positions("", default))


def resolve(
    wanted: Wanted,
    stream: str,
    sequence_at: Callable[[str, int], int | None],
    *,
    none_is_latest: bool,
) -> Position:
    """A position without times; `sequence_at(stream, ns)` is None when all messages are older.

    Raises ConfigError for that, unless it means the end of the stream.
    """
    if not isinstance(wanted, AtTime):
        return wanted
    found = sequence_at(stream, wanted.ns)
    if found is not None:
        return found
    if none_is_latest:
        return "latest"
    raise ConfigError(
        f"Stream {stream!r} has no message at or after {format_isotime(wanted.ns)}; set "
        "startingOffsetsByTimestampStrategy to latest to begin behind its last one."
    )


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
    "startingOffsets": offsets,
    "startingTimestamp": times,
    "startingOffsetsByTimestamp": times,
}
_ENDING: dict[str, Callable[[str, str], Positions]] = {
    "endingOffsets": offsets,
    "endingTimestamp": times,
    "endingOffsetsByTimestamp": times,
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

    connection: ConnectOptions = dataclasses.field(repr=False)
    given: frozenset[str] = frozenset()
    """Names of the options that were given."""
    streams: tuple[str, ...] = ()
    stream_pattern: str | None = None
    """A regular expression for whole names, instead of `streams`."""
    subjects: tuple[str, ...] = ()
    columns: tuple[str, ...] = COLUMNS
    json_fields: tuple[tuple[str, str], ...] = ()
    """Names and types of further columns, out of JSON payloads."""
    starting: Mapping[str, Positions] = dataclasses.field(default_factory=dict)
    ending: Mapping[str, Positions] = dataclasses.field(default_factory=dict)
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
        return one_of(self.starting, default)

    def streaming_start(self) -> Positions:
        """Where a streaming query begins: by default at the end, a sole reader at what waits.

        Raises as `starting_positions`.
        """
        return self.starting_positions("earliest" if self.sole_reader else "latest")

    def ending_positions(self) -> Positions:
        """Where to end. Raises ConfigError if several options give it."""
        return one_of(self.ending, "latest")

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
