"""The options of format("jetstream") for writing: checked at start, secrets in no repr."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from jetspark.connection.options import ConnectOptions
from jetspark.errors import ConfigError, UnsupportedByServerError, named
from jetspark.kv_rules import STREAM_PREFIX
from jetspark.links.leaders import Leaders, linearizable_read
from jetspark.links.stream_api import StreamAPI
from jetspark.nearest import did_you_mean
from jetspark.options.parsers import Parsers
from jetspark.options.scopes import CONNECTION, StreamSinkScope, connection_options, parsers_of
from jetspark.options.spark_options import read_options, refuse_options, select_options
from jetspark.payloads.codec import Codec
from jetspark.spark.checkpoints import query_name, read_checkpoint
from jetspark.spark.source.options import OF_SCHEMA, READING_ONLY, with_lookup
from jetspark.stream_writes.exactly_once import ExactlyOnceWriter
from jetspark.stream_writes.ledger import Ledger, ledger_stream, marker_subjects
from jetspark.subjects import subject_matches, subjects_overlap


class Guarantee(StrEnum):
    """Guarantees about how often a row is stored; see docs/guide-spark-writing.md."""

    AT_LEAST_ONCE = "at-least-once"
    EFFECTIVELY_ONCE = "effectively-once"
    EXACTLY_ONCE = "exactly-once"


def _guarantee(name: str, value: str) -> Guarantee:
    folded = value.strip().casefold().replace("_", "-")
    try:
        return Guarantee(folded)
    except ValueError:
        hint = did_you_mean(folded, [guarantee.value for guarantee in Guarantee])
        raise ConfigError(
            f"must be {', '.join(Guarantee)}, not {value!r}{hint}", option=name
        ) from None


_WRITING: Parsers = {**parsers_of(StreamSinkScope), "guarantee": _guarantee}
_CHECKPOINT = "checkpointlocation"
_OF_SPARK = frozenset({_CHECKPOINT, "queryname", "path"})
_ONLY_EXACTLY_ONCE = ("transaction_id", "lanes", "prepare_stream", "adopt_ledger", "writer_name")


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """The sink's options; docs/options.md explains each."""

    connection: ConnectOptions = field(repr=False)
    stream: str
    bucket: str | None = None
    subject: str | None = None
    """The subject of every row, in place of a column."""
    encoding: Codec | None = None
    """Encoding of columns to payloads, in place of a column with them."""
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    transaction_id: str | None = None
    lanes: int = StreamSinkScope.lanes
    prepare_stream: bool = False
    adopt_ledger: bool = False
    writer_name: str | None = None
    checkpoint: str | None = None
    """Spark's option checkpointLocation."""
    publish_timeout: float = StreamSinkScope.publish_timeout

    @property
    def name(self) -> str | None:
        """See `query_name`."""
        return query_name(self.writer_name, self.checkpoint)

    def for_batch(self) -> SinkOptions:
        """Check the options for df.write. Raises ConfigError."""
        if self.guarantee is Guarantee.EXACTLY_ONCE and self.transaction_id is None:
            raise ConfigError(
                "A batch write has no checkpoint that could name it: give "
                f"{named('transaction_id')}, a name of your own that stays the same when this "
                "write is tried again, or use guarantee effectively-once."
            )
        for name, is_set in (
            ("adopt_ledger", self.adopt_ledger),
            ("writer_name", self.writer_name is not None),
        ):
            if is_set:
                raise ConfigError("is for streaming queries.", option=name)
        return self

    def for_streaming(self) -> SinkOptions:
        """Check the options for df.writeStream. Raises ConfigError."""
        if self.transaction_id is not None:
            raise ConfigError(
                "is for batch writes; a streaming query is identified by its checkpoint.",
                option="transaction_id",
            )
        return self


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Raises ConfigError for unknown names (with the nearest known one), bad values, no stream."""
    parsed = read_options(
        options,
        {**CONNECTION, **_WRITING, **OF_SCHEMA},
        elsewhere=dict.fromkeys(READING_ONLY, "reading"),
        of_spark=_OF_SPARK,
    )
    writing = select_options(parsed, _WRITING)
    if ("stream" in writing) == ("bucket" in writing):
        raise ConfigError(f"Give {named('stream')} or {named('bucket')}: the one to write to.")
    if "bucket" in writing:
        reason = "for streams: a bucket's rows have keys, and writing them again changes nothing."
        refuse_options(parsed, dict.fromkeys(("subject", "guarantee", "encode"), reason))
        writing["stream"] = STREAM_PREFIX + writing["bucket"]
    if writing.get("guarantee") is not Guarantee.EXACTLY_ONCE:
        refuse_options(parsed, dict.fromkeys(_ONLY_EXACTLY_ONCE, "for guarantee exactly-once."))
    connection, of_schema = connection_options(parsed), select_options(parsed, OF_SCHEMA)
    if "encode" in writing:
        of_schema = with_lookup(of_schema, connection)
        writing["encoding"] = Codec(writing.pop("encode"), **of_schema)
    else:
        refuse_options(
            parsed, dict.fromkeys(OF_SCHEMA, f"for payloads that {named('encode')} makes.")
        )
    checkpoint = next((options[key] for key in options if key.casefold() == _CHECKPOINT), None)
    return SinkOptions(connection=connection, checkpoint=checkpoint, **writing)


# -------------------------------------------------------------------------------------------------
# The driver's check of the target stream, before any row is written.


_ROOM_FOR_PACKING = 8192


@dataclass(frozen=True)
class SinkTarget:
    """Facts about the stream that tasks need; plain values, since it is sent to them."""

    subjects: tuple[str, ...]
    largest: int
    """Maximum bytes of a message, including headers."""
    keeps_markers: bool = False
    """Whether the stream allows a time to live for each message, so that markers need not expire.
    """
    missing: tuple[str, ...] = ()
    """Changes that the server needs first, as sentences; empty once it is prepared."""

    @property
    def largest_staged(self) -> int:
        """Maximum bytes of a message that can be staged."""
        return self.largest - _ROOM_FOR_PACKING


def inspect_target(options: SinkOptions) -> SinkTarget:
    """Check the stream without changing it.

    Raises StreamNotFoundError, UnsupportedByServerError, ConfigError for a stream with which the
    guarantee is impossible, or that lacks something and may not be changed; and the errors of
    `Leaders.call`.
    """

    def question(api: StreamAPI) -> SinkTarget:
        config = _suitable(options, api)
        return _target(config, api, _missing(options, config, api))

    return _leaders(options).call(question)


def prepare(options: SinkOptions) -> SinkTarget:
    """Inspect the target; for exactly-once, add what the stream lacks, and create its ledger."""

    def question(api: StreamAPI) -> tuple[dict[str, Any], SinkTarget]:
        config = _suitable(options, api)
        if changes := _changes(options, config):
            config = api.update({**config, **changes})
        return config, _target(config, api)

    config, target = _leaders(options).call(question)
    if options.guarantee is Guarantee.EXACTLY_ONCE:
        ledger = Ledger(options.connection, options.stream, "", timeout=options.publish_timeout)
        ledger.make_stream(config.get("num_replicas", 1))
    return target


def check_new_writer(options: SinkOptions, checkpoint: str) -> None:
    """Raises LedgerError when the query has no checkpoint in this folder of this machine, and
    another one of its name has written; and as `Leaders.call`."""
    if options.guarantee is Guarantee.EXACTLY_ONCE and not options.adopt_ledger:
        query = read_checkpoint(checkpoint).query
        _writer(options, query or str(uuid.uuid4())).check_name()


def register_name(options: SinkOptions, query: str | None) -> None:
    """Record the name of an exactly-once query that continues; None: it is new. Raises as
    `Leaders.call`."""
    if options.guarantee is Guarantee.EXACTLY_ONCE and query is not None:
        _writer(options, query).register_name()


def _writer(options: SinkOptions, query: str) -> ExactlyOnceWriter:
    return ExactlyOnceWriter(
        options.connection,
        options.stream,
        query,
        name=options.name,
        timeout=options.publish_timeout,
    )


def _leaders(options: SinkOptions) -> Leaders:
    return Leaders(options.connection, options.publish_timeout, at_once_if_new=True)


def _suitable(options: SinkOptions, api: StreamAPI) -> dict[str, Any]:
    name = options.stream
    config = api.config(name)
    if not _is_suitable(options, config):
        # A replaced leader may not know of a change.
        config = linearizable_read(api, [name], lambda api: api.config(name))
    _check(options, config)
    if options.guarantee is Guarantee.EXACTLY_ONCE:
        server = api.link.info
        if not server.at_least(2, 12):
            raise UnsupportedByServerError("Guarantee exactly-once", "2.12", server.version)
    return config


def _is_suitable(options: SinkOptions, config: dict[str, Any]) -> bool:
    try:
        _check(options, config)
        return not _changes(options, config)
    except ConfigError:
        return False


def _target(config: dict[str, Any], api: StreamAPI, missing: tuple[str, ...] = ()) -> SinkTarget:
    return SinkTarget(
        subjects=tuple(config.get("subjects") or ()),
        largest=min(api.link.info.max_payload, _size(config, "max_msg_size")),
        keeps_markers=bool(config.get("allow_msg_ttl")),
        missing=missing,
    )


def _missing(options: SinkOptions, config: dict[str, Any], api: StreamAPI) -> tuple[str, ...]:
    """The changes of `prepare`, for the user."""
    if options.guarantee is not Guarantee.EXACTLY_ONCE:
        return ()
    sentences = []
    if changes := _changes(options, config):
        words = _sentence(changes, marker_subjects(options.stream))
        sentences.append(f"change stream {options.stream}: {words}")
    beside = ledger_stream(options.stream)
    if api.config_if_any(beside) is None:
        sentences.append(f"make stream {beside}, the ledger of exactly-once")
    return tuple(sentences)


def _size(config: dict[str, Any], name: str) -> int:
    limit = int(config.get(name, -1))
    return limit if limit >= 0 else 1 << 62


def _check(options: SinkOptions, config: dict[str, Any]) -> None:
    name = options.stream
    if config.get("mirror"):
        raise ConfigError(f"Stream {name!r} is a mirror: write to the stream that it mirrors.")
    if config.get("sealed"):
        raise ConfigError(f"Stream {name!r} is sealed: nothing can be written to it.")
    if config.get("no_ack"):
        raise ConfigError(
            f"Stream {name!r} does not acknowledge (no_ack), so no guarantee is possible."
        )
    if options.bucket is not None and f"$KV.{options.bucket}.>" not in (
        config.get("subjects") or ()
    ):
        raise ConfigError(f"Bucket {options.bucket!r} takes no writes of its own.")
    subjects = config.get("subjects") or []
    if options.subject is not None and not any(
        subject_matches(pattern, options.subject) for pattern in subjects
    ):
        raise ConfigError(
            f": {options.subject!r} does not belong to the stream {name!r}, which "
            f"listens to {', '.join(subjects) or 'nothing'}.",
            option="subject",
        )
    if options.guarantee is Guarantee.AT_LEAST_ONCE:
        return
    if config.get("retention") == "interest":
        raise ConfigError(
            f"Stream {name!r} has retention 'interest': it acknowledges messages and drops them "
            f"while it has no consumer. Guarantee {options.guarantee} needs 'limits' or "
            "'workqueue'."
        )
    if options.guarantee is Guarantee.EFFECTIVELY_ONCE and not config.get("duplicate_window"):
        raise ConfigError(
            f"Stream {name!r} has no duplicate_window, so it does not check message ids."
        )


def _changes(options: SinkOptions, config: dict[str, Any]) -> dict[str, Any]:
    """Changes of the stream's configuration for exactly-once, which `inspect_target` reports and
    `prepare` makes. Raises ConfigError, also if the user has not permitted them."""
    if options.guarantee is not Guarantee.EXACTLY_ONCE:
        return {}
    if config.get("persist_mode") == "async":
        raise ConfigError(
            f"Stream {options.stream!r} acknowledges before it stores (persist_mode async), so "
            "exactly-once is not possible."
        )
    markers = marker_subjects(options.stream)
    _check_keeps(config, markers)
    subjects = list(config.get("subjects") or [])
    changes: dict[str, Any] = {}
    if not any(subjects_overlap(markers, subject) for subject in subjects):
        changes["subjects"] = [*subjects, markers]
    for flag in ("allow_atomic", "allow_rollup_hdrs"):
        if not config.get(flag):
            changes[flag] = True
    if config.get("max_age") and not config.get("allow_msg_ttl"):
        changes["allow_msg_ttl"] = True
    if changes and not options.prepare_stream:
        raise ConfigError(
            f"Stream {options.stream!r} lacks what guarantee exactly-once needs: "
            f"{_sentence(changes, markers)}. Set {named('prepare_stream')} to true to have it "
            "changed, or change it yourself."
        )
    if changes and not config.get("allow_msg_ttl"):
        changes["allow_msg_ttl"] = True  # markers outlive the rows
    return changes


def _check_keeps(config: dict[str, Any], subjects: str) -> None:
    """Raises ConfigError if a stream removes or renames by itself what exactly-once writes under
    these subjects. (Against `max_age` a message can have a time to live of its own.)"""
    name = config["name"]
    for limit in ("max_msgs", "max_bytes"):
        if config.get("discard") != "new" and config.get(limit, -1) > 0:
            raise ConfigError(
                f"Stream {name!r} removes its oldest messages when it has {limit} {config[limit]}: "
                "a marker of guarantee exactly-once would be among them, and the query would stop. "
                f"Remove {limit}, set discard to 'new', or choose another guarantee."
            )
    transform = config.get("subject_transform")
    if transform and subjects_overlap(transform.get("src") or ">", subjects):
        raise ConfigError(
            f"Stream {name!r} stores {subjects} under other subjects (its subject_transform), "
            "where guarantee exactly-once would not find its markers: restrict the transform to "
            "your own subjects, or choose another guarantee."
        )


def _sentence(changes: dict[str, Any], markers: str) -> str:
    words = [f"the subject {markers}"] if "subjects" in changes else []
    return ", ".join(words + [flag for flag in changes if flag != "subjects"])
