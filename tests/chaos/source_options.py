"""Sources under every option, with restarts.

A run, or cell, is a retention, an option of the source, a start, one to three queries of the
stream, a restart with one option changed (or with a lost checkpoint), and processes that die at any
step, all drawn from the seed and the cell's number. The queries call the reader in the order in
which Spark does, with Spark's two logs, and their steps interleave with each other, with
publishing, and with somebody else who tries to take messages. Often their first processes die
before Spark has logged an offset. At the end they go on with their first options, or with another
`interestConsumer`.

Wrong is: a message that was removed and is in no table, or that a query's consumer has released and
is in none; one that is there twice; one that is missing in the table of a query that ended without
an error; an error that is none of jetspark's; and a query that stops although nothing was changed
that matters.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import msgspec
from tests.support import campaign
from tests.support.query import Query
from tests.support.streams import Admin

from jetspark.errors import JetsparkError, UnsupportedByServerError
from jetspark.links.link_pool import pool
from jetspark.server import NatsServer
from jetspark.spark.source.claims import SOLE_READER
from jetspark.subjects import subject_matches
from jetspark.wire import frames
from jetspark.wire.kernel import MessageFrame

_DIES = 0.06
"""How likely a process dies after a step."""
_DIES_BEGINNING = (0.0, 0.0, 0.0, 0.4)
"""How likely a query's first process also dies after a step before its first rows."""
_RENAMED = 0.15
"""How likely a cell is about queries whose consumer is another one after their first processes."""
_RETENTIONS = {
    "limits": {},
    "workqueue": {"soleReader": "true"},
    "interest": {"interestConsumer": "spark"},
}
_OPTIONS: tuple[dict[str, str], ...] = (
    {},
    {"subjects": "S.a"},
    {"subjects": "S.a,S.b"},
    {"columns": "subject,seq"},
    {"maxOffsetsPerTrigger": "7"},
    {"maxBytesPerTrigger": "300"},
    {"minOffsetsPerTrigger": "5"},
    {"minPartitions": "3"},
    {"maxRecordsPerPartition": "5"},
    {"maxRowsPerBatch": "2"},
    {"maxBytesPerBatch": "50"},
    {"failOnDataLoss": "false"},
    {"readTimeout": "20"},
    {"streams": "S"},
    {"streamPattern": "S"},
    {"decode": "json", "schema": "n INT"},
    {"progressConsumer": "shown"},
    {"backfill": "snapshot-blocking-deletes"},
)
_STARTS: tuple[dict[str, str], ...] = (
    {},
    {"startingOffsets": "earliest"},
    {"startingOffsets": "latest"},
    {"startingOffsets": "9"},
    {"startingTimestamp": "2020-01-01T00:00:00Z"},
)
_OTHER_BASES = {"soleReader": ("false",), "interestConsumer": ("another", "spark0", "spark1")}
_TELLING = ("subjects", "soleReader", "interestConsumer", "failOnDataLoss")
"""Options whose change may end a query for good, which then says so."""


@dataclass
class Figures(campaign.Figures):
    published: int = 0
    read: int = 0
    removed: int = 0
    deaths: int = 0
    taken: int = 0
    """Messages that somebody else took before a query had begun."""
    refused_others: int = 0
    said: Counter[str] = field(default_factory=Counter)
    """Errors of queries, by their kind."""
    completed: int = 0
    """Queries that ended without an error."""


