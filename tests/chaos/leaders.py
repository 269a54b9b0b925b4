"""The campaign of outdated leaders.

Servers of a cluster stand still (SIGSTOP) until the others have elected a leader and taken writes,
and go on. At that moment all that rests on a leader's word is asked over the servers that stood
still: ranges, the plan of a batch, a bucket's snapshot, the ledger of an exactly-once writer. Their
requests wait in the server's sockets, so most first answers are old ones; how many is counted by
plain questions beside them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
from tests.chaos.campaign import Figures, Kind, Kinds, Run, run_kinds
from tests.chaos.leaders_routes import PartedCluster
from tests.chaos.outcome import Findings, Outcome
from tests.support.streams import Admin, numbered

from jetspark.connection.options import ConnectOptions, make_options
from jetspark.errors import DataLossError, JetsparkError, RequestTimeoutError
from jetspark.links import leaders
from jetspark.links.leaders import Leaders, confirmed_facts, linearizable_read
from jetspark.links.link import connect
from jetspark.links.link_pool import pool
from jetspark.links.stream_api import StreamAPI
from jetspark.ranges.current_values import read_last_per_subject
from jetspark.ranges.reader import read_range
from jetspark.ranges.sequence_range import ReadLimits, SequenceRange
from jetspark.server import NatsServer
from jetspark.stream_writes.exactly_once import ExactlyOnceWriter
from jetspark.stream_writes.ledger import Ledger, TaskRows, ledger_stream

_ELECTED_WITHIN = 60.0
_LIMITS = ReadLimits(timeout=60.0)
PROBES = ("strict", "lenient", "filtered", "head", "plan", "snapshot", "writer")
"""What is asked; methods of `Streams`."""
_BEFORE, _MEANWHILE = 300, 200
_PURGED = 150
_KEYS, _ROWS = 100, 40


def cluster_of(run: Run) -> PartedCluster:
    """One for all runs; whoever stood still in the last one has caught up."""
    cluster: PartedCluster = run.shared.once("cluster", PartedCluster)
    cluster.wait_until_ready()
    return cluster


def leader_of(url: str, stream: str) -> str | None:
    """As the server at this address has it, None while there is none."""
    try:
        with connect(make_options(url)) as link:
            answer = msgspec.json.decode(
                link.request(f"$JS.API.STREAM.INFO.{stream}", b"", 0.5).payload
            )
    except JetsparkError:
        return None
    cluster = answer.get("cluster") or {}
    if any(one["name"] == cluster.get("leader") for one in cluster.get("replicas") or ()):
        return None
    found: str | None = cluster.get("leader")
    return found


def until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _ELECTED_WITHIN
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {_ELECTED_WITHIN:g} s: {what}")
        time.sleep(0.05)


def patiently(change: Callable[[], object]) -> None:
    """Again while a server, or the leader of the cluster's metadata, is away."""

    def done() -> bool:
        try:
            change()
        except RequestTimeoutError:  # the answer went with a leader; the same change may come twice
            return False
        except AssertionError as error:
            if not any(f"'err_code': {code}," in str(error) for code in (10005, 10008)):
                raise
            return False
        return True

    until(done, "the cluster takes a change")


@dataclass
class Verdict:
    """What the probes of a run found, in rows."""

    expected: int = 0
    missing: int = 0
    repeated: int = 0
    unexpected: int = 0
    failures: str = ""
    lies: int | None = None
    """Plain questions that were answered with what had been before, if any were asked."""

    def rows(self, what: str, found: Iterable[object], wanted: Iterable[object]) -> None:
        """Each row of `wanted` has to be there once, and nothing else."""
        had, must = Counter(found), Counter(wanted)
        self.expected += must.total()
        self.missing += (must - had).total()
        more = had - must
        self.repeated += sum(count for one, count in more.items() if one in must)
        self.unexpected += sum(count for one, count in more.items() if one not in must)
        if had != must:
            self.fail(f"{what}: {had.total()} rows of {must.total()}")

    def fail(self, text: str) -> None:
        self.failures += f"{text}; "


