"""The checks of values: what tests/client/test_refused_values.py does not show of them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jetspark import validation
from jetspark.documents.document import to_duration
from jetspark.errors import ConfigError
from jetspark.kv_rules import check_bucket, check_filter, check_key
from jetspark.objects.info import check_store
from jetspark.services.protocol import check_service_name, check_version
from jetspark.subjects import (
    check_name,
    check_publish_subject,
    check_queue,
    check_subscribe_subject,
)
from jetspark.timestamps import duration_to_ns, in_seconds
from jetspark.validation import MAX_INT64


def test_a_whole_number_is_a_plain_int() -> None:
    assert validation.check_whole("keep", 5) == 5
    assert type(validation.check_whole("keep", np.int64(5))) is int  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("number", "least", "words"),
    [
        (0, 1, "keep must be at least 1."),
        (-1, 0, "keep cannot be negative."),
        (MAX_INT64 + 1, 1, f"keep must be at most {MAX_INT64}, not {MAX_INT64 + 1}."),
    ],
)
def test_a_number_out_of_range_is_refused(number: int, least: int, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        validation.check_whole("keep", number, least)
    assert str(raised.value) == words


@pytest.mark.parametrize(
    "wrong", [b"", b"ab", bytearray(b"a"), memoryview(b"a"), {}, {"a": 1}, None, 5]
)
def test_what_would_lose_its_meaning_as_a_list_is_refused(wrong: Any) -> None:
    for check in (validation.list_of, validation.texts_of):
        with pytest.raises(ConfigError, match=r"^keys is one text or a list, not "):
            check("keys", wrong)


CHECKS_OF_TEXTS: list[Callable[[Any], object]] = [
    check_publish_subject,
    check_subscribe_subject,
    check_queue,
    partial(check_name, "stream"),
    check_bucket,
    check_key,
    check_filter,
    check_store,
    partial(check_service_name, "service"),
    check_version,
]


@pytest.mark.parametrize("check", CHECKS_OF_TEXTS)
@pytest.mark.parametrize("wrong", [5, b"a", True, ["a"], 2.5])
def test_a_name_that_is_not_a_text_is_refused_in_a_sentence(check: Any, wrong: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        check(wrong)
    assert repr(wrong) in str(raised.value)


@pytest.mark.parametrize("convert", [in_seconds, duration_to_ns, to_duration])
@pytest.mark.parametrize("wrong", ["", "5", b"5", [5], True])
def test_a_duration_that_is_not_a_number_is_refused_in_a_sentence(convert: Any, wrong: Any) -> None:
    with pytest.raises(ConfigError, match="is seconds or a timedelta, not"):
        convert(wrong)


def test_numbers_of_other_libraries_are_durations() -> None:
    numbers: list[Any] = [np.int64(5), np.float32(5), Fraction(5)]
    for number in numbers:
        assert in_seconds(number) == 5
        assert duration_to_ns(number) == 5_000_000_000


def test_a_word_is_one_of_a_few() -> None:
    words = ("once", "wait", "background")
    assert validation.check_word("first_connect", "wait", words) == "wait"
    with pytest.raises(ConfigError) as raised:
        validation.check_word("first_connect", "wiat", words)
    assert str(raised.value) == (
        "first_connect is 'once', 'wait' or 'background', not 'wiat'; did you mean 'wait'?"
    )


def test_a_path_is_one_that_a_file_can_have() -> None:
    assert validation.path_of("folder", "a/b") == Path("a/b")
    for long in ("x" * 256, "x/" * 2048):
        with pytest.raises(ConfigError, match=r"^folder is too long"):
            validation.path_of("folder", long)
