"""Message headers (ADR-4): names keep their case and order and may have several values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from jetspark.errors import BadHeaderError, ConfigError, safe_repr
from jetspark.wire.status import Status, parse_status

VERSION = b"NATS/1.0"

# The field names of ADR-4; other clients drop all others, when sending or receiving.
_NAME = re.compile(r"[!-9;-~]+")
_BREAKS_BLOCK = re.compile(r"[\r\n:\x00\ud800-\udfff]|^\s|\s\Z|^\Z")
_BAD_VALUE = re.compile(r"[\r\n\x00\ud800-\udfff]")


class Headers:
    """An ordered multi-value map of str to str; names are case-sensitive.

    The order is kept across names: `[("a", "1"), ("b", "x"), ("a", "2")]` is sent as it is. Two
    Headers are equal when each name has the same values.

    `headers["a"]` is the first value (KeyError if none), `headers["a"] = "x"` replaces all of them.
    Blanks and tabs at the ends of a value are removed, as every receiver would. Raises
    BadHeaderError for a value with CR, LF, NUL or a lone surrogate, and for a name with anything
    but printable ASCII, without blanks and colons (ADR-4). Names of received messages are kept.

    Example:
        ```python
        headers = jetspark.Headers({"Source": "shop 7"})
        headers.add("Source", "shop 8")
        print(headers["Source"], headers.values("Source"))  # shop 7 ['shop 7', 'shop 8']
        ```
    """

    __slots__ = ("_pairs",)

    def __init__(self, items: HeadersLike = ()) -> None:
        # A list: messages have few headers, and a dict would lose the order across names.
        self._pairs: list[tuple[str, str]] = []
        if isinstance(items, Headers):
            self._pairs = _carried(items._pairs)
            return
        pairs: Iterable[tuple[str, str | Iterable[str]]]
        pairs = items.items() if isinstance(items, Mapping) else items
        try:
            values_by_name = [
                (name, (value,) if isinstance(value, str) else tuple(value))
                for name, value in pairs
            ]
        except (ValueError, TypeError):
            raise BadHeaderError(
                "headers are a mapping, or pairs of a name and a value or values, not "
                f"{safe_repr(items)}"
            ) from None
        for name, values in values_by_name:
            for value in values:
                self.add(name, value)

    def add(self, name: str, value: str) -> None:
        """Append a value to those that the name already has."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise BadHeaderError(
                f"a header's name is printable ASCII without blanks and colons, not "
                f"{safe_repr(name)}"
            )
        if not isinstance(value, str):
            raise BadHeaderError(
                f"the value of header {safe_repr(name)} is a text, not {safe_repr(value)}"
            )
        if _BAD_VALUE.search(value):
            raise BadHeaderError(
                f"the value of header {safe_repr(name)} contains CR, LF, NUL or a lone surrogate"
            )
        # Receivers strip surrounding blanks.
        self._pairs.append((name, value.strip(" \t")))

    def set(self, name: str, *values: str) -> None:
        """Replace all values of a name."""
        self.delete(name)
        for value in values:
            self.add(name, value)

    def update(self, items: HeadersLike) -> None:
        """Replace the values of every name in `items`; other names stay."""
        new = Headers(items)
        replaced = set(new)
        self._pairs = [pair for pair in self._pairs if pair[0] not in replaced] + new._pairs

    def delete(self, name: str) -> None:
        """Remove a name, if present."""
        self._pairs = [pair for pair in self._pairs if pair[0] != name]

    def get(self, name: str, default: str | None = None) -> str | None:
        """The first value of a name, or the default."""
        return next((value for key, value in self._pairs if key == name), default)

    lookup = get

    def last(self, name: str) -> str | None:
        """The last value of a name: the server appends its headers after the publisher's."""
        return next((value for key, value in reversed(self._pairs) if key == name), None)

    def values(self, name: str) -> list[str]:
        """All values of a name, in order."""
        return [value for key, value in self._pairs if key == name]

    def keys(self, pattern: str = "*") -> list[str]:
        """The names that match a glob pattern, in order of their first values."""
        return [name for name in self if fnmatchcase(name, pattern)]

    def items(self) -> Iterator[tuple[str, str]]:
        """(name, value) pairs in order."""
        return iter(self._pairs)

    def to_dict(self) -> dict[str, list[str]]:
        """A copy as a plain dict of lists."""
        by_name: dict[str, list[str]] = {}
        for name, value in self._pairs:
            by_name.setdefault(name, []).append(value)
        return by_name

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __setitem__(self, name: str, value: str) -> None:
        self.set(name, value)

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self.delete(name)

    def __contains__(self, name: object) -> bool:
        return any(key == name for key, _ in self._pairs)

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self._pairs))

    def __len__(self) -> int:
        return len(dict(self._pairs))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Headers) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Headers({self._pairs!r})"


