"""The short version; `python -m tests.fuzz.json_payloads` is the long one."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.fuzz.json_payloads import fuzz
from tests.wire.test_kernels import KERNELS, both

from jetspark.bulk.arrow import JsonFields


@both
def test_the_c_kernel_takes_or_leaves_json_nearly() -> None:
    count = 20_000
    assert 0.4 * count < fuzz(count, KERNELS, seed=1) < 0.8 * count


def test_without_the_c_kernel_every_payload_is_left_to_spark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch = pa.record_batch({"data": [b'{"a": 1}', b"x"]}, pa.schema([("data", pa.binary())]))
    monkeypatch.setattr("jetspark.bulk.arrow.json_columns", None)
    assert JsonFields({"a": "int", "t": "string"}).of(batch).to_pydict() == {
        "data": [b'{"a": 1}', b"x"],
        "a": [None, None],
        "t": [None, None],
    }
