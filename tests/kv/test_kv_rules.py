"""What buckets, keys and filters may be called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jetspark.errors import BadNameError
from jetspark.kv_rules import check_bucket, check_filter, check_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.kv import Bucket


@pytest.mark.parametrize(
    ("check", "valid", "invalid"),
    [
        (
            check_bucket,
            ["a", "A-1_z", "x" * 200],
            ["", "a.b", "a b", "a*", "a>", "a/b", "ä", "a\n"],
        ),
        (
            check_filter,
            [">", "*", "a.*", "*.a.>", "a.>", "*.*", "_kv.>", "a", "a/b=c_d-e.f"],
            ["", ">.a", "a*", "a.*b", "a>", ".>", "a..>", "a b.>", ">\n"],
        ),
    ],
)
def test_names_of_buckets_and_filters(
    check: Callable[[str], str], valid: list[str], invalid: list[str]
) -> None:
    for text in valid:
        assert check(text) == text
    for text in invalid:
        with pytest.raises(BadNameError):
            check(text)


@pytest.mark.parametrize(
    "key",
    ["", ".a", "a.", "a..b", "a b", "a*", "*", "a.>", ">", "ä", "a\n", "a\\b", "_kv", "_kv.a"],
)
def test_invalid_keys_are_refused(key: str) -> None:
    with pytest.raises(BadNameError, match="key"):
        check_key(key)
    for valid in ("a", "a.b", "-/_=.9", "a/b=c_d-e.f", "x_kv", "a._kv"):
        assert check_key(valid) == valid


async def test_a_bad_key_is_refused_before_anything_is_sent(bucket: Bucket) -> None:
    for call in (
        bucket.get("a b"),
        bucket.put("a b"),
        bucket.create(""),
        bucket.update("a*", b"", 1),
        bucket.delete(">"),
        bucket.purge("a..b"),
        bucket.revert(".a", 1),
    ):
        with pytest.raises(BadNameError):
            await call
    assert (await bucket.status()).stream_state.last_seq == 0
