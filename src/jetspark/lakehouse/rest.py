"""The fields of a JSON object that a schema lacks, as JSON text, so that none of them is lost."""

from __future__ import annotations

import json
from collections.abc import Collection

import msgspec

_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])


def rest_of(payload: bytes | bytearray | None, names: Collection[str]) -> str | None:
    """An object of the other fields than these, with their values as they came.

    None if there are none, and if the payload is no JSON object. Bytes that are not UTF-8 become
    U+FFFD.
    """
    if not payload:
        return None
    text = bytes(payload).decode("utf-8", "replace")
    try:
        fields = _DECODER.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return _with_surrogates(text, names)
    found = [
        f"{json.dumps(name, ensure_ascii=False)}:{bytes(value).decode()}"
        for name, value in fields.items()
        if name not in names
    ]
    return f"{{{','.join(found)}}}" if found else None


def _with_surrogates(text: str, names: Collection[str]) -> str | None:
    """Of a text with half of a pair of surrogates, which msgspec refuses and Spark does not."""
    try:
        fields = json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    found = {name: value for name, value in fields.items() if name not in names}
    return json.dumps(found, separators=(",", ":")) if found else None


def _refused(constant: str) -> None:
    """NaN and infinities are no JSON."""
    raise ValueError(constant)
