"""Publishes that are told apart by a number: the same frames as any other publish."""

from __future__ import annotations

import pytest
from tests.conftest import Unique

from jetspark import Client
from jetspark.client.publishing import NumberedPublishes
from jetspark.errors import BadSubjectError, MaxPayloadError

SUBJECTS = 5000  # more than are remembered


async def test_each_message_has_subject_number_and_headers(nc: Client, unique: Unique) -> None:
    root = unique("ü")
    sub = nc.subscribe(f"{root}.>")
    numbered = NumberedPublishes(nc.publishing, b"to.me.")
    before = nc.stats.out_msgs
    for number in range(2 * SUBJECTS):
        headers = None if number % 7 else {"n": str(number)}
        numbered.send(number, f"{root}.{number % SUBJECTS}", b"%d" % number, headers)
    assert nc.stats.out_msgs - before == 2 * SUBJECTS
    for number in range(2 * SUBJECTS):
        message = await sub.next(30)
        assert message.subject == f"{root}.{number % SUBJECTS}"
        assert message.reply == f"to.me.{number}"
        assert message.data == b"%d" % number
        assert (message.headers is None) == bool(number % 7)
        assert message.headers is None or message.headers["n"] == str(number)


@pytest.mark.parametrize("again", [False, True])
async def test_what_cannot_be_sent_is_refused(nc: Client, again: bool) -> None:
    numbered = NumberedPublishes(nc.publishing, b"to.me.")
    if again:  # the subject is known by then
        numbered.send(1, "a", b"x")
    with pytest.raises(MaxPayloadError):
        numbered.send(2, "a", bytes(nc.max_payload + 1))
    with pytest.raises(TypeError, match="bytes, not str"):
        numbered.send(3, "a", "text")  # type: ignore[arg-type]
    with pytest.raises(BadSubjectError):
        numbered.send(4, "a b", b"x")
    assert nc.stats.out_msgs == again
