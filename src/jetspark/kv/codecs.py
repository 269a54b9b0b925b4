"""Codecs: what keys and values become on their way into a bucket, and back (ADR-54, row K5).

Contract: a codec is pure, and decodes what it encoded to the same key or value. What it cannot
encode or decode raises CodecError. Filters with wildcards need `encode_filter`; a codec without it
still takes ">" and plain keys. Other programs see the encoded form: the ones here are those of
Orbit's codecs for Go, token by token.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Protocol, runtime_checkable

from jetspark.arguments import checked
from jetspark.errors import CodecError, ConfigError

_ALL = ">"


class KeyCodec(Protocol):
    """Keys to the keys that are stored."""

    def encode_key(self, key: str) -> str:
        """What is stored for a key."""

    def decode_key(self, stored: str) -> str:
        """The key of what is stored."""


@runtime_checkable
class FilterCodec(Protocol):
    """A key codec that leaves wildcards where they are."""

    def encode_filter(self, text: str) -> str:
        """A filter that takes the stored forms of the keys that `text` takes."""


class ValueCodec(Protocol):
    """Values to the values that are stored."""

    def encode_value(self, value: bytes) -> bytes:
        """What is stored for a value."""

    def decode_value(self, stored: bytes) -> bytes:
        """The value of what is stored."""


class NoCodec:
    """Everything as it is."""

    def encode_key(self, key: str) -> str:
        """The key."""
        return key

    def decode_key(self, stored: str) -> str:
        """The key."""
        return stored

    def encode_filter(self, text: str) -> str:
        """The filter."""
        return text

    def encode_value(self, value: bytes) -> bytes:
        """The value."""
        return value

    def decode_value(self, stored: bytes) -> bytes:
        """The value."""
        return stored


class Base64Codec:
    """Keys and values in Base64 for URLs, without padding; of a key each token by itself."""

    def encode_key(self, key: str) -> str:
        """Any characters but dots make a token. Raises CodecError for what is no text."""
        return ".".join(map(_token, key.split(".")))

    def decode_key(self, stored: str) -> str:
        """Raises CodecError."""
        try:
            return ".".join(_plain(token.encode()).decode() for token in stored.split("."))
        except UnicodeDecodeError:
            raise CodecError(f"The stored key {stored!r} is no Base64 of text.") from None

    def encode_filter(self, text: str) -> str:
        """Tokens that are a wildcard stay."""
        tokens = text.split(".")
        return ".".join(token if token in ("*", _ALL) else _token(token) for token in tokens)

    def encode_value(self, value: bytes) -> bytes:
        """A third longer."""
        return _base64(value)

    def decode_value(self, stored: bytes) -> bytes:
        """Raises CodecError."""
        return _plain(stored)


def _token(text: str) -> str:
    try:
        return _base64(text.encode()).decode()
    except UnicodeEncodeError:
        raise CodecError(f"The key's token {text!r} holds a lone surrogate.") from None


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _plain(data: bytes) -> bytes:
    # Python's decoder lets the other alphabet's two characters pass.
    if not (b"+" in data or b"/" in data):
        try:
            return base64.b64decode(data + b"=" * (-len(data) % 4), b"-_", validate=True)
        except binascii.Error:
            pass
    raise CodecError(f"{data[:40]!r} is no Base64 for URLs.")


class PathCodec:
    """Keys written as paths: "/user/settings" is stored as "_root_.user.settings".

    A slash at the end is not kept. Keys must not hold dots: they would come back as slashes.
    """

    _ROOT = "_root_"

    def encode_key(self, key: str) -> str:
        """Raises CodecError for a key that would not come back."""
        if "." in key:
            raise CodecError(f"The path {key!r} holds a dot.")
        return self.encode_filter(key)

    def decode_key(self, stored: str) -> str:
        """The path."""
        first, dot, rest = stored.partition(".")
        if first == self._ROOT:
            return "/" + rest.replace(".", "/")
        return (first + dot + rest).replace(".", "/")

    def encode_filter(self, text: str) -> str:
        """Wildcards stand between slashes as they do between dots."""
        if text == "/":
            return self._ROOT
        if text.startswith("/"):
            text = self._ROOT + text
        return text.removesuffix("/").replace("/", ".")


class ZlibCodec:
    """Values compressed with zlib; `level` from 0 to 9, -1 for zlib's own choice."""

    @checked
    def __init__(self, level: int = -1) -> None:
        if not -1 <= level <= 9:
            raise ConfigError("level is from -1 to 9.")
        self.level = level

    def encode_value(self, value: bytes) -> bytes:
        """With zlib's header and checksum."""
        return zlib.compress(value, self.level)

    def decode_value(self, stored: bytes) -> bytes:
        """Raises CodecError."""
        try:
            return zlib.decompress(stored)
        except zlib.error as error:
            raise CodecError(f"A stored value is no zlib data: {error}.") from None


class KeyChain:
    """Key codecs one after the other; decoding goes the other way round."""

    @checked
    def __init__(self, *codecs: KeyCodec) -> None:
        if not codecs:
            raise ConfigError("A chain needs at least one codec.")
        self.codecs = codecs

    def encode_key(self, key: str) -> str:
        """First to last."""
        for codec in self.codecs:
            key = codec.encode_key(key)
        return key

    def decode_key(self, stored: str) -> str:
        """Last to first."""
        for codec in reversed(self.codecs):
            stored = codec.decode_key(stored)
        return stored

    def encode_filter(self, text: str) -> str:
        """Raises ConfigError when one of them has no filters."""
        for codec in self.codecs:
            text = encode_filter(codec, text)
        return text


class ValueChain:
    """Value codecs one after the other; decoding goes the other way round."""

    @checked
    def __init__(self, *codecs: ValueCodec) -> None:
        if not codecs:
            raise ConfigError("A chain needs at least one codec.")
        self.codecs = codecs

    def encode_value(self, value: bytes) -> bytes:
        """First to last."""
        for codec in self.codecs:
            value = codec.encode_value(value)
        return value

    def decode_value(self, stored: bytes) -> bytes:
        """Last to first."""
        for codec in reversed(self.codecs):
            stored = codec.decode_value(stored)
        return stored


def encode_filter(codec: KeyCodec, text: str) -> str:
    """The filter on stored keys. Raises ConfigError for wildcards that the codec cannot keep."""
    if text == _ALL:
        return text
    if isinstance(codec, FilterCodec):
        return codec.encode_filter(text)
    if "*" in text or text.endswith(_ALL):
        raise ConfigError(f"{type(codec).__name__} has no encode_filter: no wildcards but '>'.")
    return codec.encode_key(text)
