"""Codecs: how keys and values are encoded in a bucket (ADR-54).

Contract: a codec is pure, and decodes what it encoded to the same key or value. CodecError says
what it cannot encode or decode. Filters with wildcards need `encode_filter`; a codec without it
still takes ">" and plain keys. Other programs see the encoded form: these codecs are compatible
with Orbit's for Go, token by token.
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
    """Encodes keys."""

    def encode_key(self, key: str) -> str:
        """The stored form of a key. Raises CodecError."""

    def decode_key(self, stored: str) -> str:
        """The key of a stored form. Raises CodecError."""


@runtime_checkable
class FilterCodec(Protocol):
    """A key codec that can encode filters."""

    def encode_filter(self, text: str) -> str:
        """The filter that matches the stored forms of the keys that `text` matches."""


class ValueCodec(Protocol):
    """Encodes values."""

    def encode_value(self, value: bytes) -> bytes:
        """The stored form of a value. Raises CodecError."""

    def decode_value(self, stored: bytes) -> bytes:
        """The value of a stored form. Raises CodecError."""


class NoCodec:
    """Leaves keys and values unchanged."""

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
    """URL-safe Base64 without padding; of a key, each token by itself."""

    def encode_key(self, key: str) -> str:
        """Tokens may have any characters but dots. Raises CodecError for a lone surrogate."""
        return ".".join(map(_token, key.split(".")))

    def decode_key(self, stored: str) -> str:
        """Raises CodecError."""
        try:
            return ".".join(_plain(token.encode()).decode() for token in stored.split("."))
        except UnicodeDecodeError:
            raise CodecError(f"The stored key {stored!r} is not Base64 of UTF-8.") from None

    def encode_filter(self, text: str) -> str:
        """Wildcards stay. Raises CodecError for a lone surrogate."""
        tokens = text.split(".")
        return ".".join(token if token in ("*", _ALL) else _token(token) for token in tokens)

    def encode_value(self, value: bytes) -> bytes:
        """The value in Base64, a third longer."""
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
    # Python's decoder also accepts the two characters of the standard alphabet.
    if not (b"+" in data or b"/" in data):
        try:
            return base64.b64decode(data + b"=" * (-len(data) % 4), b"-_", validate=True)
        except binascii.Error:
            pass
    raise CodecError(f"{data[:40]!r} is not URL-safe Base64.")


class PathCodec:
    """Keys written as paths: "/user/settings" is stored as "_root_.user.settings".

    A slash at the end is dropped. Keys must not have dots: they would be decoded as slashes.
    """

    _ROOT = "_root_"

    def encode_key(self, key: str) -> str:
        """Raises CodecError for a key with a dot."""
        if "." in key:
            raise CodecError(f"The path {key!r} has a dot.")
        return self.encode_filter(key)

    def decode_key(self, stored: str) -> str:
        """The path."""
        first, dot, rest = stored.partition(".")
        if first == self._ROOT:
            return "/" + rest.replace(".", "/")
        return (first + dot + rest).replace(".", "/")

    def encode_filter(self, text: str) -> str:
        """Wildcards stand between slashes instead of dots."""
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
            raise ConfigError("level must be from -1 to 9.")
        self.level = level

    def encode_value(self, value: bytes) -> bytes:
        """The value compressed, with zlib's header and checksum."""
        return zlib.compress(value, self.level)

    def decode_value(self, stored: bytes) -> bytes:
        """Raises CodecError."""
        try:
            return zlib.decompress(stored)
        except zlib.error as error:
            raise CodecError(f"A stored value is not zlib data: {error}.") from None


class KeyChain:
    """Key codecs applied one after the other; decoding in reverse order."""

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
        """Raises ConfigError when one of them has no `encode_filter`."""
        for codec in self.codecs:
            text = encode_filter(codec, text)
        return text


class ValueChain:
    """Value codecs applied one after the other; decoding in reverse order."""

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
    """The filter on stored keys. Raises ConfigError for wildcards without `encode_filter`."""
    if text == _ALL:
        return text
    if isinstance(codec, FilterCodec):
        return codec.encode_filter(text)
    if "*" in text or text.endswith(_ALL):
        raise ConfigError(f"{type(codec).__name__} has no encode_filter: no wildcards but '>'.")
    return codec.encode_key(text)