class Streams:
    """What is asked for: all led by one server, changed while it stands still."""

    def __init__(self, run: Run, cluster: PartedCluster) -> None:
        self.run, self.cluster = run, cluster
        prefix = f"R{run.number}"
        self.orders, self.purged, self.target = (f"{prefix}_{one}" for one in "OPT")
        self.bucket = f"KV_{prefix}"
        ledger = ledger_stream(self.target)
        self.names = [self.orders, self.purged, self.bucket, self.target, ledger]
        by_name = {server._name: server for server in cluster.servers}
        self.create(cluster.servers[0].url)
        self.leader = by_name[self.gather_leaders(cluster.servers[0].url)]
        self.followers = [server for server in cluster.servers if server is not self.leader]

    def create(self, url: str) -> None:
        with Admin(url) as admin:
            for name in (self.orders, self.purged):
                patiently(partial(admin.create, name, f"{name}.>", num_replicas=3))
                admin.fill_new(numbered(f"{name}.a", _BEFORE))
            keeping = {"max_msgs_per_subject": 5, "num_replicas": 3}
            patiently(partial(admin.create, self.bucket, f"${self.bucket}.>", **keeping))
            admin.fill_new([(f"${self.bucket}.k{n}", b"old") for n in range(_KEYS)])
            subjects = (f"{self.target}.>", f"_spark.{self.target}.mark.>")
            atomic = {"num_replicas": 3, "allow_atomic": True, "allow_rollup_hdrs": True}
            patiently(partial(admin.create, self.target, *subjects, **atomic))
        Ledger(make_options(url), self.target, "q").make_stream(3)
        self.commit(url, 0)

    def gather_leaders(self, url: str) -> str:
        """One server leads them all; its name."""
        wanted = leader_of(url, self.orders)
        with Admin(url) as admin:
            for name in self.names[1:]:
                while leader_of(url, name) != wanted:
                    where = {"placement": {"preferred": wanted}}
                    with suppress(RequestTimeoutError):  # the answer went with the leader
                        admin.link.request(
                            f"$JS.API.STREAM.LEADER.STEPDOWN.{name}", msgspec.json.encode(where), 5
                        )
                    time.sleep(0.1)
        assert wanted is not None
        return wanted

    # -- what is written ---------------------------------------------------------------------

    def payloads(self, batch: int) -> list[bytes]:
        return [b"%d-%d" % (batch, number) for number in range(_ROWS)]

    def commit(self, url: str | ConnectOptions, batch: int) -> None:
        options = make_options(url) if isinstance(url, str) else url
        subject = f"{self.target}.rows".encode()
        rows = [(subject, None, payload) for payload in self.payloads(batch)]
        ledger = Ledger(options, self.target, "q", timeout=60)
        pieces: list[TaskRows] = [ledger.stage(rows[part::3]) for part in range(3)]
        ExactlyOnceWriter(options, self.target, "q", timeout=60).commit(batch, pieces, lanes=2)

    def change(self, url: str) -> None:
        """By the new leaders: everything that an old one does not know of."""
        with Admin(url) as admin:
            admin.fill(numbered(f"{self.orders}.a", _MEANWHILE))
            admin.fill([(f"{self.orders}.b", b"b")])
            admin.fill(numbered(f"{self.purged}.a", _MEANWHILE))
            admin.api.purge(self.purged, _PURGED)
            admin.fill((f"${self.bucket}.k{n}", b"new") for n in range(_KEYS // 2))
            admin.fill((f"${self.bucket}.n{n}", b"new") for n in range(_KEYS // 2))
        self.commit(url, 1)
        with Admin(url) as admin:
            self.facts = confirmed_facts(admin.api, self.names)

    def range(self, stream: str, *subjects: str) -> SequenceRange:
        facts = self.facts[stream]
        return SequenceRange(stream, 1, facts.last_seq + 1, facts.created, subjects)

    # -- what is asked -----------------------------------------------------------------------

    def ask_at_once(
        self, server: NatsServer, go_on: Callable[[Callable[[], None]], None]
    ) -> Verdict:
        """Some of the probes over this server, when it goes on or a little before.

        `go_on` is given what begins them.
        """
        verdict, gate, rng = Verdict(), threading.Event(), self.run.rng
        threads = [
            threading.Thread(target=self._probe, args=(probe, verdict, gate))
            for probe in ("plain", *rng.sample(PROBES, 3))
        ]
        for thread in threads:
            thread.start()
        if rng.random() < 0.3:
            gate.set()  # their requests wait in its sockets
            time.sleep(rng.uniform(0.02, 0.15))
        go_on(gate.set)
        for thread in threads:
            thread.join()
        return verdict

    def warm_up(self, server: NatsServer) -> None:
        """Links that are open before the server stands still."""
        self._warm = {name: make_options(server.url, name=name) for name in ("plain", *PROBES)}
        for options in self._warm.values():
            with pool.link(options) as link:
                link.check()

    def _probe(self, probe: str, verdict: Verdict, gate: threading.Event) -> None:
        gate.wait()
        options, idle = self._warm[probe], pool.idle
        # However long the server stood still, its links are used without a look.
        idle[options] = [old._replace(since=time.monotonic()) for old in idle[options]]
        try:
            getattr(self, probe)(options, verdict)
        except Exception as error:
            verdict.fail(f"{probe}: {type(error).__name__}: {error}")

    def _sequences(self, options: ConnectOptions, wanted: SequenceRange, **how: Any) -> list[int]:
        batches = read_range(options, wanted, _LIMITS, columns=["seq"], **how)
        return [seq for batch in batches for seq in batch.column("seq").to_pylist()]

    def strict(self, options: ConnectOptions, verdict: Verdict) -> None:
        wanted = self.range(self.orders)
        verdict.rows("range", self._sequences(options, wanted), range(1, wanted.end))

    def lenient(self, options: ConnectOptions, verdict: Verdict) -> None:
        wanted = self.range(self.orders)
        found = self._sequences(options, wanted, fail_on_data_loss=False)
        verdict.rows("range, failOnDataLoss=false", found, range(1, wanted.end))

    def filtered(self, options: ConnectOptions, verdict: Verdict) -> None:
        wanted = self.range(self.orders, f"{self.orders}.a")
        found = self._sequences(options, wanted)
        verdict.rows("range of a subject", found, range(1, wanted.end - 1))

    def head(self, options: ConnectOptions, verdict: Verdict) -> None:
        """What was purged meanwhile has to be missed, and what was not has to come."""
        try:
            self._sequences(options, self.range(self.purged))
        except DataLossError as error:
            if error.last != _PURGED - 1:
                verdict.fail(f"head: {error}")
        else:
            verdict.fail("head: what was purged unread was not missed")
        wanted = replace(self.range(self.purged), start=_PURGED, from_earliest=True)
        found = self._sequences(options, wanted)
        verdict.rows("range from the earliest", found, range(_PURGED, wanted.end))

    def plan(self, options: ConnectOptions, verdict: Verdict) -> None:
        leaders = Leaders(options, 60)
        facts = leaders.call(lambda api: confirmed_facts(api, self.names))
        for name, one in facts.items():
            if one.last_seq < self.facts[name].last_seq:
                verdict.missing += self.facts[name].last_seq - one.last_seq
                verdict.fail(f"plan: {name} ends at {one.last_seq}")
        end = self.facts[self.orders].last_seq

        def last(api: StreamAPI) -> int | None:
            return api.next_sequence(self.orders, end, ())

        found = leaders.call(lambda api: linearizable_read(api, [self.orders], last))
        verdict.rows("last message", [found], [end])

    def snapshot(self, options: ConnectOptions, verdict: Verdict) -> None:
        wanted = self.range(self.bucket, ">")
        batches = read_last_per_subject(options, wanted, _LIMITS, columns=["subject", "data"])
        rows = [row for batch in batches for row in batch.to_pylist()]
        found = [(row["subject"].rpartition(".")[2], row["data"]) for row in rows]
        half = _KEYS // 2
        values = [(f"k{n}", b"new" if n < half else b"old") for n in range(_KEYS)]
        verdict.rows("bucket", found, values + [(f"n{n}", b"new") for n in range(half)])

    def writer(self, options: ConnectOptions, verdict: Verdict) -> None:
        if self.run.rng.random() < 0.5:
            self.commit(options, 1)  # again, as after a lost answer
        self.commit(options, 2)
        wanted = [payload for batch in range(3) for payload in self.payloads(batch)]
        with Admin(self.followers[0].url) as admin:
            found, seq = [], 0
            subject = f"{self.target}.rows"

            def following(api: Any) -> Any:
                return api.message(self.target, seq=seq + 1, next_by_subj=subject)

            # The writer has been told of all rows, so whoever leads now has them.
            confirmed_facts(admin.api, [self.target])
            while (one := following(admin.api)) is not None:
                found.append(one.data)
                seq = one.seq
        verdict.rows("rows written", found, wanted)

    def plain(self, options: ConnectOptions, verdict: Verdict) -> None:
        """Without any proof, as a control: how often an old answer comes."""
        verdict.lies = 0
        subject, stop = f"$JS.API.STREAM.INFO.{self.orders}", time.monotonic() + 0.5
        with pool.link(options) as link:
            while time.monotonic() < stop:
                answer = msgspec.json.decode(link.request(subject, b"", 10).payload)
                last = (answer.get("state") or {}).get("last_seq")
                verdict.lies += last is not None and last < self.facts[self.orders].last_seq

    def delete(self) -> None:
        pool.close()
        self.cluster.wait_until_ready()
        with Admin(self.cluster.servers[0].url) as admin:
            for name in self.names:
                patiently(partial(admin.call, f"STREAM.DELETE.{name}"))


# -- who stands still ----------------------------------------------------------------------------


def kind(act: Callable[[Streams], Verdict]) -> Kind:
    """What a run of it does: its streams are made, and deleted afterwards."""

    def one(run: Run) -> Outcome:
        cluster = cluster_of(run)
        try:
            streams = Streams(run, cluster)
            verdict = act(streams)
            streams.delete()
        except BaseException:
            run.shared.drop("cluster")  # somebody may still stand still
            raise
        found = Findings(verdict.missing, verdict.repeated, verdict.unexpected)
        note = "" if verdict.lies is None else f"{verdict.lies} old answers"
        return found.outcome(1, verdict.expected, failure=verdict.failures, note=note)

    return one


def replace_leader(streams: Streams, other: NatsServer) -> None:
    """Waits until others lead, as another server has it, and lets them take writes."""
    old, url = streams.leader._name, other.url

    def elected() -> bool:
        return all(leader_of(url, name) not in (None, old) for name in streams.names)

    until(elected, f"new leaders of {streams.names}")
    streams.change(url)


def believe(api: StreamAPI, names: list[str]) -> leaders.LeaderProof:
    """In place of the proof: whoever answers leads."""
    return leaders.LeaderProof({name: api.stream(name) for name in names}, unrivalled=True)


def _resuming(server: NatsServer) -> Callable[[Callable[[], None]], None]:
    def go_on(ask: Callable[[], None]) -> None:
        server.resume()
        ask()

    return go_on


def leader_frozen(streams: Streams) -> Verdict:
    return _frozen(streams, streams.leader, streams.followers[0], _resuming(streams.leader))


def _frozen(
    streams: Streams,
    asked: NatsServer,
    other: NatsServer,
    go_on: Callable[[Callable[[], None]], None],
) -> Verdict:
    """The leader stands still while the others elect another one, as the `other` server has it."""
    streams.warm_up(asked)
    streams.leader.pause()
    replace_leader(streams, other)
    return streams.ask_at_once(asked, go_on)


def leader_cut_off(streams: Streams) -> Verdict:
    """From the others, for so long that they elect, but not from its clients; then it joins them.

    It goes on to lead until it misses them, ten seconds later or more.
    """
    streams.warm_up(streams.leader)
    return _parted(streams)


def leader_cut_off_frozen(streams: Streams) -> Verdict:
    """It stands still, too, and goes on before it is joined."""
    streams.warm_up(streams.leader)
    streams.leader.pause()
    return _parted(streams)


def _parted(streams: Streams) -> Verdict:
    leader = streams.leader
    streams.cluster.cut_off(leader)
    replace_leader(streams, streams.followers[0])

    def go_on(ask: Callable[[], None]) -> None:
        leader.resume()
        ask()
        time.sleep(streams.run.rng.uniform(0, 3))
        streams.cluster.join(leader)

    return streams.ask_at_once(leader, go_on)


def leader_frozen_twice(streams: Streams) -> Verdict:
    """It goes on for a moment, with a part of what waits for it read, and stands still again."""
    rng, leader = streams.run.rng, streams.leader

    def go_on(ask: Callable[[], None]) -> None:
        for _ in range(rng.randrange(1, 4)):
            leader.resume()
            ask()
            time.sleep(rng.uniform(0.001, 0.02))
            leader.pause()
            time.sleep(rng.uniform(0.05, 1.5))
        leader.resume()

    return _frozen(streams, leader, streams.followers[0], go_on)


def leader_frozen_others_asked(streams: Streams) -> Verdict:
    """Over another server: the old leader and the new one both answer."""
    other = streams.run.rng.choice(streams.followers)
    return _frozen(streams, other, other, _resuming(streams.leader))


def two_frozen(streams: Streams) -> Verdict:
    """A follower too: nobody can be elected until it goes on."""
    follower, other = streams.run.rng.sample(streams.followers, 2)
    streams.warm_up(streams.leader)
    follower.pause()
    streams.leader.pause()
    time.sleep(streams.run.rng.uniform(1, 5))
    follower.resume()
    replace_leader(streams, other)
    return streams.ask_at_once(streams.leader, _resuming(streams.leader))


def follower_frozen(streams: Streams) -> Verdict:
    """Asked over it; its leader goes on without it."""
    follower = streams.run.rng.choice(streams.followers)
    streams.warm_up(follower)
    follower.pause()
    if streams.run.rng.random() < 0.5:
        time.sleep(streams.run.rng.uniform(1, 6))
    streams.change(streams.leader.url)
    return streams.ask_at_once(follower, _resuming(follower))


def leader_and_follower_asked(streams: Streams) -> Verdict:
    """Both have stood still; the follower that comes back is asked, and a replica is silent."""
    follower, other = streams.run.rng.sample(streams.followers, 2)

    def go_on(ask: Callable[[], None]) -> None:
        ask()
        time.sleep(streams.run.rng.uniform(0, 8))
        streams.leader.resume()

    return _frozen(streams, follower, other, go_on)


KINDS: Kinds = {
    "leader frozen": kind(leader_frozen),
    "leader frozen again and again": kind(leader_frozen_twice),
    "leader frozen, another server asked": kind(leader_frozen_others_asked),
    "leader and a follower frozen": kind(two_frozen),
    "follower frozen": kind(follower_frozen),
    "leader still frozen, a follower asked": kind(leader_and_follower_asked),
    "leader cut off": kind(leader_cut_off),
    "leader cut off and frozen": kind(leader_cut_off_frozen),
}


def run(
    runs: int = 200, seed: int = 0, first: int = 0, only: str = "", without_proof: bool = False
) -> Figures:
    """`without_proof`: believe each answer, to see what the campaign would notice."""
    if without_proof:
        leaders._prove_leaders = believe
    return run_kinds(KINDS, runs, seed, first, only)
