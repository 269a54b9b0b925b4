"""Whether a server takes a frame: what was published for one server may be sent to another."""

from __future__ import annotations

from typing import NamedTuple

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


class Dropped(NamedTuple):
    """A publish that is not sent after all. `reply`: its reply subject, or ""."""

    error: JetsparkError
    reply: str


def sendable(frames: list[bytes], info: ServerInfo) -> tuple[list[bytes], list[Dropped]]:
    """The publishes that a server takes, and the others, one by one."""
    kept, dropped = [], []
    for frame in frames:
        if (refused := _refusal(frame, info)) is None:
            kept.append(frame)
        else:
            dropped.append(refused)
    return kept, dropped


def _refusal(frame: bytes, info: ServerInfo) -> Dropped | None:
    """Why a server would end the link over this PUB or HPUB; None when it would not."""
    if len(frame) <= info.max_payload and info.headers:
        return None
    words = frame[: frame.index(b"\r\n")].split()
    size = int(words[-1])
    with_headers = words[0] == b"HPUB"
    reply = words[2].decode() if len(words) == 4 + with_headers else ""
    if size > info.max_payload:
        return Dropped(MaxPayloadError(size, info.max_payload), reply)
    try:
        if with_headers:
            check_headers(info)
    except HeadersNotSupportedError as error:
        return Dropped(error, reply)
    return None
