"""The facts of a stream that planning and checking need, out of its STREAM.INFO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jetspark.errors import StreamRecreatedError
from jetspark.timestamps import NANOSECONDS, parse_isotime


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """What a stream reports of itself."""

    name: str
    created: str
    """Creation time as the server writes it: another one means another stream."""
    first_seq: int
    last_seq: int
    messages: int
    bytes: int
    retention: str
    keeps_last_per_subject: bool
    """max_msgs_per_subject is the only limit: the first sequence moves without a loss."""
    consumers: int = 0
    allows_direct: bool = False
    """Direct gets are allowed."""
    is_mirror: bool = False
    longest_inactive: float | None = None
    """Seconds for which the stream lets its consumers be inactive at most; None: no limit."""
    limits: str = ""
    """What removes messages by itself, in words; empty when nothing does."""
    copies: int = 1
    """Replicas, including the leader."""
    leader: str = ""
    """The leader that has answered; empty outside of clusters, and when no leader has."""
    oldest: str = ""
    """Time of the first message, as the server writes it; meaningless without messages."""
    subjects: tuple[str, ...] = ()
    """Its subjects, unless it changes the subjects of what it stores."""
    holds_others: bool = False
    """It may store messages under other subjects: a mirror, sources, a subject transform."""

    @property
    def removed_by(self) -> str:
        """What may have removed messages, in words."""
        if self.limits:
            return f"by its limits ({self.limits}) or a purge"
        return "by a purge or deletion, since it has no limits"

    def another_than(self, created: str, advice: str = "") -> StreamRecreatedError:
        """The error when this is not the stream of that name that was `created` then.

        `advice`: what to do, in a sentence.
        """
        restored: bool | None = None
        # The messages of a mirror have the times of its origin.
        if self.messages and self.oldest and not self.is_mirror:
            restored = parse_isotime(self.oldest) < parse_isotime(self.created)
        return StreamRecreatedError(self.name, created, self.created, restored, advice)


def leader_of(answer: Mapping[str, Any]) -> str:
    """The leader of the stream or consumer that gave this answer; empty when it was no leader.

    A leader does not list itself among its replicas. A server that does has just learnt of another
    leader.
    """
    cluster: Mapping[str, Any] = answer.get("cluster") or {}
    name: str = cluster.get("leader") or ""
    return "" if any(one["name"] == name for one in cluster.get("replicas") or ()) else name


def copies_of(answer: Mapping[str, Any]) -> int:
    """How many replicas a stream has, or is configured to have, whichever is more."""
    others = (answer.get("cluster") or {}).get("replicas") or ()
    return max(int(answer["config"].get("num_replicas", 1)), len(others) + 1)


def facts_of(name: str, answer: Mapping[str, Any]) -> StreamFacts:
    """From an answer to STREAM.INFO."""
    config, state = answer["config"], answer["state"]
    return StreamFacts(
        name=name,
        created=answer["created"],
        first_seq=state["first_seq"],
        last_seq=state["last_seq"],
        messages=state["messages"],
        bytes=state["bytes"],
        retention=config.get("retention", "limits"),
        keeps_last_per_subject=config.get("max_msgs_per_subject", -1) > 0
        and config.get("max_age", 0) <= 0
        and config.get("max_msgs", -1) < 0
        and config.get("max_bytes", -1) < 0,
        consumers=state.get("consumer_count", 0),
        allows_direct=bool(config.get("allow_direct")),
        is_mirror="mirror" in config,
        longest_inactive=limits["inactive_threshold"] / NANOSECONDS
        if (limits := config.get("consumer_limits") or {}).get("inactive_threshold")
        else None,
        limits=_limits(config),
        copies=copies_of(answer),
        leader=leader_of(answer),
        oldest=state["first_ts"],
        subjects=() if "subject_transform" in config else tuple(config.get("subjects") or ()),
        holds_others=not {"mirror", "sources", "subject_transform"}.isdisjoint(config),
    )


def _limits(config: dict[str, Any]) -> str:
    found = [
        f"{name} {config[name]}"
        for name in ("max_msgs", "max_bytes", "max_msgs_per_subject")
        if config.get(name, -1) > 0
    ]
    if config.get("max_age", 0) > 0:
        found.append(f"max_age {config['max_age'] / NANOSECONDS:g} s")
    if config.get("allow_msg_ttl"):
        found.append("times to live of messages")
    return ", ".join(found)
