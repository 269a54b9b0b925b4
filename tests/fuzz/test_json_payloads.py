"""The campaign "json_payloads" in small."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.fuzz.json_payloads import run
from tests.wire.test_kernels import both

from jetspark.codecs.ddl import arrow_fields
from jetspark.codecs.json_fields import JsonFields


@both
def test_the_c_kernel_takes_or_leaves_json_nearly() -> None:
    count = 20_000
    figures = run(count, seed=1)
    assert not figures.wrong
    assert 0.3 * count < figures.parsed < 0.8 * count


def test_without_the_c_kernel_the_columns_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = arrow_fields("a INT, t STRING", "json:")
    payloads = pa.array([b'{"a": 1}', b"x", b'{"t": 1.5}'], pa.binary())
    expected = JsonFields(fields).decode(payloads)
    monkeypatch.setattr("jetspark.codecs.json_fields.json_columns", None)
    assert JsonFields(fields).decode(payloads) == expected
