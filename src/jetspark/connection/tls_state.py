"""What is known of a link's TLS."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TLSState:
    """The TLS of a link, as it was agreed in the handshake."""

    version: str
    """Such as "TLSv1.3"."""
    cipher: str
    """The cipher suite, such as "TLS_AES_256_GCM_SHA384"."""
    certificate: bytes
    """The server's certificate, DER encoded."""
    peer: Mapping[str, Any]
    """The fields of the server's certificate, as `ssl.SSLSocket.getpeercert` has them: subject,
    subjectAltName, notAfter and others; empty if an `ssl_context` did not verify it."""


def tls_state_of(tls: ssl.SSLObject) -> TLSState:
    """The state after the handshake."""
    cipher = tls.cipher()
    return TLSState(
        version=tls.version() or "",
        cipher=cipher[0] if cipher else "",
        certificate=tls.getpeercert(binary_form=True) or b"",
        peer=tls.getpeercert() or {},
    )
