"""The campaign "protobuf_messages" in small."""

from __future__ import annotations

from tests.fuzz.protobuf_messages import run
from tests.wire.test_kernels import both


@both
def test_the_kernel_and_protobufs_library_agree_on_messages() -> None:
    figures = run(3_000, seed=1)
    assert not figures.wrong
    assert 1_000 < figures.decoded < 2_800
