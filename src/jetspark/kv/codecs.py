"""Entries of a bucket, and how their keys and values are encoded (ADR-54). Pure.

Contract: a codec decodes its encoded form to the same key or value, and raises CodecError for any
other. Filters with wildcards need `encode_filter`; a codec without it still takes ">" and plain
keys. Other programs see the encoded form: these codecs are compatible with Orbit's for Go.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from datetime import datetime
from functools import partial
from typing import Final, Protocol, TypeVar, runtime_checkable

import msgspec

from jetspark.documents.document import exact_ns
from jetspark.documents.streams import StoredMsg, StreamConfig
from jetspark.errors import CodecError, ConfigError, JetsparkError
from jetspark.kv_rules import (
    STREAM_PREFIX,
    Operation,
    check_filter,
    check_key,
    operation_in,
)
from jetspark.payload_bytes import Payload, payload_bytes
from jetspark.timestamps import ns_to_datetime
from jetspark.validation import check_kind, check_whole, texts_of


class Entry(msgspec.Struct, frozen=True, gc=False):  # no gc, since there may be millions
    """One write to a key."""

    bucket: str
    key: str
    value: bytes
    """Empty for deletions, and in a watch with `meta_only`."""
    revision: int
    """Counts the writes of the whole bucket, from 1."""
    created_ns: int
    """When the server stored it, in nanoseconds since the epoch."""
    delta: int = 0
    """Entries of a watch or history that were pending after it when it was sent."""
    operation: Operation = Operation.PUT

    @property
    def created(self) -> datetime:
        """When the server stored it: aware, UTC, microseconds."""
        return ns_to_datetime(self.created_ns)

    @property
    def is_deleted(self) -> bool:
        """True for an entry that deletes the key."""
        return self.operation is not Operation.PUT


class Snapshot(Mapping[str, Entry]):
    """Entries by key, as of one revision of the bucket; see `Bucket.get_many`.

    Example:
        ```python
        bucket = await js.bucket("settings")
        snapshot = await bucket.get_many(["colour", "size"])
        for key, entry in snapshot.items():
            print(key, entry.value)  # colour b'red'
        ```
    """

    def __init__(self, entries: dict[str, Entry], revision: int) -> None:
        self._entries = entries
        self.revision = revision
        """The last revision that counts. 0 when no key had an entry and `leader` was not given: the
        server's answer names no revision then."""

    def __getitem__(self, key: str) -> Entry:
        return self._entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Snapshot({list(self._entries)}, revision={self.revision})"


_ALL = ">"


@runtime_checkable
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
        """The filter for the stored forms of the keys that `text` matches."""


@runtime_checkable
class ValueCodec(Protocol):
    """Encodes values."""

    def encode_value(self, value: bytes) -> bytes:
        """The stored form of a value. Raises CodecError."""

    def decode_value(self, stored: bytes) -> bytes:
        """The value of a stored form. Raises CodecError."""


class NoCodec:
    """Leaves keys and values unchanged.

    Example:
        ```python
        from jetspark.kv import NoCodec

        bucket = (await js.bucket("settings")).with_codecs(keys=NoCodec(), values=NoCodec())
        print((await bucket.get("colour")).value)  # b'red'
        ```
    """

    def encode_key(self, key: str) -> str:
        return key

    def decode_key(self, stored: str) -> str:
        return stored

    def encode_filter(self, text: str) -> str:
        return text

    def encode_value(self, value: bytes) -> bytes:
        return value

    def decode_value(self, stored: bytes) -> bytes:
        return stored


