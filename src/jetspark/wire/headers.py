"""Message headers (ADR-4): names keep their case and order, a name may have several values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TypeAlias

from jetspark.errors import BadHeaderError
from jetspark.kinds import checked_where_used
from jetspark.wire.status import Status, parse_status

VERSION = b"NATS/1.0"

_BAD_NAME = re.compile(r"[\r\n:\x00\ud800-\udfff]|^\s|\s\Z|^\Z")
_BAD_VALUE = re.compile(r"[\r\n\x00\ud800-\udfff]")


@checked_where_used
class Headers:
    """An ordered multi-value map of text to text; names are case-sensitive.

    Values stay in the order in which they were given, over all names: `[("a", "1"), ("b", "x"),
    ("a", "2")]` is sent as it stands. Two are equal when each name has the same values.

    `headers["a"]` is the first value (KeyError if none), `headers["a"] = "x"` replaces them all.
    Raises BadHeaderError for a name or value that the protocol cannot carry (CR, LF, NUL, a lone
    surrogate, what is no str; a name that is empty, holds a colon or begins or ends with white
    space).
    """

    __slots__ = ("_pairs",)

    def __init__(self, items: HeadersLike = ()) -> None:
        # A list: messages have few headers, and a dict by name would forget the order over names.
        self._pairs: list[tuple[str, str]] = []
        if items == ():
            return
        pairs: Iterable[tuple[str, str | Iterable[str]]]
        if isinstance(items, Headers):
            pairs = list(items.items())
        elif isinstance(items, Mapping):
            pairs = items.items()
        else:
            pairs = items
        try:
            for name, value in pairs:
                if isinstance(value, str | bytes | bytearray) or not isinstance(value, Iterable):
                    self.add(name, value)  # type: ignore[arg-type]  # refuses what is no str
                else:
                    for one in value:
                        self.add(name, one)
        except (TypeError, ValueError):
            raise BadHeaderError(
                f"headers is a mapping or pairs of names and values, not {items!r:.80}"
            ) from None

    def add(self, name: str, value: str) -> None:
        """Append a value, keeping those that the name has."""
        if not isinstance(name, str):
            raise BadHeaderError(f"the name of a header is a str, not {name!r:.80}")
        if _BAD_NAME.search(name):
            raise BadHeaderError(f"header name {name!r} cannot be sent")
        if not isinstance(value, str):
            raise BadHeaderError(f"the value of header {name!r} is a str, not {value!r:.80}")
        if _BAD_VALUE.search(value):
            raise BadHeaderError(
                f"the value of header {name!r} holds CR, LF, NUL or a lone surrogate"
            )
        # Surrounding blanks do not survive the wire: readers strip them.
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
        """Remove a name; nothing happens if it is absent."""
        self._pairs = [pair for pair in self._pairs if pair[0] != name]

    def get(self, name: str, default: str | None = None) -> str | None:
        """The first value of a name, or the default."""
        return next((value for key, value in self._pairs if key == name), default)

    lookup = get

    def last(self, name: str) -> str | None:
        """The last value of a name: the server appends its own after those of the publisher."""
        return next((value for key, value in reversed(self._pairs) if key == name), None)

    def values(self, name: str) -> list[str]:
        """All values of a name, in order."""
        return [value for key, value in self._pairs if key == name]

    def keys(self, pattern: str = "*") -> list[str]:
        """Names in order of their first values, those that match a glob pattern."""
        return [name for name in self if fnmatchcase(name, pattern)]

    def items(self) -> Iterator[tuple[str, str]]:
        """(name, value) pairs in order, one for each value."""
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
"""What publishing calls accept: Headers, a mapping to one or several values, or pairs."""


def encode_headers(headers: Headers) -> bytes:
    """The header block: version line, one line a value, blank line; UTF-8."""
    # Not by an f-string: a str that is an Enum too formats as another text than it encodes.
    lines = ["".join((name, ": ", value, "\r\n")) for name, value in headers.items()]
    return b"%b\r\n%b\r\n" % (VERSION, "".join(lines).encode())


def parse_headers(block: bytes) -> tuple[Headers, Status | None]:
    """Headers and status line of a block as it came.

    Raises BadHeaderError when it is malformed or not UTF-8: the caller reports it and still
    delivers the body.
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
