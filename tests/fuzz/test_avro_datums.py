"""The campaign "avro_datums" in small."""

from __future__ import annotations

from tests.fuzz.avro_datums import run
from tests.wire.test_kernels import both


@both
def test_the_kernel_and_the_plain_decoder_agree_on_datums() -> None:
    figures = run(2_000, seed=1)
    assert not figures.wrong
    assert 800 < figures.decoded < 1_800
