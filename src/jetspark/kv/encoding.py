"""How a bucket's keys and values are encoded in its stream: subjects, headers, codecs. Pure.

A mirror has the subjects of its origin, and writes go to the origin: in another domain with that
domain's API prefix before "$KV.…". The same applies to a context with a domain or prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeVar

from jetspark.errors import CodecError, ConfigError, JetsparkError
from jetspark.jetstream.documents import StoredMsg, StreamConfig, exact_ns
from jetspark.kv.codecs import KeyCodec, ValueCodec, encode_filter
from jetspark.kv.entries import Entry
from jetspark.kv_rules import (
    MARKER_REASON,
    OPERATION,
    STREAM_PREFIX,
    check_filter,
    check_key,
    operation_of,
)
from jetspark.payloads import Payload, payload_bytes

_DEFAULT_API: Final = "$JS.API"

T = TypeVar("T", str, bytes)


def _coded(code: Callable[[T], T], value: T) -> T:
    """What a codec makes of it. Whatever it raises is a CodecError.

    Some exceptions would mean something to the reader's loop: that it has come to its end.
    """
    try:
        return code(value)
    except (JetsparkError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise CodecError(f"A codec raised {type(error).__name__}.") from error


class BucketEncoding:
    """For one bucket: key to subject, value to payload, and back."""

    __slots__ = (
        "_at",
        "_writes",
        "direct",
        "history",
        "keys",
        "max_age",
        "name",
        "stream",
        "ttl",
        "values",
    )

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
        """The same bucket with these codecs."""
        other = object.__new__(BucketEncoding)
        for name in ("_at", "_writes", "direct", "history", "max_age", "name", "stream", "ttl"):
            setattr(other, name, getattr(self, name))
        other.keys, other.values = keys, values
        return other

    @property
    def cut(self) -> int:
        """Where the key begins in a subject."""
        return len(self._at)

    @property
    def plain(self) -> bool:
        """Whether there are no codecs."""
        return self.keys is None and self.values is None

    # -- keys ----------------------------------------------------------------------------------

    def _stored_key(self, key: str) -> str:
        return check_key(key if self.keys is None else _coded(self.keys.encode_key, key), key)

    def subject(self, key: str) -> str:
        """The subject of a key in the bucket's stream. Raises BadNameError, CodecError."""
        return self._at + self._stored_key(key)

    def write_subject(self, key: str) -> str:
        """The subject that a key is written to. Raises ConfigError for a read-only bucket."""
        stored = self._stored_key(key)
        if self._writes is None:
            raise ConfigError(f'Bucket "{self.name}" is read-only.')
        return self._writes + stored

    def filters(self, keys: str | Iterable[str]) -> list[str]:
        """The subjects of one or several filters. Raises BadNameError, ConfigError."""
        wanted = [keys] if isinstance(keys, str) else list(keys)
        if not wanted:
            raise ConfigError("keys is empty; '>' means all of them.")
        return [self._at + self._filter(text) for text in wanted]

    def _filter(self, text: str) -> str:
        if self.keys is None:
            return check_filter(text, text)
        return check_filter(_coded(partial(encode_filter, self.keys), text), text)

    def key_of(self, subject: bytes) -> str:
        """The key of a subject in the stream. Raises CodecError, UnicodeDecodeError."""
        stored = subject[self.cut :].decode()
        return stored if self.keys is None else _coded(self.keys.decode_key, stored)

    # -- values --------------------------------------------------------------------------------

    def stored_value(self, value: Payload) -> bytes:
        """The payload of a value. Raises BadPayloadError, CodecError."""
        plain = payload_bytes(value)
        return plain if self.values is None else _coded(self.values.encode_value, plain)

    def value_of(self, stored: bytes) -> bytes:
        """The value of a payload. Raises CodecError."""
        return stored if self.values is None else _coded(self.values.decode_value, stored)

    def entry_of(self, message: StoredMsg, key: str) -> Entry:
        """The entry of a stored message of this key. Raises CodecError."""
        headers = message.headers
        operation = operation_of(None, None)
        if headers is not None:
            operation = operation_of(headers.get(OPERATION), headers.get(MARKER_REASON))
        return Entry(
            self.name,
            key,
            self.value_of(message.data) if operation == "PUT" else b"",
            message.seq,
            exact_ns(message.time),
            0,
            operation,
        )
