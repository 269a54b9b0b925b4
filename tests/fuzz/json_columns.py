"""Hostile JSON beside good records.

Each batch has a schema, flat or nested, and options: frames, compression, chosen fields, other
names, the rest of each object and the columns that new fields need. No payload raises, each good
record has the values that it has alone, each bad one a reason, and memory stays bounded.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from tests.support.campaign import Figures
from tests.support.json_payloads import SCHEMAS, Kind, payload

from jetspark.payloads.decoder import REASON
from jetspark.payloads.decoding import Decoding
from jetspark.payloads.field_names import FieldNames
from jetspark.payloads.json_shape import Shape
from jetspark.payloads.unknown_fields import find_unknown, known_fields, new_columns
from jetspark.ranges.arrow import SCHEMA
from jetspark.spark.table_sink.schema_evolution import SchemaChange

_ROWS = 100
_DEEP = 5_000
_VALUES = [
    *(b"\xff", b'"\xed\xa0\x80"', b'"\\ud800"', b"1" * 4301, b"-" + b"9" * 400, b"0e99999999999"),
    *(b"1e400", b"-1e-400", b"[[null, 1]]", b'{"a": [{"b": {}}]}', b'{"": 1}', b'{"\\u0000": 1}'),
    *(b"[" * _DEEP + b"]" * _DEEP, b'{"a":' * _DEEP + b"1" + b"}" * _DEEP, b"[" * _DEEP),
    *(b'"9999-12-31T23:59:59-18:00"', b'"0001-01-01T00:00:00+18:00"', b'"infinity"', b"NaN"),
    *(b"[" + b"1," * 2_000 + b"1]", b'"' + b"x" * 70_000 + b'"', b'{"a":1,"a":2}', b"-Infinity"),
]
_NAMES = [b"id", b"t", b"data", b"timestamp", b"_jetspark_x", b"a b", b"\\ud800", b"", b"N" * 2_000]


def hostile(rng: random.Random, kinds: Mapping[str, Kind]) -> bytes:
    """A payload of anybody."""
    if rng.random() < 0.6:
        return payload(rng, kinds)
    parts = [
        b'"%s": %s' % (rng.choice([*_NAMES, *map(str.encode, kinds)]), rng.choice(_VALUES))
        for _ in range(rng.randint(1, 4))
    ]
    return b"{" + b", ".join(parts) + b"}"


def run(runs: int = 100_000, seed: int = 0) -> Figures:
    """A run is a payload; they come by hundreds."""
    figures = Figures()
    for turn in range(-(-runs // _ROWS)):
        rng = random.Random(f"{seed} {turn}")
        types, kinds = SCHEMAS[turn % len(SCHEMAS)]
        ddl = ", ".join(f"`{name}` {kind}" for name, kind in types.items()) + ", id BIGINT"
        rename = {"id": "number", "data": "body"} if rng.random() < 0.5 else None
        how: dict[str, Any] = {
            "fields": rng.choice([(), ("id", "t")]),
            "compression": rng.choice(["none", "gzip"]),
            "framing": rng.choice(["none", "confluent"]),
        }
        decoding = Decoding.make("json", schema=ddl, rename=rename, keep_payload=True, **how)
        good = {at: b'{"id": %d}' % at for at in range(0, _ROWS, 10)}
        rows = [good.get(at) or hostile(rng, kinds) for at in range(_ROWS)]
        packed = [b"\0\0\0\0\1" + one if how["framing"] == "confluent" else one for one in rows]
        if how["compression"] == "gzip":
            packed = [gzip.compress(one, 1) for one in packed]
        headers = pa.nulls(_ROWS, SCHEMA.field("headers").type)
        batch = pa.record_batch({"data": pa.array(packed, pa.binary()), "headers": headers})
        figures.wrong += [f"{seed} {turn}: {one}" for one in _wrong(decoding, batch, good, rows)]
        figures.count_run(_ROWS)
    return figures


def _wrong(
    decoding: Decoding, batch: pa.RecordBatch, good: dict[int, bytes], rows: list[bytes]
) -> list[str]:
    wrong = []
    try:
        found = decoding.decoder().decode_batch(batch)
        found.validate(full=True)
        numbers = found.column(decoding.names.column("id")).to_pylist()
        reasons = found.column(REASON).to_pylist()
        wrong += [f"row {at}" for at in good if (numbers[at], reasons[at]) != (at, None)]
        known = known_fields(decoding.schema.text)
        growth, shape = SchemaChange(), Shape()
        for row in rows:
            rest = find_unknown(row, known)
            pa.array([rest], pa.string())
            growth.add_fields([new_columns(row, known, decoding.names)], FieldNames().taken)
            shape.add(row)
        if ddl := shape.schema()[0]:
            sample = Decoding.make("json", schema=ddl).decoder().decode_batch(batch.slice(0, 1))
            sample.validate(full=True)
    except Exception as error:
        wrong.append(repr(error)[:300])
    return wrong
