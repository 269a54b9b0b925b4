"""The configuration and state of a stream, from an answer to STREAM.INFO. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jetspark.errors as errors
from jetspark.links.leader_terms import copies_of, leader_of
from jetspark.timestamps import NANOSECONDS, format_isotime, parse_isotime


class LastMessage(NamedTuple):
    """The sequence and time of a stream's last message, which an older copy does not have."""

    seq: int
    ns: int
    """When it was stored, in nanoseconds since the epoch."""

    def replaced_message(self, stream: str, now_ns: int) -> str:
        """The beginning of an error's sentence: the message at this sequence is another one now.

        `now_ns`: when that one was stored, in nanoseconds since the epoch.
        """
        return (
            f"Stream {stream!r} was replaced by an older copy of itself (a restored disk?): "
            f"sequence {self.seq} was stored at {format_isotime(self.ns)} before and at "
            f"{format_isotime(now_ns)} now"
        )


class Witness(NamedTuple):
    """A message of a stream with `max_msgs_per_subject`, remembered while it was stored.

    In such a stream newer messages replace older ones, so a missing sequence proves no loss. But if
    this message is gone and its subject has no message at all, something else removed it.
    """

    seq: int
    subject: str


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """The configuration and state of a stream."""

    name: str
    created: str
    """Creation time in the server's words; it identifies the stream."""
    first_seq: int
    last_seq: int
    messages: int
    bytes: int
    retention: str
    keeps_last_per_subject: bool
    """Only max_msgs_per_subject removes messages: the first sequence increases without a loss."""
    consumers: int = 0
    allows_direct: bool = False
    """Direct gets are allowed."""
    is_mirror: bool = False
    max_inactive_seconds: float | None = None
    """Seconds after which the stream removes an idle consumer; None: no limit."""
    limits: str = ""
    """The limits that remove messages, in words; empty if there are none."""
    copies: int = 1
    """Replicas, including the leader."""
    leader: str = ""
    """The leader that answered; empty outside of a cluster, and if no leader did."""
    oldest: str = ""
    """Time of the first message, in the server's words; meaningless without messages."""
    newest: str = ""
    """Time of the message `last_seq`, in the server's words; empty if there was none."""
    subjects: tuple[str, ...] = ()
    """Subjects it listens to; empty if it transforms subjects, so that it stores others."""
    deleted: int = 0
    """Deleted messages after the first one."""
    stores_other_subjects: bool = False
    """True for a mirror, and for a stream with sources or a subject transform."""
    server_id: str = ""
    """The ID of the server that answered; it changes with each start."""

    @property
    def last(self) -> LastMessage | None:
        """The last message; None if there never was one."""
        return LastMessage(self.last_seq, parse_isotime(self.newest)) if self.newest else None

    @property
    def stores_many_subjects(self) -> bool:
        """Whether clients may publish to several of its subjects, and nothing else is stored."""
        has_wildcard = not {"*", ">"}.isdisjoint("".join(self.subjects))
        return (len(self.subjects) > 1 or has_wildcard) and not self.stores_other_subjects

    def has_a_gap_at(self, sequence: int) -> bool:
        """Whether only `sequence` is missing before the first message, and no limit removed it.

        Then somebody deleted that message, which is no loss: any deleted message leaves a gap.
        """
        limits_lose_nothing = not self.limits or self.keeps_last_per_subject
        return limits_lose_nothing and self.retention == "limits" and self.first_seq == sequence + 1

    @property
    def removed_by(self) -> str:
        """The possible reasons why unread messages were removed: "by …", as part of a sentence."""
        reason = "by a purge or deletion, since it has no limits"
        if self.limits:
            reason = f"by its limits ({self.limits}) or a purge"
        reason += ", before they were read"
        if self.retention == "workqueue":
            reason += ", or by this query itself, if its checkpoint is an older copy"
        return reason

    def lost_tail_message(self, end: int) -> str:
        """The error's sentence for a stream that ends before `end - 1`, which it had stored."""
        return (
            f"Stream {self.name!r} ends at sequence {self.last_seq}, but had {end - 1} before: the "
            "server has lost acknowledged messages."
        )

    def recreated_error(self, created: str, advice: str = "") -> errors.StreamRecreatedError:
        """The error to raise when the stream was recreated: it was created at `created` before.

        It says whether the stream was restored from a backup, if that is known. `advice`: a
        sentence to add.
        """
        restored: bool | None = None  # a restored stream has messages older than itself
        # The messages of a mirror have the times of its origin.
        if self.messages and self.oldest and not self.is_mirror:
            restored = parse_isotime(self.oldest) < parse_isotime(self.created)
        return errors.StreamRecreatedError(self.name, created, self.created, restored, advice)


def facts_of(name: str, answer: Mapping[str, Any], server_id: str = "") -> StreamFacts:
    """Extract a stream's configuration and state from an answer to STREAM.INFO.

    `server_id`: the ID of the server that answered.
    """
    config, state = answer["config"], answer["state"]
    inactive_ns = (config.get("consumer_limits") or {}).get("inactive_threshold")
    return StreamFacts(
        name=name,
        created=answer.get("created", ""),
        first_seq=state["first_seq"],
        last_seq=state["last_seq"],
        messages=state["messages"],
        bytes=state["bytes"],
        retention=config.get("retention", "limits"),
        # No other limit removes messages: with discard "new" the stream refuses new ones instead.
        keeps_last_per_subject=config.get("max_msgs_per_subject", -1) > 0
        and config.get("max_age", 0) <= 0
        and (
            config.get("discard") == "new"
            or (config.get("max_msgs", -1) < 0 and config.get("max_bytes", -1) < 0)
        ),
        consumers=state.get("consumer_count", 0),
        allows_direct=bool(config.get("allow_direct")),
        is_mirror="mirror" in config,
        max_inactive_seconds=inactive_ns / NANOSECONDS if inactive_ns else None,
        limits=_describe_limits(config),
        copies=copies_of(answer),
        leader=leader_of(answer),
        oldest=state.get("first_ts", ""),
        newest=state.get("last_ts", "") if state["last_seq"] else "",
        # A transform stores messages under other subjects than those it listens to.
        subjects=() if "subject_transform" in config else tuple(config.get("subjects") or ()),
        deleted=state.get("num_deleted", 0),
        stores_other_subjects=not {"mirror", "sources", "subject_transform"}.isdisjoint(config),
        server_id=server_id,
    )


def _describe_limits(config: dict[str, Any]) -> str:
    """The limits in a stream's configuration that remove messages: "max_msgs 9, max_age 60 s"."""
    limits = [
        f"{name} {config[name]}"
        for name in ("max_msgs", "max_bytes", "max_msgs_per_subject")
        if config.get(name, -1) > 0
    ]
    if config.get("max_age", 0) > 0:
        limits.append(f"max_age {config['max_age'] / NANOSECONDS:g} s")
    if config.get("allow_msg_ttl"):
        limits.append("times to live of messages")
    return ", ".join(limits)
