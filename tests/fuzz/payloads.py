"""Hostile payloads in every format, framed and compressed, among good ones.

No exception leaves a decoder, no row is lost, and good rows have their values whatever is beside
them. Every format is tried with every framing, compression and further option that goes with it.
`--only debezium` tries the variants whose names have this word.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from tests.payloads.avro_schemas import EPOCH, in_spark, payload_schema, written
from tests.payloads.test_framing import Registry, batch, confluent, packed
from tests.payloads.test_protobuf import ORDER, SOURCE, Order, as_row
from tests.support import campaign

from jetspark.payloads.decoder import REASON
from jetspark.payloads.decoding import Decoding
from jetspark.payloads.framing import Framing
from jetspark.payloads.schema import PayloadSchema
from jetspark.payloads.tolerant import CORRUPT


def _record(name: str, **types: Any) -> dict[str, Any]:
    fields = [{"name": one, "type": kind} for one, kind in types.items()]
    return {"type": "record", "name": name, "fields": fields}


AVRO: Any = _record(
    "R",
    i="int",
    s=["null", "string"],
    e={"type": "enum", "name": "E", "symbols": ["A", "B"]},
    a={"type": "array", "items": "string"},
    m={"type": "map", "values": ["null", "long"]},
    u=["null", "int", "string", {"type": "array", "items": "double"}],
    d={"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
    r=["null", _record("In", y=["null", "string"], z={"type": "array", "items": ["null", "E"]})],
    b="boolean",
    f={"type": "fixed", "name": "F", "size": 4},
    t={"type": "long", "logicalType": "timestamp-millis"},
    x="float",
)
_BATCH = 200
_ODD = bytes([0xFF, 0x80, 0x7F, 0, 1, 2])
_COLUMNS: Final = (
    "id BIGINT, t STRING, d DATE, at TIMESTAMP, x DOUBLE, n DECIMAL(10, 2), b BINARY, i TINYINT"
)
_BOMB_BYTES: Final = 24 << 20
Pairs = dict[str, str]
Message = tuple[bytes, Pairs, dict[str, Any]]
Encode = Callable[[bytes], tuple[bytes, Pairs]]


@dataclass(frozen=True)
class _Kind:
    name: str
    decoding: Decoding
    good: list[Message]
    """Payloads out of their packing, with their headers and rows."""
    pack: list[Encode]
    """What is put around a payload, the innermost first."""
    in_json: bool = False


# -- good payloads ---------------------------------------------------------------------------------


def _avro_rows(rng: random.Random) -> Iterator[dict[str, Any]]:
    for number in range(100):
        yield {
            "i": rng.randrange(-(2**31), 2**31),
            "s": rng.choice([None, ("string", "é" * rng.randrange(9))]),
            "e": rng.choice("AB"),
            "a": ["q" * rng.randrange(4)] * rng.randrange(4),
            "m": {str(key): ("long", key) for key in range(rng.randrange(3))},
            "u": rng.choice([None, ("int", 5), ("string", "t"), ("array", [0.5])]),
            "d": Decimal(number).scaleb(-2),
            "r": rng.choice([None, ("In", {"y": None, "z": [None, ("E", "A")]})]),
            "b": True,
            "f": b"abcd",
            "t": number,
            "x": 0.5,
        }


def _orders(rng: random.Random) -> Iterator[Any]:
    for number in range(100):
        found = Order(f_int64=number, f_string="é", kind=5, f_bytes=b"\xff", f_double=0.5)
        found.packed.extend(range(rng.randrange(4)))
        found.parts.add(y=number, s="x")
        found.by_name["k"].deep.z = number
        found.at.FromDatetime(EPOCH.replace(tzinfo=None))
        yield found


def _json_row(number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """An object of JSON with `_COLUMNS`, and its row."""
    given = {
        "id": number,
        "t": "é" * (number % 5),
        "d": "2026-01-31",
        "at": "1970-01-01T00:00:00.000001Z",
        "x": number / 2,
        "n": "1.25",
        "b": "YWI=",
        "i": number % 128,
    }
    row = {**given, "d": date(2026, 1, 31), "at": EPOCH + timedelta(microseconds=1)}
    return given, row | {"n": Decimal("1.25"), "b": b"ab"}


def _attributes(number: int) -> dict[str, str]:
    return {"specversion": "1.0", "id": str(number), "source": "/s", "type": "t"}


def _events(number: int) -> Iterator[Message]:
    """An event in both modes."""
    given, row = _json_row(number)
    attributes = _attributes(number)
    row = row | {f"ce_{name}": value for name, value in attributes.items()}
    yield json.dumps({**attributes, "data": given}).encode(), {}, row
    headers = {f"ce-{name}": value for name, value in attributes.items()}
    headers["Content-Type"] = "Application/JSON"
    yield json.dumps(given).encode(), headers, row


def _changes(number: int) -> Iterator[Message]:
    """A change of a row in both forms."""
    given, row = _json_row(number)
    source = {"table": "T", "lsn": number + 1, "ts_ms": 5, "connector": "postgresql"}
    whole = {"op": "c", "before": None, "after": given, "source": source, "ts_ms": 5}
    yield json.dumps(whole).encode(), {}, row | {"__op": "c", "__table": "T"}
    flat = {**given, "__op": "u", "__table": "T", "__lsn": number + 1}
    yield json.dumps(flat).encode(), {}, row | {"__op": "u", "__table": "T"}


# -- every format with every option ----------------------------------------------------------------


def _plain(payload: bytes) -> tuple[bytes, Pairs]:
    return payload, {}


def _compress(name: str, *, by_header: bool) -> Encode:
    headers = {"Content-Encoding": name.upper()} if by_header else {}
    return lambda payload: (packed(name, payload), headers)


def _framings(kind: str) -> Iterator[tuple[str, Encode]]:
    path, ref = (b"\x02\x02", b"\x0c\n\x0ashop.Order") if kind == "protobuf" else (b"", b"")
    yield "none", _plain
    yield "confluent", lambda payload: (confluent(0, path + payload), {})
    yield "apicurio", lambda payload: (bytes(9) + ref + payload, {})
    if kind == "avro":
        named = {"Nats-Schema": "R", "Nats-Schema-Version": "1"}
        yield "nats", lambda payload: (payload, named)


def _variants(rng: random.Random) -> Iterator[_Kind]:
    avro = payload_schema(AVRO)
    rows: list[Message] = [(written(AVRO, row), {}, in_spark(AVRO, row)) for row in _avro_rows(rng)]
    orders: list[Message] = [(one.SerializeToString(), {}, as_row(one)) for one in _orders(rng)]
    for name, schema, good in (("avro", avro, rows), ("protobuf", ORDER, orders)):
        for framing, frame in _framings(name):
            for how, compress in _compressions():
                registry = Registry(schema, schema) if framing != "none" else None
                around = Framing(framing, how, with_message=name == "protobuf")
                made = Decoding(schema, around, lookup=registry, keep_payload=rng.random() < 0.5)
                yield _Kind(f"{name}, {framing}, {how}", made, good, [frame, compress])
    some = {"avro": ("s", "d"), "protobuf": ("f_int64", "f_string")}
    for name, schema, good in (("avro", avro, rows), ("protobuf", ORDER, orders)):
        kept: list[Message] = [
            (one, {}, {field: row[field] for field in some[name]}) for one, _, row in good
        ]
        around = Framing(with_message=name == "protobuf")
        yield _Kind(f"{name}, fields", Decoding(schema, around, some[name]), kept, [])
    for how, compress in _compressions():
        for schema_of_data in ("", _COLUMNS):
            given = PayloadSchema("cloudevents", schema_of_data)
            events = [one for number in range(50) for one in _events(number)]
            if not schema_of_data:
                events = [
                    (one, more, {name: row[name] for name in row if name.startswith("ce_")})
                    for one, more, row in events
                ]
            made = Decoding(given, Framing(compression=how))
            name = f"cloudevents, {how}, {schema_of_data[:2]}"
            yield _Kind(name, made, events, [compress], in_json=True)
        changes = [one for number in range(50) for one in _changes(number)]
        made = Decoding(PayloadSchema("debezium", _COLUMNS), Framing(compression=how))
        yield _Kind(f"debezium, {how}", made, changes, [compress], in_json=True)
        framed = replace(made, framing=Framing("confluent", how))
        frame = dict(_framings("debezium"))["confluent"]
        yield _Kind(f"debezium, confluent, {how}", framed, changes, [frame, compress], in_json=True)
    for text, data in ((json.dumps(AVRO), rows), (SOURCE, orders)):
        is_avro = text.startswith("{")
        given = PayloadSchema("cloudevents", text, "" if is_avro else "Order")
        content = {"Content-Type": f"application/{'Avro' if is_avro else 'x-protobuf'}"}
        named = {f"ce-{name}": value for name, value in _attributes(1).items()} | content
        events = [(one, named, row | {"ce_id": "1"}) for one, _, row in data]
        yield _Kind(f"cloudevents, {given.name}", Decoding(given, Framing()), events, [])


def _compressions() -> Iterator[tuple[str, Encode]]:
    yield "none", _plain
    for name in ("gzip", "zstd", "snappy"):
        yield name, _compress(name, by_header=False)
        yield "header", _compress(name, by_header=True)


# -- hostile ones ----------------------------------------------------------------------------------

_VALUES: Final = [
    b"null", b"0", b"-0", b"1e999", b"-1e-999", b"9" * 5000, b"1e400000", b"NaN", b"-Infinity",
    b"9223372036854775808", b"-129", b'"1_000"', b"20000", b'"12:30:00"', b'"infinity"',
    b'"0000-00-00"', b'"+10000-01-01T00:00:00Z"', b'"2026-01-31t12:00:00z"', b'"\\ud800"',
    b'"\\udfff\\ud800"', b'"\\u0000"', b'"\xed\xa0\x80"', b'"\xff"', b"[" * 5000,
    b"[" * 990 + b"]" * 990, b'{"a":' * 300 + b"1" + b"}" * 300, b"[[null, 1]]", b'{"":{}}',
    b"true", b"[]", b"{}", b'""', b'"' + b"x" * 10_000 + b'"', b"1.005", b"'single'",
]  # fmt: skip
_NAMES: Final = [
    *("id", "t", "d", "at", "x", "n", "b", "i", "op", "source", "before", "after", "ts_ms"),
    *("schema", "payload", "data", "data_base64", "time", "datacontenttype", "specversion", "type"),
    *("lsn", "file", "pos", "row", "ord", "scn", "commit_lsn", "change_lsn", "rs_id", "ssn"),
    *("__op", "__deleted", "__table", "__source_file", "tableChanges", "ddl", "\\ud800", "status"),
    *("transaction", "fields", "field", "name", "parameters", "scale", "databaseName"),
]  # fmt: skip
_HEADERS: Final = [
    *("Content-Encoding", "Content-Type", "Nats-Schema", "Nats-Schema-Version", "ce-specversion"),
    *("ce-id", "ce-time", "ce-", "ce-\u017f", "CE-TYPE", "\ufffd"),
]  # fmt: skip
_TEXTS: Final = [
    *("", "0", "1", "-1", "9" * 5000, "\u0663", "1.0", "gzip", "zstd", "snappy", "br", "x" * 5000),
    *("gzip, gzip", "application/cloudevents+json", "application/json", "R", "%ff", "\ufffd", ".."),
    *("\x00", "2026-01-31T12:00:00Z", "9999-12-31T23:59:59-01:00"),
]  # fmt: skip


def _spoiled(rng: random.Random, payload: bytes) -> bytes:
    found = bytearray(payload or b"\0")
    match rng.randrange(6):
        case 0:
            found[rng.randrange(len(found))] = rng.randrange(256)
        case 1:
            del found[rng.randrange(len(found)) :]
        case 2:
            at = rng.randrange(len(found))
            found[at:at] = bytes(rng.choices(_ODD, k=rng.randrange(1, 11)))
        case 3:
            found += rng.randbytes(rng.randrange(1, 9))
        case 4:
            return rng.randbytes(rng.randrange(40))
        case _:
            at = rng.randrange(len(found))
            found[at:at] = found[rng.randrange(len(found)) :] * rng.randrange(1, 4)
    return bytes(found)


def _hostile_json(rng: random.Random, payload: bytes) -> bytes:
    """The document with other values, at any depth."""
    match rng.randrange(4):
        case 0:
            return rng.choice(_VALUES)
        case 1:
            return _document(rng, 3)
    whole = json.loads(payload)
    here = whole
    while (inner := [one for one in here.values() if isinstance(one, dict)]) and rng.random() < 0.6:
        here = rng.choice(inner)
    mark = "\u2603"
    for _ in range(rng.choice([1, 1, 2])):
        here[rng.choice([*here, *_NAMES]) if here else rng.choice(_NAMES)] = mark
    text = json.dumps(whole, ensure_ascii=False).encode()
    quoted = f'"{mark}"'.encode()
    while quoted in text:
        value = rng.choice(_VALUES) if rng.random() < 0.8 else _document(rng, 2)
        text = text.replace(quoted, value, 1)
    return text


def _document(rng: random.Random, depth: int) -> bytes:
    pairs = [
        b'"%s":%s'
        % (
            rng.choice(_NAMES).encode(),
            rng.choice(_VALUES) if depth == 0 or rng.random() < 0.6 else _document(rng, depth - 1),
        )
        for _ in range(rng.randrange(5))
    ]
    return b"{" + b",".join(pairs) + b"}"


def _hostile(
    rng: random.Random, kind: _Kind, payload: bytes, headers: Pairs
) -> tuple[bytes, Pairs]:
    """A message that is damaged within or around, or in its headers."""
    damage = _hostile_json if kind.in_json and rng.random() < 0.7 else _spoiled
    where = rng.randrange(len(kind.pack) + 1)
    headers = dict(headers)
    if rng.random() < 0.7:
        payload, where = damage(rng, payload), -1
    for at, encode in enumerate(kind.pack):
        payload, more = encode(payload)
        headers |= more
        if at == where:
            payload = _spoiled(rng, payload)
    if rng.random() < 0.2:
        headers[rng.choice(_HEADERS)] = rng.choice(_TEXTS)
    if rng.random() < 0.0005 and kind.pack:
        payload = kind.pack[-1](bytes(_BOMB_BYTES))[0]
    return payload, headers


@dataclass
class Figures(campaign.Figures):
    rows: int = 0


def run(runs: int = 1_000_000, seed: int = 0, only: str = "") -> Figures:
    """A run is a payload; they come by batches."""
    rng, figures = random.Random(seed), Figures()
    kinds = campaign.those_named(only, _variants(rng), lambda kind: kind.name)
    decoders = [(kind.decoding.decoder(), kind) for kind in kinds]
    for number in range(-(-runs // _BATCH)):
        decoder, kind = decoders[number % len(decoders)]
        chosen = [rng.choice(kind.good) for _ in range(_BATCH)]
        hit = {rng.randrange(_BATCH) for _ in range(rng.choice([0, 1, 5, 100]))}
        messages = []
        for at, (payload, headers, _) in enumerate(chosen):
            if at in hit:
                messages.append(_hostile(rng, kind, payload, headers))
                continue
            for encode in kind.pack:
                payload, more = encode(payload)
                headers = headers | more
            messages.append((payload, headers))
        try:
            figures.rows += _check(decoder, kind, messages, [row for _, _, row in chosen], hit)
        except Exception as error:
            figures.wrong.append(f"batch {number}, {kind.name}: {error!r}")
        figures.count_run(_BATCH)
    return figures


def _check(
    decoder: Any,
    kind: _Kind,
    messages: list[tuple[bytes, Pairs]],
    expected: list[dict[str, Any]],
    hit: set[int],
) -> int:
    """Decode a batch. How many of its messages became rows."""
    given = batch([payload for payload, _ in messages], [headers for _, headers in messages])
    parts = list(decoder.decode_in_parts(given))
    seen: list[int] = []
    good = 0
    for part in parts:
        part.validate(full=True)
        assert part.schema == decoder.decoded_schema(given.schema)
        places = part.column("seq").to_pylist()
        seen += places
        reasons = part.column(REASON).to_pylist()
        payloads = part.column(CORRUPT).to_pylist()
        good += reasons.count(None)
        if kind.decoding.keep_payload:
            assert part.column("data").to_pylist() == [messages[at][0] for at in places]
        for at, reason, payload in zip(places, reasons, payloads, strict=True):
            assert (payload is None) is (reason is None)
            if reason is not None and not kind.decoding.is_json:
                assert payload == messages[at][0]
            assert at in hit or reason is None, reason
        rows = [row for row, at in enumerate(places) if at not in hit]
        names = list(expected[0])
        found = part.select(names).take(pa.array(rows, pa.int64())).to_pylist()
        assert found == [expected[places[row]] for row in rows]
    assert seen == sorted(set(seen))
    missing = set(range(len(messages))) - set(seen)
    assert missing <= (hit if "debezium" in kind.name else set())
    return good
