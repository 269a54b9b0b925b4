"""Codecs: what is stored, that it comes back, and what they cannot do."""

from __future__ import annotations

import asyncio
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Reported

from jetspark.errors import BadNameError, CodecError, ConfigError
from jetspark.kv import Base64Codec, Bucket, KeyChain, NoCodec, PathCodec, ValueChain, ZlibCodec
from jetspark.kv.codecs import encode_filter
from jetspark.kv_rules import check_filter, check_key
from jetspark.subjects import subject_matches

TOKENS = st.text(st.characters(exclude_characters=".", exclude_categories=["Cs"]), min_size=1)
KEYS = st.lists(TOKENS, min_size=1, max_size=4).map(".".join)
PATHS = st.from_regex(r"/?[-_a-z0-9]+(/[-_a-z0-9]+){0,3}", fullmatch=True)
WORDS = TOKENS.filter(lambda token: token not in ("*", ">"))
FILTERS = st.lists(WORDS | st.just("*"), min_size=1, max_size=4).flatmap(
    lambda tokens: st.sampled_from([".".join(tokens), ".".join([*tokens, ">"])])
)


@given(KEYS, PATHS)
def test_base64_keys_are_decoded_and_can_be_stored(key: str, path: str) -> None:
    for codec, written in ((Base64Codec(), key), (PathCodec(), path)):
        stored = codec.encode_key(written)
        check_key(stored)
        assert codec.decode_key(stored) == written


def test_base64_keeps_the_tokens_apart() -> None:
    codec = Base64Codec()
    assert codec.encode_key("Acme Inc.contact") == "QWNtZSBJbmM.Y29udGFjdA"
    assert codec.encode_filter("Acme Inc.*.>") == "QWNtZSBJbmM.*.>"
    assert codec.encode_value(b"\xff\xfe") == b"__4"


@given(st.lists(WORDS, min_size=1, max_size=4).map(".".join), FILTERS)
def test_an_encoded_filter_matches_the_same_keys(key: str, text: str) -> None:
    codec = Base64Codec()
    wanted = subject_matches(text, key)
    stored = check_filter(codec.encode_filter(text))
    assert subject_matches(stored, codec.encode_key(key)) == wanted


@pytest.mark.parametrize(
    ("path", "stored"),
    [
        ("user/profile/settings", "user.profile.settings"),
        ("/user", "_root_.user"),
        ("/", "_root_"),
        ("a/b/", "a.b"),
    ],
)
def test_paths_are_stored_with_dots(path: str, stored: str) -> None:
    assert PathCodec().encode_key(path) == stored
    assert PathCodec().decode_key(stored) == path.removesuffix("/") or path == "/"


@given(st.binary(max_size=2000), st.integers(-1, 9))
def test_values_are_decoded(value: bytes, level: int) -> None:
    for codec in (
        NoCodec(),
        Base64Codec(),
        ZlibCodec(level),
        ValueChain(ZlibCodec(level), Base64Codec()),
    ):
        assert codec.decode_value(codec.encode_value(value)) == value


def test_a_chain_encodes_from_first_to_last() -> None:
    chain = ValueChain(ZlibCodec(), Base64Codec())
    assert chain.encode_value(b"a" * 50) == Base64Codec().encode_value(zlib.compress(b"a" * 50))
    keys = KeyChain(PathCodec(), Base64Codec())
    assert keys.encode_key("a/b") == "YQ.Yg"
    assert keys.decode_key("YQ.Yg") == "a/b"
    assert keys.encode_filter("a/*/>") == "YQ.*.>"


def test_what_cannot_be_encoded_or_decoded_raises() -> None:
    with pytest.raises(CodecError, match="dot"):
        PathCodec().encode_key("a/b.c")
    with pytest.raises(ConfigError, match="level"):
        ZlibCodec(10)
    for stored in ("a", "!!!!", "_w", "Y Q"):
        with pytest.raises(CodecError):
            Base64Codec().decode_key(stored)
    with pytest.raises(CodecError):
        Base64Codec().decode_value(b"a+b/")
    with pytest.raises(CodecError, match="zlib"):
        ZlibCodec().decode_value(b"plain")


class Reversing:
    """A codec without filters."""

    def encode_key(self, key: str) -> str:
        return key[::-1]

    def decode_key(self, stored: str) -> str:
        return stored[::-1]


def test_a_codec_without_filters_allows_all_or_one_key() -> None:
    assert encode_filter(Reversing(), ">") == ">"
    assert encode_filter(Reversing(), "a.bc") == "cb.a"
    for codec in (Reversing(), KeyChain(NoCodec(), Reversing())):
        with pytest.raises(ConfigError, match="no wildcards"):
            encode_filter(codec, "a.*")


async def test_bucket_with_codecs_stores_encoded_keys_and_values(bucket: Bucket) -> None:
    coded = bucket.with_codecs(keys=Base64Codec(), values=ZlibCodec())
    revision = await coded.put("Acme Inc.contact", b"x" * 1000)
    assert await bucket.get_value("QWNtZSBJbmM.Y29udGFjdA") == zlib.compress(b"x" * 1000)
    entry = await coded.get("Acme Inc.contact")
    assert (entry.key, entry.value, entry.revision) == ("Acme Inc.contact", b"x" * 1000, revision)
    await coded.delete("Acme Inc.contact", revision)
    assert await coded.create("Acme Inc.contact", b"again") == revision + 2
    assert (await coded.get("Acme Inc.contact", revision + 2)).value == b"again"
    await bucket.put("plain", b"text")
    with pytest.raises(CodecError):
        await bucket.with_codecs(values=ZlibCodec()).get("plain")
    with pytest.raises(BadNameError, match=r"'a//b'.*'a\.\.b'"):
        await bucket.with_codecs(keys=PathCodec()).put("a//b")


class Raising:
    """A codec that raises when it decodes."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def encode_key(self, key: str) -> str:
        return key

    def decode_key(self, stored: str) -> str:
        raise self.error

    def encode_value(self, value: bytes) -> bytes:
        raise self.error

    def decode_value(self, stored: bytes) -> bytes:
        raise self.error


@pytest.mark.parametrize("error", [StopAsyncIteration(), StopIteration(), ValueError("x")])
async def test_whatever_a_codec_raises_is_a_codec_error_and_ends_no_reader(
    bucket: Bucket, reported: Reported, error: Exception
) -> None:
    await bucket.put("a", b"1")
    said = f"A codec raised {type(error).__name__}"
    codec = Raising(error)
    for coded in (bucket.with_codecs(keys=codec), bucket.with_codecs(values=codec)):
        async with asyncio.timeout(30), coded.watch() as entries:
            assert await entries.next() is None  # the entry is left out, and reported
        async with asyncio.timeout(30), coded.live() as values:
            assert values.snapshot() == {}
        assert await coded.history().all() == []
    assert await bucket.with_codecs(keys=codec).keys().all() == []
    assert {type(one) for one in reported} == {CodecError}
    assert {str(one).startswith(said) for one in reported} == {True}
    assert len(reported) == 7
    coded = bucket.with_codecs(values=codec)
    with pytest.raises(CodecError, match=said) as raised:
        await coded.get("a")
    assert raised.value.__cause__ is error
    with pytest.raises(CodecError, match=said):
        await coded.put("a", b"2")
