"""Only deliveries that follow each other are in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.errors import NotJetStreamMessageError
from jetspark.wire.pull import ConsumerOrder
from jetspark.wire.reply_subject import delivery_parts, parse_reply_subject

Sent = tuple[str, int, int]
"""Consumer, stream and consumer sequence."""

HEADS = st.sampled_from(["", "hub.ACC.", "_.ACC."])
TAILS = {"": "", "hub.ACC.": ".rnd", "_.ACC.": ""}


def reply(head: str, consumer: str, stream_seq: int, consumer_seq: int) -> bytes:
    numbers = f"1.{stream_seq}.{consumer_seq}.1700000000000000000.5"
    return f"$JS.ACK.{head}S.{consumer}.{numbers}{TAILS[head]}".encode()


@st.composite
def runs(draw: st.DrawFn) -> list[Sent]:
    """Deliveries of consumers made one after the other, as a server sends them: no gap."""
    sent: list[Sent] = []
    stream_seq = 0
    for number in range(draw(st.integers(1, 3))):
        for consumer_seq in range(1, draw(st.integers(1, 5)) + 1):
            stream_seq += draw(st.integers(1, 3))
            sent.append((f"c{number}", stream_seq, consumer_seq))
    return sent


@given(HEADS, runs())
def test_what_a_server_sends_is_in_order(head: str, sent: list[Sent]) -> None:
    order = ConsumerOrder()
    for one in sent:
        assert order.follows(reply(head, *one))
        assert order.stream_seq == one[1]
        assert order.expected == one[2] + 1
        assert order.time_ns == 1700000000000000000


@given(HEADS, runs(), st.data())
def test_nothing_stale_gets_through(head: str, sent: list[Sent], data: st.DataObject) -> None:
    """Spoiled in one place, the deliveries end there or go on without any harm."""
    place = data.draw(st.integers(0, len(sent) - 1))
    spoiled = list(sent)
    how = data.draw(st.sampled_from(["lose", "repeat", "swap", "stale"]))
    if how == "lose":
        del spoiled[place]
    elif how == "repeat":
        spoiled.insert(place, sent[place])
    elif how == "swap":
        other = data.draw(st.integers(0, len(sent) - 1))
        spoiled[place], spoiled[other] = spoiled[other], spoiled[place]
    else:
        spoiled.insert(place, data.draw(st.sampled_from(sent)))
    order, given_out = ConsumerOrder(), []
    for one in spoiled:
        if not order.follows(reply(head, *one)):
            break
        given_out.append(one)
    sequences = [stream_seq for _, stream_seq, _ in given_out]
    assert sequences == sorted(set(sequences))
    # Of each consumer the beginning, without a gap: what follows can be asked for again.
    for consumer in {consumer for consumer, _, _ in given_out}:
        own = [consumer_seq for name, _, consumer_seq in given_out if name == consumer]
        assert own == list(range(1, len(own) + 1))


def test_a_copy_of_a_consumer_order_does_not_change_the_original() -> None:
    order = ConsumerOrder()
    assert order.follows(reply("", "c", 7, 1))
    ahead = order.copy()
    assert ahead.follows(reply("", "c", 8, 2))
    assert (ahead.stream_seq, order.stream_seq) == (8, 7)
    assert order.follows(reply("", "c", 9, 2))


def test_a_late_delivery_of_a_replaced_consumer_does_not_move_the_order_back() -> None:
    order = ConsumerOrder()
    order.snapshot_end = 8
    assert order.follows(reply("", "first", 7, 1))
    assert not order.follows(reply("", "second", 7, 1))
    assert order.is_repeated
    assert order.follows(reply("", "second", 8, 2))
    assert order.follows(reply("", "third", 9, 1))
    assert not order.follows(reply("", "second", 12, 2))
    assert not order.is_past_snapshot
    assert order.follows(reply("", "third", 10, 2))


@pytest.mark.parametrize(
    "wrong",
    [None, b"", b"_INBOX.a", b"$JS.ACK.S.c.1.7.x.9.9", b"$JS.ACK.S.c.1.7", b"$JS.ACK.S.c.1.7.2"],
)
def test_other_replies_do_not_follow(wrong: bytes | None) -> None:
    order = ConsumerOrder()
    assert not order.follows(wrong)
    assert order.follows(reply("", "c", 7, 1))
    assert not order.follows(wrong) or wrong == b"$JS.ACK.S.c.1.7.2"


@given(HEADS, st.integers(1, 2**64 - 1), st.integers(1, 2**64 - 1))
def test_parts_equal_the_metadata(head: str, stream_seq: int, consumer_seq: int) -> None:
    text = reply(head, "c", stream_seq, consumer_seq)
    prefix, *numbers = delivery_parts(text)
    metadata = parse_reply_subject(text)
    assert numbers == [metadata.stream_seq, metadata.consumer_seq]
    assert prefix == f"$JS.ACK.{head}S.c.".encode()
    with pytest.raises(NotJetStreamMessageError):
        delivery_parts(text.replace(b".1.", b".1.x", 1))