class Base64Codec:
    """URL-safe Base64 without padding: of values, and of each token of a key.

    Tokens may have any characters but dots and lone surrogates. A filter's wildcards stay.

    Example:
        ```python
        from jetspark.kv import Base64Codec

        names = (await js.create_bucket("names")).with_codecs(keys=Base64Codec())
        await names.put("Zoë Müller", b"1")
        ```
    """

    def encode_key(self, key: str) -> str:
        return ".".join(map(_token, key.split(".")))

    def decode_key(self, stored: str) -> str:
        try:
            return ".".join(_plain(token.encode()).decode() for token in stored.split("."))
        except UnicodeDecodeError:
            raise CodecError(f"The stored key {stored!r} is not Base64 of UTF-8.") from None

    def encode_filter(self, text: str) -> str:
        tokens = text.split(".")
        return ".".join(token if token in ("*", _ALL) else _token(token) for token in tokens)

    def encode_value(self, value: bytes) -> bytes:
        return _base64(value)

    def decode_value(self, stored: bytes) -> bytes:
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

    Drops a slash at the end. Keys must not have dots, which would be decoded as slashes. A filter's
    wildcards stand between slashes.

    Example:
        ```python
        from jetspark.kv import PathCodec

        paths = (await js.create_bucket("paths")).with_codecs(keys=PathCodec())
        await paths.put("/etc/hosts", b"127.0.0.1 localhost")
        print(await paths.keys("/etc/*").all())  # ['/etc/hosts']
        ```
    """

    _ROOT = "_root_"

    def encode_key(self, key: str) -> str:
        if "." in key:
            raise CodecError(f"The path {key!r} has a dot.")
        return self.encode_filter(key)

    def decode_key(self, stored: str) -> str:
        first, dot, rest = stored.partition(".")
        if first == self._ROOT:
            return "/" + rest.replace(".", "/")
        return (first + dot + rest).replace(".", "/")

    def encode_filter(self, text: str) -> str:
        if text == "/":
            return self._ROOT
        if text.startswith("/"):
            text = self._ROOT + text
        return text.removesuffix("/").replace("/", ".")


class ZlibCodec:
    """Values compressed with zlib; `level`: 0 to 9, -1: zlib's default.

    Example:
        ```python
        from jetspark.kv import ZlibCodec

        pages = (await js.create_bucket("pages")).with_codecs(values=ZlibCodec())
        await pages.put("index", b"<html>" * 1000)
        ```
    """

    def __init__(self, level: int = -1) -> None:
        check_whole("level", level, -1, 9)
        self.level = level

    def encode_value(self, value: bytes) -> bytes:
        return zlib.compress(value, self.level)

    def decode_value(self, stored: bytes) -> bytes:
        try:
            return zlib.decompress(stored)
        except zlib.error as error:
            raise CodecError(f"A stored value is not zlib data: {error}.") from None


class KeyChain:
    """Key codecs that encode one after the other, and decode in reverse order.

    Example:
        ```python
        from jetspark.kv import Base64Codec, KeyChain, PathCodec

        keys = KeyChain(PathCodec(), Base64Codec())
        print(keys.decode_key(keys.encode_key("/etc/hosts")))  # /etc/hosts
        ```
    """

    def __init__(self, *codecs: KeyCodec) -> None:
        self.codecs = codecs

    def encode_key(self, key: str) -> str:
        for codec in self.codecs:
            key = codec.encode_key(key)
        return key

    def decode_key(self, stored: str) -> str:
        for codec in reversed(self.codecs):
            stored = codec.decode_key(stored)
        return stored

    def encode_filter(self, text: str) -> str:
        for codec in self.codecs:
            text = encode_filter(codec, text)
        return text


class ValueChain:
    """Value codecs that encode one after the other, and decode in reverse order.

    Example:
        ```python
        from jetspark.kv import Base64Codec, ValueChain, ZlibCodec

        values = ValueChain(ZlibCodec(), Base64Codec())
        print(values.decode_value(values.encode_value(b"red")))  # b'red'
        ```
    """

    def __init__(self, *codecs: ValueCodec) -> None:
        self.codecs = codecs

    def encode_value(self, value: bytes) -> bytes:
        for codec in self.codecs:
            value = codec.encode_value(value)
        return value

    def decode_value(self, stored: bytes) -> bytes:
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


_DEFAULT_API: Final = "$JS.API"

T = TypeVar("T", str, bytes)


def _coded(code: Callable[[T], T], value: T) -> T:
    """Raise CodecError for a codec's exceptions: StopIteration would end a loop of entries."""
    try:
        return code(value)
    except JetsparkError:
        raise
    except Exception as error:
        raise CodecError(f"A codec raised {type(error).__name__}.") from error


