"""What a server accepts. A message published to one server may be sent to the next one."""

from __future__ import annotations

from typing import NamedTuple

from jetspark.errors import (
    BadSubjectError,
    HeadersNotSupportedError,
    JetsparkError,
    MaxPayloadError,
)
from jetspark.wire.documents import ServerInfo
from jetspark.wire.frames import reply_of

COMMON_LINE = 200
"""Bytes of subjects that fit into any server's line: its limit is at least 256."""

_NUMBERS = 22
"""Bytes that the sizes or the subscription id may add to the subjects."""


def check_line(subject: str, target: bytes, limit: int) -> None:
    """Raises BadSubjectError when the line with these subjects is too long for a server.

    `target`: the encoded subject with its reply subject or queue group.
    """
    if len(target) + _NUMBERS > limit:
        raise BadSubjectError(
            f"{subject[:40]}…",
            f"its protocol line is longer than max_control_line, {limit} bytes",
        )


def check_headers(info: ServerInfo | None) -> None:
    """Raises HeadersNotSupportedError unless the server, if it is known yet, supports headers."""
    if info is not None and not info.headers:
        raise HeadersNotSupportedError(
            f"The server (nats-server {info.version}) does not support message headers."
        )


class Dropped(NamedTuple):
    """A publish that will not be sent. `reply`: its reply subject, or ""."""

    error: JetsparkError
    reply: str


def sendable(frames: list[bytes], info: ServerInfo) -> tuple[list[bytes], list[Dropped]]:
    """The publishes that a server accepts, and those that it does not."""
    kept, dropped = [], []
    for frame in frames:
        if (refused := _refusal(frame, info)) is None:
            kept.append(frame)
        else:
            dropped.append(refused)
    return kept, dropped


def _refusal(frame: bytes, info: ServerInfo) -> Dropped | None:
    """Why a server would close the link over this PUB or HPUB; None if it would not."""
    if len(frame) <= info.max_payload and info.headers:
        return None
    words = frame[: frame.index(b"\r\n")].split()
    size = int(words[-1])
    with_headers = words[0] == b"HPUB"
    reply = reply_of(frame).decode()
    if size > info.max_payload:
        return Dropped(MaxPayloadError(size, info.max_payload), reply)
    try:
        if with_headers:
            check_headers(info)
    except HeadersNotSupportedError as error:
        return Dropped(error, reply)
    return None
