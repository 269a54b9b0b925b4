"""INFO and CONNECT as typed documents, and the decoder of documents that others write.

Unknown INFO fields are kept. For any bytes, `decode_json`, `decode_msgpack` and `decode_document`
raise only DocumentError; a test finds every other decoder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from operator import index
from typing import Any, Final, TypeVar

import msgspec

from jetspark.errors import ConfigError, DocumentError, ProtocolError, safe_repr
from jetspark.subjects import plain_text

T = TypeVar("T")

_DEEPEST: Final = 100
"""Levels of a document; deeper nesting could exhaust the stack of code that walks through it."""


def decode_json(data: bytes | bytearray | str, type: type[T], label: str) -> T:
    """JSON as a type that msgspec knows. Raises DocumentError, which names `label`."""
    try:
        return msgspec.json.decode(data, type=type)
    except (ValueError, RecursionError) as error:  # all of msgspec's errors, and UnicodeError
        raise _unreadable(label, error) from None


def decode_msgpack(data: bytes, type: type[T], label: str) -> T:
    """MessagePack as a type. Raises DocumentError."""
    try:
        return msgspec.msgpack.decode(data, type=type)
    except (ValueError, RecursionError) as error:
        raise _unreadable(label, error) from None


def decode_document(data: bytes | str, label: str) -> dict[str, Any]:
    """A JSON object. Raises DocumentError, also for deep nesting."""
    document: dict[str, Any] = decode_json(data, dict[str, Any], label)
    level: list[Any] = [document]
    for _ in range(_DEEPEST):
        parts = (item.values() if isinstance(item, dict) else item for item in level)
        level = [item for part in parts for item in part if isinstance(item, dict | list)]
        if not level:
            return document
    raise DocumentError(label, f"it is nested more than {_DEEPEST} levels deep")


def convert_document(
    raw: Any,
    type: type[T],
    label: str,
    *,
    strict: bool = True,
    dec_hook: Callable[[type[Any], Any], Any] | None = None,
) -> T:
    """Parsed JSON as a type, like `msgspec.convert`. Raises DocumentError."""
    try:
        return msgspec.convert(raw, type, strict=strict, dec_hook=dec_hook)
    except (ValueError, OverflowError, RecursionError) as error:
        raise _unreadable(label, error) from None


def _unreadable(label: str, error: Exception) -> DocumentError:
    if isinstance(error, RecursionError):
        return DocumentError(label, "it is nested too deep")
    if isinstance(error, UnicodeEncodeError):
        return DocumentError(label, "a lone surrogate has no form in UTF-8")
    return DocumentError(label, str(error))


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A server's INFO. `raw` has all fields, including unknown ones."""

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    go: str = ""
    host: str = ""
    port: int = 0
    headers: bool = False
    max_payload: int = 1048576
    """Largest message, bytes, headers included."""
    proto: int = 0
    client_id: int = 0
    client_ip: str = ""
    auth_required: bool = False
    tls_required: bool = False
    tls_available: bool = False
    tls_verify: bool = False
    jetstream: bool = False
    domain: str = ""
    cluster: str = ""
    connect_urls: list[str] = []
    ws_connect_urls: list[str] = []
    ldm: bool = False
    """Lame-duck mode: the server will soon close its clients' connections."""
    nonce: str = ""
    git_commit: str = ""
    cluster_dynamic: bool = False
    xkey: str = ""
    raw: dict[str, Any] = {}

    def at_least(self, major: int, minor: int, patch: int = 0) -> bool:
        """Whether the server has this version or a newer one; False for an unreadable version."""
        version = []
        for part in self.version.partition("-")[0].lstrip("v").split("."):
            if not part.isdigit():
                return False
            version.append(int(part))
        return tuple(version) >= (major, minor, patch)


def parse_info(document: bytes) -> ServerInfo:
    """Raises ProtocolError for anything but an INFO document."""
    try:
        raw = decode_document(document, "INFO")
        fields = {**{k: v for k, v in raw.items() if v is not None}, "raw": raw}
        return convert_document(fields, ServerInfo, "INFO", strict=False)
    except DocumentError as error:
        raise ProtocolError(f"unreadable INFO: {error.reason}") from None


class ConnectDocument(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The CONNECT document. It holds secrets, which are neither logged nor part of its repr."""

    verbose: bool
    pedantic: bool
    echo: bool
    headers: bool
    no_responders: bool
    tls_required: bool
    lang: str
    version: str
    protocol: int
    name: str = ""
    user: str = ""
    password: str = msgspec.field(default="", name="pass")
    auth_token: str = ""
    nkey: str = ""
    jwt: str = ""
    sig: str = ""

    def __repr__(self) -> str:
        return f"ConnectDocument(name={self.name!r}, …)"


def encode_document(document: object) -> bytes:
    """Encode as JSON, with values in their plain form (`plain_value`).

    Raises ConfigError for text with a lone surrogate, infinity, NaN, and objects that cannot be
    encoded.
    """
    try:
        encoded = msgspec.json.encode(document, enc_hook=plain_value)
        if b"null" in encoded:  # what msgspec writes for infinity and NaN
            _check_numbers(document)
        return encoded
    except TypeError as error:
        raise ConfigError(f"{error}.") from None
    except UnicodeEncodeError:
        # Without msgspec's message, which quotes the document: that may hold secrets.
        raise ConfigError(
            "A text contains a lone surrogate, which UTF-8 cannot encode: was it decoded from "
            "bytes that are not UTF-8?"
        ) from None


def plain_value(value: Any) -> Any:
    """The plain form, one level deep, of a value without a type in JSON. Raises TypeError."""
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, Integral):
        return index(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | memoryview):
        return list(value)
    raise TypeError(f"{safe_repr(value)} has no form in JSON")


def _check_numbers(document: object) -> None:
    if isinstance(document, float) and not math.isfinite(document):
        raise ConfigError(f"{document} cannot be sent as a number.")
    if isinstance(document, Mapping):
        document = list(document.values())
    if isinstance(document, list | tuple):
        for value in document:
            _check_numbers(value)
