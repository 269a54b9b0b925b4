"""A leader that goes away under a publisher: `python -m tests.soak.leaders all`.

Three nodes, a stream with three replicas, a publisher with default options at a follower or, with
`--at leader`, at the leader itself. When a fifth of the messages is sent the stream's leader steps
down, or its server is killed, stopped or paused, for `--away` seconds. At the end every message
is acknowledged or reported; what was acknowledged is stored, nothing is stored twice, and what is
reported is only what nobody can know. With `--identified` every message has an id and all are
stored.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.support.cluster import Cluster

import jetspark
from jetspark.errors import BrokenSocketError, JetsparkError, RequestTimeoutError

if TYPE_CHECKING:
    from jetspark.full_client import JetStream
    from jetspark.server import NatsServer

FAULTS = ("stepdown", "killed", "stopped", "paused")
UNKNOWN = (BrokenSocketError, RequestTimeoutError)


@dataclass
class Figures:
    """What happened."""

    sent: int = 0
    acked: int = 0
    duplicates: int = 0
    stored: int = 0
    stored_twice: int = 0
    reported: int = 0
    reported_and_stored: int = 0
    out_of_order: int = 0
    seconds: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        told = ", ".join(f"{name} {count:,}" for name, count in self.errors.items()) or "none"
        return (
            f"{self.sent:,} sent in {self.seconds:.1f} s: {self.acked:,} acknowledged "
            f"({self.duplicates:,} duplicates), {self.stored:,} stored, "
            f"{self.stored_twice:,} twice, "
            f"{self.out_of_order:,} out of order; {self.reported:,} reported ({told}), of which "
            f"{self.reported_and_stored:,} are stored"
        )


async def _fault(js: JetStream, leader: NatsServer, kind: str, away: float) -> None:
    if kind == "stepdown":
        await js.stream_leader_stepdown("S")
    elif kind == "paused":
        leader.pause()
        await asyncio.sleep(away)
        leader.resume()
    else:
        await asyncio.to_thread(leader.kill if kind == "killed" else leader.stop)
        await asyncio.sleep(away)
        await asyncio.to_thread(leader.start)


async def run(
    cluster: Cluster,
    kind: str,
    *,
    messages: int,
    identified: bool = False,
    at_leader: bool = False,
    away: float = 8.0,
) -> Figures:
    """One fault. Raises AssertionError for a message that is lost, repeated or without a fate."""
    figures = Figures()
    options = {"reconnect_wait": 0.05, "max_reconnect_attempts": -1}
    async with jetspark.connect(cluster.urls, **options) as admin:  # type: ignore[arg-type]
        other = admin.jetstream(timeout=30)
        created = await other.create_stream(name="S", subjects=["s"], num_replicas=3)
        assert created.cluster is not None
        assert created.cluster.leader is not None
        leader = cluster.servers[int(created.cluster.leader[-1]) - 1]
        follower = next(one for one in cluster.servers if one is not leader)
        url = leader.url if at_leader else follower.url
        async with jetspark.connect(url, **options) as nc:  # type: ignore[arg-type]
            begin = time.monotonic()
            fault: asyncio.Task[None] | None = None
            async with nc.jetstream().publisher(raise_failures=False) as publisher:
                for number in range(messages):
                    if number == messages // 5:
                        fault = asyncio.create_task(_fault(other, leader, kind, away))
                    msg_id = str(number) if identified else None
                    await publisher.send("s", b"%d" % number, msg_id=msg_id)
            figures.seconds = time.monotonic() - begin
            if fault is not None:
                await fault
        reported = {one.index: one.error for one in publisher.failed}
        figures.sent, figures.acked = publisher.sent, publisher.acked
        figures.duplicates, figures.reported = publisher.duplicates, len(reported)
        figures.errors.update(type(error).__name__ for error in reported.values())
        order = await _stored(other)
        await other.delete_stream("S")
    _check(figures, order, reported, identified=identified)
    return figures


async def _stored(js: JetStream) -> list[int]:
    while True:
        try:
            async with asyncio.timeout(60):
                last = (await js.stream_info("S")).state.last_seq
                order: list[int] = []
                async with js.ordered("S") as messages:
                    async for message in messages:
                        order.append(int(message.data))
                        if message.seq >= last:
                            return order
        except JetsparkError:
            await asyncio.sleep(0.5)  # it has just no leader


def _check(
    figures: Figures, order: list[int], reported: dict[int, JetsparkError], *, identified: bool
) -> None:
    stored = Counter(order)
    figures.stored = len(stored)
    figures.stored_twice = sum(times > 1 for times in stored.values())
    figures.reported_and_stored = len(stored.keys() & reported.keys())
    highest = -1
    for number in order:
        figures.out_of_order += number < highest
        highest = max(highest, number)
    assert figures.sent == figures.acked + figures.reported, figures
    lost = set(range(figures.sent)) - stored.keys() - reported.keys()
    assert not lost, f"acknowledged and not stored: {sorted(lost)[:10]}; {figures}"
    assert not figures.stored_twice, figures
    assert all(isinstance(error, UNKNOWN) for error in reported.values()), figures
    assert not (identified and reported), figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fault", choices=(*FAULTS, "all"))
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--identified", action="store_true")
    parser.add_argument("--at", choices=("follower", "leader"), default="follower")
    parser.add_argument("--away", type=float, default=8.0)
    options = parser.parse_args()
    for kind in FAULTS if options.fault == "all" else (options.fault,):
        with Cluster(3, name="L") as cluster:
            figures = asyncio.run(
                run(
                    cluster,
                    kind,
                    messages=options.messages,
                    identified=options.identified,
                    at_leader=options.at == "leader",
                    away=options.away,
                )
            )
        print(f"{kind}: {figures}", flush=True)


if __name__ == "__main__":
    main()
