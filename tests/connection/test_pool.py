"""The server pool, with a clock and a random source of our own."""

from __future__ import annotations

import itertools
import random
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from jetspark.connection.pool import MOST_ADVERTISED, PooledServer, ServerPool
from jetspark.connection.urls import parse_url, parse_urls
from jetspark.errors import AuthExpiredError, AuthorizationError, ServerError, ServerRefusedError


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def make(*urls: str, clock: Clock | None = None, **options: Any) -> ServerPool:
    options.setdefault("wait", 2.0)
    return ServerPool(parse_urls(urls), clock=clock or Clock(), **options)


def names(pool: ServerPool) -> list[str]:
    return [f"{server.url.host}:{server.url.port}" for server in pool.servers]


def pick(pool: ServerPool) -> tuple[PooledServer, float]:
    picked = pool.next()
    assert picked is not None
    return picked


REFUSED = ServerRefusedError("refused")


class PoolMachine(RuleBasedStateMachine):
    """Attempts in any order of failures, successes, gossip and waiting keep the promises."""

    @initialize(
        count=st.integers(1, 4), limit=st.integers(-1, 3), jitter=st.sampled_from([0.0, 0.5])
    )
    def begin(self, count: int, limit: int, jitter: float) -> None:
        self.clock = Clock()
        self.limit = limit
        self.jitter = jitter
        self.pool = make(
            *(f"nats://s{i}" for i in range(count)),
            clock=self.clock,
            max_attempts=limit,
            jitter=jitter,
            rng=random.Random(1),
        )
        self.attempts: dict[PooledServer, list[float]] = {}

    def attempt(self) -> PooledServer | None:
        picked = self.pool.next()
        if picked is None:
            return None
        server, delay = picked
        assert 0 <= delay <= 2.0 + self.jitter + 1e-6
        self.clock.now += delay
        self.pool.attempt(server)
        self.attempts.setdefault(server, []).append(self.clock.now)
        return server

    @rule()
    def fail(self) -> None:
        if (server := self.attempt()) is not None:
            before = server.reconnects
            given_up = self.pool.failed(server, REFUSED)
            assert server.reconnects == before + 1
            assert given_up == (0 <= self.limit < server.reconnects)
            assert given_up == (server not in self.pool.servers)

    @rule()
    def succeed_and_lose(self) -> None:
        if (server := self.attempt()) is not None:
            self.pool.succeeded(server)
            assert server.reconnects == 0
            self.pool.lost(server)
            assert self.pool.servers[-1] is server

    @rule(hosts=st.lists(st.integers(0, 6), max_size=4))
    def gossip(self, hosts: list[int]) -> None:
        if self.pool.servers:
            new = self.pool.learn([f"s{i}:4222" for i in hosts], self.pool.servers[0], secure=False)
            assert len(new) == len(set(new))

    @rule(seconds=st.floats(0, 10))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @invariant()
    def attempts_at_one_server_are_spaced(self) -> None:
        for times in getattr(self, "attempts", {}).values():
            assert all(b - a >= 2.0 - 1e-6 for a, b in itertools.pairwise(times))

    @invariant()
    def no_server_is_twice_in_the_pool(self) -> None:
        if hasattr(self, "pool"):
            assert len(names(self.pool)) == len(set(names(self.pool)))


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_servers_that_are_ready_keep_their_order_and_the_lost_one_goes_last() -> None:
    pool = make("a", "b", "c")
    first, delay = pick(pool)
    assert (first.url.host, delay) == ("a", 0)
    pool.attempt(first)
    pool.succeeded(first)
    pool.lost(first)
    assert names(pool) == ["b:4222", "c:4222", "a:4222"]


def test_single_server_is_tried_again_after_reconnect_wait() -> None:
    clock = Clock()
    pool = make("a", clock=clock)
    server, _ = pick(pool)
    pool.attempt(server)
    pool.failed(server, REFUSED)
    clock.now += 0.5
    assert pick(pool) == (server, 1.5)
    pool.hurry()
    assert pick(pool) == (server, 0.0)


def test_a_delay_function_replaces_the_wait() -> None:
    counts: list[int] = []

    def delay(attempts: int) -> float:
        counts.append(attempts)
        return 10.0 * attempts

    pool = make("a", delay=delay)
    server, _ = pick(pool)
    for expected in (10.0, 20.0):
        pool.attempt(server)
        pool.failed(server, REFUSED)
        assert pick(pool)[1] == expected
    assert counts == [1, 2]


def test_the_same_auth_error_twice_in_a_row_gives_a_server_up() -> None:
    pool = make("a", max_attempts=-1)
    server, _ = pick(pool)
    assert not pool.failed(server, AuthorizationError("no"))
    assert not pool.failed(server, AuthExpiredError("old"))
    assert not pool.failed(server, REFUSED)
    assert not pool.failed(server, AuthExpiredError("old"))
    pool.succeeded(server)
    assert not pool.failed(server, AuthExpiredError("old"))
    assert pool.failed(server, AuthExpiredError("old"))
    assert pool.next() is None


