"""Damaged payloads in Avro and Protobuf, framed and compressed, among good ones.

`python -m tests.fuzz.payloads 1000000 --seed 1`: no payload ends the process, no row is lost, and
the good rows have their values whatever is beside them.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
from tests.codecs.avro_schemas import EPOCH, in_spark, payload_schema, written
from tests.codecs.test_framing import Registry, confluent, packed
from tests.codecs.test_protobuf import ORDER, Order, as_row

from jetspark.codecs.decoder import REASON
from jetspark.codecs.decoding import Decoding
from jetspark.codecs.framing import Framing

AVRO: Any = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "i", "type": "int"},
        {"name": "s", "type": ["null", "string"]},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "a", "type": {"type": "array", "items": "string"}},
        {"name": "m", "type": {"type": "map", "values": ["null", "long"]}},
        {"name": "u", "type": ["null", "int", "string", {"type": "array", "items": "double"}]},
        {
            "name": "d",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        },
        {
            "name": "r",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "In",
                    "fields": [
                        {"name": "y", "type": ["null", "string"]},
                        {"name": "z", "type": {"type": "array", "items": ["null", "E"]}},
                    ],
                },
            ],
        },
        {"name": "b", "type": "boolean"},
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 4}},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "x", "type": "float"},
    ],
}
_BATCH = 200
_ODD = bytes([0xFF, 0x80, 0x7F, 0, 1, 2])


@dataclass(frozen=True)
class _Kind:
    decoding: Decoding
    good: list[tuple[bytes, dict[str, Any]]]
    """Payloads, and their rows."""


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


def _kinds(rng: random.Random) -> Iterator[_Kind]:
    schema = payload_schema(AVRO)
    plain = [(written(AVRO, row), in_spark(AVRO, row)) for row in _avro_rows(rng)]
    yield _Kind(Decoding(schema, Framing()), plain)
    framed = [(confluent(0, payload), row) for payload, row in plain]
    yield _Kind(Decoding(schema, Framing("confluent"), lookup=Registry(AVRO)), framed)
    for name in ("gzip", "zstd", "snappy"):
        small = [(packed(name, payload), row) for payload, row in plain]
        yield _Kind(Decoding(schema, Framing(compression=name)), small)
    orders = [(one.SerializeToString(), as_row(one)) for one in _orders(rng)]
    yield _Kind(Decoding(ORDER, Framing(with_message=True)), orders)
    with_path = [(confluent(0, b"\x02\x02" + payload), row) for payload, row in orders]
    how = Framing("confluent", with_message=True)
    yield _Kind(Decoding(ORDER, how, lookup=Registry(ORDER)), with_path)


def _damaged(rng: random.Random, payload: bytes) -> bytes:
    found = bytearray(payload)
    match rng.randrange(5):
        case 0:
            found[rng.randrange(len(found))] = rng.randrange(256)
        case 1:
            del found[rng.randrange(len(found)) :]
        case 2:
            at = rng.randrange(len(found))
            found[at:at] = bytes(rng.choices(_ODD, k=rng.randrange(1, 11)))
        case 3:
            found += rng.randbytes(rng.randrange(1, 9))
        case _:
            return rng.randbytes(rng.randrange(40))
    return bytes(found)


def fuzz(count: int, seed: int = 0) -> int:
    """So many payloads; how many of them became rows."""
    rng = random.Random(seed)
    decoders: list[tuple[Callable[[pa.RecordBatch], pa.RecordBatch], _Kind]] = [
        (kind.decoding.decoder().of, kind) for kind in _kinds(rng)
    ]
    rows = 0
    for number in range(count // _BATCH):
        decode, kind = decoders[number % len(decoders)]
        chosen = [rng.choice(kind.good) for _ in range(_BATCH)]
        damage = partial(_damaged, rng)
        hit = {rng.randrange(_BATCH) for _ in range(rng.choice([0, 1, 5, 100]))}
        payloads = [damage(one) if at in hit else one for at, (one, _) in enumerate(chosen)]
        found = decode(pa.record_batch({"data": pa.array(payloads, pa.binary())}))
        found.validate(full=True)
        assert found.num_rows == _BATCH
        left = found.column("data").to_pylist()
        reasons = found.column(REASON).to_pylist()
        for at, (payload, reason) in enumerate(zip(payloads, reasons, strict=True)):
            assert left[at] == (None if reason is None else payload)
            assert at in hit or reason is None, reason
        good = [at for at in range(_BATCH) if at not in hit]
        names = list(chosen[0][1])
        assert found.select(names).take(good).to_pylist() == [chosen[at][1] for at in good]
        rows += reasons.count(None)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"{fuzz(options.count, options.seed):,} of {options.count:,} payloads became rows.")
