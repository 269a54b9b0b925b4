"""Decides from a server's answers for a stream whether it led the stream. No I/O.

A leader that was suspended (a stopped process or machine, a stalled disk) is replaced without
noticing: when it resumes, it answers with its old state until another server informs it. But no
quorum of replicas can have accepted it as leader after that. So an answer is valid if

- a later answer of the same leader shows contact since then with a quorum of replicas (*proven*),
  or
- each replica had such a contact so recently that none can have stood for election since
  (*leased*).

Replicas answer their leader at least every two seconds (it sends a heartbeat each second, unless
something was stored within it), and stand for election after 4 seconds of silence or more. Only
durations are compared, the server's and those of our own clock, so clocks may be wrong or may be
changed. docs/exactly-once.md has the assumptions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jetspark.bulk.facts import copies_of, leader_of
from jetspark.timestamps import NANOSECONDS

GUARD_SECONDS = 0.2
"""Seconds within which a running server has read everything that its replicas have sent.

Replies that arrived while it was suspended are read when it resumes, and look new.
"""
LEASE_SECONDS = 3.0
"""Seconds; less than the 4 seconds of silence after which a replica stands for election."""
_KEPT_SECONDS = LEASE_SECONDS + 1.0
_APART_SECONDS = 0.04
"""Seconds; of answers closer together than this, only some are kept."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one answer shows about its leader."""

    sent: float
    """When the question was sent and the answer came, `time.monotonic()`."""
    received: float
    leader: tuple[str, str, str] = ("", "", "")
    """Name, start of its leadership, and Raft group; no name: no leader has answered."""
    quorum: int = 1
    """Replicas of a quorum, including the leader; 1: the leader is the only replica."""
    heard: Mapping[str, float] = field(default_factory=dict)
    """Seconds since the leader's last contact with each replica that it has had contact with."""
    replicas: int = 1

    @property
    def alone(self) -> bool:
        """Whether there is one replica, so that no other one can have been elected."""
        return self.replicas == 1 and bool(self.leader[0])


def look_of(answer: Mapping[str, Any], sent: float, received: float) -> Look:
    """From an answer to STREAM.INFO."""
    cluster: Mapping[str, Any] | None = answer.get("cluster")
    count = copies_of(answer)
    if cluster is None:
        # Outside of a cluster; or in one that does not name the leader: proves nothing.
        return Look(sent, received, ("-", "", "") if count == 1 else ("", "", ""), replicas=count)
    return Look(
        sent,
        received,
        (leader_of(answer), cluster.get("leader_since") or "", cluster.get("raft_group") or ""),
        count // 2 + 1,
        # 0: the leader never had contact with this replica.
        {
            str(one.get("peer") or one["name"]): one["active"] / NANOSECONDS
            for one in cluster.get("replicas") or ()
            if one.get("active", 0) > 0
        },
        count,
    )


class Tenure:
    """The answers of one leader of one stream, oldest first; another leader begins a new one."""

    def __init__(self) -> None:
        self._looks: deque[Look] = deque()

    def add(self, look: Look) -> None:
        """Add the newest answer."""
        looks = self._looks
        if looks and looks[-1].leader != look.leader:
            looks.clear()
        if not look.leader[0]:
            looks.clear()
            return
        if len(looks) > 1 and looks[-1].sent < looks[-2].sent + _APART_SECONDS:
            looks.pop()
        while looks and looks[0].sent < look.sent - _KEPT_SECONDS:
            looks.popleft()
        looks.append(look)

    def led_since(self, begun: float) -> bool:
        """Whether the newest answer includes all that any leader had acknowledged by then."""
        if not self._looks or self._looks[-1].sent < begun:
            return False
        last = self._looks[-1]
        return last.alone or any(
            (one.sent >= begun and len(agreed) + 1 >= last.quorum)
            or (self._everyone(agreed) and last.received <= one.sent + LEASE_SECONDS)
            for one, agreed in self._contacts(begun)
        )

    def unrivalled_since(self, begun: float) -> bool:
        """Whether all replicas have also confirmed it, so that none believes to be leader."""
        if not self.led_since(begun):
            return False
        return self._looks[-1].alone or any(
            self._everyone(agreed) for _, agreed in self._contacts(begun)
        )

    def _everyone(self, agreed: set[str]) -> bool:
        return len(agreed) + 1 >= self._looks[-1].replicas

    def _contacts(self, begun: float) -> Iterator[tuple[Look, set[str]]]:
        """Each answer, newest first, with the replicas that have agreed with the leader since.

        Back to `begun`, or to the beginning of the lease. The newest answer shows no contact of its
        own, but that its leader still led after the contacts before, which may have been refusals.
        """
        looks = list(self._looks)
        since = min(begun, looks[-1].received - LEASE_SECONDS)
        for number in range(len(looks) - 2, -1, -1):
            base = before = looks[number]
            if base.sent < since:
                return
            agreed: set[str] = set()
            stood_still = 0.0
            for look in looks[number + 1 : -1]:
                # It may have been suspended while it did not answer.
                stood_still = max(stood_still, look.received - before.sent)
                before = look
                earliest = base.received + GUARD_SECONDS + stood_still
                agreed |= {
                    name
                    for name, ago in look.heard.items()
                    if look.sent - ago > earliest
                    and base.heard.get(name, LEASE_SECONDS) < LEASE_SECONDS
                }
            yield base, agreed
