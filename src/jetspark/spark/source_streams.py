"""Facts of the streams that a source reads, from their leaders, and whether it may read them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from jetspark.bulk import fixed_range
from jetspark.bulk.leaders import Leaders, confirmed_facts
from jetspark.bulk.many_streams import fetch_stream_facts
from jetspark.bulk.retry import NOT_FOUND_SECONDS
from jetspark.bulk.stream_api import StreamAPI
from jetspark.bulk.stream_facts import StreamFacts
from jetspark.connection.options import ConnectOptions
from jetspark.errors import ConfigError, StreamNotFoundError, UnsupportedByServerError
from jetspark.kv_rules import STREAM_PREFIX
from jetspark.nearest import instead
from jetspark.spark.claims import SOLE_READER, other_readers
from jetspark.spark.options import SourceOptions

_NAMED = 20  # streams in a message


def leaders(options: SourceOptions) -> Leaders:
    """The streams' leaders, for questions from the driver."""
    return Leaders(options.connection, options.read_timeout, at_once_if_new=True)


def created(connection: ConnectOptions, stream: str) -> str:
    """The stream's creation time, which identifies it; "" without one. Raises as `Leaders.call`."""
    try:
        return Leaders(connection, 5.0, at_once_if_new=True).call(
            lambda api: api.stream(stream).created
        )
    except StreamNotFoundError:
        return ""


def streams_facts(
    options: SourceOptions, *, running: bool = False, sure: bool = False
) -> dict[str, StreamFacts]:
    """The facts of the chosen streams, by name; for a `running` query, of those that still exist.

    `sure`: from leaders that are proven to lead. Otherwise they may be slightly outdated, which is
    enough where the next batch reads the rest. Raises StreamNotFoundError for a stream that the
    options name; ConfigError for a pattern that matches nothing, for subjects that cannot occur,
    and for retentions under which reading would remove messages; UnsupportedByServerError; and the
    errors of `Leaders.call`.
    """
    try:
        return leaders(options).call(lambda api: _facts(options, api, running, sure))
    except ConfigError:
        if sure:
            raise
        return streams_facts(options, running=running, sure=True)


def _facts(
    options: SourceOptions, api: StreamAPI, running: bool, sure: bool
) -> dict[str, StreamFacts]:
    names: Iterable[str] = options.streams
    if options.stream_pattern is not None:
        every = sorted(api.all_stream_names() if sure else api.stream_names())
        names = [name for name in every if re.fullmatch(options.stream_pattern, name)]
        if not names and not running:
            raise ConfigError(
                f"No stream matches streamPattern {options.stream_pattern!r}, a regular expression "
                "for the whole name (M.*, not M*); there are "
                f"{', '.join(every[:_NAMED]) or 'none'}"
                f"{f' and {len(every) - _NAMED:,} more' if len(every) > _NAMED else ''}."
            )
    # A caller in doubt asks again with `sure`.
    patience = 0.0 if running and not sure else NOT_FOUND_SECONDS
    facts, missing = fetch_stream_facts(api, names, not_found_for=patience)
    must_exist = not running and options.stream_pattern is None
    for error in missing.values() if must_exist else ():
        raise error if options.bucket is None else _no_bucket(options.bucket, api)
    while sure:
        try:
            facts = confirmed_facts(api, facts)
            break
        except StreamNotFoundError:
            # Deleted since; treated like those missing before.
            facts, missing = fetch_stream_facts(api, facts, not_found_for=patience)
            if must_exist or not missing:
                raise
    if options.present_values:
        facts = {name: replace(one, keeps_last_per_subject=True) for name, one in facts.items()}
    for one in facts.values():
        _check_stream(options, one, api)
    if options.by_snapshot and not options.blocks_deletes and not api.link.info.at_least(2, 15):
        raise UnsupportedByServerError(
            "Option 'backfill' with the value 'snapshot' (older servers refuse deletes meanwhile; "
            "'snapshot-blocking-deletes' accepts that)",
            "2.15",
            api.link.info.version,
        )
    if not running:
        check_subjects(options, api, facts)
    return facts


def _no_bucket(bucket: str, api: StreamAPI) -> ConfigError:
    buckets = [
        name.removeprefix(STREAM_PREFIX)
        for name in api.stream_names()
        if name.startswith(STREAM_PREFIX)
    ]
    without = bucket.removeprefix(STREAM_PREFIX)
    said = without if without in buckets else bucket
    return ConfigError(f"Bucket {bucket!r} not found{instead(said, buckets)}")


def check_subjects(
    options: SourceOptions, api: StreamAPI, facts: Mapping[str, StreamFacts]
) -> None:
    """Raises as `fixed_range.check_subjects`; a pattern may find further streams later."""
    fixed_range.check_subjects(
        "Option 'subjects'",
        options.subjects,
        api,
        facts,
        others_may_come=options.stream_pattern is not None,
    )


def _check_stream(options: SourceOptions, facts: StreamFacts, api: StreamAPI) -> None:
    """Raises ConfigError where the query and other readers would remove each other's messages, and
    where keys cannot be chosen."""
    name, retention = facts.name, facts.retention
    if options.keys and facts.is_mirror:
        raise ConfigError(
            f"Bucket {options.bucket!r} is a mirror, whose keys cannot be chosen by the server: "
            "read it without 'keys', or its origin."
        )
    for option, asked, needed in (
        ("soleReader", options.sole_reader, "workqueue"),
        ("interestConsumer", options.interest_consumer is not None, "interest"),
    ):
        if asked and retention != needed:
            keeps = " and keeps what is read" if retention == "limits" else ""
            raise ConfigError(
                f"Option {option!r} is for streams with retention {needed!r}; {name!r} has "
                f"{retention!r}{keeps}."
            )
    if retention == "interest" and options.interest_consumer is None:
        raise ConfigError(
            f"Stream {name!r} has retention 'interest': its messages go when all its consumers "
            "have acknowledged them, and are not even stored without any, so a table of it cannot "
            "be exact. Use a stream with retention 'limits' that has this one as a source, or "
            "readStream with an 'interestConsumer', which keeps the messages for the query."
        )
    if retention == "workqueue" and not options.sole_reader:
        raise ConfigError(
            f"Stream {name!r} has retention 'workqueue': its messages go when another consumer "
            "acknowledges them, so a table of it cannot be exact. If this query is the only "
            "reader, set the option 'soleReader' to true: what its checkpoint has is removed."
        )
    if not options.removes:
        return
    server = api.link.info
    if options.interest_consumer is not None and not server.at_least(2, 14):
        raise UnsupportedByServerError("Option 'interestConsumer'", "2.14", server.version)
    if options.sole_reader and (
        facts.consumers > 1 or (facts.consumers and api.consumer(name, SOLE_READER) is None)
    ):
        raise ConfigError(other_readers(name))
    if not facts.allows_direct:
        raise ConfigError(f"Stream {name!r} is read by direct gets here: set its allow_direct.")
    if facts.longest_inactive is not None:
        raise ConfigError(
            f"Stream {name!r} removes consumers that are idle for {facts.longest_inactive:g} s "
            "(consumer_limits), so the query's could not stay while it is not running."
        )
