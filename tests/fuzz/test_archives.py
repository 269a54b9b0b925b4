"""The short version; `python -m tests.fuzz.archives` is the long one, strict with `--sanitize`."""

from __future__ import annotations

from tests.fuzz.archives import fuzz
from tests.wire.test_kernels import KERNELS


def test_spoiled_archives_are_rows_or_a_typed_error() -> None:
    ends = fuzz(700, KERNELS, seed=1)
    assert ends["refused"] > 150
    assert ends["read"] > 100
