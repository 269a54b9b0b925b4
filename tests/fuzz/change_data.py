"""Tables of Debezium's events against a model: every connector, every form, and hostile events.

In each run a database changes at random. Its events come as envelopes with or without their schema,
as flattened rows, or as CloudEvents; in the order of commits, where places in the log may lie
across each other (PostgreSQL) or be the same (compressed transactions of MySQL); with the repeats
of restarts, with incremental snapshots, with values that the database did not send, and between
heartbeats, tombstones, borders of transactions, changes of a schema, notifications and events that
nobody should send. They are decoded and merged in batches and tasks that are cut anywhere. The
table must equal the database, and a history all that it was; every message is a row, a bad record,
or counted as left out. Besides, events with other values, names and schemas in any of their places
are decoded (`--spoiled`): none raises, every value is one that Python has, and a good event among
them is its row.
"""

from __future__ import annotations

import json
import math
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from tests.support import campaign
from tests.support.debezium import (
    ENVELOPE_SCHEMA,
    FREE_PLACES,
    WITHOUT_PLACE,
    Change,
    Database,
    begin_again,
    replay,
    replay_history,
)
from tests.support.table_readers import by_duckdb

from jetspark.payloads.debezium import DebeziumDecoder
from jetspark.payloads.debezium_events import POSITION, TIME
from jetspark.payloads.debezium_schema import row_columns
from jetspark.payloads.decoder import REASON
from jetspark.payloads.tolerant import TolerantDecoder
from jetspark.tables.batches import commit_batch
from jetspark.tables.file_writer import write_files
from jetspark.tables.formats import Format, open_or_create_table
from jetspark.tables.history import History
from jetspark.tables.new_files import NewFile
from jetspark.tables.table import Table, TableName
from jetspark.tables.upserts import RowCondition, Upsert, remove_staged_files, staging_layout

CONNECTORS = (*WITHOUT_PLACE, "another")
_SCHEMA = json.dumps(ENVELOPE_SCHEMA)
_COLUMNS = row_columns(_SCHEMA.encode())
_FIELDS = DebeziumDecoder(_COLUMNS, _SCHEMA)
_ROWS = pa.schema([("seq", pa.int64()), *_FIELDS.fields])
_RULES = ("id",), POSITION, RowCondition("__op", ("d",)), RowCondition("__op", ("t",))
_UNAVAILABLE = "__debezium_unavailable_value"

FORMS: Mapping[str, Callable[[Change, str], bytes]] = {
    "envelopes": lambda one, connector: one.payload(connector, schema=False),
    "envelopes with schemas": lambda one, connector: one.payload(connector),
    "flattened": lambda one, connector: one.payload(connector, schema=False, flat=True),
    "CloudEvents": lambda one, connector: one.in_cloud_event(connector),
}


@dataclass
class Figures(campaign.Figures):
    messages: int = 0
    rows: int = 0
    bad_records: int = 0
    left_out: int = 0
    batches: int = 0
    versions: int = 0
    spoiled: int = 0
    connectors: Counter[str] = field(default_factory=Counter)
    forms: Counter[str] = field(default_factory=Counter)


# -- what a database and Debezium do -------------------------------------------------------------


def changes(rng: random.Random, count: int, connector: str, *, truncates: bool) -> list[Change]:
    """A log, in the order of delivery."""
    database = Database(rng, keys=rng.choice((3, 12, 60)))
    share = 0.02 if truncates else 0.0
    at_snapshot = rng.randrange(count)
    for at in range(count):
        database.change(truncates=share)
        if at == at_snapshot:
            database.snapshot()
    log = [_unlike(one, at) for at, one in enumerate(database.log)]
    if connector != "postgresql":
        return log
    return _open_at_snapshot(rng, list(_interleaved(rng, log)))


def _open_at_snapshot(rng: random.Random, log: list[Change]) -> list[Change]:
    """With some changes after the snapshot as of a transaction that was open while it was taken:
    the log has them before the snapshot's place."""
    read = [at for at, one in enumerate(log) if one.op == "r"]
    if not read:
        return log
    snapshot, begin = log[read[0]].place, read[-1] + 1
    places = sorted({one.place for one in log[begin:] if one.op != "t"})[: rng.randint(0, 6)]
    until = next((one.place for one in log[begin:] if one.op == "t"), math.inf)
    free = range(snapshot - FREE_PLACES, snapshot)
    moved = dict(zip((one for one in places if one < until), free, strict=False))
    return log[:begin] + [
        replace(one, place=moved.get(one.place, one.place)) for one in log[begin:]
    ]


