"""A table of a database under random changes, what Debezium says of them, and a replay of both.

Written from Debezium's documentation of its connectors and of ExtractNewRecordState.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

TABLE: Final = "orders"
PREFIX: Final = "shop"
SUBJECT: Final = f"{PREFIX}.public.{TABLE}"
DDL: Final = "id BIGINT, customer STRING, amount DECIMAL(10,2), changed TIMESTAMP_NTZ"
_MOMENT = 1_790_000_000_000_000  # microseconds

_ROW: Final[list[dict[str, Any]]] = [
    {"type": "int64", "optional": False, "field": "id"},
    {"type": "string", "optional": True, "field": "customer"},
    {
        "type": "bytes", "optional": True, "name": "org.apache.kafka.connect.data.Decimal",
        "version": 1, "parameters": {"scale": "2", "connect.decimal.precision": "10"},
        "field": "amount",
    },
    {
        "type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp",
        "version": 1, "field": "changed",
    },
]  # fmt: skip


def _struct(name: str, *, side: str) -> dict[str, Any]:
    return {"type": "struct", "fields": _ROW, "optional": True, "name": name, "field": side}


ENVELOPE_SCHEMA: Final[dict[str, Any]] = {
    "type": "struct",
    "fields": [
        _struct(f"{SUBJECT}.Value", side="before"),
        _struct(f"{SUBJECT}.Value", side="after"),
        {
            "type": "struct",
            "fields": [{"type": "string", "optional": False, "field": "connector"}],
            "optional": False,
            "name": "io.debezium.connector.postgresql.Source",
            "field": "source",
        },
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ],
    "optional": False,
    "name": f"{SUBJECT}.Envelope",
    "version": 2,
}
FLAT_SCHEMA: Final[dict[str, Any]] = {
    "type": "struct",
    "fields": [*_ROW, {"type": "string", "optional": True, "field": "__op"}],
    "optional": False,
    "name": f"{SUBJECT}.Value",
}

WITHOUT_PLACE: Final[dict[str, dict[str, Any]]] = {
    "postgresql": {"lsn": None, "txId": None},
    "mysql": {"file": "", "pos": 0, "row": 0},
    "mysql-compressed": {"file": "", "pos": 0, "row": 0},
    "sqlserver": {"commit_lsn": None, "change_lsn": None, "event_serial_no": None},
    "oracle": {"scn": None, "commit_scn": None},
    "mongodb": {"ord": None},
}
"""What `source` has in an event of an incremental snapshot, by connector."""

FREE_PLACES: Final = 6
"""In the log before a snapshot."""

Row = Mapping[str, Any]
"""As the database has it: an int, a text, a Decimal, and microseconds."""


def in_json(row: Row | None) -> dict[str, Any] | None:
    """The row's values as Debezium's JSON converter writes them."""
    if row is None:
        return None
    if row.get("amount") is None:
        return dict(row)
    cents = int(row["amount"].scaleb(2))
    raw = cents.to_bytes(cents.bit_length() // 8 + 1, "big", signed=True)
    return {**row, "amount": base64.b64encode(raw).decode()}


@dataclass(frozen=True)
class Change:
    """One event of a table's log."""

    op: str
    place: int
    """In the log; an update of a key is two events at one place."""
    time: int
    """In microseconds."""
    before: Row | None = None
    after: Row | None = None
    incremental: bool = False
    """Of an incremental snapshot, whose events have no place in the log."""

    @property
    def key(self) -> int | None:
        row = self.after or self.before
        return None if row is None else row["id"]

    def source(self, connector: str) -> dict[str, Any]:
        common: dict[str, Any] = {
            "version": "3.2.0.Final", "connector": connector, "name": PREFIX, "table": TABLE,
            "ts_ms": self.time // 1000, "ts_us": self.time,
            "snapshot": "true" if self.op == "r" else "false",
        }  # fmt: skip
        if self.incremental:
            return common | {"snapshot": "incremental"} | WITHOUT_PLACE.get(connector, {})
        match connector:
            case "mysql-compressed":  # all changes of a transaction have one place
                pos = self.place // 12 * 90
                return common | {"file": "binlog.000007", "pos": pos, "row": 0, "gtid": "a:1"}
            case "mongodb":
                order = {"ts_ms": 1000 * (self.place // 3), "ord": self.place % 3 + 1}
                return common | order | {"collection": TABLE}
            case "postgresql":
                return common | {"schema": "public", "lsn": self.place * 8, "txId": self.place // 3}
            case "mysql":
                file, rest = divmod(self.place, 100)
                pos, row = divmod(rest, 4)
                return common | {"file": f"mysql-bin.{file + 95:06}", "pos": pos * 90, "row": row}
            case "sqlserver":
                lsn = f"00000027:{self.place // 2:08x}"
                return common | {
                    "commit_lsn": f"{lsn}:0005", "change_lsn": f"{lsn}:0003",
                    "event_serial_no": self.place % 2 + 1,
                }  # fmt: skip
            case "oracle":
                return common | {
                    "scn": str(10**10 + self.place // 3), "commit_scn": str(10**10 + self.place),
                    "rs_id": f" 0x{self.place:06x}.00000c6e.0010 ", "ssn": 0,
                }  # fmt: skip
        return common

    def in_cloud_event(self, connector: str) -> bytes:
        """The message in the format of Debezium's CloudEventsConverter."""
        source = {"op": self.op} | self.source(connector)
        attributes = {
            f"iodebezium{name.replace('_', '').lower()}": None if one is None else str(one)
            for name, one in source.items()
        }
        event = {
            "id": f"name:{PREFIX};place:{self.place}", "source": f"/debezium/{connector}/{PREFIX}",
            "specversion": "1.0",
            "type": f"io.debezium.connector.{connector.partition('-')[0]}.DataChangeEvent",
            "datacontenttype": "application/json", **attributes,
            "data": {"before": in_json(self.before), "after": in_json(self.after)},
        }  # fmt: skip
        return json.dumps(event).encode()

    def payload(self, connector: str, *, schema: bool = True, flat: bool = False) -> bytes:
        """The message that Debezium Server's sink for JetStream publishes."""
        source = self.source(connector)
        value: dict[str, Any] = {
            "before": in_json(self.before), "after": in_json(self.after), "source": source,
            "op": self.op, "ts_ms": self.time // 1000 + 5,
        }  # fmt: skip
        if flat:
            marks = {f"__source_{name}": one for name, one in source.items() if name != "table"}
            value = {
                **(in_json(self.after or self.before) or {}), **marks, "__op": self.op,
                "__table": TABLE, "__deleted": str(self.op == "d").lower(),
            }  # fmt: skip
        if schema:
            value = {"schema": FLAT_SCHEMA if flat else ENVELOPE_SCHEMA, "payload": value}
        return json.dumps(value).encode()


@dataclass
class Database:
    """One table, and its log."""

    rng: random.Random
    keys: int = 12
    rows: dict[int, Row] = field(default_factory=dict)
    log: list[Change] = field(default_factory=list)
    _place: int = 1000
    _time: int = _MOMENT

    def change(self, *, truncates: float = 0.01) -> None:
        """One statement: an insert, an update, one of the key, a delete, or a truncate."""
        self._place += self.rng.randint(1, 3)
        self._time += self.rng.choice((0, 1_000, 250_000))
        key, chance = self.rng.randrange(self.keys), self.rng.random()
        if chance < truncates:  # in no transaction with other changes
            self._place += 12 - self._place % 12
            self._note("t")
            self._place += 12
            self.rows.clear()
        elif key not in self.rows:
            self._put("c", key)
        elif chance < 0.25:
            self._note("d", before=self.rows.pop(key))
        elif chance < 0.35 and (other := self.rng.randrange(self.keys)) not in self.rows:
            self._note("d", before=self.rows.pop(key))
            self._put("c", other)
        else:
            self._put("u", key)

    def snapshot(self) -> None:
        """All rows, as they are. Some places before it are free."""
        self._place += FREE_PLACES + 1
        for row in self.rows.values():
            self._note("r", after=row)

    def _put(self, op: str, key: int) -> None:
        row = {
            "id": key,
            "customer": self.rng.choice(("ann", "bób", None)),
            "amount": Decimal(self.rng.randrange(-(10**6), 10**6)).scaleb(-2),
            "changed": self._time,
        }
        self._note(op, before=self.rows.get(key), after=row)
        self.rows[key] = row

    def _note(self, op: str, before: Row | None = None, after: Row | None = None) -> None:
        self.log.append(Change(op, self._place, self._time, before, after))


def with_repeats(rng: random.Random, log: Sequence[Change], chance: float) -> Iterator[Change]:
    """The log as it is delivered: now and then Debezium begins again some changes before."""
    at = 0
    while at < len(log):
        yield log[at]
        at += 1
        if rng.random() < chance:
            at = begin_again(rng, log, at)


def begin_again(rng: random.Random, log: Sequence[Change], at: int) -> int:
    """Where Debezium begins after a restart; what it has read in a snapshot is not in the log."""
    begin = max(0, at - rng.randrange(1, 40))
    return max([begin, *(n + 1 for n in range(begin, at) if log[n].op == "r")])


def replay(log: Sequence[Change]) -> dict[int, Row]:
    """The table at the end."""
    rows: dict[int, Row] = {}
    for one in log:
        if one.op == "t":
            rows.clear()
        elif one.op == "d":
            rows.pop(one.key or 0, None)
        elif one.after is not None:
            rows[one.after["id"]] = one.after
    return rows


Version = tuple[int | None, str, int, int | None, Any]
"""Key, operation, valid from and to, and the amount, which a removed row has not. A truncate is a
version without a key, too."""


def replay_history(log: Sequence[Change]) -> list[Version]:
    """All versions of all keys."""
    found: dict[int | None, list[list[Any]]] = {}
    for one in log:
        if one.op == "t":
            found.setdefault(None, []).append(["t", one.time, one.time, None])
            ended = [key for key, rows in found.items() if rows[-1][0] not in "dt"]
        else:
            ended = [one.key]
        for key in ended:
            rows = found.setdefault(key, [])
            if rows and rows[-1][2] is None:
                rows[-1][2] = one.time
            end = one.time if one.op in "dt" else None
            row = one.after or one.before
            rows.append([one.op, one.time, end, None if row is None else row["amount"]])
    return [(key, *one) for key, rows in found.items() for one in rows]
