"""The driver's check of the target stream, before any row is written, and its preparation."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from jetspark.errors import ConfigError, UnsupportedByServerError, switching
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
    """What tasks need to know of the stream that they write to.

    It has plain values only, since Spark sends it to executors.
    """

    subjects: tuple[str, ...]
    max_message_bytes: int
    """Most bytes of a row's message, including headers."""
    keeps_markers: bool = False
    """Whether the stream's `max_age` need not remove markers, the messages with which exactly-once
    notes in the stream how far a batch is: each can have a time to live of its own."""
    missing: tuple[str, ...] = ()
    """Changes that the server needs first, as sentences; empty once it is prepared."""


def inspect_target(options: SinkOptions) -> SinkTarget:
    """Check, for a command that only looks, whether rows can be written to the target stream, and
    what it lacks. It changes nothing (`prepare` does).

    Raises StreamNotFoundError, UnsupportedByServerError, ConfigError for a stream with which the
    guarantee is impossible, or that lacks something and may not be changed; and the errors of
    `Leaders.call`.
    """

    def inspect(api: StreamAPI) -> SinkTarget:
        """Describe the target and what it lacks, as sentences."""
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
    """Check the target stream before rows are written, and for exactly-once make it ready: change
    its configuration, if permitted, and create its ledger, the stream with the decisions.

    Raises the errors of `inspect_target`.
    """

    def change(api: StreamAPI) -> tuple[dict[str, Any], SinkTarget]:
        """Change the stream's configuration if needed; return it, and the target's description."""
        config = _fetch_checked_config(options, api)
        if changes := _plan_changes(options, config):
            config = api.update({**config, **changes})
        return config, _describe_target(options, api, config)

    config, target = _leaders(options).call(change)
    if options.guarantee is Guarantee.EXACTLY_ONCE:
        # No writer is needed to create the ledger.
        ledger = Ledger(
            options.connection, options.stream, writer="", timeout=options.publish_timeout
        )
        ledger.make_stream(config.get("num_replicas", 1))
    return target


def check_new_writer(options: SinkOptions, checkpoint: str) -> None:
    """Check that no other exactly-once query of this query's name has written to the stream.

    `checkpoint`: the query's, a folder of this machine; its id there tells this query from another.
    Raises LedgerError for another query, unless the option `adoptLedger` accepts it, and the errors
    of `Leaders.call`.
    """
    if options.guarantee is Guarantee.EXACTLY_ONCE and not options.adopt_ledger:
        query = read_checkpoint(checkpoint).query
        # A query without a checkpoint yet is new: any id that no other has.
        _writer(options, query or str(uuid.uuid4())).check_name()


def register_name(options: SinkOptions, query: str | None) -> None:
    """Record in the stream's ledger the name of an exactly-once query that continues, so that it is
    known even if the query's checkpoint is lost.

    `query`: the query's id; None for a new one, for which nothing is recorded yet. Raises the
    errors of `Leaders.call`.
    """
    if options.guarantee is Guarantee.EXACTLY_ONCE and query is not None:
        _writer(options, query).register_name()


def _writer(options: SinkOptions, query: str) -> ExactlyOnceWriter:
    """The exactly-once writer of a streaming query, which is identified by the query's id."""
    return ExactlyOnceWriter(
        options.connection,
        options.stream,
        query,
        name=options.name,
        timeout=options.publish_timeout,
    )


def _leaders(options: SinkOptions) -> Leaders:
    """The API of the server that leads the target stream, for requests of Spark's driver."""
    return Leaders(options.connection, options.publish_timeout, at_once_if_new=True)


def _fetch_checked_config(options: SinkOptions, api: StreamAPI) -> dict[str, Any]:
    """Fetch the target stream's configuration, and check that the guarantee is possible with it.

    Raises ConfigError or UnsupportedByServerError if not.
    """
    config = api.config(options.stream)
    try:
        _check_config(options, config)
        is_ready = not _plan_changes(options, config)
    except ConfigError:
        is_ready = False
    if not is_ready:
        # The answer may be old, from a leader that was replaced: ask one that is proven to lead.
        config = linearizable_read(api, [options.stream], lambda api: api.config(options.stream))
    _check_config(options, config)
    server = api.link.info
    if options.guarantee is Guarantee.EXACTLY_ONCE and not server.at_least(2, 12):
        raise UnsupportedByServerError("Guarantee exactly-once", "2.12", server.version)
    return config


def _describe_target(
    options: SinkOptions, api: StreamAPI, config: dict[str, Any], missing: tuple[str, ...] = ()
) -> SinkTarget:
    """Describe the target stream, which has the configuration `config`, for tasks.

    `missing`: changes that it still needs, as sentences.
    """
    max_bytes, max_of_stream = api.link.info.max_payload, config.get("max_msg_size", -1)
    if max_of_stream >= 0:  # -1: unlimited
        max_bytes = min(max_bytes, max_of_stream)
    if options.guarantee is Guarantee.EXACTLY_ONCE:
        max_bytes -= _PACKING_BYTES  # rows are first stored in messages with others
    return SinkTarget(
        subjects=tuple(config.get("subjects") or ()),
        max_message_bytes=max_bytes,
        keeps_markers=bool(config.get("allow_msg_ttl")),
        missing=missing,
    )


def _check_config(options: SinkOptions, config: dict[str, Any]) -> None:
    """Raise ConfigError if rows cannot be written to a stream with the options' guarantee.

    What exactly-once needs beside that is in `_plan_changes`.
    """
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
    """Plan the changes of the target stream's configuration that exactly-once needs; empty for
    another guarantee, or if nothing is lacking.

    Raises ConfigError if no change would help, or the user has not permitted changes (option
    `prepareStream`).
    """
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
    # Rows and their marker are stored in one atomic batch, and a new marker replaces the old one.
    for flag in ("allow_atomic", "allow_rollup_hdrs"):
        if not config.get(flag):
            changes[flag] = True
    if config.get("max_age") and not config.get("allow_msg_ttl"):
        changes["allow_msg_ttl"] = True
    if changes and not options.prepare_stream:
        raise ConfigError(
            f"Stream {options.stream!r} lacks what guarantee exactly-once needs: "
            f"{_list_changes(changes, markers)}. {switching('prepare_stream', True)} to have it "
            "changed, or change it yourself."
        )
    if changes and not config.get("allow_msg_ttl"):
        changes["allow_msg_ttl"] = True  # so that markers outlive the rows
    return changes


def _check_keeps_markers(config: dict[str, Any], markers: str) -> None:
    """Raise ConfigError if a stream, by its limits or transforms, removes or renames markers: the
    messages with which exactly-once notes in the stream how far a batch is.

    `markers`: the pattern of their subjects. The limit `max_age` is no problem, since a marker can
    have a time to live of its own.
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
    """List changes of a stream's configuration for the user, as `the subject X, allow_atomic`."""
    return ", ".join(f"the subject {markers}" if name == "subjects" else name for name in changes)
