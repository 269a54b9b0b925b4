"""Whether a server takes a frame: what was published for one server may be sent to another."""

from __future__ import annotations

from jetspark.errors import HeadersNotSupportedError, JetsparkError, MaxPayloadError
from jetspark.wire.documents import ServerInfo


def check_headers(info: ServerInfo | None) -> None:
    """Raises HeadersNotSupportedError of a server that says so; one not known yet may take them."""
    if info is not None and not info.headers:
        raise HeadersNotSupportedError(
            f"The server (nats-server {info.version}) does not support message headers."
        )


def refusal(frame: bytes, info: ServerInfo) -> JetsparkError | None:
    """Why a server would end the link over this PUB or HPUB; None when it would not."""
    if len(frame) <= info.max_payload and info.headers:
        return None
    words = frame[: frame.index(b"\r\n")].split()
    size = int(words[-1])
    if size > info.max_payload:
        return MaxPayloadError(size, info.max_payload)
    try:
        if words[0] == b"HPUB":
            check_headers(info)
    except HeadersNotSupportedError as error:
        return error
    return None
