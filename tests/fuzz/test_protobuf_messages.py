"""The campaigns "protobuf_messages" and "protobuf_rows" in small."""

from __future__ import annotations

from tests.fuzz import protobuf_messages, protobuf_rows
from tests.wire.test_kernels import both


@both
def test_the_kernel_and_protobufs_library_agree_on_messages() -> None:
    figures = protobuf_messages.run(3_000, seed=1)
    assert not figures.wrong
    assert 1_000 < figures.decoded < 2_800


@both
def test_the_kernel_writes_what_protobufs_library_writes() -> None:
    figures = protobuf_rows.run(2_000, seed=1)
    assert not figures.wrong
    assert figures.bytes > 500_000
