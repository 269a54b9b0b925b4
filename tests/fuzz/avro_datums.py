"""Datums of Avro, many of them damaged: the kernel makes of them what the plain decoder does.

Each hundred has a schema drawn from the seed, and sometimes a later one for the reader. Undamaged
datums, which fastavro writes, have their values. With `--sanitize` the C kernel is first built with
sanitizers; it decodes damaged forms of each datum, and nothing is compared.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.fuzz.sanitized import VARIANTS, Decoder, c_kernel
from tests.payloads.avro_schemas import (
    LOGICAL,
    Schema,
    in_spark,
    named,
    payload_schema,
    record,
    written,
)
from tests.support import campaign
from tests.support.damage import BINARY, damaged

_ROWS = 100
_SIMPLE = ("boolean", "int", "long", "float", "double", "string", "bytes")


@dataclass
class Figures(campaign.Figures):
    """What was decoded."""

    decoded: int = 0


def a_type(rng: random.Random, depth: int = 0) -> Schema:
    """A type, nested."""
    kind = rng.randrange(13 if depth < 4 else 7)
    if kind < 3:
        return rng.choice(_SIMPLE)
    if kind < 5:
        return rng.choice(LOGICAL)
    if kind == 5:
        return named("enum", symbols=["A", "B", "C"])
    if kind == 6:
        return named("fixed", size=rng.choice([1, 3, 16]))
    below = [a_type(rng, depth + 1) for _ in range(rng.randint(1, 3))]
    if kind < 9:
        return {"type": "array", "items": below[0]}
    if kind == 9:
        return {"type": "map", "values": below[0]}
    if kind == 10:
        return record(below)
    parts = {_branch(one): one for one in below if not isinstance(one, list)}
    return [*parts.values(), "null"] if parts and rng.random() < 0.5 else ["null", *parts.values()]


def _branch(schema: Schema) -> str:
    return schema if isinstance(schema, str) else str(schema.get("name", schema["type"]))


def a_value(rng: random.Random, schema: Schema) -> Any:
    """A value, as fastavro writes it."""
    if isinstance(schema, list):
        one = rng.choice(schema)
        return None if one == "null" else (_branch(one), a_value(rng, one))
    kind = schema if isinstance(schema, str) else schema["type"]
    logical = "" if isinstance(schema, str) else schema.get("logicalType", "")
    count = rng.choice([0, 1, 2, 3, 70])
    match kind:
        case "record":
            return {one["name"]: a_value(rng, one["type"]) for one in schema["fields"]}
        case "array":
            return [a_value(rng, schema["items"]) for _ in range(count % 5)]
        case "map":
            return {f"k{at}": a_value(rng, schema["values"]) for at in range(count % 5)}
        case "enum":
            return rng.choice(schema["symbols"])
        case "fixed":
            return rng.randbytes(schema["size"])
        case "boolean":
            return rng.random() < 0.5
        case "int":
            return rng.randrange(2_000_000) if logical else rng.choice([0, -1, 64, -(2**31)])
        case "long":
            return rng.randrange(2**40) if logical else rng.choice([0, -1, 2**14, 2**63 - 1])
        case "float" | "double":
            return rng.choice([0.0, -0.0, 1.5, float("inf")])
        case "string":
            return rng.choice("aé😀") * count
    if logical == "decimal":
        return Decimal(rng.randrange(-(10**11), 10**11)).scaleb(-schema["scale"])
    return rng.randbytes(count)


def run(runs: int = 1_000_000, seed: int = 0, sanitize: bool = False) -> Figures:
    """A run is a datum; they come by hundreds."""
    kernel = c_kernel(sanitize=sanitize)
    in_kernel = Decoder(kernel, "avro_columns") if sanitize else None
    import pyarrow as pa

    from jetspark.payloads.avro import AvroDecoder
    from jetspark.payloads.avro_schema import fields_of

    figures = Figures()
    for turn in range(-(-runs // (_ROWS * (VARIANTS if sanitize else 1)))):
        rng = random.Random(f"{seed} {turn}")
        writer = record([a_type(rng) for _ in range(rng.randint(1, 5))])
        schema = payload_schema(writer)
        fields = fields_of(schema)
        names = rng.sample(fields.names, rng.randint(1, len(fields)))
        rows = [a_value(rng, writer) for _ in range(_ROWS)]
        good = [written(writer, row) for row in rows]
        datums = [one if rng.random() < 0.5 else damaged(rng, one) for one in good]
        decoder = AvroDecoder(schema, schema, names)
        payloads = pa.array(datums, pa.binary())
        columns, reasons = decoder.decode(payloads)
        if in_kernel is not None:
            figures.count_run(in_kernel.decode_damaged(rng, good, BINARY))
            continue
        for column in columns:
            column.validate(full=True)
        figures.decoded += reasons.null_count
        figures.count_run(_ROWS)
        plain, why = decoder.decode_plainly(payloads)
        same = repr([one.to_pylist() for one in columns]) == repr(
            [one.to_pylist() for one in plain]
        )
        if not same or why != reasons:
            figures.wrong.append(f"{seed} {turn}: the plain decoder differs")
        found = pa.RecordBatch.from_arrays(columns, names).to_pylist()
        for row, datum, whole, columns_of_row in zip(rows, datums, good, found, strict=True):
            expected = in_spark(writer, row)
            if datum == whole and columns_of_row != {name: expected[name] for name in names}:
                figures.wrong.append(f"{seed} {turn}: {columns_of_row} for {row}")
    return figures
