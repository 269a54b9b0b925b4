"""What Debezium writes for a value that a change has left as it was and the database did not send
(`unavailable.value.placeholder`)."""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64encode
from typing import Any, Final

import msgspec

from jetspark.payloads.json_objects import parse_object

UNAVAILABLE_VALUE: Final = "__debezium_unavailable_value"
"""Debezium's default for the placeholder."""
_PARSE_VALUES = msgspec.json.Decoder(dict[str, Any]).decode


class Placeholders:
    """Recognizes what Debezium writes for a value that the database did not send, in each form that
    this placeholder has in a column of text, bytes or lists."""

    def __init__(self, text: str = UNAVAILABLE_VALUE) -> None:
        """Prepare all forms of the placeholder. `text`: as Debezium's option has it, also as
        `hex:…`. Raises ValueError."""
        as_bytes = text.encode()
        if text.startswith("hex:"):
            as_bytes = bytes.fromhex(text[4:])
            text = as_bytes.decode(errors="replace")
        if not as_bytes:
            raise ValueError("it is empty")
        self._texts = frozenset(
            {
                text, b64encode(as_bytes).decode(), urlsafe_b64encode(as_bytes).decode(),
                as_bytes.hex(), as_bytes.hex().upper(), f"\\x{as_bytes.hex()}",
            }
        )  # fmt: skip
        self._bytes = as_bytes
        values = list(as_bytes)
        # In Java a byte is from -128 to 127.
        self._byte_lists = (values, [number - 256 * (number > 127) for number in values])
        pair = msgspec.json.encode({text: text}).decode()
        self._texts |= {pair, pair.replace('":"', '": "')}  # hstore, as JSON
        # Behind a backslash may be any character of the placeholder.
        self._marks = (b"\\", *(msgspec.json.encode(form)[1:-1] for form in self._texts))
        lists = [rb"\s*,\s*".join(b"%d" % n for n in values) for values in self._byte_lists]
        self._find_list = re.compile(rb"\[\s*(?:" + b"|".join(lists) + rb")\s*\]").search

    def find_marks(self, rows: bytes) -> list[bytes]:
        """Return byte strings, at least one of which is in every row that has a placeholder; none:
        no row has one. `rows`: the JSON of many rows. This is a quick test, which rows without one
        may pass."""
        marks = [mark for mark in self._marks if mark in rows]
        return marks if self._find_list(rows) is None else [*marks, b"["]

    def find_fields(self, row: bytes) -> list[str]:
        """Return the fields of a JSON object whose values are placeholders, or have one in them."""
        values = parse_object(row, _PARSE_VALUES).items()
        return [name for name, value in values if self.is_in(value)]

    def is_in(self, value: Any) -> bool:
        """Return whether a value is a placeholder, or has one at any depth."""
        match value:
            case str():
                return value in self._texts
            case bytes():
                return value == self._bytes
            case list():
                return value in self._byte_lists or any(map(self.is_in, value))
            case tuple():
                return any(map(self.is_in, value))
            case dict():
                return any(map(self.is_in, value)) or any(map(self.is_in, value.values()))
        return False