class BucketEncoding:
    """Keys and values of one bucket as subjects and payloads.

    A mirror has the subjects of its origin, and its writes go to the origin: in another domain with
    that domain's API prefix before "$KV.…", as do those of a context with a domain or prefix.
    """

    def __init__(self, config: StreamConfig, api_prefix: str) -> None:
        self.stream = config.name or ""
        self.name = self.stream.removeprefix(STREAM_PREFIX)
        self.direct = bool(config.allow_direct)
        self.history = config.max_msgs_per_subject or 1
        self.max_age = config.max_age
        self.ttl = bool(config.allow_msg_ttl)
        """Whether single entries can expire."""
        self.keys: KeyCodec | None = None
        self.values: ValueCodec | None = None
        mirror, bucket, before = config.mirror, self.name, ""
        if mirror is not None:
            bucket = mirror.name.removeprefix(STREAM_PREFIX)
        if mirror is not None and mirror.external is not None:
            before = mirror.external.api + "."
        elif api_prefix != _DEFAULT_API:
            before = api_prefix + "."
        self._at = f"$KV.{bucket}."
        # A read-only aggregate has no subjects.
        self._writes = before + self._at if mirror is not None or config.subjects else None

    def with_codecs(self, keys: KeyCodec | None, values: ValueCodec | None) -> BucketEncoding:
        expectation = "a codec of jetspark.kv, or an object with its methods"
        check_kind("keys", keys, KeyCodec | None, expectation)
        check_kind("values", values, ValueCodec | None, expectation)
        encoding = copy(self)
        encoding.keys, encoding.values = keys, values
        return encoding

    @property
    def cut(self) -> int:
        """The position of the key in a subject."""
        return len(self._at)

    @property
    def plain(self) -> bool:
        """Whether there are no codecs."""
        return self.keys is None and self.values is None

    def _stored_key(self, key: str) -> str:
        return check_key(key if self.keys is None else _coded(self.keys.encode_key, key), key)

    def subject(self, key: str) -> str:
        return self._at + self._stored_key(key)

    def write_subject(self, key: str) -> str:
        """The subject for writing a key. Raises ConfigError for a read-only bucket."""
        stored = self._stored_key(key)
        if self._writes is None:
            raise ConfigError(f'Bucket "{self.name}" is read-only.')
        return self._writes + stored

    def filters(self, keys: str | Iterable[str]) -> list[str]:
        texts = texts_of("keys", keys)
        if not texts:
            raise ConfigError("keys is empty; '>' means all of them.")
        coded = texts
        if self.keys is not None:
            coded = [_coded(partial(encode_filter, self.keys), text) for text in texts]
        return [self._at + check_filter(*pair) for pair in zip(coded, texts, strict=True)]

    def key_of(self, subject: bytes) -> str:
        stored = subject[self.cut :].decode()
        return stored if self.keys is None else _coded(self.keys.decode_key, stored)

    def stored_value(self, value: Payload) -> bytes:
        plain = payload_bytes(value)
        return plain if self.values is None else _coded(self.values.encode_value, plain)

    def value_of(self, stored: bytes) -> bytes:
        return stored if self.values is None else _coded(self.values.decode_value, stored)

    def entry_of(self, message: StoredMsg, key: str) -> Entry:
        return self.entry(key, message.data, message.seq, exact_ns(message.time), message.hdrs)

    def entry(
        self, key: str, data: bytes, revision: int, created_ns: int, headers: bytes | None
    ) -> Entry:
        """The entry of a key, from the parts of a stored message."""
        operation = Operation.PUT if headers is None else operation_in(headers)
        value = self.value_of(data) if operation is Operation.PUT else b""
        return Entry(self.name, key, value, revision, created_ns, 0, operation)
