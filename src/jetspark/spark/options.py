"""The options of format("jetstream"): read once, checked at load, secrets in no repr.

Names follow Spark's Kafka connector where the meaning is the same. Spark folds the case of option
names, so ours are matched without case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal, TypeAlias

from jetspark.bulk.ranges import ReadLimits
from jetspark.connection.options import ConnectOptions, make_options
from jetspark.errors import ConfigError
from jetspark.subjects import check_name, check_subscribe_subject, nearest_name, subjects_overlap

Position: TypeAlias = Literal["earliest", "latest"] | int
"""Where to begin or end: the earliest stored message, behind the latest, or a sequence."""

DEFAULT_RECORDS_PER_PARTITION = 250_000


def _text(name: str, value: str) -> str:
    return value


def _whole(name: str, value: str) -> int:
    try:
        number = int(value.strip())
    except ValueError:
        number = 0
    if number < 1:
        raise ConfigError(f"Option {name!r} must be a whole number of at least 1, not {value!r}.")
    return number


def _seconds(name: str, value: str) -> float:
    try:
        number = float(value.strip())
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ConfigError(f"Option {name!r} must be a number of seconds above 0, not {value!r}.")
    return number


def _truth(name: str, value: str) -> bool:
    folded = value.strip().casefold()
    if folded not in ("true", "false"):
        raise ConfigError(f"Option {name!r} must be true or false, not {value!r}.")
    return folded == "true"


def _subjects(name: str, value: str) -> tuple[str, ...]:
    subjects = tuple(part.strip() for part in value.split(",") if part.strip())
    if not subjects:
        raise ConfigError(f"Option {name!r} is empty; leave it out to read every subject.")
    for subject in subjects:
        check_subscribe_subject(subject)
    for one, other in combinations(subjects, 2):
        if subjects_overlap(one, other):
            raise ConfigError(
                f"Option {name!r}: {one!r} and {other!r} overlap; the server takes only subjects "
                "that do not."
            )
    return subjects


def _position(name: str, value: str) -> Position:
    folded = value.strip().casefold()
    if folded == "earliest":
        return "earliest"
    if folded == "latest":
        return "latest"
    if folded.isdecimal() and int(folded) >= 1:
        return int(folded)
    raise ConfigError(
        f"Option {name!r} must be earliest, latest or a sequence number of at least 1, "
        f"not {value!r}."
    )


_CONNECTION: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "servers": ("servers", _text),
    "user": ("user", _text),
    "password": ("password", _text),
    "token": ("token", _text),
    "tls": ("tls", _truth),
    "tlsCaFile": ("tls_ca_file", _text),
    "tlsCertFile": ("tls_cert_file", _text),
    "tlsKeyFile": ("tls_key_file", _text),
    "tlsHostname": ("tls_hostname", _text),
    "connectTimeout": ("connect_timeout", _seconds),
    "inboxPrefix": ("inbox_prefix", _text),
}
_READING: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "stream": ("stream", _text),
    "subjects": ("subjects", _subjects),
    "startingOffsets": ("starting_offsets", _position),
    "endingOffsets": ("ending_offsets", _position),
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", _whole),
    "minPartitions": ("min_partitions", _whole),
    "maxRecordsPerPartition": ("max_records_per_partition", _whole),
    "failOnDataLoss": ("fail_on_data_loss", _truth),
    "maxRowsPerBatch": ("max_rows_per_batch", _whole),
    "maxBytesPerBatch": ("max_bytes_per_batch", _whole),
    "readTimeout": ("read_timeout", _seconds),
}
_KNOWN = {name.casefold(): name for name in (*_CONNECTION, *_READING)}
# A catalog table's own properties, which Spark hands over beside the options.
_OF_CATALOG = frozenset(
    {"provider", "owner", "location", "comment", "collation", "external", "is_managed_location"}
)
_OPTION_OF_TABLE = "option."  # how a table keeps the options it was created with


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """What the user asked of the source. See docs/guide-spark.md for each option."""

    connection: ConnectOptions = field(repr=False)
    stream: str
    subjects: tuple[str, ...] = ()
    starting_offsets: Position | None = None
    ending_offsets: Position | None = None
    max_offsets_per_trigger: int | None = None
    min_partitions: int = 1
    max_records_per_partition: int = DEFAULT_RECORDS_PER_PARTITION
    fail_on_data_loss: bool = True
    max_rows_per_batch: int = ReadLimits.max_rows
    max_bytes_per_batch: int = ReadLimits.max_bytes
    read_timeout: float = ReadLimits.timeout

    def limits(self) -> ReadLimits:
        """How ranges are read and cut."""
        return ReadLimits(
            max_rows=self.max_rows_per_batch,
            max_bytes=self.max_bytes_per_batch,
            timeout=self.read_timeout,
        )

    def for_batch(self) -> SourceOptions:
        """These options for spark.read; raises ConfigError for those that only stream."""
        if self.max_offsets_per_trigger is not None:
            raise ConfigError(
                "Option 'maxOffsetsPerTrigger' is for readStream; a batch read takes the whole "
                "range (bound it with 'endingOffsets')."
            )
        if self.starting_offsets == "latest":
            raise ConfigError("Option 'startingOffsets' cannot be latest in a batch read.")
        if self.ending_offsets == "earliest":
            raise ConfigError("Option 'endingOffsets' cannot be earliest.")
        return self

    def for_streaming(self) -> SourceOptions:
        """These options for spark.readStream; raises ConfigError for those that only batch has."""
        if self.ending_offsets is not None:
            raise ConfigError(
                "Option 'endingOffsets' is for spark.read; a streaming query has no end "
                "(trigger(availableNow=True) stops at what is there when it starts)."
            )
        return self


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Raises ConfigError: unknown names (with the nearest known one), bad values, no stream."""
    connection: dict[str, Any] = {}
    reading: dict[str, Any] = {}
    for given, value in _without_catalog(options):
        name = _KNOWN.get(given.casefold())
        if name is None:
            raise ConfigError(_unknown(given))
        if name in _CONNECTION:
            target, convert = _CONNECTION[name]
            connection[target] = convert(name, value)
        else:
            target, convert = _READING[name]
            reading[target] = convert(name, value)
    if "stream" not in reading:
        hint = (
            ""
            if options
            else (
                " (Spark 4.3 forgets the options of CREATE TABLE … USING jetstream: repeat them, "
                "SELECT … FROM t WITH (stream = '…', servers = '…'), or use a TEMPORARY VIEW.)"
            )
        )
        raise ConfigError(f"Option 'stream' is missing: name the stream to read.{hint}")
    check_name("stream", reading["stream"])
    return SourceOptions(connection=make_options(**connection), **reading)


def _without_catalog(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The user's options; those given with the read come last, so they win over the table's."""
    for given, value in options.items():
        if given.casefold().startswith(_OPTION_OF_TABLE):
            yield given[len(_OPTION_OF_TABLE) :], value
    for given, value in options.items():
        folded = given.casefold()
        if folded not in _OF_CATALOG and not folded.startswith(_OPTION_OF_TABLE):
            yield given, value


def _unknown(given: str) -> str:
    near = nearest_name(given, _KNOWN.values())
    if near is not None:
        return f"Unknown option {given!r} for format jetstream; did you mean {near!r}?"
    return f"Unknown option {given!r} for format jetstream; known: {', '.join(_KNOWN.values())}."
