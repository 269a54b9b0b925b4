"""Messages of Protobuf, many damaged: the kernel makes of them what Protobuf's library does.

It refuses, too, what the library changes: numbers of more than 64 bits, and times with more than a
second of nanoseconds. With `--sanitize` the C kernel is first built with sanitizers; it decodes
damaged forms of each message, and nothing is compared.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from tests.fuzz.sanitized import VARIANTS, Decoder, c_kernel
from tests.support import campaign
from tests.support.damage import BINARY, damaged

_ROWS = 100
_WHOLE = [0, 1, -1, 127, 128, 300, -(2**31), 2**31 - 1]


@dataclass
class Figures(campaign.Figures):
    """What was decoded."""

    decoded: int = 0


def fill(rng: random.Random, message: Any, depth: int = 0) -> None:
    """Give some fields of a message values."""
    for field in message.DESCRIPTOR.fields:
        if rng.random() < 0.4 or (depth > 2 and field.message_type):
            continue
        inner = field.message_type
        several: Any = getattr(message, field.name) if field.is_repeated else None
        if inner is not None and inner.GetOptions().map_entry:
            key = "k" if inner.fields_by_name["key"].type == field.TYPE_STRING else 7
            if inner.fields_by_name["value"].message_type is None:
                several[key] = 5
            else:
                fill(rng, several[key], depth + 1)
        elif inner is not None:
            for _ in range(rng.randrange(3) if field.is_repeated else 1):
                one = several.add() if several is not None else getattr(message, field.name)
                one.SetInParent()
                fill(rng, one, depth + 1)
        elif several is not None:
            several.extend(a_value(rng, field) for _ in range(rng.randrange(4)))
        else:
            setattr(message, field.name, a_value(rng, field))


def a_value(rng: random.Random, field: Any) -> Any:
    """A value of a scalar field."""
    match field.cpp_type:
        case field.CPPTYPE_STRING:
            text = rng.choice("aé😀") * rng.choice([0, 1, 130])
            return text if field.type == field.TYPE_STRING else text.encode()
        case field.CPPTYPE_BOOL:
            return rng.random() < 0.5
        case field.CPPTYPE_DOUBLE | field.CPPTYPE_FLOAT:
            return rng.choice([0.0, 1.5, -0.0, float("inf")])
        case field.CPPTYPE_UINT32 | field.CPPTYPE_UINT64:
            return abs(rng.choice(_WHOLE))
        case field.CPPTYPE_ENUM:
            return rng.choice([0, 5, 77])
    return abs(rng.choice(_WHOLE)) % 1000 if field.name == "nanos" else rng.choice(_WHOLE)


def run(runs: int = 1_000_000, seed: int = 0, sanitize: bool = False) -> Figures:
    """A run is a message; they come by hundreds."""
    kernel = c_kernel(sanitize=sanitize)
    in_kernel = Decoder(kernel, "protobuf_columns") if sanitize else None
    import pyarrow as pa
    from tests.payloads.test_protobuf import ORDER, Order, same

    from jetspark.payloads.protobuf import ProtobufDecoder

    decoder = ProtobufDecoder(ORDER)
    figures = Figures()
    for turn in range(-(-runs // (_ROWS * (VARIANTS if sanitize else 1)))):
        rng = random.Random(f"{seed} {turn}")
        payloads: list[bytes] = []
        is_damaged: list[bool] = []
        for _ in range(_ROWS):
            message = Order()
            fill(rng, message)
            payload = message.SerializeToString()
            if rng.random() < 0.3:  # what comes twice is one, or the last one counts
                fill(rng, message)
                payload += message.SerializeToString()
            is_damaged.append(rng.random() < 0.5)
            payloads.append(damaged(rng, payload) if is_damaged[-1] else payload)
        batch = pa.array(payloads, pa.binary())
        columns, reasons = decoder.decode(batch)
        if in_kernel is not None:
            figures.count_run(in_kernel.decode_damaged(rng, payloads, BINARY))
            continue
        for column in columns:
            column.validate(full=True)
        figures.decoded += reasons.null_count
        figures.count_run(_ROWS)
        plain, why = decoder.decode_plainly(batch)
        found = pa.RecordBatch.from_arrays(columns, decoder.fields.names).to_pylist()
        expected = pa.RecordBatch.from_arrays(plain, decoder.fields.names).to_pylist()
        for row in range(_ROWS):
            reason, other = reasons[row].as_py(), why[row].as_py()
            if reason and not other and "out of range" in reason:
                continue
            if (reason is None) != (other is None) or not same(
                comparable(found[row], is_damaged[row]), comparable(expected[row], is_damaged[row])
            ):
                figures.wrong.append(f"{seed} {turn} {row}: {reason}, {other}")
    return figures


def comparable(row: Any, is_damaged: bool) -> Any:
    """The row with the last value of each key of a map, in any order. Without the maps of damaged
    messages: the library leaves out entries with unknown fields."""
    if isinstance(row, dict):
        return {key: comparable(value, is_damaged) for key, value in row.items()}
    if isinstance(row, list) and row and isinstance(row[0], tuple):
        pairs = {key: comparable(value, is_damaged) for key, value in row}
        return [] if is_damaged else sorted(pairs.items())
    return [comparable(one, is_damaged) for one in row] if isinstance(row, list) else row