def test_credentials_that_expire_on_a_link_are_no_refused_attempt() -> None:
    pool = make("a")
    server, _ = pick(pool)
    pool.succeeded(server)
    pool.lost(server)
    assert not pool.failed(server, AuthExpiredError("old"))  # a moment before they are rotated
    assert pool.failed(server, AuthExpiredError("old"))


def test_gossip_inherits_scheme_credentials_and_the_name_to_verify() -> None:
    pool = make("tls://u:p@nats.example:4443")
    via = pool.servers[0]
    new = pool.learn(["10.0.0.1:4222", "other.example:4222", "[::1]:4222"], via, secure=True)
    assert new == ["tls://10.0.0.1:4222", "tls://other.example:4222", "tls://[::1]:4222"]
    _, address, name, six = (server.url for server in pool.servers)
    assert address.tls_name == six.tls_name == "nats.example"
    assert name.tls_name is None
    assert (address.user, address.password) == ("u", "p")
    # A server learnt through a learnt address is still verified against the user's word.
    pool.learn(["10.0.0.1:4222", "10.0.0.9:1"], pool.servers[1], secure=True)
    assert pool.servers[-1].url.tls_name == "nats.example"


def test_a_name_from_before_tls_is_verified_by_the_users_own() -> None:
    """Anyone could have written it there, and has a certificate for a name of his own."""
    pool = make("tls://u:p@nats.example:4443")
    via = pool.servers[0]
    pool.learn(["evil.example:4222", "n2.example:4222"], via, secure=True, in_clear=True)
    assert [one.url.tls_name for one in pool.servers[1:]] == ["nats.example"] * 2
    pool.learn(["n2.example:4222", "n3.example:4222"], via, secure=True)  # within TLS
    assert {one.url.host: one.url.tls_name for one in pool.servers} == {
        "nats.example": None,
        "n2.example": None,
        "n3.example": None,
    }
    pool.learn(["n2.example:4222", "n3.example:4222"], via, secure=True, in_clear=True)
    assert {one.url.tls_name for one in pool.servers} == {None}


def test_advertised_servers_are_added_once_and_removed_when_no_longer_advertised() -> None:
    pool = make("a", "b")
    via = pool.servers[0]
    assert pool.learn(["a:4222", "c:4222", "d:4222", "C:4222"], via, secure=False) == [
        "nats://c:4222",
        "nats://d:4222",
    ]
    assert pool.learn(["a:4222", "c:4222", "d:4222"], via, secure=False) == []
    pool.learn(["d:4222", "no port:x"], via, secure=False)
    assert names(pool) == ["a:4222", "b:4222", "d:4222"]
    pool.learn([], via, secure=False)
    assert names(pool) == ["a:4222", "b:4222", "d:4222"]


def test_the_same_server_written_twice_counts_once() -> None:
    assert names(make("nats://a", "a:4222", "tls://A:4222")) == ["a:4222"]


@given(st.integers(0, 2**32))
def test_randomize_only_changes_the_order(seed: int) -> None:
    pool = make("a", "b", "c", randomize=True, rng=random.Random(seed))
    assert sorted(names(pool)) == ["a:4222", "b:4222", "c:4222"]


@pytest.mark.parametrize("limit", [0, 1, 60])
def test_more_failures_than_the_maximum_give_up(limit: int) -> None:
    pool = make("a", max_attempts=limit, wait=0.0)
    server, _ = pick(pool)
    for _ in range(limit):
        assert not pool.failed(server, REFUSED)
    assert pool.failed(server, REFUSED)


def test_credentials_are_in_no_repr() -> None:
    assert "secret" not in repr(PooledServer(parse_url("nats://user:secret@a")))


def test_after_errors_of_the_server_itself_the_pauses_grow_and_another_end_forgives() -> None:
    clock = Clock()
    pool = make("a", clock=clock)
    pauses = []
    for _ in range(12):
        server, delay = pick(pool)
        clock.now += delay
        pool.attempt(server)
        pool.succeeded(server)
        clock.now += 5  # so that the spacing of attempts plays no part
        pool.lost(server, ServerError("Unknown Protocol Operation"))
        pauses.append(pick(pool)[1])
    assert pauses == [min(2.0 * 2**number, 30.0) for number in range(12)]
    pool.lost(server)
    clock.now += 30
    pool.lost(server, ServerError("Unknown Protocol Operation"))
    assert pick(pool)[1] == 2.0


def test_a_very_long_list_of_advertised_servers_costs_little_and_is_cut() -> None:
    pool = make("nats://a")
    addresses = (f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}:4222" for n in range(1_000_000))
    before = time.process_time()
    assert len(pool.learn(addresses, pool.servers[0], secure=False)) == MOST_ADVERTISED
    assert len(pool.servers) == MOST_ADVERTISED + 1
    assert time.process_time() - before < 1  # each compared with all: 40 s
