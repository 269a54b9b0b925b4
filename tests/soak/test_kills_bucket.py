"""The oracle of a bucket under kills accepts what is right, and sees what is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.soak.kills_bucket import Done, check

from jetspark.kv import Entry, Operation

DONE = [
    Done("create", "k", 0, 1, revision=1, value=b"a"),
    Done("update", "k", 2, 3, revision=2, value=b"b", last=1),
    Done("read", "k", 4, 5, revision=2, value=b"b"),
    Done("delete", "k", 6, 7, revision=3, last=2),
    Done("update", "k", 6, 7, value=b"c", last=2, refused=True),
    Done("create", "k", 8, 9, value=b"d"),
]
SEEN = [
    Entry("B", "k", b"a", 1, 0),
    Entry("B", "k", b"b", 2, 0),
    Entry("B", "k", b"", 3, 0, 0, Operation.DEL),
]


def test_checker_accepts_a_correct_history() -> None:
    check(DONE, SEEN)
    check(DONE, [*SEEN, Entry("B", "k", b"d", 4, 0)])  # what nobody heard of


@pytest.mark.parametrize(
    ("done", "seen"),
    [
        (DONE, SEEN[:2]),  # an acknowledged deletion is missing
        (DONE, [*SEEN, SEEN[2]]),  # repeated
        (DONE, [*SEEN, Entry("B", "k", b"c", 4, 0)]),  # refused, and there
        (DONE, [*SEEN, Entry("B", "k", b"d", 4, 0), Entry("B", "k", b"d", 5, 0)]),  # twice
        (DONE, [*SEEN[:2], Entry("B", "k", b"", 3, 0)]),  # another operation
        ([*DONE[:2], replace(DONE[2], revision=1, value=b"a")], SEEN[:2]),  # an old value read
        ([DONE[0], replace(DONE[1], last=7)], SEEN[:2]),  # an update on nothing
        ([DONE[0], replace(DONE[1], revision=1)], SEEN[:1]),  # one revision for two writes
        ([DONE[0], replace(DONE[0], start=2, end=3, revision=2, value=b"b")], SEEN[:2]),
        ([replace(DONE[1], last=1), replace(DONE[0], start=4, end=5)], SEEN[:2]),  # too late
    ],
)
def test_checker_rejects_a_wrong_history(done: list[Done], seen: list[Entry]) -> None:
    with pytest.raises((AssertionError, KeyError)):
        check(done, seen)
