"""Subjects in pages, against a server that answers as nats-server does: sorted, by offset."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from jetspark.wire.js_api import SubjectPages

_NAMES = st.sets(st.text("abc", min_size=1, max_size=4), max_size=40)


def _page(subjects: set[str], offset: int, limit: int) -> dict[str, Any]:
    part = sorted(subjects)[offset : offset + limit]
    return {"total": len(subjects), "state": {"subjects": dict.fromkeys(part, 1)}}


@given(_NAMES, st.lists(st.tuples(_NAMES, _NAMES), max_size=12), st.integers(2, 7))
def test_no_subject_is_left_out_that_is_there_all_the_time(
    subjects: set[str], changes: list[tuple[set[str], set[str]]], limit: int
) -> None:
    there = set(subjects)
    always = set(subjects)
    ever = set(subjects)
    pages = SubjectPages()
    calls = 0
    while not pages.add(_page(there, pages.offset, limit)):
        calls += 1
        assert calls < 500
        if changes:
            removed, added = changes.pop()
            there = (there - removed) | added
            always -= removed
            ever |= added
    assert always <= pages.counts.keys() <= ever


def test_subjects_that_move_to_an_earlier_page_are_found() -> None:
    pages = SubjectPages()
    assert not pages.add(_page(set("abcdefgh"), pages.offset, 4))
    while not pages.add(_page(set("defgh"), pages.offset, 4)):
        pass
    assert set("defgh") <= pages.counts.keys()


def test_a_stream_without_subjects_has_one_page() -> None:
    assert SubjectPages().add({"state": {}})
