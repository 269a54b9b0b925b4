"""What each -ERR of a nats-server means: which exception, and whether the link ends.

Contract: `ERRORS` has every text that nats-server's source sends to a client, old servers included.
The link ends only after those that make the server close it. A refused subscription or publish
fails alone, and an unknown text is reported: ending the link over it would lose what is in flight,
and would repeat for ever if the error came again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Final, Literal, NamedTuple, TypeAlias

from jetspark.errors import (
    AccountAuthExpiredError,
    AuthExpiredError,
    AuthorizationError,
    AuthRevokedError,
    BadSubjectError,
    ConnectionFailure,
    ConnectionLimitError,
    ControlLineError,
    HeadersNotSupportedError,
    InvalidSubjectError,
    JetsparkError,
    MaxPayloadError,
    PermissionsError,
    SecureConnectionWantedError,
    ServerError,
    ServerRefusedError,
    StaleConnectionError,
    SubscriptionLimitError,
)
from jetspark.wire.documents import ServerInfo
from jetspark.wire.frames import reply_of

Ends: TypeAlias = Literal["link", "subscription", "publish"]


class Meaning(NamedTuple):
    """`text`: what the -ERR holds, in lower case. `make`: from (-ERR text, server's URL)."""

    text: str
    ends: Ends
    make: Callable[[str, str], JetsparkError]


_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_PERMISSIONS = re.compile(
    rf"permissions violation for (publish|subscription)(?: to| with reply of) {_QUOTED}"
    rf'(?: using queue {_QUOTED})?(?: \(sid "(\d+)"\))?',
    re.IGNORECASE,
)


def _permissions(text: str, server: str) -> JetsparkError:
    match = _PERMISSIONS.search(text)
    if match is None:
        return ServerError(text)
    queue = None if match[3] is None else _unquoted(match[3])
    sid = None if match[4] is None else int(match[4])
    return PermissionsError(text, match[1].casefold(), _unquoted(match[2]), queue, sid)


def _unquoted(text: str) -> str:
    """Undo Go's %q, whose escapes Python has, too."""
    try:
        return str(ast.literal_eval(f'"{text}"')) if "\\" in text else text
    except (SyntaxError, ValueError):
        return text


def _server_error(text: str, server: str) -> JetsparkError:
    return ServerError(text)


def _limit(text: str, server: str) -> JetsparkError:
    return ConnectionLimitError(text)


def _refused(error: type[ConnectionFailure], sentence: str) -> Callable[[str, str], JetsparkError]:
    """Makes an error whose sentence names the server in place of {}."""
    return lambda text, server: error(sentence.format(server), server=server)


_unauthorized = _refused(
    AuthorizationError, "{} refused these credentials (authorization violation)."
)


def _wrong_port(text: str, server: str) -> JetsparkError:
    return ServerRefusedError(
        f"{server} is not a client port ({text}): use the server's client port, often 4222.",
        server=server,
    )


ERRORS: Final[tuple[Meaning, ...]] = (
    # One subscription or one publish; the server keeps the link.
    Meaning("permissions violation for subscription", "subscription", _permissions),
    Meaning("permissions violation for publish", "publish", _permissions),
    Meaning(
        "maximum subscriptions exceeded", "subscription", lambda t, s: SubscriptionLimitError(t)
    ),
    Meaning("invalid publish subject", "publish", lambda t, s: InvalidSubjectError(t)),
    Meaning("invalid subject", "subscription", lambda t, s: InvalidSubjectError(t)),
    # Authentication. The longer texts first.
    Meaning(
        "account authentication expired",
        "link",
        _refused(AccountAuthExpiredError, "{}: the account's authentication has expired."),
    ),
    Meaning(
        "authentication expired",
        "link",
        _refused(AuthExpiredError, "{}: the user's authentication has expired."),
    ),
    Meaning(
        "authentication revoked",
        "link",
        _refused(AuthRevokedError, "{}: the user's authentication was revoked."),
    ),
    Meaning("authorization violation", "link", _unauthorized),
    Meaning("authentication timeout", "link", _unauthorized),
    Meaning("failed account registration", "link", _server_error),
    Meaning(
        "secure connection - tls required",
        "link",
        _refused(SecureConnectionWantedError, "{} requires TLS."),
    ),
    # Limits on connections; a later attempt may succeed.
    Meaning("maximum connections exceeded", "link", _limit),
    Meaning("maximum account active connections exceeded", "link", _limit),
    Meaning("connection throttling is active", "link", _limit),
    # What was sent, or was not sent in time.
    Meaning("maximum payload violation", "link", _server_error),
    Meaning("maximum control line exceeded", "link", lambda t, s: ControlLineError(t)),
    Meaning("unknown protocol operation", "link", _server_error),
    Meaning("parser error", "link", _server_error),
    Meaning(
        "stale connection",
        "link",
        _refused(StaleConnectionError, "{}: stale connection."),
    ),
    Meaning("slow consumer", "link", _server_error),
    # Not a port for this client.
    Meaning("invalid client protocol", "link", _server_error),
    Meaning("no responders requires headers support", "link", _server_error),
    Meaning("attempted to connect to route port", "link", _wrong_port),
    Meaning("attempted to connect to gateway port", "link", _wrong_port),
    Meaning("attempted to connect to leaf node port", "link", _wrong_port),
)


def meaning_of(text: str, server: str) -> tuple[JetsparkError, Ends | None]:
    """The exception for an -ERR text, and what ends with it. `server`: its URL, no credentials."""
    folded = text.casefold()
    for meaning in ERRORS:
        if meaning.text in folded:
            return meaning.make(text, server), meaning.ends
    return ServerError(text), None


def error_of(text: str, server: str) -> JetsparkError:
    """The exception for an -ERR text."""
    return meaning_of(text, server)[0]


# -------------------------------------------------------------------------------------------------
# What a server accepts. A message published to one server may be sent to the next one.


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
