"""Decides from a server's STREAM.INFO answers whether it led the stream. No I/O.

A leader that was suspended (a stopped process or machine, a stalled disk) is replaced without
noticing: when it resumes, it answers with its old state until another server informs it. But no
quorum of replicas can have accepted it as leader after that. So an answer is valid if

- a later answer of the same leader shows contact since then with a quorum of replicas, or
- each replica had such a contact so recently that none can have stood for election since (a lease).

Replicas answer their leader at least every two seconds (it sends a heartbeat each second, unless
something was stored within it), and stand for election after 4 seconds of silence or more. Only
durations are compared, so clocks may be wrong or change. docs/exactly-once.md has the assumptions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jetspark.timestamps import NANOSECONDS

GUARD_SECONDS = 0.2
"""Seconds within which a running server has read everything that its replicas sent.

Replies that arrived during a suspension are read afterwards, and look new.
"""
LEASE_SECONDS = 3.0
"""Seconds; less than the 4 seconds of silence after which a replica stands for election."""
_HISTORY_SECONDS = LEASE_SECONDS + 1.0
_MIN_SPACING_SECONDS = 0.04
"""Seconds; only some of the answers that are closer together are kept."""


def leader_of(answer: Mapping[str, Any]) -> str:
    """The leader that gave this answer about a stream or consumer; empty if it was not a leader.

    A leader does not list itself among its replicas. A server that does has just learnt of another
    leader.
    """
    cluster: Mapping[str, Any] = answer.get("cluster") or {}
    name: str = cluster.get("leader") or ""
    return "" if any(replica["name"] == name for replica in cluster.get("replicas") or ()) else name


def copies_of(answer: Mapping[str, Any]) -> int:
    """The number of a stream's replicas, listed or configured, whichever is greater.

    They differ while replicas are added or removed; the greater number asks more of a proof.
    """
    replicas = (answer.get("cluster") or {}).get("replicas") or ()
    return max(int(answer["config"].get("num_replicas", 1)), len(replicas) + 1)


class Leader(NamedTuple):
    """The leader that answered; without a name, no leader did."""

    name: str = ""
    since: str = ""
    """When it was elected, in the server's words."""
    raft_group: str = ""


@dataclass(frozen=True, slots=True)
class LeaderObservation:
    """One answer to STREAM.INFO, reduced to what it shows about the stream's leader."""

    sent: float
    """When the request was sent and the answer arrived, in `time.monotonic()`."""
    received: float
    leader: Leader
    replicas: int
    """How many there are, including the leader."""
    heard: Mapping[str, float] = field(default_factory=dict)
    """Seconds since the leader's last contact with each replica; only replicas with a contact."""

    @property
    def quorum(self) -> int:
        """Replicas of a quorum, including the leader."""
        return self.replicas // 2 + 1

    @property
    def is_only_replica(self) -> bool:
        """Whether the leader is the only replica, so that no other one can have been elected."""
        return self.replicas == 1 and bool(self.leader.name)


def observation_of(answer: Mapping[str, Any], sent: float, received: float) -> LeaderObservation:
    """Extract from an answer to STREAM.INFO what it shows about the leader.

    `sent`, `received`: when the request was sent and the answer arrived (`time.monotonic()`).
    """
    cluster: Mapping[str, Any] | None = answer.get("cluster")
    replicas = copies_of(answer)
    if cluster is None:
        # Outside of a cluster the server leads; with several replicas this proves nothing.
        leader = Leader("-") if replicas == 1 else Leader()
        return LeaderObservation(sent, received, leader, replicas)
    leader = Leader(
        leader_of(answer), cluster.get("leader_since") or "", cluster.get("raft_group") or ""
    )
    heard = {
        str(replica.get("peer") or replica["name"]): replica["active"] / NANOSECONDS
        for replica in cluster.get("replicas") or ()
        if replica.get("active", 0) > 0  # 0: the leader has had no contact with this replica
    }
    return LeaderObservation(sent, received, leader, replicas, heard)


class LeaderTerm:
    """The latest answers of one leader of a stream, which prove that it still led (`led_since`).

    An answer of another leader begins a new term.
    """

    def __init__(self) -> None:
        self._answers: list[LeaderObservation] = []  # oldest first

    def add(self, newest: LeaderObservation) -> None:
        """Add the newest answer; forget answers of another leader, and those that are too old."""
        if not newest.leader.name:  # no leader answered
            self._answers = []
            return
        oldest = newest.sent - _HISTORY_SECONDS
        answers = [
            answer
            for answer in self._answers
            if answer.leader == newest.leader and answer.sent >= oldest
        ]
        # The newest takes the place of the one before where the answers come very close together.
        if len(answers) > 1 and answers[-1].sent < answers[-2].sent + _MIN_SPACING_SECONDS:
            answers.pop()
        self._answers = [*answers, newest]

    def led_since(self, since: float) -> bool:
        """Whether the leader is proven to have led at or after `since` (a `time.monotonic()`).

        Then its newest answer has everything that any leader acknowledged before `since`.
        """
        if not self._answers or self._answers[-1].sent < since:
            return False
        newest = self._answers[-1]
        if newest.is_only_replica:
            return True
        for base, replicas in self._contacts(since):
            # Contact with a quorum after `since`: none of these had accepted another leader.
            if base.sent >= since and len(replicas) + 1 >= newest.quorum:
                return True
            # A lease: contact with every replica, too recent for any to have stood for election.
            has_lease = newest.received <= base.sent + LEASE_SECONDS
            if has_lease and len(replicas) + 1 >= newest.replicas:
                return True
        return False

    def unrivalled_since(self, since: float) -> bool:
        """Whether the leader led (`led_since`) and has no rival, a former leader unaware of it.

        There is none if every replica, and not only a quorum, has lately confirmed the leader.
        """
        if not self.led_since(since):
            return False
        newest = self._answers[-1]
        return newest.is_only_replica or any(
            len(replicas) + 1 >= newest.replicas for _, replicas in self._contacts(since)
        )

    def _contacts(self, since: float) -> Iterator[tuple[LeaderObservation, set[str]]]:
        """Yield earlier answers, newest first, with the replicas that confirmed the leader later.

        Ends at `since`, or where a lease of the newest answer would begin, if that is earlier.
        """
        newest = self._answers[-1]
        earliest = min(since, newest.received - LEASE_SECONDS)
        for index in range(len(self._answers) - 2, -1, -1):
            base = self._answers[index]
            if base.sent < earliest:
                return
            yield base, self._replicas_heard_after(index)

    def _replicas_heard_after(self, index: int) -> set[str]:
        """The names of the replicas that confirmed the leader after its answer at `index`.

        Contacts are counted that the later answers list, without the newest one's. A contact may be
        a refusal, by a replica that has accepted another leader; but a leader that reads a refusal
        gives no more answers. So a further answer proves that it was none.
        """
        base = before = self._answers[index]
        replicas: set[str] = set()
        longest_gap = 0.0
        for answer in self._answers[index + 1 : -1]:
            # A leader that was suspended between two answers reads late what replicas had sent, and
            # takes it for new. So only contacts count that are later by as long as it was silent.
            longest_gap = max(longest_gap, answer.received - before.sent)
            before = answer
            earliest = base.received + GUARD_SECONDS + longest_gap
            # A replica counts if it had also been in contact shortly before the answer at `index`.
            replicas |= {
                name
                for name, seconds_ago in answer.heard.items()
                if answer.sent - seconds_ago > earliest
                and base.heard.get(name, LEASE_SECONDS) < LEASE_SECONDS
            }
        return replicas