def _unlike(change: Change, number: int) -> Change:
    """The change with a row that no other change has."""
    if change.after is None:
        return change
    return replace(change, after={**change.after, "changed": 1_800_000_000_000_000 + number})


def _interleaved(rng: random.Random, log: Sequence[Change]) -> Iterator[Change]:
    """With places in the log as of transactions that run at the same time and change other keys:
    the log has their changes as they were made, and Debezium sends each at its commit."""
    at = 0
    while at < len(log):
        sizes = rng.randint(1, 5), rng.randint(1, 5)
        first = log[at : at + sizes[0]]
        second = log[at + sizes[0] : at + sum(sizes)]
        both = [*first, *second]
        at += len(both)
        keys = [{one.key for one in part} for part in (first, second)]
        places = sorted({one.place for one in both})
        own = [sorted({one.place for one in part}) for part in (first, second)]
        apart = keys[0].isdisjoint(keys[1]) and set(own[0]).isdisjoint(own[1])
        following = log[at].place if at < len(log) else None
        if not apart or any(one.op in "tr" for one in both) or following == places[-1]:
            yield from both
            continue
        taken = sorted(rng.sample(places, len(own[0])))
        others = [one for one in places if one not in taken]
        moved = dict(zip(own[0], taken, strict=True)) | dict(zip(own[1], others, strict=True))
        yield from (replace(one, place=moved[one.place]) for one in both)


def delivered(rng: random.Random, log: Sequence[Change], *, snapshots: bool) -> Iterator[Change]:
    """The log, now and then again from some changes before, and with incremental snapshots, which
    are read again after a restart."""
    rows: dict[int | None, Change] = {}
    at = frontier = 0
    due = False
    while at < len(log):
        one = log[at]
        yield one
        at += 1
        if at > frontier:
            frontier = at
            if one.op == "t":
                rows.clear()
            elif one.op == "d":
                rows.pop(one.key, None)
            else:
                rows[one.key] = one
        if snapshots and at == frontier and (due or rng.random() < 0.02):
            for row in rows.values():
                yield Change("r", 0, one.time, None, row.after, incremental=True)
            due = False
        if rng.random() < 0.02:
            at = begin_again(rng, log, at)
            due = True


# -- what comes between --------------------------------------------------------------------------

LEFT_OUT: tuple[bytes, ...] = tuple(
    one if isinstance(one, bytes) else json.dumps(one).encode()
    for one in (
        b"", b"null", {"schema": None, "payload": None}, {"ts_ms": 1_790_000_000_000},
        {"schema": {"type": "struct", "name": "io.debezium.connector.common.Heartbeat"},
         "payload": {"ts_ms": 5}},
        {"status": "BEGIN", "id": "5:1", "ts_ms": 5, "event_count": None, "data_collections": None},
        {"status": "END", "id": "5:1", "ts_ms": 5, "event_count": 1,
         "data_collections": [{"data_collection": "public.orders", "event_count": 1}]},
        {"source": {"lsn": 5}, "ts_ms": 5, "databaseName": "shop", "schemaName": "public",
         "ddl": "ALTER TABLE orders ADD x INT", "tableChanges": []},
        {"op": "m", "ts_ms": 5, "source": {"lsn": 5}, "message": {"content": "aA=="}},
        {"id": "5f6a", "aggregate_type": "Initial Snapshot", "type": "STARTED",
         "additional_data": {"connector_name": "shop"}, "timestamp": 5},
    )
)  # fmt: skip


def _event(after: Any, **more: Any) -> dict[str, Any]:
    return {"op": "u", "before": None, "after": after, "source": {"lsn": 5, "ts_ms": 5}} | more


