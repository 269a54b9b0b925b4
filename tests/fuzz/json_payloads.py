"""Payloads that are JSON, nearly: what the C kernel makes of them is what the plain decoder does.

With `--sanitize` the C kernel is first built with sanitizers, which see what it reads outside of a
payload; it decodes damaged forms of each payload, and nothing is compared.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.fuzz.sanitized import VARIANTS, Decoder, c_kernel
from tests.support import campaign
from tests.support.damage import JSON
from tests.support.json_payloads import SCHEMAS, payload

_ROWS = 100
_BEHIND = [b"", *(byte * 32 for byte in (b"1", b"x", b" ", b'"', b"\xff"))]


@dataclass
class Figures(campaign.Figures):
    parsed: int = 0


def run(runs: int = 1_000_000, seed: int = 0, sanitize: bool = False) -> Figures:
    """A run is a payload; they come by hundreds."""
    kernel = c_kernel(sanitize=sanitize)
    in_kernel = Decoder(kernel, "json_columns") if sanitize else None
    import pyarrow as pa

    from jetspark.payloads.columns import payload_buffers
    from jetspark.payloads.ddl import arrow_fields
    from jetspark.payloads.json_decoder import JsonDecoder

    schemas = []
    for types, kinds in SCHEMAS:
        ddl = ", ".join(f"`{name}` {kind}" for name, kind in types.items())
        schemas.append((kinds, JsonDecoder(pa.schema(arrow_fields(ddl, "json:")))))
    rng = random.Random(seed)
    figures = Figures()
    for turn in range(-(-runs // (_ROWS * (VARIANTS if sanitize else 1)))):
        kinds, fields = schemas[turn % len(schemas)]
        drawn = [payload(rng, kinds) for _ in range(_ROWS)]
        payloads = pa.array(drawn, pa.binary())
        columns, reasons = fields.decode(payloads)
        if in_kernel is not None:  # it reads up to 32 bytes behind a payload
            figures.count_run(in_kernel.decode_damaged(rng, drawn, JSON, _BEHIND))
            continue
        assert fields.plan is not None
        left, _ = kernel.json_columns(*payload_buffers(payloads), *fields.plan, 1 << 30)
        figures.parsed += _ROWS - sum(one.bit_count() for one in left)
        figures.count_run(_ROWS)
        expected, why = fields.decode_plainly(payloads)
        for name, one, other in zip(kinds, columns, expected, strict=True):
            one.validate(full=True)
            if not same(one, other):
                figures.wrong.append(f"{seed} {turn}: {name}")
        if not reasons.equals(why):
            figures.wrong.append(f"{seed} {turn}: {reasons} for {why}")
    return figures


def same(one: object, other: object) -> bool:
    """Whether two columns have the same values, also signs of zero."""
    return repr(one.to_pylist()) == repr(other.to_pylist())  # type: ignore[attr-defined]
