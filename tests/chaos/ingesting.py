"""`jetspark ingest` and `run` killed.

The command is a process as a user starts it, over a real nats-server. At moments of a batch (it was
planned, a file was begun, a table has committed, the batch is done) one of its Python workers or
the command itself is killed, with or without the server; then it is started again, until it is
done. Every message must then be in one place: a row of its table, the row of its key, or a record
of the table, or a letter of the stream, for those that do not become rows.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from unittest import mock

from tests.chaos.campaign import Figures, Kinds, Run, run_kinds
from tests.chaos.outcome import Findings, Outcome, compare
from tests.chaos.spark import below
from tests.support.archives import uvarint
from tests.support.debezium import (
    ENVELOPE_SCHEMA,
    Change,
    Database,
    replay,
    replay_history,
    with_repeats,
)
from tests.support.java import small_jvms
from tests.support.processes import finish, jetspark
from tests.support.streams import Admin
from tests.support.table_readers import by_duckdb

from jetspark import read as jetspark_read
from jetspark.errors import ConfigError, DataLossError
from jetspark.letter_rules import SEQUENCE, SUBJECT
from jetspark.server import NatsServer
from jetspark.tables.formats import format_of
from jetspark.wire.headers import parse_headers

STREAM = "E"
_LETTERS = "BAD"
_LIVES = 2
"""Starts of the command that are killed."""
_MOST_STARTS = 12
_MOST_READS = 5
_LOOK_EVERY = 0.01  # seconds
_WITHIN = 240.0
_BAD = (b"", b"{", b"\xff{", b'{"k": "x", "n": [2]}', b'{"n": 1} x')
_WITHOUT_FIELDS = _BAD[:3]


@dataclass(frozen=True)
class Sink:
    """Which tables a run writes."""

    many: bool = False
    """One for each second token of the subject."""
    keys: bool = False
    aside: bool = False
    """Records that do not become rows go to a table of their own."""
    letters: bool = False
    """They go to a stream."""
    evolve: bool = False
    """Fields that the schema does not have become columns."""
    few: bool = False
    """One for each key, of which a task may make only some; the other rows go to another table."""
    listed: bool = False
    """`run` with a list: a table to append to, one with keys, and `aside` for the rest."""
    changes: int = 0
    """So many of a database, which Debezium delivers with repeats."""
    history: bool = False
    """The table keeps all of them."""
    trim: bool = False
    """The stream forgets what the table has; both are read together after each kill."""
    codec: str = ""
    """Payloads are in avro, in protobuf, or nested JSON, and 1 of 1,000 is damaged."""

    def arguments(self, folder: Path) -> list[str]:
        to = "t"
        options = []
        if self.many:
            to = "lake/{subject[1]}"
        if self.few:
            to = "lake/{k}"
            options += ["--max-new-tables", "4"]
        if self.few or (self.many and not self.aside):
            options += ["--default-table", f"{folder}/rest"]
        found = ["--to", f"{folder}/{to}", *options]
        if self.keys:
            found += ["--keys", "k"]
        if self.evolve:
            found.append("--evolve")
        if self.changes:
            schema = folder / "orders.json"
            schema.write_text(json.dumps(ENVELOPE_SCHEMA))
            found += ["--decode", "debezium", "--schema-file", str(schema), "--keys", "id"]
        if self.history:
            found.append("--history")
        if self.trim:
            found.append("--trim")
        if self.codec:
            schema = folder / ("row.proto" if self.codec == "protobuf" else "row.txt")
            schema.write_text(_SCHEMAS[self.codec])
            found += ["--decode", self.codec, "--schema-file", str(schema)]
        place = f"stream:{_LETTERS}" if self.letters else f"{folder}/aside"
        return [*found, f"--quarantine={place}"] if self.aside else found

    def pipeline(self, folder: Path, url: str, format_: str, batch: int) -> Path:
        """The file of a `listed` run."""
        file = folder / "pipeline.toml"
        json_ = "k STRING, n LONG"
        file.write_text(
            f"""
            checkpoint = "{folder}/progress"
            [sources.events]
            servers = "{url}"
            stream = "{STREAM}"
            starting_offsets = "earliest"
            min_partitions = 2
            max_offsets_per_trigger = {batch}
            [sinks.all]
            from = "events"
            format = "jetspark-{format_}"
            quarantine = "{f"stream:{_LETTERS}" if self.letters else f"{folder}/aside"}"
            evolve = {str(self.evolve).lower()}
            [[sinks.all.tables]]
            path = "{folder}/lake/low"
            subjects = ["{STREAM}.r0", "{STREAM}.r1"]
            json_schema = "{json_}"
            [[sinks.all.tables]]
            path = "{folder}/lake/state"
            subjects = ["{STREAM}.r2"]
            json_schema = "{json_}"
            keys = ["k"]
            sequence_by = "seq"
            """
        )
        return file


_SCHEMAS = {
    "avro": """{"type": "record", "name": "Row", "fields": [
        {"name": "k", "type": "string"}, {"name": "n", "type": "long"}]}""",
    "protobuf": 'syntax = "proto3"; message Row { string k = 1; int64 n = 2; }',
    "json": "k STRING, n BIGINT, pos STRUCT<n: BIGINT, of: MAP<STRING, DOUBLE>>, "
    "tags ARRAY<STRING>",
}


def _encoded(codec: str, key: str, number: int) -> bytes:
    if codec == "json":
        inner = {"n": number, "of": {key: 0.5}}
        return json.dumps({"k": key, "n": number, "pos": inner, "tags": [key, "é"]}).encode()
    text = key.encode()
    if codec == "avro":
        return bytes([2 * len(text)]) + text + uvarint(2 * number)
    return b"\n" + bytes([len(text)]) + text + b"\x10" + uvarint(number)


Row = tuple[str, object, int, object, object]
"""Table, key of an upsert, sequence, value, and what comes from the subject."""


@dataclass(frozen=True)
class Message:
    seq: int
    subject: str
    payload: bytes
    key: str | None
    """None, as `number`, of a payload that is no row."""
    number: int | None
    change: Change | None = None

    @property
    def site(self) -> str | None:
        return self.subject.partition(".")[2] or None


def messages(rng: random.Random, sink: Sink) -> list[Message]:
    found = []
    if sink.changes:
        database = Database(rng, keys=sink.changes // 20)
        for _ in range(sink.changes):
            database.change(truncates=5 / sink.changes)
        for seq, change in enumerate(with_repeats(rng, database.log, 0.001), 1):
            payload = change.payload("postgresql", schema=False)
            found.append(Message(seq, f"{STREAM}.r0", payload, None, None, change))
        return found
    for seq in range(1, rng.randint(800, 1600) * (20 if sink.codec else 1)):
        subject = f"{STREAM}.r{rng.randrange(4)}"
        if (sink.many or sink.listed) and rng.random() < 0.05:
            subject = STREAM
        key, number = f"k{rng.randrange(12 if sink.few else 60)}", rng.randrange(10**6)
        row = {"k": key, "n": number, "pad": "x" * rng.randrange(60)}
        if sink.evolve and rng.random() < 0.2:
            row[f"f{rng.randrange(1 + seq // 200)}"] = number
        payload, spoilt = json.dumps(row).encode(), False
        if sink.codec:
            payload, spoilt = _encoded(sink.codec, key, number), rng.random() < 0.001
            payload = payload[:-1] if spoilt else payload
        elif (sink.aside or not (sink.keys or sink.few)) and rng.random() < 0.06:
            payload, spoilt = rng.choice(_BAD if sink.aside else _WITHOUT_FIELDS), True
        fields = (None, None) if spoilt else (key, number)
        found.append(Message(seq, subject, payload, *fields))
    return found


def expected(published: list[Message], sink: Sink) -> Iterator[Row]:
    """Where each message has to be; of one key only the last one."""
    if sink.changes:
        log = list({id(one.change): one.change for one in published if one.change}.values())
        if sink.history:
            for key, *version in replay_history(log):
                yield "t", key, 0, str(version), None
        else:
            for key, row in replay(log).items():
                yield "t", key, row["changed"], str(row["amount"]), row["customer"]
        return
    last: dict[tuple[str, str], Row] = {}
    for one in published:
        place = "t"
        if sink.many:
            place = f"lake/{one.site}" if one.site else "rest"
        if sink.few:
            place = "some"
        if sink.listed:
            place = {"r0": "lake/low", "r1": "lake/low", "r2": "lake/state"}.get(one.site or "", "")
        number: object = one.number
        if sink.evolve and one.key is not None:
            number = _numbers(one.payload)
        no_table = not place or (sink.many and one.site is None)
        if sink.aside and (one.number is None or no_table):
            yield "aside", None, one.seq, one.payload, one.site
        elif sink.keys or place == "lake/state":
            assert one.key is not None
            last[place, one.key] = place, one.key, one.seq, number, one.site
        else:
            yield place, one.key, one.seq, number, one.site
    yield from last.values()


def _numbers(row: str | bytes) -> str:
    """The number of a row and its new fields, as text."""
    found = json.loads(row).items()
    return str(sorted(one for one in found if one[0][0] in "nf" and one[1] is not None))


def stored(folder: Path, sink: Sink) -> Iterator[Row]:
    """What the tables have, read by DuckDB."""
    tables = [one for one in (folder / "t", folder / "rest") if one.exists()]
    tables += [one for one in (folder / "lake").glob("*") if one.name[0] != "_"]
    for table in tables:
        format_ = format_of(table)
        if format_ is None:  # a kill came while it was made, and then no row
            continue
        name = str(table.relative_to(folder))
        if sink.history:
            query = "SELECT id, __op, epoch_us(valid_from), epoch_us(valid_to), amount FROM t"
            for key, *version in by_duckdb(format_, table, query):
                yield name, key, 0, str(version), None
            continue
        if sink.changes:
            query = "SELECT id, epoch_us(changed), amount::VARCHAR, customer FROM t"
            for key, moment, amount, customer in by_duckdb(format_, table, query):
                yield name, key, moment, amount, customer
            continue
        site_of = "split_part(subject, '.', 2)" if sink.listed else "site"
        value = "to_json(t)" if sink.evolve else "n"
        if sink.codec == "json":
            value = "CASE WHEN pos.n = n AND pos['of'][k] = 0.5 AND tags = [k, 'é'] THEN n END"
        query = f"SELECT k, seq, {value}, {site_of} FROM t AS t"
        for key, seq, found, site in by_duckdb(format_, table, query):
            right = sink.few and table.name in (key, "rest")
            number = found
            if sink.evolve:
                number = None if key is None else _numbers(found)
            yield "some" if right else name, key, seq, number, site
    aside = folder / "aside"
    if (format_ := format_of(aside)) is not None:
        for seq, data, subject in by_duckdb(format_, aside, "SELECT seq, data, subject FROM t"):
            yield "aside", None, seq, data, subject.partition(".")[2] or None


def letters(url: str) -> Iterator[Row]:
    """What the stream of dead letters has."""
    with Admin(url) as admin:
        names = admin.api.stream_names()
        last = admin.facts(_LETTERS).last_seq if _LETTERS in names else 0
        for seq in range(1, last + 1):
            message = admin.api.message(_LETTERS, seq=seq)
            assert message is not None
            headers, _ = parse_headers(message.headers)
            site = headers[SUBJECT].partition(".")[2] or None
            yield "aside", None, int(headers[SEQUENCE]), message.data, site


class Scene:
    """One run: its server, its folder, and the command."""

    def __init__(
        self, run: Run, server: NatsServer, sink: Sink, format_: str, batches: int
    ) -> None:
        self.rng, self.folder, self.server = run.rng, run.folder, server
        self.hits: Counter[str] = Counter()
        self.endings: Counter[str] = Counter()
        self._sink = sink
        self.trimmed_reads = 0
        """Reads that the command has overtaken."""
        self.first = 1
        """The first message that the stream has."""
        self.published = messages(run.rng, sink)
        with Admin(server.url) as admin:
            admin.create(STREAM, STREAM, f"{STREAM}.>")
            admin.fill([(one.subject, one.payload) for one in self.published])
        batch = len(self.published) // batches
        if sink.listed:
            file = sink.pipeline(run.folder, server.url, format_, batch)
            self._arguments = ["run", str(file), "--master", "local[2,4]"]
            return
        self._arguments = [
            *("ingest", STREAM, "--server", server.url, "--format", format_),
            *("--master", "local[2,4]"),
            *("--checkpoint", str(run.folder / "progress"), "--min-partitions", "2"),
            *("--max-offsets-per-trigger", str(batch)),
            *sink.arguments(run.folder),
        ]
        if not sink.changes:
            self._arguments += ["--derive=site=subject[1]"]
        if not (sink.changes or sink.codec):
            self._arguments += ["--json-schema", "k STRING, n LONG"]
        if not (sink.keys or sink.changes) and run.rng.random() < 0.3:
            self._arguments += ["--partition-by", "day"]

    def act(self, lives: int) -> None:
        """Start it so often and kill it, and then let it end."""
        for start in range(_MOST_STARTS):
            with jetspark(*self._arguments) as command:
                if start < lives:
                    for _ in range(self.rng.randint(2, 5)):
                        self._strike(command, partial(self._kill_worker, command.pid), "worker")
                    self._strike(command, partial(self._kill_command, command.pid), "driver")
                code, _, err = finish(command, _WITHIN)
            if code == 0:
                if self._sink.trim:
                    self._check_kept()
                return
            if code != -signal.SIGKILL:
                assert code == 1, (code, err)
                assert "Traceback" not in err, err
                lines = [one for one in err.splitlines() if not one.startswith("Spark's log: ")]
                self.endings[lines[-1][:150]] += 1
        raise TimeoutError(f"it did not end in {_MOST_STARTS} starts: {self.endings}")

    def _strike(
        self, command: subprocess.Popen[bytes], kill: Callable[[], bool], what: str
    ) -> None:
        moments: list[tuple[Callable[[], int], float]] = [
            (partial(_files, self.folder / "progress", "**/offsets/[0-9]*"), 0.3),
            (partial(_files, self.folder, "**/*.parquet"), 0.1),
            (self._commits, 0.03),
            (self._commits, 0.0),
            (partial(_files, self.folder / "progress", "**/commits/[0-9]*"), 0.3),
        ]
        count, longest = self.rng.choice(moments)
        wanted = count() + 1
        deadline = time.monotonic() + _WITHIN
        while count() < wanted:
            if command.poll() is not None:
                return
            assert time.monotonic() < deadline, "no batch"
            time.sleep(_LOOK_EVERY)
        time.sleep(self.rng.uniform(0, longest))
        with_server = self.rng.random() < 0.4
        if with_server:
            self.server.kill()
        if command.poll() is None and kill():
            self.hits[f"{what} and server" if with_server else what] += 1
        if with_server:
            time.sleep(self.rng.uniform(0, 0.7))
            self.server.start()
        if self._sink.trim:
            self._check_kept()

    def _check_kept(self) -> None:
        """Each message is a row of the table and its tail, once, whatever the stream has forgotten:
        so nothing was removed that is not committed."""
        with Admin(self.server.url) as admin:
            self.first = admin.facts(STREAM).first_seq
        table = self.folder / "t"
        for attempt in range(_MOST_READS):
            try:
                rows = jetspark_read(STREAM, table=table, servers=self.server.url, columns=["seq"])
                sequences = sorted(rows.to_arrow()["seq"].to_pylist())
                break
            except ConfigError:
                if self.first > 1:
                    raise
                return  # the table has no batch yet
            except DataLossError:  # it was trimmed after the plan; what is lost stays lost
                self.trimmed_reads += 1
                if attempt == _MOST_READS - 1:
                    raise
        assert sequences == list(range(1, len(self.published) + 1)), self.first

    def _commits(self) -> int:
        """Of all tables."""
        tables = [self.folder / name for name in ("t", "rest", "aside")]
        tables += (self.folder / "lake").glob("*")
        logs = ("_delta_log/*.json", "metadata/v*.metadata.json")
        return sum(_files(table, log) for table in tables for log in logs)

    def _kill_worker(self, command: int) -> bool:
        """A process that reads, writes, plans or commits."""
        every = [one for one in below(command) if "fork_server" in one.command]
        parents = {one.parent for one in every}
        leaves = [one for one in every if one.pid not in parents and one.parent != command]
        if not leaves:
            return False
        with suppress(ProcessLookupError):
            os.kill(self.rng.choice(leaves).pid, signal.SIGKILL)
            return True
        return False

    def _kill_command(self, command: int) -> bool:
        """With all that it has started, mostly; or they are left to find out."""
        kill = os.kill if self.rng.random() < 0.2 else os.killpg
        kill(command, signal.SIGKILL)
        return True

    def findings(self) -> Findings:
        return compare(
            chain(stored(self.folder, self._sink), letters(self.server.url)),
            expected(self.published, self._sink),
            order=lambda _: ("", 0),
        )


def _files(folder: Path, pattern: str) -> int:
    with suppress(FileNotFoundError):  # it is just removed
        return sum(1 for _ in folder.glob(pattern))
    return 0


def ingesting(run: Run, sink: Sink, format_: str, lives: int = _LIVES) -> Outcome:
    small_jvms()
    with mock.patch.dict(os.environ, TMPDIR=str(run.folder)), NatsServer() as server:
        scene = Scene(run, server, sink, format_, batches=4 * lives)
        scene.act(lives)
        found = scene.findings()
    hits = ", ".join(f"{count} {what}" for what, count in sorted(scene.hits.items()))
    ended = "; ".join(f"{count} × {said}" for said, count in scene.endings.items())
    if sink.trim:
        hits += f"; the stream begins at {scene.first} of {len(scene.published)}, "
        hits += f"{scene.trimmed_reads} reads overtaken"
    note = "; ".join(filter(None, (hits, ended, found.examples)))
    return found.outcome(scene.hits.total(), len(scene.published), note=note)


_SINKS = {
    "append": Sink(),
    "upsert": Sink(keys=True),
    "many tables": Sink(many=True),
    "quarantine": Sink(aside=True),
    "many tables, quarantine": Sink(many=True, aside=True),
    "many tables, upsert, quarantine": Sink(many=True, keys=True, aside=True),
    "more tables than allowed": Sink(few=True),
    "a list of tables": Sink(listed=True, aside=True),
    "new fields": Sink(evolve=True),
    "a list of tables, new fields": Sink(listed=True, aside=True, evolve=True),
    "changes": Sink(changes=2_000),
    "history": Sink(changes=2_000, history=True),
    "avro": Sink(aside=True, codec="avro"),
    "nested JSON": Sink(aside=True, codec="json"),
    "protobuf, many tables": Sink(many=True, aside=True, codec="protobuf"),
    "letters": Sink(aside=True, letters=True),
    "many tables, letters": Sink(many=True, aside=True, letters=True),
    "a list of tables, letters": Sink(listed=True, aside=True, letters=True),
}
KINDS: Kinds = {
    f"{name}, {format_}": partial(ingesting, sink=sink, format_=format_)
    for name, sink in _SINKS.items()
    for format_ in ("delta", "iceberg")
}
_MANY: Kinds = {
    f"many {name}, {format_}": partial(
        ingesting, sink=replace(_SINKS[name], changes=200_000), format_=format_, lives=5
    )
    for name in ("changes", "history")
    for format_ in ("delta", "iceberg")
}
"""Of 10,000 keys, with some twenty kills."""
_TRIMMED: Kinds = {
    f"trimmed, {format_}": partial(ingesting, sink=Sink(trim=True), format_=format_, lives=5)
    for format_ in ("delta", "iceberg")
}
KINDS = {**KINDS, **_MANY, **_TRIMMED}
COSTLY = (*_MANY, *_TRIMMED)


def run(runs: int = 75, seed: int = 0, first: int = 0, only: str = "") -> Figures:
    return run_kinds(KINDS, runs, seed, first, only, COSTLY)
