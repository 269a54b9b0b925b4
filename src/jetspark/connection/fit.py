"""Whether a server takes a frame: what was published for one server may be sent to another."""

from __future__ import annotations

from collections.abc import Callable

from jetspark.errors import (
    BadSubjectError,
    HeadersNotSupportedError,
    JetsparkError,
    MaxPayloadError,
)
from jetspark.wire.documents import ServerInfo

COMMON_LINE = 200
"""Bytes of subjects that fit into a line whatever the limit, which is 256 at least."""

_NUMBERS = 22
"""Bytes that the sizes, or the subscription id, may take behind the subjects."""


def check_line(subject: str, target: bytes, limit: int) -> None:
    """Raises BadSubjectError when the line with these subjects is longer than a server takes.

    `target`: the encoded subject with its reply subject or queue group.
    """
    if len(target) + _NUMBERS > limit:
        raise BadSubjectError(
            f"{subject[:40]}…",
            f"its protocol line is longer than max_control_line, {limit} bytes",
        )


def check_headers(info: ServerInfo | None) -> None:
    """Raises HeadersNotSupportedError of a server that says so; one not known yet may take them."""
    if info is not None and not info.headers:
        raise HeadersNotSupportedError(
            f"The server (nats-server {info.version}) does not support message headers."
        )


def fitting(
    frames: list[bytes], info: ServerInfo, report: Callable[[JetsparkError], None]
) -> list[bytes]:
    """The publishes that a server takes; why the others are dropped is reported, one by one."""
    kept = []
    for frame in frames:
        if (error := _refusal(frame, info)) is None:
            kept.append(frame)
        else:
            report(error)
    return kept


def _refusal(frame: bytes, info: ServerInfo) -> JetsparkError | None:
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
