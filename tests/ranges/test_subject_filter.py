"""Many subjects: the rows are the same, whoever filters them."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.streams import Admin

from jetspark.connection.options import make_options
from jetspark.links.stream_api import CreatedConsumer, StreamAPI
from jetspark.ranges.arrow import COLUMNS, batches
from jetspark.ranges.reader import read_range
from jetspark.ranges.sequence_range import ReadLimits, SequenceRange
from jetspark.ranges.subject_filter import SubjectFilter, reading_all_is_faster
from jetspark.subjects import subject_matches
from jetspark.wire.kernel import Deliveries

_TOKEN = st.sampled_from(["a", "b", "ü", "*", ">"])
_PATTERN = st.lists(_TOKEN, min_size=1, max_size=3).map(
    lambda tokens: ".".join([*tokens[: tokens.index(">")], ">"] if ">" in tokens else tokens)
)
_SUBJECT = st.lists(st.sampled_from(["a", "b", "c", "ü"]), min_size=1, max_size=3).map(".".join)


@given(st.lists(_PATTERN, min_size=1, max_size=5), st.lists(_SUBJECT, max_size=20))
def test_a_choice_is_by_the_rules_of_subjects(patterns: list[str], subjects: list[str]) -> None:
    raw = pa.array([subject.encode() for subject in subjects], pa.binary())
    mask = SubjectFilter(patterns).mask(raw)
    wanted = [any(subject_matches(one, subject) for one in patterns) for subject in subjects]
    assert mask.to_pylist() == wanted


def test_a_filter_is_freed_at_once_with_the_subjects_that_it_remembers() -> None:
    subject_filter = SubjectFilter(["a", "b.>"])
    subject_filter.mask(pa.array([b"a", b"b.c", b"d"], pa.binary()))
    freed = weakref.ref(subject_filter)
    gc.disable()
    try:
        del subject_filter
        assert freed() is None
    finally:
        gc.enable()


def test_the_server_filters_one_subject_and_a_few_messages() -> None:
    assert not reading_all_is_faster((), 1000, 1000)
    assert not reading_all_is_faster(("a",), 1000, 1000)
    assert not reading_all_is_faster(("a", "b"), 9, 1000)
    assert reading_all_is_faster(("a", "b"), 11, 1000)


@pytest.mark.parametrize("chosen", [3, 40])
def test_many_subjects_are_read_whole_and_chosen_here(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, chosen: int
) -> None:
    name = admin.stream(under=".*.*")
    admin.fill([(f"{name}.{n % 1500}.x", b"%d" % n) for n in range(6000)])
    facts = admin.facts(name)
    subjects = (*(f"{name}.{n}.x" for n in range(chosen - 1)), f"{name}.{chosen - 1}.*")
    asked: list[int] = []
    create = StreamAPI.create_reader

    def noted(api: StreamAPI, *arguments: Any, **more: Any) -> CreatedConsumer:
        asked.append(len(more["subjects"]))
        return create(api, *arguments, **more)

    monkeypatch.setattr(StreamAPI, "create_reader", noted)
    wanted = SequenceRange(name, 1, 6001, facts.created, subjects)
    batches = read_range(
        make_options(admin.url), wanted, ReadLimits(max_rows=500), columns=("seq", "data")
    )
    table = pa.Table.from_batches(batches)
    assert table["data"].to_pylist() == [b"%d" % n for n in range(6000) if n % 1500 < chosen]
    assert table["seq"].to_pylist() == [n + 1 for n in range(6000) if n % 1500 < chosen]
    assert asked == ([3] if chosen == 3 else [40, 0])


def test_a_subject_that_is_no_text_is_under_no_other() -> None:
    rows = Deliveries()
    for number, subject in enumerate([b"a", b"\xff", b"b", b"a"], 1):
        rows.append(subject, number, 0, None, b"")
    choice = SubjectFilter(["a", "c.>"])
    [batch] = batches("S", rows.take(), choice, COLUMNS, ReadLimits())
    assert batch.column("seq").to_pylist() == [1, 4]
