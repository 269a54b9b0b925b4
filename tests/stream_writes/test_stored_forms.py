"""Decisions and packs as ledgers have stored them since the first version."""

from __future__ import annotations

import msgspec
import pytest

from jetspark.errors import DocumentError
from jetspark.stream_writes.batch_copier import Marker
from jetspark.stream_writes.encoded_messages import EncodedMessage, pack_messages, unpack_messages
from jetspark.stream_writes.ledger import Decision, LanePlan, decode_decision

DECISION = Decision(7, [LanePlan(0, 3, [b"\x90", 12]), LanePlan(99, 1, [13])])
STORED = bytes.fromhex(
    "82 a56261746368 07 a56c616e6573 92"  # {"batch": 7, "lanes": [
    "83 a870726576696f7573 00 a4726f7773 03 a6706965636573 92 c40190 0c"
    "83 a870726576696f7573 63 a4726f7773 01 a6706965636573 91 0d"
)
ROWS: list[EncodedMessage] = [(b"s", None, b"1"), (b"s", b"NATS/1.0\r\n\r\n", b"")]
PACKED = bytes.fromhex("92 93 c40173 c0 c40131 93 c40173 c40c4e4154532f312e300d0a0d0a c400")


def test_decision_keeps_its_stored_form_and_says_whose_name_is_noted() -> None:
    assert DECISION.rows == 4
    noted = msgspec.structs.replace(DECISION, name="copy")
    for decision, stored in (
        (DECISION, STORED),
        (noted, b"\x83" + STORED[1:] + b"\xa4name\xa4copy"),
    ):
        assert msgspec.msgpack.encode(decision) == stored
        assert decode_decision(stored) == decision


def test_rows_and_markers_are_stored_as_before_and_rows_are_unpacked_again() -> None:
    assert pack_messages(ROWS) == PACKED
    assert unpack_messages(PACKED) == ROWS
    assert msgspec.json.encode(Marker(7, 998, 2)) == b'{"batch":7,"offset":998,"rows":2}'


@pytest.mark.parametrize("data", [b"", b"{}", PACKED, STORED[:-1]])
def test_what_is_no_decision_is_an_error(data: bytes) -> None:
    with pytest.raises(DocumentError):
        decode_decision(data)
