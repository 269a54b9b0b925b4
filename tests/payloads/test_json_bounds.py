"""JSON payloads that are made to keep a decoder busy."""

from __future__ import annotations

import time
from contextlib import suppress

import msgspec
import pytest

from jetspark.payloads.decoder import Undecodable
from jetspark.payloads.json_objects import parse_object


@pytest.mark.parametrize("start", [b'{"a":NaN,"id":"', b"[" * 1200 + b'"', b'{"a":1,"id":"'])
@pytest.mark.parametrize("part", [b'\\"', b"\\", b'"', b"\\\\", b'"\\'])
@pytest.mark.parametrize("end", [b"", b"\\", b'"'])
def test_a_text_without_an_end_takes_no_time(start: bytes, part: bytes, end: bytes) -> None:
    """Whoever may publish could keep a task busy for hours with one message."""
    before = time.process_time()
    with suppress(Undecodable):
        parse_object(start + part * 100_000 + end, msgspec.json.decode)
    assert time.process_time() - before < 2
