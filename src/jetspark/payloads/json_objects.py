"""JSON payloads as objects, within bounds: payloads are written by others."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from jetspark.payloads.decoder import Undecodable

MAX_DEPTH: Final = 200
"""Objects and lists within each other."""
MAX_VALUES: Final = 1_000_000
"""Values in one payload."""

# A text without an end is one, too: otherwise each quote in it would begin a search to the end.
_TEXT_OR_CONSTANT = re.compile(rb'"(?:[^"\\]|\\.?)*+"?|-?\bInfinity\b|\bNaN\b', re.DOTALL)
_TEXT_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.?)*+"?|[\[\]{}]', re.DOTALL)


def parse_object(payload: bytes, decode: Callable[[bytes], Any]) -> Any:
    """Decode a payload that is one JSON object, neither too large nor nested too deeply. Raises
    Undecodable.

    `decode`: of a msgspec decoder for an object. The words NaN, Infinity and -Infinity, which
    Python writes, become texts.
    """
    _check_bounds(payload)
    try:
        return decode(payload)
    except msgspec.ValidationError as error:
        kinds = {b'"': "a text", b"[": "a list", b"t": "true", b"f": "false", b"n": "null"}
        kind = kinds.get(payload.strip()[:1], "a number")
        raise Undecodable(f"The payload is {kind}, not an object.") from error
    except RecursionError:
        raise Undecodable("The payload is nested too deeply.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if b"NaN" in payload or b"Infinity" in payload:
            quoted = _TEXT_OR_CONSTANT.sub(_quote_constant, payload)
            if quoted != payload:
                return parse_object(quoted, decode)
        raise Undecodable(_describe_malformed(payload, error)) from None


def check_utf8(payload: bytes) -> None:
    """Raise Undecodable for bytes that are not UTF-8."""
    try:
        payload.decode()
    except UnicodeDecodeError as error:
        byte = payload[error.start]
        raise Undecodable(
            f"The payload is not UTF-8: byte {error.start} is 0x{byte:02x}."
        ) from None


def _check_bounds(payload: bytes) -> None:
    """Raise Undecodable for a payload that is nested too deeply, or has too many values."""
    if payload.count(b"{") + payload.count(b"[") > MAX_DEPTH:  # else it cannot be too deep
        depth = 0
        for bracket in _TEXT_OR_BRACKET.findall(payload):
            depth += (bracket in b"{[") - (bracket in b"}]")
            if depth > MAX_DEPTH:
                raise Undecodable(f"The payload is nested more than {MAX_DEPTH} deep.")
    if len(payload) > MAX_VALUES and payload.count(b",") > MAX_VALUES:
        raise Undecodable(f"The payload has more than {MAX_VALUES:,} values.")


def _quote_constant(match: re.Match[bytes]) -> bytes:
    """Return a word such as NaN as a JSON text, and a text as it is. `match`: of either of them."""
    return match[0] if match[0].startswith(b'"') else b'"%s"' % match[0]


def _describe_malformed(payload: bytes, error: Exception) -> str:
    """Return the sentence that says why a payload is no JSON object. `error`: what msgspec has
    raised."""
    if not payload.strip():
        return "The payload is empty."
    problem = str(error).removeprefix("JSON is malformed: ")
    if problem == "Input data was truncated":
        half = rb"\u" in payload.lower()
        problem = f"it ends too early{', or in half of a pair of surrogates' if half else ''}"
    return f"The payload is not one JSON object: {problem[:1].lower()}{problem[1:]}."
