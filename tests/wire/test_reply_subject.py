"""The short ways to a delivery's numbers agree with the whole metadata."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.errors import NotJetStreamMessageError
from jetspark.wire.kernel import stream_position, stream_sequence
from jetspark.wire.reply_subject import parse_reply_subject

NUMBERS = st.tuples(*[st.integers(0, 2**63 - 1)] * 5)
FORMS = st.sampled_from(
    ["$JS.ACK.S.C.{}", "$JS.ACK.hub.hash.S.C.{}", "$JS.ACK._.hash.S.C.{}.token"]
)


@given(FORMS, NUMBERS)
def test_numbers_are_those_of_the_metadata(form: str, numbers: tuple[int, ...]) -> None:
    reply = form.format(".".join(map(str, numbers))).encode()
    whole = parse_reply_subject(reply)
    assert stream_position(reply) == (whole.stream_seq, whole.timestamp_ns, whole.pending)
    assert stream_sequence(reply) == whole.stream_seq


@pytest.mark.parametrize(
    "reply", [None, b"", b"_INBOX.a", b"$JS.ACK.S.C.1.2.3.4", b"$JS.ACK.S.C.1.x.3.4.5"]
)
def test_other_reply_subject_raises_not_jetstream_message(reply: bytes | None) -> None:
    with pytest.raises(NotJetStreamMessageError):
        stream_position(reply)
