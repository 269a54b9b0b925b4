"""The short version; `python -m tests.fuzz.json_payloads` is the long one."""

from __future__ import annotations

from tests.fuzz.json_payloads import fuzz
from tests.wire.test_kernels import KERNELS


def test_kernels_agree_on_json_nearly() -> None:
    count = 20_000
    assert 0.4 * count < fuzz(count, KERNELS, seed=1) < 0.8 * count
