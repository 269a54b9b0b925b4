"""INFO and CONNECT as typed documents. Unknown INFO fields are kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from jetspark.errors import ConfigError, ProtocolError
from jetspark.kinds import plain_value


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
    """Lame-duck mode: the server is about to close its clients' connections."""
    nonce: str = ""
    git_commit: str = ""
    cluster_dynamic: bool = False
    xkey: str = ""
    raw: dict[str, Any] = {}

    def at_least(self, major: int, minor: int, patch: int = 0) -> bool:
        """Whether the server has this version or a newer one; False for an unreadable version."""
        numbers = []
        for part in self.version.partition("-")[0].lstrip("v").split("."):
            if not part.isdigit():
                return False
            numbers.append(int(part))
        return tuple(numbers) >= (major, minor, patch)


def parse_info(document: bytes) -> ServerInfo:
    """Raises ProtocolError for anything that is not an INFO document."""
    try:
        raw = msgspec.json.decode(document, type=dict[str, Any])
        info = msgspec.convert(
            {**{k: v for k, v in raw.items() if v is not None}, "raw": raw},
            ServerInfo,
            strict=False,
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"unreadable INFO: {error}") from None
    return info


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
    """Encode as JSON, with values in their plain form (`kinds`).

    Raises ConfigError for text with a lone surrogate, for infinity and NaN, which JSON does not
    have, and for objects that cannot be encoded.
    """
    try:
        encoded = msgspec.json.encode(document, enc_hook=plain_value)
        if b"null" in encoded:  # what msgspec writes for infinity and NaN
            _check_numbers(document)
        return encoded
    except TypeError as error:
        raise ConfigError(f"{error}.") from None
    except UnicodeEncodeError:
        # Not the original message: it quotes the document, which may hold secrets.
        raise ConfigError(
            "A text contains a lone surrogate, which UTF-8 cannot encode: was it decoded from "
            "bytes that are not UTF-8?"
        ) from None


def _check_numbers(document: object) -> None:
    if isinstance(document, float) and not math.isfinite(document):
        raise ConfigError(f"{document} cannot be sent as a number.")
    if isinstance(document, Mapping):
        document = list(document.values())
    if isinstance(document, list | tuple):
        for value in document:
            _check_numbers(value)
