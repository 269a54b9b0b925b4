"""A consumer group whose members come, go and die.

Four members, each with two instances that are processes of their own, share an elastic group, while
a publisher counts in many keys. In each run, or turn, one of these happens: a member is dropped or
added, an instance leaves, it is killed (kill -9), or it stands still for longer than ack_wait
(SIGSTOP) and goes on, most often one that is getting messages. Wrong is: a key's number that was
first handled before a smaller one, one that was never handled, one that was handled again after its
ack was confirmed (but for the one message that an instance had taken when it stood still), and a
takeover that took longer than `--within`, twice ack_wait.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from tests.support import campaign
from tests.support.instances import Instance

import jetspark
from jetspark.groups import ElasticGroup, PartitioningFilter
from jetspark.server import NatsServer

MEMBERS = ("m1", "m2", "m3", "m4")
KEYS = 24
_END_WITHIN = 60.0
_BUSY = 0.3
"""Seconds since its last message in which an instance counts as the pinned one."""


@dataclass
class Figures(campaign.Figures):
    published: int = 0
    handled: Counter[str] = field(default_factory=Counter)
    """Deliveries: first ones, repeated ones."""
    turns: Counter[str] = field(default_factory=Counter)
    takeovers: int = 0
    longest_takeover: float = 0.0
    """Seconds from an instance's death until its member handles a message again."""

    def __post_init__(self) -> None:
        self.first: dict[str, int] = {}
        """The last number that each key had for the first time."""
        self.confirmed: set[tuple[str, int]] = set()
        self.news = asyncio.Event()

    def handle(self, key: str, number: int, who: str) -> None:
        """Before anything is acknowledged."""
        self.news.set()
        before = self.first.get(key, -1)
        if (key, number) in self.confirmed:
            self.wrong.append(f"{who} had {number} of {key}, which was acknowledged")
        if number > before + 1:
            self.wrong.append(f"{who} had {number} of {key} after {before}")
        self.handled["first" if number > before else "again"] += 1
        self.first[key] = max(before, number)

    def judge(self, last: int) -> None:
        lost = {key: number for key, number in self.first.items() if number != last}
        if lost or len(self.first) != KEYS:
            self.wrong.append(f"not all of {last + 1} numbers were handled: {lost}")


class Member:
    def __init__(self, number: int, member: str, figures: Figures) -> None:
        self.member = member
        self.last: float | None = None
        """When it handled its last message."""
        self.ready = asyncio.Event()
        self.instance: Instance
        self._number = number
        self._figures = figures
        self._stood_still: float | None = None
        """Since when, until what it had in hand then is told."""

    @property
    def busy(self) -> bool:
        """Whether it is getting messages."""
        return self.last is not None and time.monotonic() - self.last < _BUSY

    async def start(self, url: str, ack_wait: float, told: int) -> None:
        arguments = url, self.member, str(self._number), str(ack_wait), str(told)
        self.instance = await Instance.start("tests.chaos.groups_member", *arguments, fds=[told])

    def told(self, what: str, key: str, number: int, taken: float) -> None:
        if what == "ready":
            self.ready.set()
        elif what == "confirmed":
            self._figures.confirmed.add((key, number))
        elif (key, number) in self._figures.confirmed and self._had_in_hand(taken):
            self._figures.handled["in hand"] += 1
        else:
            self.last = time.monotonic()
            self._figures.handle(key, number, f"{self.member}, instance {self._number},")

    def _had_in_hand(self, taken: float) -> bool:
        """Whether it stood still between taking a message and telling of it; once."""
        had = self._stood_still is not None and taken < self._stood_still
        self._stood_still = None
        return had

    async def leave(self) -> None:
        if (code := await self.instance.leave()) != 0:
            self._figures.wrong.append(f"{self.member} ended with {code}")

    def stand_still(self) -> None:
        self.instance.pause()
        self._stood_still = time.monotonic()


