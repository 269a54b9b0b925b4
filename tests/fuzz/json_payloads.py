"""Payloads that are JSON, nearly: what the C kernel makes of them is what the plain decoder does.

With `--sanitize` the C kernel is first built with sanitizers, which see what it reads outside of a
payload, and nothing is compared.
"""

from __future__ import annotations

import random
from array import array
from dataclasses import dataclass

from tests.fuzz.sanitized import c_kernel
from tests.support import campaign
from tests.support.json_payloads import SCHEMAS, payload

_BEHIND = [b"", *(byte * 32 for byte in (b"1", b"x", b" ", b'"', b"\xff"))]


@dataclass
class Figures(campaign.Figures):
    parsed: int = 0


def run(runs: int = 1_000_000, seed: int = 0, sanitize: bool = False) -> Figures:
    """A run is a payload; they come by hundreds, or each in memory of its size with `sanitize`."""
    kernel = c_kernel(sanitize=sanitize)
    import pyarrow as pa

    from jetspark.codecs.ddl import arrow_fields
    from jetspark.codecs.json_fields import JsonFields
    from jetspark.codecs.kernel_columns import buffers_of

    schemas = []
    for types, kinds in SCHEMAS:
        ddl = ", ".join(f"`{name}` {kind}" for name, kind in types.items())
        schemas.append((kinds, JsonFields(pa.schema(arrow_fields(ddl, "json:")))))
    rows = 1 if sanitize else 100
    rng = random.Random(seed)
    figures = Figures()
    for turn in range(-(-runs // rows)):
        kinds, fields = schemas[turn % len(schemas)]
        payloads = pa.array([payload(rng, kinds) for _ in range(rows)], pa.binary())
        assert fields.plan is not None
        data, offsets = buffers_of(payloads)
        if sanitize:  # the kernel reads up to 32 bytes behind a payload
            data = memoryview(array("B", bytes(data) + rng.choice(_BEHIND)))
        left, _ = kernel.json_columns(data, offsets, *fields.plan, 1 << 30)
        figures.parsed += rows - sum(one.bit_count() for one in left)
        figures.count_run(rows)
        if sanitize:
            continue
        columns, reasons = fields.decode(payloads)
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
