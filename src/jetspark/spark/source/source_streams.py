"""Facts of the streams that a source reads, from their leaders, and whether it may read them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from jetspark.connection.options import ConnectOptions
from jetspark.errors import (
    ConfigError,
    StreamNotFoundError,
    UnsupportedByServerError,
    named,
    switching,
)
from jetspark.kv_rules import STREAM_PREFIX
from jetspark.links.leaders import Leaders, confirmed_facts
from jetspark.links.many_streams import fetch_stream_facts
from jetspark.links.retry import NOT_FOUND_SECONDS
from jetspark.links.stream_api import StreamAPI
from jetspark.links.stream_facts import StreamFacts
from jetspark.nearest import did_you_mean_or_list
from jetspark.ranges import fixed_range
from jetspark.spark.source.claims import SOLE_READER, other_readers_message
from jetspark.spark.source.options import SourceOptions
from jetspark.spark.source.trimming import check_can_trim

_MAX_NAMES_IN_ERROR = 20


def leaders(options: SourceOptions) -> Leaders:
    """The API of the servers that lead a source's streams, for requests of Spark's driver.

    A server that has never answered this process is asked only once, so that a wrong address fails
    at once.
    """
    return Leaders(options.connection, options.read_timeout, at_once_if_new=True)


def fetch_creation_time(connection: ConnectOptions, stream: str) -> str:
    """Ask for a stream's creation time, by which a recreated stream is told from the old one.

    Returns "" if there is no such stream. Raises the errors of `Leaders.call`.
    """
    try:
        leader = Leaders(connection, retry_seconds=5.0, at_once_if_new=True)
        return leader.call(lambda api: api.stream(stream).created)
    except StreamNotFoundError:
        return ""


def fetch_source_facts(
    options: SourceOptions, *, running: bool = False, linearizable: bool = False
) -> dict[str, StreamFacts]:
    """Fetch the facts (ends, settings, …) of the streams that a source reads, by name, after checks
    that it may read them.

    `running`: for a query that has begun, for which streams may be missing. `linearizable`: only
    from leaders that are proven to lead. Otherwise the facts may be slightly outdated, which is
    enough where the next batch reads the rest.

    Raises StreamNotFoundError for a stream that the options name; ConfigError for a pattern that
    matches nothing, for subjects that cannot occur, and for retentions under which reading would
    remove messages; UnsupportedByServerError; and the errors of `Leaders.call`.
    """
    try:
        return leaders(options).call(lambda api: _fetch_facts(options, api, running, linearizable))
    except ConfigError:  # which outdated facts may have caused
        if linearizable:
            raise
        return fetch_source_facts(options, running=running, linearizable=True)


def _fetch_facts(
    options: SourceOptions, api: StreamAPI, running: bool, linearizable: bool
) -> dict[str, StreamFacts]:
    """Fetch and check the facts of a source's streams over one link.

    For `fetch_source_facts`, which explains the arguments and the errors.
    """
    names: Iterable[str] = options.streams
    if options.stream_pattern is not None:
        all_names = sorted(api.all_stream_names() if linearizable else api.stream_names())
        names = [name for name in all_names if re.fullmatch(options.stream_pattern, name)]
        if not names and not running:
            raise _no_match_error(options.stream_pattern, all_names)
    # A server may not know of a new stream yet, for which it is asked again during some seconds. A
    # running query that misses a stream calls again with `linearizable`, so it need not wait here.
    retry_seconds = 0.0 if running and not linearizable else NOT_FOUND_SECONDS
    facts, missing = fetch_stream_facts(api, names, not_found_for=retry_seconds)
    must_exist = not running and options.stream_pattern is None
    if must_exist and missing:
        if options.bucket is not None:
            raise _bucket_not_found_error(options.bucket, api)
        raise next(iter(missing.values()))
    while linearizable:
        try:
            facts = confirmed_facts(api, facts)
            break
        except StreamNotFoundError:
            # It was deleted since, and is treated like streams that were missing before.
            facts, missing = fetch_stream_facts(api, facts, not_found_for=retry_seconds)
            if must_exist or not missing:
                raise
    if options.present_values:  # newer values replace older ones, so those are no loss
        facts = {
            name: replace(stream, keeps_last_per_subject=True) for name, stream in facts.items()
        }
    for stream in facts.values():
        _check_stream(options, stream, api)
    if (
        options.backfills_by_snapshot
        and not options.may_block_deletes
        and not api.link.info.at_least(2, 15)
    ):
        raise UnsupportedByServerError(
            f"{named('backfill')} with the value 'snapshot' (older servers refuse deletes "
            "meanwhile; 'snapshot-blocking-deletes' accepts that)",
            "2.15",
            api.link.info.version,
        )
    if not running:
        check_subjects(options, api, facts)
    return facts


def _no_match_error(pattern: str, names: list[str]) -> ConfigError:
    """The error for a pattern of stream names that matches none of the existing `names`."""
    unnamed = len(names) - _MAX_NAMES_IN_ERROR
    more = f" and {unnamed:,} more" if unnamed > 0 else ""
    return ConfigError(
        f"No stream matches {named('stream_pattern')} {pattern!r}, a regular expression for the "
        f"whole name (M.*, not M*); there are {', '.join(names[:_MAX_NAMES_IN_ERROR]) or 'none'}"
        f"{more}."
    )


def _bucket_not_found_error(bucket: str, api: StreamAPI) -> ConfigError:
    """The error for a bucket that does not exist, with the bucket that the user may have meant."""
    buckets = [
        name.removeprefix(STREAM_PREFIX)
        for name in api.stream_names()
        if name.startswith(STREAM_PREFIX)
    ]
    # Some give the name of the bucket's stream.
    without_prefix = bucket.removeprefix(STREAM_PREFIX)
    meant = without_prefix if without_prefix in buckets else bucket
    return ConfigError(f"Bucket {bucket!r} not found{did_you_mean_or_list(meant, buckets)}")


def check_subjects(
    options: SourceOptions, api: StreamAPI, facts: Mapping[str, StreamFacts]
) -> None:
    """Check that the subjects that a source selects can occur in its streams.

    If not, it raises ConfigError, or only warns if the streams are given by a pattern, which may
    find further ones. Also raises the errors of `linearizable_read`.
    """
    fixed_range.check_subjects(
        named("subjects"),
        options.subjects,
        api,
        facts,
        more_may_come=options.stream_pattern is not None,
    )


def _check_stream(options: SourceOptions, facts: StreamFacts, api: StreamAPI) -> None:
    """Raise ConfigError if a source with these options cannot read a stream completely.

    That is so if the query and other readers would remove each other's messages, or the server
    cannot select keys. Raises UnsupportedByServerError for a server that is too old for an option.
    """
    name, retention = facts.name, facts.retention
    if options.keys and facts.is_mirror:
        raise ConfigError(
            f"Bucket {options.bucket!r} is a mirror, whose keys cannot be chosen by the server: "
            f"read it without {named('keys')}, or its origin."
        )
    for option, is_set, required_retention in (
        ("trim", options.trim, "limits"),
        ("soleReader", options.sole_reader, "workqueue"),
        ("interestConsumer", options.interest_consumer is not None, "interest"),
    ):
        if is_set and retention != required_retention:
            keeps = " and keeps what is read" if retention == "limits" else ""
            raise ConfigError(
                f"is for streams with retention {required_retention!r}; "
                f"{name!r} has {retention!r}{keeps}.",
                option=option,
            )
    if retention == "interest" and options.interest_consumer is None:
        raise ConfigError(
            f"Stream {name!r} has retention 'interest': its messages go when all its consumers "
            "have acknowledged them, and are not even stored without any, so a table of it cannot "
            "be exact. Use a stream with retention 'limits' that has this one as a source, or "
            f"readStream with an {named('interest_consumer')}, which keeps the messages "
            "for the query."
        )
    if retention == "workqueue" and not options.sole_reader:
        raise ConfigError(
            f"Stream {name!r} has retention 'workqueue': its messages go when another consumer "
            "acknowledges them, so a table of it cannot be exact. If this query is the only "
            f"reader, {switching('sole_reader', True)}: what its checkpoint has is removed."
        )
    if options.trim and retention == "limits":
        check_can_trim(facts, api.config(name), api)
    if not options.reads_by_direct_gets:
        return
    server = api.link.info
    if options.interest_consumer is not None and not server.at_least(2, 14):
        raise UnsupportedByServerError(named("interest_consumer"), "2.14", server.version)
    # The only consumer beside which this query may read is its own claim.
    if options.sole_reader and (
        facts.consumers > 1 or (facts.consumers and api.consumer(name, SOLE_READER) is None)
    ):
        raise ConfigError(other_readers_message(name))
    if not facts.allows_direct:
        raise ConfigError(f"Stream {name!r} is read by direct gets here: set its allow_direct.")
    if facts.max_inactive_seconds is not None:
        raise ConfigError(
            f"Stream {name!r} removes consumers that are idle for {facts.max_inactive_seconds:g} s "
            "(consumer_limits), so the query's could not stay while it is not running."
        )
