"""The options of format("jetstream") for writing: checked at start, secrets in no repr."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from jetspark.connection.options import ConnectOptions
from jetspark.errors import ConfigError
from jetspark.kv_rules import STREAM_PREFIX, check_bucket
from jetspark.spark import option_values as values
from jetspark.spark.checkpoints import place
from jetspark.spark.connection_options import CONNECTION, connection_options
from jetspark.spark.option_names import named
from jetspark.spark.options import READING_ONLY
from jetspark.subjects import check_name, nearest_name


class Guarantee(StrEnum):
    """How often a row may be stored; see docs/guide-spark-writing.md."""

    AT_LEAST_ONCE = "at-least-once"
    EFFECTIVELY_ONCE = "effectively-once"
    EXACTLY_ONCE = "exactly-once"


def _guarantee(name: str, value: str) -> Guarantee:
    folded = value.strip().casefold().replace("_", "-")
    try:
        return Guarantee(folded)
    except ValueError:
        near = nearest_name(folded, [one.value for one in Guarantee])
        hint = f"; did you mean {near!r}?" if near else "."
        raise ConfigError(
            f"Option {name!r} must be {', '.join(Guarantee)}, not {value!r}{hint}"
        ) from None


_WRITING: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "stream": ("stream", check_name),
    "bucket": ("bucket", lambda name, value: check_bucket(value)),
    "subject": ("subject", values.subject),
    "guarantee": ("guarantee", _guarantee),
    "transactionId": ("transaction_id", check_name),
    "lanes": ("lanes", values.whole),
    "prepareStream": ("prepare_stream", values.truth),
    "adoptLedger": ("adopt_ledger", values.truth),
    "writerName": ("writer_name", values.text),
    "publishTimeout": ("publish_timeout", values.seconds),
}
_CHECKPOINT = "checkpointlocation"
_OF_SPARK = frozenset({_CHECKPOINT, "queryname", "path"})
_ONLY_EXACTLY_ONCE = ("transactionId", "lanes", "prepareStream", "adoptLedger", "writerName")


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """The sink's options; docs/guide-spark-writing.md explains each."""

    connection: ConnectOptions = field(repr=False)
    stream: str
    bucket: str | None = None
    subject: str | None = None
    """The subject of every row, instead of a column."""
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    transaction_id: str | None = None
    lanes: int = 4
    prepare_stream: bool = False
    adopt_ledger: bool = False
    writer_name: str | None = None
    checkpoint: str | None = None
    """Spark's option checkpointLocation."""
    publish_timeout: float = 60.0

    @property
    def name(self) -> str | None:
        """The name of a streaming query in the ledger, which survives the loss of its checkpoint.

        None if the checkpoint comes from a Spark setting, which sinks do not see.
        """
        if self.writer_name is not None or self.checkpoint is None:
            return self.writer_name
        return f"the query with the checkpoint {place(self.checkpoint)}"

    def for_batch(self) -> SinkOptions:
        """These options for df.write. Raises ConfigError."""
        if self.guarantee is Guarantee.EXACTLY_ONCE and self.transaction_id is None:
            raise ConfigError(
                "A batch write has no checkpoint that could name it: give the option "
                "'transactionId', a name of your own that stays the same when this write is tried "
                "again, or use guarantee effectively-once."
            )
        for name, given in (
            ("adoptLedger", self.adopt_ledger),
            ("writerName", self.writer_name is not None),
        ):
            if given:
                raise ConfigError(f"Option {name!r} is for streaming queries.")
        return self

    def for_streaming(self) -> SinkOptions:
        """These options for df.writeStream. Raises ConfigError."""
        if self.transaction_id is not None:
            raise ConfigError(
                "Option 'transactionId' is for batch writes; a streaming query is identified by "
                "its checkpoint."
            )
        return self


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Raises ConfigError: unknown names (with the nearest known one), bad values, no stream."""
    connection: dict[str, Any] = {}
    writing: dict[str, Any] = {}
    given = set()
    checkpoint = next((options[one] for one in options if one.casefold() == _CHECKPOINT), None)
    known = (*CONNECTION, *_WRITING)
    elsewhere = dict.fromkeys(READING_ONLY, "reading")
    for name, value in named(options, known, elsewhere=elsewhere, of_spark=_OF_SPARK):
        given.add(name)
        if name in CONNECTION:
            target, convert = CONNECTION[name]
            connection[target] = values.read(convert, name, value)
        else:
            target, convert = _WRITING[name]
            writing[target] = values.read(convert, name, value)
    if ("stream" in writing) == ("bucket" in writing):
        raise ConfigError("Give the option 'stream' or 'bucket': the one to write to.")
    if "bucket" in writing:
        for name in ("subject", "guarantee"):
            if name in given:
                raise ConfigError(
                    f"Option {name!r} is for streams: a bucket's rows have keys, and writing them "
                    "again changes nothing."
                )
        writing["stream"] = STREAM_PREFIX + writing["bucket"]
    if writing.get("guarantee") is not Guarantee.EXACTLY_ONCE:
        for name in _ONLY_EXACTLY_ONCE:
            if name in given:
                raise ConfigError(f"Option {name!r} is for guarantee exactly-once.")
    return SinkOptions(connection=connection_options(connection), checkpoint=checkpoint, **writing)