_ROW = {"id": 1, "customer": "x", "amount": "AA==", "changed": 5}
_FIELD_NUMBER = {"type": "struct", "fields": [{"type": "int64", "field": 7}]}
_SOURCES: tuple[Any, ...] = (
    {"lsn": "x"}, {"lsn": -1}, {"lsn": 2**64}, {"lsn": 1.5}, {"lsn": {}}, {"file": "b.1"},
    {"file": "b", "pos": 1}, {"file": {}, "pos": 1}, {"ord": 1}, {"ord": [], "ts_ms": 1},
    {"scn": []}, {"commit_lsn": "x"}, {"commit_lsn": "1", "change_lsn": 5},
    {"ts_ms": 10**18}, {"ts_us": "x"},
)  # fmt: skip
_SCHEMAS: tuple[Any, ...] = (
    5, "x", [], {}, {"fields": 5}, {"fields": [5]}, _FIELD_NUMBER,
    {"fields": [{"field": name, **_FIELD_NUMBER} for name in ("before", "after", "op")]},
    {"fields": [{"field": "after", "type": "struct",
                 "fields": [{"field": "id", "type": {"a": 1}}]}, {"field": "op"}, 7]},
)  # fmt: skip
BAD: tuple[bytes, ...] = tuple(
    one if isinstance(one, bytes) else json.dumps(one).encode()
    for one in (
        b"{", b"\xff", b"[]", b"7", b'"x"', b'{"a":' * 900 + b"1" + b"}" * 900,
        b'{"id": ' + b"9" * 5000 + b"}", b'{"op": "u", "after": {"customer": "\\ud800"}}',
        {"hello": 1}, {}, {"source": "web", "user": 1}, {"source": {"app": 1}, "user": 1},
        {"op": "m", "source": {}}, {"status": "BEGIN", "ts_ms": 5},
        {"specversion": "1.0", "type": "io.debezium.connector.x.DataChangeEvent", "data": _ROW},
        {"specversion": "1.0", "type": "io.debezium.connector.x.DataChangeEvent", "data": 5,
         "iodebeziumop": "c"},
        _event(_ROW, op="x"), _event(_ROW, op=["u"]), _event(None), _event("{}"), _event(5),
        _event({**_ROW, "id": "one"}), _event({**_ROW, "id": 2**63}), _event({**_ROW, "id": 1.0}),
        _event({**_ROW, "id": True}), _event({**_ROW, "amount": "?"}),
        _event({**_ROW, "amount": "f" * 400}), _event({**_ROW, "amount": {"scale": 1}}),
        _event({**_ROW, "changed": 2**63 - 1}), _event({**_ROW, "changed": 2**70}),
        _event({**_ROW, "changed": "infinity"}), _event({**_ROW, "changed": []}),
        _event({**_ROW, "customer": _UNAVAILABLE}), _event({**_ROW, "customer": [_UNAVAILABLE]}),
        _event({**_ROW, "customer": {"a": {"b": _UNAVAILABLE}}}),
        _event({**_ROW, "customer": _UNAVAILABLE.encode().hex()}),
        *(_event(_ROW, source=one) for one in _SOURCES),
        *({"schema": one, "payload": _event(_ROW)} for one in _SCHEMAS),
    )
)  # fmt: skip
"""Each of them becomes a bad record."""


_ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 2**31, 2**63, 2**64, -(2**63) - 1, 10**30, "", "x", "\0", "é" * 50,
    _UNAVAILABLE, "NaN", "infinity", "AA==", "t", "d", "struct", "int64", [], {}, [None], [[]],
    [[None, 1]], [1, 2], {"a": {}}, {"field": 5}, {"type": "struct"},
)  # fmt: skip
_NAMES = (
    "op", "source", "lsn", "file", "ord", "before", "after", "schema", "payload", "ts_ms", "field",
    "fields", "type", "name", "__op", "__deleted", "specversion",
)  # fmt: skip


