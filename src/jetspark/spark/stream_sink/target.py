"""The driver's check of the target stream, before any row is written, and its preparation."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from jetspark.errors import ConfigError, UnsupportedByServerError, named
from jetspark.links.leaders import Leaders, linearizable_read
from jetspark.links.stream_api import StreamAPI
from jetspark.spark.checkpoints import read_checkpoint
from jetspark.spark.stream_sink.options import Guarantee, SinkOptions
from jetspark.stream_writes.exactly_once import ExactlyOnceWriter
from jetspark.stream_writes.ledger import Ledger, ledger_stream, marker_subjects
from jetspark.subjects import subject_matches, subjects_overlap

_PACKING_BYTES = 8192
"""Bytes of a staged message that may be needed beside the row's."""


@dataclass(frozen=True)
class SinkTarget:
    """Facts about the stream that tasks need; plain values, since it is sent to them."""

    subjects: tuple[str, ...]
    max_message_bytes: int
    """Most bytes of a row's message, including headers."""
    keeps_markers: bool = False
    """Whether the stream allows a time to live for each message, so that markers need not expire.
    """
    missing: tuple[str, ...] = ()
    """Changes that the server needs first, as sentences; empty once it is prepared."""


def inspect_target(options: SinkOptions) -> SinkTarget:
    """Check the stream without changing it.

    Raises StreamNotFoundError, UnsupportedByServerError, ConfigError for a stream with which the
    guarantee is impossible, or that lacks something and may not be changed; and the errors of
    `Leaders.call`.
    """

    def inspect(api: StreamAPI) -> SinkTarget:
        config = _fetch_checked_config(options, api)
        missing = []
        if changes := _plan_changes(options, config):
            listed = _list_changes(changes, marker_subjects(options.stream))
            missing.append(f"change stream {options.stream}: {listed}")
        ledger = ledger_stream(options.stream)
        if options.guarantee is Guarantee.EXACTLY_ONCE and api.config_if_any(ledger) is None:
            missing.append(f"make stream {ledger}, the ledger of exactly-once")
        return _describe_target(options, api, config, tuple(missing))

    return _leaders(options).call(inspect)


def prepare(options: SinkOptions) -> SinkTarget:
    """Inspect the target; for exactly-once, add what the stream lacks, and create its ledger."""

    def change(api: StreamAPI) -> tuple[dict[str, Any], SinkTarget]:
        config = _fetch_checked_config(options, api)
        if changes := _plan_changes(options, config):
            config = api.update({**config, **changes})
        return config, _describe_target(options, api, config)

    config, target = _leaders(options).call(change)
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
    """The writer of a streaming query, by the query's id."""
    return ExactlyOnceWriter(
        options.connection,
        options.stream,
        query,
        name=options.name,
        timeout=options.publish_timeout,
    )


def _leaders(options: SinkOptions) -> Leaders:
    """The leader of the target stream, for requests of the driver."""
    return Leaders(options.connection, options.publish_timeout, at_once_if_new=True)


def _fetch_checked_config(options: SinkOptions, api: StreamAPI) -> dict[str, Any]:
    """The stream's configuration. Raises if the guarantee is impossible with it."""
    config = api.config(options.stream)
    try:
        _check_config(options, config)
        is_ready = not _plan_changes(options, config)
    except ConfigError:
        is_ready = False
    if not is_ready:
        # A replaced leader may not know of a change.
        config = linearizable_read(api, [options.stream], lambda api: api.config(options.stream))
    _check_config(options, config)
    server = api.link.info
    if options.guarantee is Guarantee.EXACTLY_ONCE and not server.at_least(2, 12):
        raise UnsupportedByServerError("Guarantee exactly-once", "2.12", server.version)
    return config


def _describe_target(
    options: SinkOptions, api: StreamAPI, config: dict[str, Any], missing: tuple[str, ...] = ()
) -> SinkTarget:
    """What tasks need to know of a stream with this configuration."""
    max_bytes, max_of_stream = api.link.info.max_payload, config.get("max_msg_size", -1)
    if max_of_stream >= 0:  # -1: unlimited
        max_bytes = min(max_bytes, max_of_stream)
    if options.guarantee is Guarantee.EXACTLY_ONCE:
        max_bytes -= _PACKING_BYTES
    return SinkTarget(
        subjects=tuple(config.get("subjects") or ()),
        max_message_bytes=max_bytes,
        keeps_markers=bool(config.get("allow_msg_ttl")),
        missing=missing,
    )


def _check_config(options: SinkOptions, config: dict[str, Any]) -> None:
    """Raise ConfigError for a stream to which rows cannot be written with this guarantee."""
    name, subjects = options.stream, config.get("subjects") or []
    if config.get("mirror"):
        raise ConfigError(f"Stream {name!r} is a mirror: write to the stream that it mirrors.")
    if config.get("sealed"):
        raise ConfigError(f"Stream {name!r} is sealed: nothing can be written to it.")
    if config.get("no_ack"):
        raise ConfigError(
            f"Stream {name!r} does not acknowledge (no_ack), so no guarantee is possible."
        )
    if options.bucket is not None and f"$KV.{options.bucket}.>" not in subjects:
        raise ConfigError(f"Bucket {options.bucket!r} takes no writes of its own.")
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


def _plan_changes(options: SinkOptions, config: dict[str, Any]) -> dict[str, Any]:
    """The changes of the stream's configuration that exactly-once needs. Raises ConfigError where
    they do not help, or the user has not permitted them."""
    if options.guarantee is not Guarantee.EXACTLY_ONCE:
        return {}
    if config.get("persist_mode") == "async":
        raise ConfigError(
            f"Stream {options.stream!r} acknowledges before it stores (persist_mode async), so "
            "exactly-once is not possible."
        )
    markers = marker_subjects(options.stream)
    _check_keeps_markers(config, markers)
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
            f"{_list_changes(changes, markers)}. Set {named('prepare_stream')} to true to have it "
            "changed, or change it yourself."
        )
    if changes and not config.get("allow_msg_ttl"):
        changes["allow_msg_ttl"] = True  # so that markers outlive the rows
    return changes


def _check_keeps_markers(config: dict[str, Any], markers: str) -> None:
    """Raise ConfigError if a stream by itself removes or renames markers, whose subjects are given.

    Against `max_age` a message can have a time to live of its own.
    """
    name = config["name"]
    for limit in ("max_msgs", "max_bytes"):
        if config.get("discard") != "new" and config.get(limit, -1) > 0:
            raise ConfigError(
                f"Stream {name!r} removes its oldest messages when it has {limit} {config[limit]}: "
                "a marker of guarantee exactly-once would be among them, and the query would stop. "
                f"Remove {limit}, set discard to 'new', or choose another guarantee."
            )
    transform = config.get("subject_transform")
    if transform and subjects_overlap(transform.get("src") or ">", markers):
        raise ConfigError(
            f"Stream {name!r} stores {markers} under other subjects (its subject_transform), "
            "where guarantee exactly-once would not find its markers: restrict the transform to "
            "your own subjects, or choose another guarantee."
        )


def _list_changes(changes: dict[str, Any], markers: str) -> str:
    """The changes for the user, as `the subject X, allow_atomic`."""
    return ", ".join(f"the subject {markers}" if name == "subjects" else name for name in changes)
