"""The options of format("jetstream") for writing: checked at start, secrets in no repr."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from jetspark.connection.options import ConnectOptions
from jetspark.errors import ConfigError, named
from jetspark.kv_rules import STREAM_PREFIX
from jetspark.nearest import did_you_mean
from jetspark.options.parsers import Parsers
from jetspark.options.scopes import CONNECTION, StreamSinkScope, connection_options, parsers_of
from jetspark.options.spark_options import read_options, refuse_options, select_options
from jetspark.payloads.codec import Codec
from jetspark.spark.checkpoints import query_name
from jetspark.spark.source.options import READING_ONLY, SCHEMA_OPTIONS, with_lookup


class Guarantee(StrEnum):
    """Guarantees about how often a row is stored; see docs/guide-spark-writing.md."""

    AT_LEAST_ONCE = "at-least-once"
    EFFECTIVELY_ONCE = "effectively-once"
    EXACTLY_ONCE = "exactly-once"


def _parse_guarantee(name: str, value: str) -> Guarantee:
    """Parse the option `guarantee`, also in capitals or with underscores. Raises ConfigError."""
    folded = value.strip().casefold().replace("_", "-")
    try:
        return Guarantee(folded)
    except ValueError:
        hint = did_you_mean(folded, [guarantee.value for guarantee in Guarantee])
        raise ConfigError(
            f"must be {', '.join(Guarantee)}, not {value!r}{hint}", option=name
        ) from None


_SINK_OPTIONS: Parsers = {**parsers_of(StreamSinkScope), "guarantee": _parse_guarantee}
_CHECKPOINT = "checkpointlocation"
_ADDED_BY_SPARK = frozenset({_CHECKPOINT, "queryname", "path"})
_EXACTLY_ONCE_OPTIONS = ("transaction_id", "lanes", "prepare_stream", "adopt_ledger", "writer_name")


@dataclass(frozen=True, kw_only=True)
class SinkOptions(StreamSinkScope):
    """The options of format("jetstream") for writing, checked; docs/options.md explains each.

    `stream` is also set for a bucket; `encode` is unset here, in place of which there is
    `encoding`.
    """

    connection: ConnectOptions = field(repr=False)
    stream: str
    encoding: Codec | None = None
    """Encoding of columns to payloads, in place of a column with them."""
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    checkpoint: str | None = None
    """Spark's option checkpointLocation."""

    @property
    def name(self) -> str | None:
        """The streaming query's name in the ledger, the stream with the decisions of exactly-once.

        The name survives the query's checkpoint; None if there is none (`query_name`).
        """
        return query_name(self.writer_name, self.checkpoint)

    @property
    def has_msg_ids(self) -> bool:
        """Whether the rows have a column `msg_id`, by which the stream drops duplicates."""
        return self.guarantee is Guarantee.EFFECTIVELY_ONCE

    def for_batch(self) -> SinkOptions:
        """Check that the options fit a batch write (`df.write`), and return them.

        Raises ConfigError.
        """
        if self.guarantee is Guarantee.EXACTLY_ONCE and self.transaction_id is None:
            raise ConfigError(
                "A batch write has no checkpoint that could name it: give "
                f"{named('transaction_id')}, a name of your own that stays the same when this "
                "write is tried again, or use guarantee effectively-once."
            )
        for name in ("adopt_ledger", "writer_name"):
            if getattr(self, name) not in (False, None):
                raise ConfigError("is for streaming queries.", option=name)
        return self

    def for_streaming(self) -> SinkOptions:
        """Check that the options fit a streaming query (`df.writeStream`), and return them.

        Raises ConfigError.
        """
        if self.transaction_id is not None:
            raise ConfigError(
                "is for batch writes; a streaming query is identified by its checkpoint.",
                option="transaction_id",
            )
        return self


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Parse and check the options for writing to a stream or bucket, which Spark passes as texts.

    Raises ConfigError for unknown names (with the nearest known one), bad values, no stream.
    """
    parsed = read_options(
        options,
        {**CONNECTION, **_SINK_OPTIONS, **SCHEMA_OPTIONS},
        elsewhere=dict.fromkeys(READING_ONLY, "reading"),
        of_spark=_ADDED_BY_SPARK,
    )
    writing = select_options(parsed, _SINK_OPTIONS)
    if ("stream" in writing) == ("bucket" in writing):
        raise ConfigError(f"Give {named('stream')} or {named('bucket')}: the one to write to.")
    if "bucket" in writing:
        reason = "for streams: a bucket's rows have keys, and writing them again changes nothing."
        refuse_options(parsed, dict.fromkeys(("subject", "guarantee", "encode"), reason))
        writing["stream"] = STREAM_PREFIX + writing["bucket"]
    if writing.get("guarantee") is not Guarantee.EXACTLY_ONCE:
        refuse_options(parsed, dict.fromkeys(_EXACTLY_ONCE_OPTIONS, "for guarantee exactly-once."))
    connection, schema_options = connection_options(parsed), select_options(parsed, SCHEMA_OPTIONS)
    if "encode" in writing:
        schema_options = with_lookup(schema_options, connection)
        writing["encoding"] = Codec(writing.pop("encode"), **schema_options)
    else:
        refuse_options(
            parsed, dict.fromkeys(SCHEMA_OPTIONS, f"for payloads that {named('encode')} makes.")
        )
    checkpoint = next((options[key] for key in options if key.casefold() == _CHECKPOINT), None)
    return SinkOptions(connection=connection, checkpoint=checkpoint, **writing)