class Cell:
    """One cell, played on a stream of its own."""

    def __init__(
        self, name: str, url: str, admin: Admin, rng: random.Random, figures: Figures
    ) -> None:
        self._name, self._admin, self._rng, self._figures = name, admin, rng, figures
        self._published: dict[int, str] = {}
        self._taken: set[int] = set()
        self._again: set[int] = set()
        """May be in two tables: read by a query whose claim was deleted."""
        renamed = rng.random() < _RENAMED
        self.retention = "interest" if renamed else rng.choice([*_RETENTIONS])
        self._kept = rng.choice(["", "", ">", "b"])
        """The subject of which another consumer keeps all messages, by interest."""
        mode = rng.choice([self.retention] * 7 + [*_RETENTIONS] * (not renamed))
        self._option = rng.choice(_OPTIONS)
        self._start = rng.choice(_STARTS[1:3] if renamed else [*_STARTS[:2], *_STARTS])
        self._count = rng.choice([1, 1, 1, 2, 2, 3])
        how = rng.choice(["same", "apart"])
        base = {"servers": url, "stream": "S", **_RETENTIONS[mode], **self._option, **self._start}
        self.queries = [Query(name, dict(base)) for _ in range(self._count)]
        for number, query in enumerate(self.queries if how == "apart" else []):
            if mode == "interest":
                query.options["interestConsumer"] = f"spark{number}"
            else:
                query.options["subjects"] = f"S.{'abc'[number]}"
        changes = [] if renamed else [{}, {"lost": "checkpoint"}, *_OPTIONS, *_STARTS]
        changes += [{name: to} for name in base for to in _OTHER_BASES.get(name, ())]
        self._change = rng.choice(changes)
        self._dies_beginning = 0.4 if renamed else rng.choice(_DIES_BEGINNING)
        stays = "interestConsumer" in self._change and rng.random() < 0.3
        self._last_change = self._change if stays else {}
        self._kept_from: dict[str, int] = {}
        """The first message that each query's consumer has kept, by its name."""
        self._dropped: set[int] = set()
        """Messages that were published when no query's consumer kept them, and are not stored."""
        self.fits = mode == self.retention

    def __str__(self) -> str:
        options = [query.options | {"servers": "…"} for query in self.queries]
        kept = f" {self._kept} kept" if self._kept else ""
        last = " at the end, too" if self._last_change else ""
        return f"{self.retention}{kept} {options} then {self._change}{last}"

    def play(self) -> None:
        """Raises AssertionError for what is wrong."""
        admin, rng = self._admin, self._rng
        config = {"retention": self.retention, "storage": rng.choice(["memory", "file"])}
        admin.create(self._name, f"{self._name}.*", allow_direct=True, **config)
        try:
            if self.retention == "interest" and self._kept:
                subject = f"{self._name}.{self._kept}"
                self._consumer("other", {} if self._kept == ">" else {"filter_subject": subject})
            if rng.random() < 0.7:
                self._publish(rng.randrange(1, 40))
            self._run(batches=3, dies_beginning=self._dies_beginning)
            self._publish(rng.randrange(10))
            self._restart()
            self._publish(rng.randrange(1, 10))
            self._run(self._last_change)
            self._run(self._last_change | {"minOffsetsPerTrigger": "1"}, quiet=True)
            self._judge()
        finally:
            admin.call(f"STREAM.DELETE.{self._name}")

    # -- what happens ----------------------------------------------------------------------

    def _publish(self, count: int) -> None:
        if count == 0:
            return
        subjects = [f"{self._name}.{self._rng.choice('abc')}" for _ in range(count)]
        last = self._admin.fill([(subject, b'{"n": 1}') for subject in subjects])
        self._published |= dict(zip(range(last - count + 1, last + 1), subjects, strict=True))
        self._figures.published += count

    def _restart(self) -> None:
        """With a changed option, or without the checkpoint of the first query."""
        if "lost" not in self._change:
            self._run(self._change, batches=3)
            return
        lost = self.queries[0]
        self.queries.append(Query(self._name, dict(lost.options)))
        if self._rng.random() < 0.5:  # it is given up, as the error says
            name = lost.options.get("interestConsumer")
            claim = f"{name}-claim" if name else SOLE_READER
            self._again |= self._stored()
            names = self._admin.call(f"CONSUMER.NAMES.{self._name}").get("consumers") or []
            if claim in names:
                self._admin.call(f"CONSUMER.DELETE.{self._name}.{claim}")
                self.queries.remove(lost)
                self.queries.append(lost)
        self._run(batches=3)

    def _run(
        self,
        changed: dict[str, str] | None = None,
        batches: int = 99,
        *,
        dies_beginning: float = 0.0,
        quiet: bool = False,
    ) -> None:
        """A process of each query, their steps in any order, until all have ended."""
        rng = self._rng
        running = [(query, query.steps(changed or {}, batches)) for query in self.queries]
        for query, _ in running:
            query.said = None
        while running:
            query, steps = one = rng.choice(running)
            try:
                step = next(steps)
            except StopIteration:
                running.remove(one)
                continue
            except JetsparkError as error:
                query.said = error
                self._figures.said[type(error).__name__] += 1
                running.remove(one)
                continue
            if step == "begun" and rng.random() < 0.1 and not quiet:
                self._take()
            if step == "begun":
                self._note_consumer((query.options | (changed or {})).get("interestConsumer"))
            if quiet:
                continue
            if rng.random() < 0.08:
                self._publish(rng.randrange(1, 6))
            if rng.random() < 0.05:
                self._take()
            if rng.random() < _DIES or (not query.committed and rng.random() < dies_beginning):
                self._figures.deaths += 1
                running.remove(one)

    def _position(self, name: str) -> int | None:
        """The first message that a query's consumer still keeps; None without the consumer."""
        info = self._admin.api.consumer(self._name, name, not_found_for=0.0)
        return None if info is None else int(info["delivered"]["stream_seq"]) + 1

    def _note_consumer(self, name: str | None) -> None:
        """Note what a query's consumer keeps from now on, if it is new."""
        if name is None or name in self._kept_from:
            return
        if (position := self._position(name)) is not None:
            if not self._kept_from:
                self._dropped = self._published.keys() - self._stored()
            self._kept_from[name] = position

    def _consumer(self, name: str, config: dict[str, Any]) -> bool:
        """Whether it was made."""
        config = {"name": name, "durable_name": name, "ack_policy": "explicit", **config}
        body = msgspec.json.encode({"stream_name": self._name, "config": config})
        answer = self._admin.link.request(f"$JS.API.CONSUMER.CREATE.{self._name}.{name}", body, 10)
        return b'"error"' not in answer.payload

    def _take(self) -> None:
        """Somebody takes some messages of a work queue, from its middle, and leaves."""
        if self.retention != "workqueue":
            return
        config = {"filter_subject": f"{self._name}.{self._rng.choice('abc')}"}
        if not self._consumer("taker", self._rng.choice([{}, config])):
            self._figures.refused_others += 1
            return
        link, inbox = self._admin.link, self._admin.link.new_inbox()
        sid = link.subscribe(inbox)
        for _ in range(self._rng.randrange(4)):
            pull = b'{"batch": 1, "no_wait": true}'
            link.send(frames.pub(f"$JS.API.CONSUMER.MSG.NEXT.{self._name}.taker", pull, inbox))
            arrived: list[MessageFrame] = []
            while not arrived:
                arrived = link.messages(time.monotonic() + 10)
            (frame,) = arrived
            if frame.reply:
                link.request(frame.reply.decode(), b"+ACK", 10)
                self._taken.add(int(frame.reply.split(b".")[5]))
                self._figures.taken += 1
        link.unsubscribe(sid)
        self._admin.call(f"CONSUMER.DELETE.{self._name}.taker")

    def _stored(self) -> set[int]:
        found: list[int] = []
        while at := self._admin.api.next_sequence(self._name, found[-1] + 1 if found else 1, ()):
            found.append(at)
        return set(found)

    # -- the verdict -----------------------------------------------------------------------

    def _judge(self) -> None:
        stored = self._stored()
        removed = self._published.keys() - stored - self._taken - self._dropped
        rows = Counter(seq for query in self.queries for seq, _ in query.rows)
        self._figures.read += rows.total()
        self._figures.removed += len(removed)
        for query in self.queries:
            twice = [seq for seq, n in Counter(seq for seq, _ in query.rows).items() if n > 1]
            assert not twice, f"{twice} twice in one table"
            other = [row for row in query.rows if self._published.get(row[0]) != row[1]]
            assert not other, f"{other} were never published"
            if query.said is None:
                self._figures.completed += 1
                missing = sorted(self._wanted(query) - {seq for seq, _ in query.rows})
                if self.retention == "workqueue":
                    missing = [seq for seq in missing if seq not in rows]
                assert not missing, f"{missing} are missing without a word"
        if self.retention == "limits":
            assert not removed, f"{removed} removed"
        elif self.retention == "workqueue":
            assert removed <= rows.keys(), f"{removed - rows.keys()} removed unread"
            twice = [seq for seq, n in rows.items() if n > 1 and seq not in self._again]
            assert not twice, f"{twice} in two tables"
        else:
            kept = [seq for seq in removed if subject_matches(self._kept, self._last_token(seq))]
            assert not kept, f"{kept} removed, which another consumer keeps"
            self._judge_released(removed, rows.keys())
        self._judge_errors()

    def _judge_released(self, removed: set[int], read: Collection[int]) -> None:
        """Of what a query's consumer kept, only what is in a table is removed or released."""
        released = set[int]()
        for name, first in self._kept_from.items():
            released |= {seq for seq in removed if seq >= first}
            released |= set(range(first, self._position(name) or first))
        released -= self._dropped
        unread = sorted(seq for seq in released if self._selected(seq) and seq not in read)
        assert not unread, f"{unread} were released unread"

    def _last_token(self, seq: int) -> str:
        return self._published[seq].removeprefix(f"{self._name}.")

    def _selected(self, seq: int) -> bool:
        """Whether a message is one that the queries select, with whatever change."""
        if "subjects" in self._change:
            return False  # what was left out meanwhile was meant to be
        subjects = self.queries[0].parsed().subjects
        subject = self._published[seq]
        return not subjects or any(subject_matches(one, subject) for one in subjects)

    def _wanted(self, query: Query) -> set[int]:
        """What must be in the table of a query that ended well."""
        options = query.parsed()
        start = 1
        if query.logged:
            start = json.loads(query.logged[0])["streams"][self._name]["start"]
        if self.retention == "workqueue":
            start = 1
        elif query.consumer is not None and "lost" not in self._change:
            start = self._kept_from[query.consumer]
        if self.retention != "workqueue" and "subjects" in self._change:
            return set()  # what was left out meanwhile was meant to be
        return {
            seq
            for seq, subject in self._published.items()
            if seq >= start
            and seq not in self._taken | self._dropped
            and (
                not options.subjects
                or any(subject_matches(one, subject) for one in options.subjects)
            )
        }

    def _judge_errors(self) -> None:
        """A query that may run has to, unless something was done that has to be told."""
        harmless = not any(name in self._change for name in (*_TELLING, "lost"))
        given = self._start.get("startingOffsets", "earliest" if not self._start else "")
        may_begin = given == "earliest" or (given == "latest" and self.retention != "workqueue")
        alone = len(self.queries) == 1
        refused_by_itself = "progressConsumer" in self._option or "backfill" in self._option
        if not (self.fits and harmless and may_begin) or refused_by_itself or self._taken:
            return
        errors = [query.said for query in self.queries if query.said is not None]
        if any(isinstance(error, UnsupportedByServerError) for error in errors):
            return
        if self.retention == "workqueue" or (not alone and self.retention == "interest"):
            assert len(errors) < len(self.queries), f"nobody reads: {errors[0]}"
        else:
            assert not errors, f"a false stop: {errors[0]}"


def run(runs: int = 400, seed: int = 1, first: int = 0) -> Figures:
    """Cells `first` and up, on one server."""
    figures = Figures()
    with NatsServer() as server, Admin(server.url) as admin:
        admin.create("KEPT", "kept")  # with its last stream a server removes the folder of streams
        for number in range(first, first + runs):
            cell = Cell(f"S{number}", server.url, admin, random.Random(f"{seed} {number}"), figures)
            try:
                cell.play()
            except Exception as error:
                figures.wrong.append(f"cell {number}: {type(error).__name__}: {error}; {cell}")
            figures.count_run()
        pool.close()
    return figures
