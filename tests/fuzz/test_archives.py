"""The short version; `python -m tests.fuzz.archives` is the long one, strict with `--sanitize`."""

from __future__ import annotations

from tests.fuzz.archives import fuzz
from tests.wire.test_kernels import KERNELS


def test_spoiled_archives_are_rows_or_a_typed_error() -> None:
    ends = fuzz(1_500, KERNELS, seed=1)
    assert ends["refused"] > 300
    assert ends["read"] > 200