def spoiled(rng: random.Random, value: Any) -> Any:
    """The value of JSON with other ones, and other names, in some places."""
    if rng.random() < 0.08:
        return rng.choice(_ODD)
    if isinstance(value, list):
        return [spoiled(rng, one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        rng.choice(_NAMES) if rng.random() < 0.03 else name: spoiled(rng, one)
        for name, one in value.items()
        if rng.random() > 0.03
    }


def _column(kind: str, name: str = "", **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": True} | ({"name": name} if name else {}) | more


_TYPES = {
    "id": _column("int64"), "text": _column("string"), "d": _column("double"),
    "f": _column("float"), "day": _column("int32", "io.debezium.time.Date"),
    "ns": _column("int64", "io.debezium.time.NanoTimestamp"),
    "z": _column("string", "io.debezium.time.ZonedTimestamp"),
    "t": _column("int32", "io.debezium.time.Time"), "l": _column("array", items=_column("int32")),
    "m": _column("map", keys=_column("int32"), values=_column("string")),
    "v": _column("struct", "io.debezium.data.VariableScaleDecimal",
                 fields=[_column("int32", field="scale"), _column("bytes", field="value")]),
    "s": _column("struct", fields=[_column("bytes", field="b"), _column("boolean", field="y")]),
}  # fmt: skip
_SIDE = {"type": "struct", "fields": [one | {"field": name} for name, one in _TYPES.items()]}
TYPED_SCHEMA = {
    "type": "struct",
    "fields": [
        *(_SIDE | {"field": one} for one in ("before", "after")),
        _column("string", field="op"),
    ],
}
TYPED_ROW = {
    "id": 1, "text": "x", "d": 1.5, "f": 0.5, "day": 20000, "ns": 1000,
    "z": "2024-01-01T00:00:00Z", "t": -5, "l": [1, None], "m": [[1, "a"]],
    "v": {"scale": 2, "value": "AA=="}, "s": {"b": "AA==", "y": True},
}  # fmt: skip


def decode_spoiled(rng: random.Random, count: int) -> Iterator[str]:
    """What is wrong when so many spoiled events are decoded beside a good one."""
    text = json.dumps(TYPED_SCHEMA)
    decoder = DebeziumDecoder(row_columns(text.encode()), text)
    good = _event(TYPED_ROW)
    for _ in range(-(-count // 200)):
        values: list[Any] = []
        for one in changes(rng, 20, "mysql", truncates=True):
            connector = rng.choice(CONNECTORS)
            values += [json.loads(write(one, connector)) for write in FORMS.values()]
        values += [good, {"schema": TYPED_SCHEMA, "payload": good}] * 20
        payloads = [json.dumps(spoiled(rng, rng.choice(values))).encode() for _ in range(199)]
        at = rng.randrange(200)
        payloads.insert(at, json.dumps(good).encode())
        seqs = pa.array(range(200), pa.int64())
        given = pa.RecordBatch.from_arrays([seqs, pa.array(payloads, pa.binary())], ["seq", "data"])
        try:
            rows = decoder.decode_batch(given)
            rows.validate(full=True)
            listed = rows.to_pylist()
        except Exception as error:
            yield f"an event raises {error!r}"
            continue
        (row,) = [one for one in listed if one["seq"] == at]
        if row["id"] != 1 or row["t"] != "-00:00:00.005000":
            yield f"beside others the good event is {row}"


def _hostile(rng: random.Random, good: bytes) -> bytes:
    if rng.random() < 0.8:
        return rng.choice(BAD)
    return good[: rng.randrange(1, len(good))]  # cut off


# -- a run ---------------------------------------------------------------------------------------


@dataclass
class _Run:
    """One database, one stream, one table."""

    rng: random.Random
    connector: str
    form: str
    folder: Path
    history: bool
    figures: Figures

    def messages(self, count: int) -> tuple[list[bytes], list[Change], Counter[str]]:
        """What the stream has, the events in it that are rows, and how many are what."""
        rng, write = self.rng, FORMS[self.form]
        log = changes(rng, count, self.connector, truncates=self.form != "flattened")
        unsent: set[int] = set()
        if not self.history:
            unsent = {id(one) for one in log if one.op == "u" and rng.random() < 0.05}
        payloads, rows, kinds = [], [], Counter[str]()
        self.log = log
        for one in delivered(rng, log, snapshots=not self.history):
            payload = write(one, self.connector)
            if id(one) in unsent:
                assert one.after is not None
                lost = replace(one, after={**one.after, "customer": _UNAVAILABLE})
                payload = write(lost, self.connector)
            else:
                rows.append(one)
            kinds["rows" if id(one) not in unsent else "bad records"] += 1
            payloads.append(payload)
            while rng.random() < 0.1:
                is_bad = rng.random() < 0.5
                payloads.append(_hostile(rng, payload) if is_bad else rng.choice(LEFT_OUT))
                kinds["bad records" if is_bad else "left out"] += 1
        return payloads, rows, kinds

    def run(self, count: int) -> Iterator[str]:
        """What is wrong, a sentence each."""
        payloads, rows, kinds = self.messages(count)
        change: Upsert = History(*_RULES, TIME) if self.history else Upsert(*_RULES)
        format_ = self.rng.choice([*Format])
        table = open_or_create_table(
            format_, TableName(path=str(self.folder)), change.table_schema(_ROWS), []
        )
        found = Counter[str]()
        seq = batch = 0
        while seq < len(payloads):
            size = self.rng.choice((1, 30, 200, 1000))
            taken = [*enumerate(payloads[seq : seq + size], seq + 1)]
            files = self._written(table, taken, found)
            commit_batch(table, "q", batch, files, change=change)
            remove_staged_files(table.storage, files)
            table.refresh()
            seq, batch = seq + len(taken), batch + 1
        self.figures.batches += batch
        self.figures.messages += len(payloads)
        self.figures.rows += found["rows"]
        self.figures.bad_records += found["bad records"]
        self.figures.left_out += found["left out"]
        if found != kinds:
            yield f"{found} of {kinds}"
        if self.history:
            yield from self._compare_versions(format_)
        else:
            yield from self._compare_rows(format_, rows)

    def _written(
        self, table: Table, messages: Sequence[tuple[int, bytes]], found: Counter[str]
    ) -> list[NewFile]:
        """The files of some tasks; what they found is counted."""
        cuts = sorted(self.rng.randint(0, len(messages)) for _ in range(2))
        tasks = [messages[: cuts[0]], messages[cuts[0] : cuts[1]], messages[cuts[1] :]]
        self.rng.shuffle(tasks)
        files: list[NewFile] = []
        layout = staging_layout(table.layout(10**8, "zstd"))
        for task in filter(None, tasks):
            seqs, payloads = zip(*task, strict=True)
            columns = [pa.array(seqs, pa.int64()), pa.array(payloads, pa.binary())]
            given = pa.RecordBatch.from_arrays(columns, ["seq", "data"])
            rows = TolerantDecoder(_FIELDS).decode_batch(given)
            good = rows.filter(pc.is_null(rows.column(REASON)))
            # Without its key a row goes to the quarantine, as in tasks.
            counts = {"rows": good.num_rows, "bad records": rows.num_rows - good.num_rows}
            found.update(counts | {"left out": len(task) - rows.num_rows})
            files += write_files(layout, table.storage, "part-0", [good.select(_ROWS.names)])
        return files

    def _compare_rows(self, format_: Format, rows: Sequence[Change]) -> Iterator[str]:
        # The last delivery of each change is in order.
        wanted = {key: tuple(row.values()) for key, row in replay(rows).items()}
        query = "SELECT id, customer, amount, epoch_us(changed) FROM t"
        found = {row[0]: row for row in by_duckdb(format_, self.folder, query)}
        for key in sorted(found.keys() | wanted.keys()):
            if found.get(key) != wanted.get(key):
                yield f"key {key} is {found.get(key)}, not {wanted.get(key)}"

    def _compare_versions(self, format_: Format) -> Iterator[str]:
        query = "SELECT id, __op, epoch_us(valid_from), epoch_us(valid_to), amount FROM t"
        found = Counter(map(str, by_duckdb(format_, self.folder, query)))
        wanted = Counter(map(str, replay_history(self.log)))
        self.figures.versions += found.total()
        for version, times in (found - wanted).items():
            yield f"{times} times too often: {version}"
        for version, times in (wanted - found).items():
            yield f"{times} times missing: {version}"


def run(runs: int = 20, seed: int = 1, events: int = 400, spoiled: int = 1000) -> Figures:
    """Each run has a seed of its own, which a finding names."""
    figures = Figures()
    for number in range(seed, seed + runs):
        rng = random.Random(number)
        connector, form = rng.choice(CONNECTORS), rng.choice([*FORMS])
        # What has no place in the log is told from its repeats by nothing.
        history = rng.random() < 0.4 and connector != "another"
        with tempfile.TemporaryDirectory() as folder:
            one = _Run(rng, connector, form, Path(folder, "t"), history, figures)
            where = f"seed {number} ({connector}, {form}{', history' if history else ''})"
            found = [*one.run(events), *decode_spoiled(rng, spoiled)]
            figures.wrong += [f"{where}: {sentence}" for sentence in found]
        figures.spoiled += spoiled
        figures.count_run()
        figures.connectors[connector] += 1
        figures.forms[form] += 1
    return figures
