"""Which answers of a stream's leader are believed: a small world in which leaders stand still.

The world has one leader A and its replicas, on one clock; A answers while it runs. A replica that
has not heard from A for 4 to 9 seconds may stand for election, and from then on it refuses A. What
replicas have sent lies in A's sockets while A stands still, and is read when it goes on.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.links.leader_terms import (
    GUARD_SECONDS,
    Leader,
    LeaderObservation,
    LeaderTerm,
    observation_of,
)

_TICK = 0.02
_HEARTBEATS = (1.0, 2.0)
"""Seconds between two; the longer one after something was written."""


@dataclass
class World:
    """A leads until it is deposed, and then until it reads that it was."""

    rng: random.Random
    replicas: int = 3
    freezes: list[tuple[float, float]] = field(default_factory=list)
    """From when to when A stands still."""
    down: int = 0
    """Replicas that answer nobody."""
    slow_reading: float = 0.0
    """A needs so long for what has gathered while it stood still, one after the other."""
    clock: float = 0.0
    deposed: float | None = None
    knows: bool = False

    def __post_init__(self) -> None:
        self._peers = [f"p{n}" for n in range(self.replicas - 1 - self.down)]
        self._sends = dict.fromkeys(self._peers, 0.0)  # when a replica last heard from A
        self._heard = dict.fromkeys(self._peers, 0.0)  # when A last read something of it
        self._under_way: list[tuple[float, str, bool]] = []
        self._next_beat = 0.0
        self._patience = self.rng.uniform(4, 9)
        self._reading_at = 0.0

    @property
    def runs(self) -> bool:
        return not any(start <= self.clock < end for start, end in self.freezes)

    def tick(self) -> None:
        self.clock += _TICK
        oldest = max(self._sends.values())
        can_elect = len(self._peers) + 1 > (self.replicas + 1) // 2
        if self.deposed is None and can_elect and self.clock - oldest > self._patience:
            self.deposed = self.clock
        if not self.runs:
            self._reading_at = 0.0
            return
        if self.clock >= self._next_beat:
            self._next_beat = self.clock + self.rng.choice(_HEARTBEATS)
            for peer in self._peers:
                if self.deposed is None:
                    self._sends[peer] = self.clock
                arrival = self.clock + self.rng.uniform(0, 0.03)
                self._under_way.append((arrival, peer, self.deposed is None))
        if not self._reading_at:
            self._reading_at = self.clock
        while self._under_way and not self.knows:
            self._under_way.sort()
            arrival, peer, agrees = self._under_way[0]
            if max(arrival, self._reading_at) > self.clock:
                return
            self._under_way.pop(0)
            self._reading_at = max(arrival, self._reading_at) + self.slow_reading
            self._heard[peer] = self.clock
            self.knows = not agrees

    def look(self) -> LeaderObservation:
        """What A says now."""
        heard = {peer: max(0.0, self.clock - at) for peer, at in self._heard.items()}
        leader = Leader() if self.knows else Leader("A")
        return LeaderObservation(self.clock - 0.002, self.clock, leader, self.replicas, heard)


def watch(world: World, *, until: float, every: float = 0.05) -> list[tuple[float, float]]:
    """Asks A all the time, as `leaders` does; (asked since, believed at) of what was believed."""
    term, believed = LeaderTerm(), []
    begun = due = world.clock
    while world.clock < until:
        world.tick()
        if world.knows or not world.runs or world.clock < due:
            continue
        due = world.clock + every
        term.add(world.look())
        if term.led_since(begun):
            believed.append((begun, world.clock))
            begun = world.clock + _TICK
    return believed


def check(world: World, believed: list[tuple[float, float]]) -> None:
    for begun, at in believed:
        assert world.deposed is None or world.deposed >= begun, (
            f"deposed at {world.deposed:.2f}, asked since {begun:.2f}, believed at {at:.2f}"
        )


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("replicas", [3, 5])
def test_a_replaced_leader_is_never_proven(seed: int, replicas: int) -> None:
    rng = random.Random(seed)
    freezes, clock = [], 5.0
    for _ in range(rng.randrange(1, 4)):
        start = clock + rng.uniform(0, 3)
        # Long enough for an election, or a moment at the worst time.
        clock = start + rng.choice([rng.uniform(0.05, 1), rng.uniform(3, 14)])
        freezes.append((start, clock))
        clock += rng.choice([rng.uniform(0.01, 0.1), rng.uniform(0.5, 3)])
    world = World(
        rng,
        replicas,
        freezes,
        down=rng.choice([0, 0, 1]),
        slow_reading=rng.choice([0, 0.005, 0.02]),
    )
    check(world, watch(world, until=clock + 5))


@pytest.mark.parametrize("down", [0, 1])
def test_a_leader_is_proven_by_the_next_heartbeat(down: int) -> None:
    for seed in range(3):
        world = World(random.Random(seed), down=down)
        believed = watch(world, until=20)
        waits = [at - begun for begun, at in believed]
        assert max(waits) <= max(_HEARTBEATS) + GUARD_SECONDS + 0.3, waits
        # With every replica there the lease makes most answers free.
        assert (len(waits) > 150) is (down == 0), len(waits)


def test_what_lay_in_the_sockets_is_no_contact() -> None:
    """Deposed while it stood still; continued, it reads old answers before new ones."""
    for reading in (0.0, 0.01, 0.05):
        world = World(random.Random(7), freezes=[(5.005, 20.0)], slow_reading=reading)
        world._patience = 4
        while world.clock < 20.0:
            world.tick()
        assert world.deposed is not None
        assert watch(world, until=25) == []


# -- the decision, by answers made up --------------------------------------------------------------


def look(at: float, *heard: float, leader: str = "A", took: float = 0.001) -> LeaderObservation:
    contacts = {f"p{n}": ago for n, ago in enumerate(heard) if ago >= 0}
    return LeaderObservation(at, at + took, Leader(leader), len(heard) + 1, contacts)


def told(*looks: LeaderObservation) -> LeaderTerm:
    term = LeaderTerm()
    for one in looks:
        term.add(one)
    return term


def test_one_copy_needs_no_proof() -> None:
    assert told(look(10)).led_since(10)
    assert told(look(10)).unrivalled_since(10)
    assert not told(look(10)).led_since(11)


def test_a_contact_before_the_question_proves_nothing() -> None:
    assert not told(look(10, 0.1, 0.1), look(10.5, 0.6, 0.6), look(10.6, 0.7, 0.7)).led_since(10)


def test_contact_after_the_question_proves_the_leader_once_it_answers_steadily() -> None:
    term = told(look(10, 0.1, 0.1), look(10.05, 0.15, 0.15), look(10.5, 0.01, 0.01))
    assert not term.led_since(10), "the contact may have been a refusal"
    term.add(look(10.55, 0.06, 0.06))
    assert not term.led_since(10), "it did not answer for 0.45 seconds: it may have stood still"
    for at in (10.6, 10.65, 10.7, 10.75, 10.8, 10.85):
        term.add(look(at, 0.01, 0.01))
    assert term.led_since(10)
    assert term.unrivalled_since(10)


def steps(*heard: float, start: float = 10.0, seconds: float = 1.4) -> list[LeaderObservation]:
    """One every 0.05 s; replicas with 1 or more are silent, the others answer each second."""
    return [
        look(
            start + n * 0.05,
            *(h + n * 0.05 if h >= 1 else (h + n * 0.05) % 1.0 + 0.001 for h in heard),
        )
        for n in range(round(seconds / 0.05) + 1)
    ]


@pytest.mark.parametrize(
    ("heard", "led"),
    [
        ((0.3, 60.0), True),  # a quorum is enough, and the silent replica may be a rival
        ((0.3, 60, 60, 60), False),
        ((0.3, 0.3, 60, 60), True),
        ((60.0,), False),
        ((0.3,), True),
    ],
)
def test_as_many_others_as_a_quorum_are_needed(heard: tuple[float, ...], led: bool) -> None:
    term = told(*steps(*heard))
    assert term.led_since(10) is led
    assert term.unrivalled_since(10) is (max(heard) < 1)


def test_the_lease_ends_before_anybody_can_be_elected() -> None:
    proof = steps(0.3, 0.3)
    assert told(*proof, look(12.9, 2.0, 2.0)).led_since(12.9)
    assert not told(*proof, look(15, 0.01, 0.01)).led_since(15)


def test_there_is_no_lease_while_a_replica_is_silent_and_none_of_another_leader() -> None:
    assert not told(*steps(0.3, 60), look(12, 0.1, 62)).led_since(12)
    assert not told(*steps(0.3, 0.3), look(11.45, 0.1, 0.1, leader="B")).led_since(10)


def test_a_contact_with_one_that_was_silent_for_an_election_begins_no_proof() -> None:
    """The network was cut; what was under way comes first, refusals later."""
    silent = [look(10 + n * 0.05, 8 + n * 0.05, 8 + n * 0.05) for n in range(8)]
    term = told(*silent, *(look(10.4 + n * 0.05, 0.01, 0.01) for n in range(3)))
    assert not term.led_since(10)


def test_a_contact_that_the_newest_answer_shows_may_have_been_a_refusal() -> None:
    looks = steps(0.3, 0.3)
    first = next(n for n, one in enumerate(looks) if n > 5 and one.heard["p0"] < 0.05)
    assert not told(*looks[: first + 1]).led_since(10)
    assert told(*looks[: first + 2]).led_since(10)


@given(st.lists(st.tuples(st.floats(0.001, 3), st.floats(0, 9), st.floats(0, 9)), max_size=30))
def test_without_a_later_contact_no_answer_is_proven(
    answers: list[tuple[float, float, float]],
) -> None:
    """However often it answers: a leader whose replicas say nothing more."""
    clock, looks = 100.0, []
    for pause, one, other in answers:
        clock += pause
        looks.append(look(clock, clock - 99 + one, clock - 99 + other))
    assert not told(*looks).led_since(100)


# -- answers as servers give them ----------------------------------------------------------------


def answer(cluster: dict[str, Any] | None, copies: int = 3) -> dict[str, Any]:
    found: dict[str, Any] = {"config": {"num_replicas": copies}}
    return found if cluster is None else {**found, "cluster": cluster}


def replica(name: str, active: int = 1) -> dict[str, Any]:
    return {"name": name, "current": True, "active": active}


def test_a_leader_does_not_name_itself_among_its_replicas() -> None:
    """A former leader that has just been told answers with its old state and the new name."""
    replicas = [replica("A"), replica("C")]
    seen = observation_of(answer({"leader": "A", "replicas": replicas}), 1, 2)
    assert not told(seen).led_since(1)
    assert seen.leader.name == ""


@pytest.mark.parametrize(
    ("cluster", "copies", "led"),
    [
        ({"replicas": [replica("A"), replica("B"), replica("C")]}, 3, False),
        (None, 1, True),
        ({"leader": "A"}, 1, True),
        (None, 3, False),  # it does not name replicas
        ({"leader": "A"}, 3, False),
    ],
)
def test_a_single_copy_leads_and_others_are_proven_by_the_replicas_that_are_named(
    cluster: dict[str, Any] | None, copies: int, led: bool
) -> None:
    assert told(observation_of(answer(cluster, copies), 1, 2)).led_since(1) is led


def test_a_replica_without_contact_does_not_count_as_contacted() -> None:
    cluster = {"leader": "A", "replicas": [replica("B", 0), replica("C", 2_000_000_000)]}
    assert observation_of(answer(cluster), 1, 2).heard == {"C": 2.0}
