"""Sources under every option, with restarts.

A run, or cell, is a retention, an option of the source, a start, one to three queries of the
stream, a restart with one option changed (or with a lost checkpoint), and processes that die at any
step, all drawn from the seed and the cell's number. The queries call the reader in the order in
which Spark does, with Spark's two logs, and their steps interleave with each other, with
publishing, and with somebody else who tries to take messages. At the end they go on with their
first options.

Wrong is: a message that was removed and is in no table, one that is there twice, one that is
missing in the table of a query that ended without an error, an error that is none of jetspark's,
and a query that stops although nothing was changed that matters.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
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
    {"startingTimestamp": "2100-01-01T00:00:00Z", "startingOffsetsByTimestampStrategy": "latest"},
)
_WITHOUT_BASE = {"soleReader": "false", "interestConsumer": "another"}
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
        self.retention = rng.choice([*_RETENTIONS])
        self._kept = rng.random() < 0.5  # by interest: another consumer keeps all
        mode = rng.choice([self.retention] * 7 + [*_RETENTIONS])
        self._option = rng.choice(_OPTIONS)
        self._start = rng.choice([*_STARTS[:2], *_STARTS])
        self._count = rng.choice([1, 1, 1, 2, 2, 3])
        how = rng.choice(["same", "apart"])
        base = {"servers": url, "stream": "S", **_RETENTIONS[mode], **self._option, **self._start}
        self.queries = [Query(name, dict(base)) for _ in range(self._count)]
        for number, query in enumerate(self.queries if how == "apart" else []):
            if mode == "interest":
                query.options["interestConsumer"] = f"spark{number}"
            else:
                query.options["subjects"] = f"S.{'abc'[number]}"
        changes = [{}, {"lost": "checkpoint"}, *_OPTIONS, *_STARTS]
        changes += [{name: value} for name, value in _WITHOUT_BASE.items() if name in base]
        self._change = rng.choice(changes)
        self.fits = mode == self.retention

    def __str__(self) -> str:
        options = [query.options | {"servers": "…"} for query in self.queries]
        return f"{self.retention}{' kept' * self._kept} {options} then {self._change}"

    def play(self) -> None:
        """Raises AssertionError for what is wrong."""
        admin, rng = self._admin, self._rng
        config = {"retention": self.retention, "storage": rng.choice(["memory", "file"])}
        admin.create(self._name, f"{self._name}.*", allow_direct=True, **config)
        try:
            if self.retention == "interest" and self._kept:
                self._consumer("other", {})
            if rng.random() < 0.7:
                self._publish(rng.randrange(1, 40))
            self._run(batches=3)
            self._publish(rng.randrange(10))
            self._restart()
            self._publish(rng.randrange(1, 10))
            self._run()
            self._run({"minOffsetsPerTrigger": "1"}, quiet=True)
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
        self, changed: dict[str, str] | None = None, batches: int = 99, *, quiet: bool = False
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
            if step == "begun" and query.begun_at is None:
                query.begun_at = max(self._published, default=0)
            if quiet:
                continue
            if rng.random() < 0.08:
                self._publish(rng.randrange(1, 6))
            if rng.random() < 0.05:
                self._take()
            if rng.random() < _DIES:
                self._figures.deaths += 1
                running.remove(one)

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
        removed = self._published.keys() - stored - self._taken
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
        elif self._kept:
            assert not removed, f"{removed} removed, which another consumer keeps"
        self._judge_errors()

    def _wanted(self, query: Query) -> set[int]:
        """What must be in the table of a query that ended well."""
        options = query.parsed()
        start = 1
        if query.logged:
            start = json.loads(query.logged[0])["streams"][self._name]["start"]
        if self.retention == "workqueue":
            start = 1
        elif self.retention == "interest" and not self._kept:
            start = max(start, (query.begun_at or 0) + 1)
        elif self.retention == "interest":
            start = min(start, (query.begun_at or 0) + 1)
        if self.retention != "workqueue" and "subjects" in self._change:
            return set()  # what was left out meanwhile was meant to be
        return {
            seq
            for seq, subject in self._published.items()
            if seq >= start
            and seq not in self._taken
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
