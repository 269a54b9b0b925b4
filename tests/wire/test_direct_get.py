"""What the server appends to a stored message is told from what its publisher wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.errors import JetStreamError
from jetspark.timestamps import format_isotime
from jetspark.wire.direct_get import parse_direct_reply, parse_end_of_batch

TIME = "2026-11-21T13:48:24.000000001Z"
NAMES = st.sampled_from(["Nats-Sequence", "Nats-Stream", "Nats-Subject", "k", "É"])
USERS = st.lists(st.tuples(NAMES, st.text("a1: é", max_size=5)), max_size=4)


def block(users: list[tuple[str, str]], subject: str, seq: int, *, batch: bool = False) -> bytes:
    lines = ["NATS/1.0", *(f"{name}: {value}" for name, value in users)]
    lines += ["Nats-Stream: S", f"Nats-Subject: {subject}", f"Nats-Sequence: {seq}"]
    lines += [f"Nats-Time-Stamp: {TIME}"]
    if batch:
        lines += ["Nats-Num-Pending: 3", "Nats-Last-Sequence: 2"]
    return "\r\n".join([*lines, "", ""]).encode()


@given(USERS, st.text("ab.é$", min_size=1), st.integers(1, 2**64 - 1), st.booleans())
def test_the_last_headers_are_the_servers(
    users: list[tuple[str, str]], subject: str, seq: int, batch: bool
) -> None:
    pending = 3 if batch else None
    found = parse_direct_reply(block(users, subject, seq, batch=batch))
    assert found is not None
    assert (found.subject, found.seq, found.pending) == (subject, seq, pending)
    assert format_isotime(found.time_ns) == TIME
    lines = [f"{name}: {value}" for name, value in users]
    stored = "\r\n".join(["NATS/1.0", *lines, "", ""]).encode() if users else None
    assert found.hdrs == stored


@given(st.none() | st.binary(max_size=80))
def test_other_blocks_are_no_stored_messages(other: bytes | None) -> None:
    if other is None or b"Nats-Stream: " not in other:
        assert parse_direct_reply(other) is None


@pytest.mark.parametrize("lost", [b"Nats-Subject", b"Nats-Sequence: 7", b"Nats-Time-Stamp"])
def test_an_answer_with_something_missing_is_an_error(lost: bytes) -> None:
    with pytest.raises(JetStreamError, match="Unreadable"):
        parse_direct_reply(block([], "a", 7).replace(lost, b"X"))


@pytest.mark.parametrize(
    ("part", "spoiled"),
    [
        (TIME, "yesterday"),
        (TIME, "2026-02-30T13:48:24Z"),
        (TIME, "2026-11-21T13:48:24"),
        (TIME, ""),
        ("Sequence: 7", "Sequence: " + "9" * 5000),
        ("Pending: 3", "Pending: " + "9" * 5000),
    ],
)
def test_an_answer_with_an_unreadable_time_or_number_is_an_error(part: str, spoiled: str) -> None:
    with pytest.raises(JetStreamError, match="Unreadable"):
        parse_direct_reply(block([], "a", 7, batch=True).replace(part.encode(), spoiled.encode()))


def test_an_end_with_an_unreadable_number_is_an_error() -> None:
    with pytest.raises(JetStreamError, match="Unreadable"):
        parse_end_of_batch(
            b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 1_0\r\nNats-Last-Sequence: 2\r\n\r\n"
        )


@pytest.mark.parametrize("stored", [b"NATS/1.0\r\nA: b\r\n", b"NATS/1.0", b"x\ny", b"ab"])
def test_a_block_without_a_blank_line_at_its_end_is_a_message(stored: bytes) -> None:
    """The server stores any bytes, and cuts the last two: nobody's query may stop there."""
    answer = stored[:-2] + block([], "a", 7).removeprefix(b"NATS/1.0\r\n")
    found = parse_direct_reply(answer)
    assert found is not None
    assert (found.subject, found.seq) == ("a", 7)
    assert found.hdrs == (b"NATS/1.0\r\nA: b\r\n\r\n" if b": " in stored else None)


def test_end_of_a_direct_get_batch_is_parsed() -> None:
    end = b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 5\r\nNats-Last-Sequence: 9\r\n"
    assert parse_end_of_batch(end + b"\r\n") == (5, 9, None)
    assert parse_end_of_batch(end + b"Nats-UpTo-Sequence: 12\r\n\r\n") == (5, 9, 12)
    with pytest.raises(JetStreamError, match="Unreadable"):
        parse_end_of_batch(b"NATS/1.0 204 EOB\r\nNats-Num-Pending: x\r\n\r\n")
