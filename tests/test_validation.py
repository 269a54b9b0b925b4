"""The checks of values that nothing else would refuse: what each takes, and its sentence."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jetspark.errors import ConfigError
from jetspark.validation import (
    MOST,
    MOST_SEQUENCE,
    check_kind,
    check_moment,
    check_sequence,
    check_text,
    check_whole,
    check_word,
    list_of,
    path_of,
    texts_by_name,
    texts_of,
)


def test_a_whole_number_is_a_plain_int() -> None:
    assert check_whole("keep", 5) == 5
    assert type(check_whole("keep", np.int64(5))) is int  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [True, False, 1.0, float("nan"), "5", None, [1]])
def test_what_is_no_whole_number_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"^keep is a whole number, not "):
        check_whole("keep", wrong)


@pytest.mark.parametrize(
    ("number", "least", "words"),
    [
        (0, 1, "keep must be at least 1."),
        (-1, 0, "keep cannot be negative."),
        (MOST + 1, 1, f"keep must be at most {MOST}, not {MOST + 1}."),
    ],
)
def test_a_number_out_of_range_is_refused(number: int, least: int, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_whole("keep", number, least)
    assert str(raised.value) == words


def test_sequences_begin_at_1_and_have_64_bits() -> None:
    assert check_sequence("seq", MOST_SEQUENCE) == MOST_SEQUENCE
    for wrong in (0, -1, MOST_SEQUENCE + 1, True):
        with pytest.raises(ConfigError, match=r"^seq "):
            check_sequence("seq", wrong)


def test_one_text_is_a_list_of_one() -> None:
    assert texts_of("keys", "orders") == ["orders"]
    assert texts_of("keys", (text for text in ("a", "b"))) == ["a", "b"]
    assert texts_of("keys", ()) == []


@pytest.mark.parametrize("wrong", [b"", b"ab", bytearray(b"a"), memoryview(b"a"), {}, {"a": 1}])
def test_what_would_lose_its_meaning_as_a_list_is_refused(wrong: Any) -> None:
    for check in (list_of, texts_of):
        with pytest.raises(ConfigError, match=r"^keys is one text or a list, not "):
            check("keys", wrong)


@pytest.mark.parametrize("wrong", [None, 5, b"a", True, Path("a")])
def test_what_is_no_text_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"^cron is a text, not "):
        check_text("cron", wrong)
    with pytest.raises(ConfigError, match=r"^Each of keys is a text, not "):
        texts_of("keys", ["a", wrong])
    with pytest.raises(ConfigError, match=r"^A name in headers is a text, not "):
        texts_by_name("headers", {wrong: "x"})


@pytest.mark.parametrize("wrong", ["", [], [("a", "b")], 5])
def test_what_is_no_mapping_is_refused(wrong: Any) -> None:
    assert texts_by_name("headers", None) == {}
    with pytest.raises(ConfigError, match=r"^headers is a mapping of names to texts, not "):
        texts_by_name("headers", wrong)


def test_an_object_has_its_class() -> None:
    assert check_kind("target", 5, int | None, "a number") == 5
    with pytest.raises(ConfigError, match=r"^target is a number, not 'x'\.$"):
        check_kind("target", "x", int, "a number")


def test_a_word_is_one_of_a_few() -> None:
    words = ("once", "wait", "background")
    assert check_word("first_connect", "wait", words) == "wait"
    with pytest.raises(ConfigError) as raised:
        check_word("first_connect", "wiat", words)
    assert str(raised.value) == (
        "first_connect is 'once', 'wait' or 'background', not 'wiat'; did you mean 'wait'?"
    )
    with pytest.raises(ConfigError, match=r"not None\.$"):
        check_word("first_connect", None, words)  # type: ignore[arg-type]


def test_a_moment_has_a_time_zone() -> None:
    now = datetime.now(UTC)
    assert check_moment("until", now) is now
    for wrong in (None, 5, "now", datetime(2026, 1, 1)):
        with pytest.raises(ConfigError, match=r"^until is a datetime with a time zone"):
            check_moment("until", wrong)  # type: ignore[arg-type]


def test_a_path_is_one_that_a_file_can_have() -> None:
    assert path_of("folder", "a/b") == Path("a/b")
    for wrong in ("a\0b", "\ud800"):
        with pytest.raises(ConfigError, match=r"^folder is not a valid file path"):
            path_of("folder", wrong)
    for long in ("x" * 256, "x/" * 2048):
        with pytest.raises(ConfigError, match=r"^folder is too long"):
            path_of("folder", long)
