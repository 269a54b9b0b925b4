"""What buckets, keys and filters may be called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jetspark.errors import BadNameError
from jetspark.kv_rules import check_bucket, check_filter, check_key

if TYPE_CHECKING:
    from jetspark.kv import Bucket


@pytest.mark.parametrize("name", ["a", "A-1_z", "x" * 200])
def test_valid_bucket_names(name: str) -> None:
    assert check_bucket(name) == name


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a*", "a>", "a/b", "ä", "a\n"])
def test_invalid_bucket_names_are_refused(name: str) -> None:
    with pytest.raises(BadNameError, match="bucket"):
        check_bucket(name)


@pytest.mark.parametrize("key", ["a", "a.b", "-/_=.9", "a/b=c_d-e.f", "x_kv", "a._kv"])
def test_valid_keys(key: str) -> None:
    assert check_key(key) == key
    assert check_filter(key) == key


@pytest.mark.parametrize(
    "key",
    ["", ".a", "a.", "a..b", "a b", "a*", "*", "a.>", ">", "ä", "a\n", "a\\b", "_kv", "_kv.a"],
)
def test_invalid_keys_are_refused(key: str) -> None:
    with pytest.raises(BadNameError, match="key"):
        check_key(key)


@pytest.mark.parametrize("text", [">", "*", "a.*", "*.a.>", "a.>", "*.*", "_kv.>"])
def test_valid_filters(text: str) -> None:
    assert check_filter(text) == text


@pytest.mark.parametrize("text", ["", ">.a", "a*", "a.*b", "a>", ".>", "a..>", "a b.>", ">\n"])
def test_invalid_filters_are_refused(text: str) -> None:
    with pytest.raises(BadNameError):
        check_filter(text)


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