class Campaign:
    """The group, its instances, and what happens to them."""

    def __init__(
        self,
        url: str,
        group: ElasticGroup,
        ack_wait: float,
        within: float,
        figures: Figures,
        seed: int,
    ) -> None:
        self._url = url
        self._group = group
        self._ack_wait, self._within = ack_wait, within
        self._figures = figures
        self._rng = random.Random(seed)
        self._members = set(MEMBERS)
        self._instances: list[Member] = []
        self._all: list[Member] = []
        self._pauses: set[asyncio.Task[None]] = set()
        self._pipe = os.pipe()
        self._rest = b""
        asyncio.get_running_loop().add_reader(self._pipe[0], self._read)

    def _read(self) -> None:
        *lines, self._rest = (self._rest + os.read(self._pipe[0], 1 << 16)).split(b"\n")
        for line in lines:
            what, instance, key, number, taken = line.decode().split()
            self._all[int(instance)].told(what, key, int(number), float(taken))

    async def start(self, member: str) -> Member:
        instance = Member(len(self._all), member, self._figures)
        self._all.append(instance)
        self._instances.append(instance)
        await instance.start(self._url, self._ack_wait, self._pipe[1])
        return instance

    async def start_all(self) -> None:
        started = [await self.start(member) for member in MEMBERS for _ in range(2)]
        for one in started:
            await asyncio.wait_for(one.ready.wait(), _END_WITHIN)

    async def turn(self) -> None:
        choices = ("join or leave the group", "instance leaves", "instance dies", "stands still")
        what = self._rng.choice(choices)
        if what == "join or leave the group":
            await self._change_members()
            return
        self._figures.turns[what] += 1
        instance = self._rng.choice(self._instances)
        busy = [one for one in self._instances if one.busy]
        if what == "stands still" and busy and self._rng.random() < 0.8:
            instance = self._rng.choice(busy)
            self._figures.turns["of these with messages"] += 1
        self._instances.remove(instance)
        if what == "instance leaves":
            await instance.leave()
            await self.start(instance.member)
            return
        gone = time.monotonic()
        if what == "instance dies":
            await instance.instance.kill()
            await self.start(instance.member)
        else:
            instance.stand_still()
            self._pauses.add(asyncio.create_task(self._pause(instance)))
        if (
            instance.last is not None
            and gone - instance.last < _BUSY
            and instance.member in self._members
            and any(one.member == instance.member for one in self._instances)
        ):
            await self._taken_over(instance.member, gone)

    async def _pause(self, instance: Member) -> None:
        await asyncio.sleep(3 * self._ack_wait)
        instance.instance.resume()
        self._instances.append(instance)

    async def _change_members(self) -> None:
        out = sorted(set(MEMBERS) - self._members)
        if out and (len(self._members) == 1 or self._rng.random() < 0.6):
            self._members.add(member := self._rng.choice(out))
            await self._group.add_members(member)
            self._figures.turns["joins"] += 1
        else:
            self._members.remove(member := self._rng.choice(sorted(self._members)))
            await self._group.delete_members(member)
            self._figures.turns["drops"] += 1

    async def _taken_over(self, member: str, died: float) -> None:
        """Until the member handles messages again: there are always some."""
        while True:
            for instance in self._instances:
                if instance.member == member and (instance.last or 0) > died:
                    assert instance.last is not None
                    took, figures = instance.last - died, self._figures
                    figures.takeovers += 1
                    figures.longest_takeover = max(figures.longest_takeover, took)
                    if took > self._within:
                        figures.wrong.append(f"{member} was taken over after {took:.1f} s")
                    return
            if time.monotonic() - died > _END_WITHIN:
                self._figures.wrong.append(f"{member} was not taken over")
                return
            await asyncio.sleep(0.02)

    async def all_go_on(self) -> None:
        await asyncio.gather(*self._pauses)

    async def end(self) -> None:
        await self.all_go_on()
        await asyncio.gather(*(instance.leave() for instance in self._instances))
        asyncio.get_running_loop().remove_reader(self._pipe[0])
        for one in self._pipe:
            os.close(one)


async def run(
    runs: int = 100, seed: int = 0, ack_wait: float = 2.0, every: float = 0.5, within: float = 4.0
) -> Figures:
    """A takeover may last `within` seconds.

    Raises AssertionError, TimeoutError when something hangs.
    """
    figures = Figures()
    with NatsServer(name="chaos") as server:
        async with jetspark.connect(server.url) as nc:
            js = nc.jetstream(timeout=20)
            await js.create_stream(name="S", subjects=["s.*"], storage="memory")
            group = await js.consumer_groups("S").create_elastic(
                "cg", max_members=8, filters=[PartitioningFilter("s.*", [1])]
            )
            await group.add_members(MEMBERS)
            campaign = Campaign(server.url, group, ack_wait, within, figures, seed)
            await campaign.start_all()
            ending = asyncio.Event()

            async def publish() -> int:
                number = 0
                while not ending.is_set():
                    async with js.publisher() as publisher:
                        for key in range(KEYS):
                            await publisher.publish(f"s.k{key}", b"%d" % number)
                    figures.published += KEYS
                    number += 1
                    await asyncio.sleep(0.15)
                return number - 1

            publishing = asyncio.create_task(publish())
            try:
                for _ in range(runs):
                    await asyncio.sleep(every)
                    await campaign.turn()
                    figures.count_run()
                ending.set()
                last = await publishing
                await group.add_members(MEMBERS)
                await campaign.all_go_on()
                with suppress(TimeoutError):  # what is missing is told
                    async with asyncio.timeout(_END_WITHIN):
                        while min(figures.first.values(), default=-1) < last:
                            figures.news.clear()
                            await figures.news.wait()
            finally:
                ending.set()
                last = await publishing
                await campaign.end()
            figures.judge(last)
    return figures
