from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetspark.errors import BadNameError, BadQueueError, BadSubjectError
from jetspark.nearest import nearest_name
from jetspark.subjects import (
    check_name,
    check_publish_subject,
    check_queue,
    check_subscribe_subject,
    subject_matches,
    subject_within,
    subjects_overlap,
)

token = st.text("abc1_-é$", min_size=1, max_size=4)
subject = st.lists(token, min_size=1, max_size=4).map(".".join)


@given(subject)
def test_plain_subjects_are_fine_for_both(text: str) -> None:
    check_publish_subject(text)
    check_subscribe_subject(text)
    assert subject_matches(text, text)
    assert subject_matches(">", text)
    assert not subject_matches(text, text + ".more")
    assert subject_matches(text + ".>", text + ".more.still")
    assert not subject_matches(text + ".>", text)


@pytest.mark.parametrize("text", ["", ".a", "a.", "a..b", "a b", "a\tb", "a\r\nb", "a\x00"])
def test_what_nats_refuses_is_refused(text: str) -> None:
    for check in (check_publish_subject, check_subscribe_subject):
        with pytest.raises(BadSubjectError) as caught:
            check(text)
        assert caught.value.subject == text


@pytest.mark.parametrize("text", ["*", ">", "a.*", "a.>", "*.b"])
def test_wildcards_are_for_subscribing(text: str) -> None:
    check_subscribe_subject(text)
    with pytest.raises(BadSubjectError):
        check_publish_subject(text)


def test_more_than_the_last_token_ends_nothing() -> None:
    with pytest.raises(BadSubjectError):
        check_subscribe_subject("a.>.b")
    check_subscribe_subject("a>.b*")  # part of a token: an ordinary character


@given(st.text(max_size=6))
def test_without_strict_the_line_protocol_is_still_safe(text: str) -> None:
    try:
        check_publish_subject(text, strict=False)
    except BadSubjectError:
        return
    assert text
    assert len(text.encode().split()) == 1


@given(st.text(max_size=5))
def test_names_hold_nothing_of_a_subject(name: str) -> None:
    try:
        check_name("stream", name)
    except BadNameError:
        return
    assert name
    assert not set(name) & set(" \t\r\n.*>/\\\x00")


def test_the_nearest_name_ignores_case() -> None:
    assert nearest_name("ORDRES", ["PRICES", "ORDERS"]) == "ORDERS"
    assert nearest_name("zzz", ["ORDERS"]) is None


def test_a_queue_name_has_no_blank() -> None:
    check_queue("workers")
    with pytest.raises(BadQueueError):
        check_queue("two words")


_tokens = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=4)
_patterns = st.builds(lambda head, end: ".".join(head + end), _tokens, st.sampled_from([[], [">"]]))


@given(_patterns, _patterns)
def test_patterns_overlap_when_a_subject_falls_under_both(one: str, other: str) -> None:
    subjects = [
        ".".join(tokens) for n in range(1, 7) for tokens in itertools.product("abc", repeat=n)
    ]
    both = any(subject_matches(one, s) and subject_matches(other, s) for s in subjects)
    assert subjects_overlap(one, other) == both == subjects_overlap(other, one)


wild = st.lists(st.sampled_from("ab*"), min_size=1, max_size=3).flatmap(
    lambda tokens: st.sampled_from([".".join(tokens), ".".join([*tokens, ">"])])
)


@given(wild, wild)
def test_a_subject_is_within_a_pattern_that_all_of_its_subjects_match(
    subject: str, pattern: str
) -> None:
    # A token that no pattern names stands for every token.
    any_token = subject.replace("*", "new")
    subjects = [any_token.replace(">", end) for end in ("new", "new.new", "new.new.new.new")]
    expected = all(subject_matches(pattern, one) for one in subjects)
    assert subject_within(subject, pattern) == expected
    assert subject_within(subject, ">")