HeadersLike: TypeAlias = Headers | Mapping[str, str | Iterable[str]] | Iterable[tuple[str, str]]
"""Headers, a mapping of names to one or several values, or (name, value) pairs."""


@runtime_checkable
class PayloadCodec(Protocol):
    """A `jetspark.payloads.Codec`, or an object of your own."""

    def encode(
        self, value: Any, headers: HeadersLike | None, /
    ) -> tuple[bytes, HeadersLike | None]:
        """The payload of a value, and the headers with the codec's own."""

    def decode(self, payload: bytes, headers: Headers | None, /) -> Any:
        """The value of a payload. Raises CodecError."""


def codec_of(codec: PayloadCodec) -> PayloadCodec:
    """Itself. Raises ConfigError for anything else, such as the name of a format."""
    if not isinstance(codec, PayloadCodec):
        raise ConfigError(f"codec is a jetspark.payloads.Codec, not {safe_repr(codec)}.")
    return codec


def forwarded(pairs: Iterable[tuple[str, str]]) -> Headers:
    """Headers of a forwarded message, with the names that it has. Raises BadHeaderError."""
    headers = Headers()
    headers._pairs = _carried(pairs)
    return headers


def _carried(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The headers of a message, if its block can have them. Raises BadHeaderError."""
    checked = list(pairs)
    for name, value in checked:
        if _BREAKS_BLOCK.search(name) or _BAD_VALUE.search(value):
            raise BadHeaderError(f"header {safe_repr(name)} cannot be sent")
    return checked


def encode_headers(headers: Headers) -> bytes:
    """The header block, UTF-8: version line, one line for each value, blank line."""
    # Not an f-string: it would write the name of a str Enum instead of its value.
    lines = ["".join((name, ": ", value, "\r\n")) for name, value in headers.items()]
    return b"%b\r\n%b\r\n" % (VERSION, "".join(lines).encode())


def parse_headers(block: bytes) -> tuple[Headers, Status | None]:
    """Headers and status line of a received block.

    Raises BadHeaderError when the block is malformed or not UTF-8; the caller reports the error and
    still delivers the message.
    """
    if not block.startswith(VERSION) or not block.endswith(b"\r\n\r\n"):
        raise BadHeaderError(f"malformed header block {block[:60]!r}")
    try:
        first, *lines = block[len(VERSION) : -4].decode().split("\r\n")
    except UnicodeDecodeError as error:
        raise BadHeaderError(f"header block is not UTF-8: {error}") from None
    if first and not first.startswith(" "):
        raise BadHeaderError(f"malformed header block {block[:60]!r}")
    headers = Headers()
    pairs = headers._pairs
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name:
            raise BadHeaderError(f"malformed header line {line[:60]!r}")
        pairs.append((name, value.strip(" \t")))
    return headers, parse_status(first)


# -- the headers of an atomic batch's messages (ADR-50), as bytes ------------------------------

BATCH_ID: Final = "Nats-Batch-Id"

MARKS: Final = b"Nats-Batch-Id:%b\r\nNats-Batch-Sequence:%d\r\n%b\r\n"
"""The end of a header block: % (batch id, batch sequence from 1 on, a constant below)."""

STAGED: Final = b""
"""More messages follow."""
COMMIT: Final = b"Nats-Batch-Commit:1\r\n"
"""Commit the batch with this message, which is the last one."""
COMMIT_BEFORE: Final = b"Nats-Batch-Commit:eob\r\n"
"""Commit the batch without this message, which is not stored (nats-server 2.14 and later)."""
