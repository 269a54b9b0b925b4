"""Removing from a stream what the query's checkpoint has: options `trim`, `keep`, `trimUnread`.

Spark commits a batch to the checkpoint after the tables have it, and tells the source then. What
lies before is removed, but never a message

- before the query's start, or of another stream of the name: `claims` refuses such a query, and
  lets only one query trim a stream;
- that `keep` keeps;
- that a consumer of the stream has not acknowledged, or a mirror has not copied, unless
  `trimUnread` says so. A stream that has this one as a source does not tell how far it has come, so
  then nothing is removed.

Readers that leave no trace on the server, such as another query without a `progressConsumer`,
cannot be seen.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jetspark.errors import ConfigError, UnsupportedByServerError, named, switching
from jetspark.links.leaders import linearizable_read
from jetspark.links.stream_api import StreamAPI
from jetspark.links.stream_facts import StreamFacts
from jetspark.options.parsers import parse_keep
from jetspark.ranges.fixed_range import head, tail
from jetspark.spark.source.claims import TRIMMER
from jetspark.spark.source.options import SourceOptions
from jetspark.timestamps import NANOSECONDS

logger = logging.getLogger("jetspark.spark")


class _Holder(NamedTuple):
    """A reader that still needs messages of a stream."""

    sequence: int
    """The first one that it needs."""
    name: str


def check_can_trim(facts: StreamFacts, config: Mapping[str, Any], api: StreamAPI) -> None:
    """Raise ConfigError if messages of a stream cannot be removed by a query, and
    UnsupportedByServerError for a server that cannot keep the query's claim.

    `config`: the stream's.
    """
    if not api.link.info.at_least(2, 11):  # consumers that are paused
        raise UnsupportedByServerError(named("trim"), "2.11", api.link.info.version)
    for setting in ("deny_purge", "sealed"):
        if config.get(setting):
            raise ConfigError(
                f"Stream {facts.name!r} has {setting}, so nothing can be removed from it.",
                option="trim",
            )
    if facts.max_inactive_seconds is not None:
        raise ConfigError(
            f"Stream {facts.name!r} removes consumers that are idle for "
            f"{facts.max_inactive_seconds:g} s (consumer_limits), so the query's claim could not "
            "stay while it is not running.",
            option="trim",
        )


class Trimmer:
    """Removes from streams what a query has finished, and says who keeps it from that."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._reported: set[tuple[str, str]] = set()
        """Streams and holders that were logged."""

    def trim(self, api: StreamAPI, facts: StreamFacts, end: int) -> None:
        """Remove messages before `end`, which the query's checkpoint has, as far as nobody needs
        them. `facts`: of the stream, from a proven leader."""
        options = self._options
        end = min(end, self._kept_from(api, facts))
        if end <= head(facts):
            return
        if not options.trim_unread:
            holder = min(_holders(api, facts, options), default=None)
            if holder is not None and holder.sequence < end:
                end = holder.sequence
                self._report(facts.name, holder)
        if end > head(facts):
            api.purge(facts.name, end, options.subjects)

    def _kept_from(self, api: StreamAPI, facts: StreamFacts) -> int:
        """The first sequence that `keep` keeps. By a number, at least so many messages stay: of a
        stream with gaps a few more, until it is trimmed again."""
        if self._options.keep is None:
            return tail(facts)
        keep = parse_keep(self._options.keep)
        if isinstance(keep, int):
            return head(facts) + max(0, facts.messages - keep)
        moment = time.time_ns() - int(keep * NANOSECONDS)
        first = linearizable_read(
            api, [facts.name], lambda api: api.sequence_at(facts.name, moment)
        )
        return tail(facts) if first is None else first

    def _report(self, stream: str, holder: _Holder) -> None:
        """Log, once, which reader keeps messages in the stream."""
        if (stream, holder.name) not in self._reported:
            self._reported.add((stream, holder.name))
            logger.warning(
                "%s has not read stream %r from sequence %d on, so that is not removed (%s).",
                holder.name,
                stream,
                holder.sequence,
                switching("trim_unread", True),
            )


def _holders(api: StreamAPI, facts: StreamFacts, options: SourceOptions) -> Iterator[_Holder]:
    """The readers of a stream that still need messages, but for the query itself."""
    for info in api.consumers(facts.name):
        name, config = info["name"], info["config"]
        if name in (TRIMMER, options.progress_consumer):
            continue
        if not info.get("num_pending") and not info.get("num_ack_pending"):
            continue  # it has all that it wants
        acknowledges = config.get("ack_policy", "none") != "none"
        done = info["ack_floor" if acknowledges else "delivered"]["stream_seq"]
        yield _Holder(done + 1, f"The consumer {name!r}")
    for info in api.stream_infos():
        config = info["config"]
        if (config.get("mirror") or {}).get("name") == facts.name:
            yield _Holder(info["state"]["last_seq"] + 1, f"The mirror {config['name']!r}")
        if any(source.get("name") == facts.name for source in config.get("sources") or ()):
            yield _Holder(0, f"The stream {config['name']!r}, which has it as a source, perhaps,")
