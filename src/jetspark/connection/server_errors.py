"""The meaning of each -ERR of a nats-server: its exception, and whether the link ends.

Contract: `ERRORS` has every text that nats-server's source sends to a client, old servers included.
The link ends only after errors for which the server closes it. A refused subscription or publish
fails alone. An unknown text is only reported: ending the link would lose what is in flight, and
would go on for ever if the error came again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

import jetspark.errors as errors
from jetspark.wire.documents import ServerInfo
from jetspark.wire.frames import reply_of

Ends: TypeAlias = Literal["link", "subscription", "publish"]
Make: TypeAlias = Callable[[str, str], errors.JetsparkError]
"""Creates the exception from the -ERR text and the server's URL."""

_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_PERMISSIONS = re.compile(
    rf"permissions violation for (publish|subscription)(?: to| with reply of) {_QUOTED}"
    rf'(?: using queue {_QUOTED})?(?: \(sid "(\d+)"\))?',
    re.IGNORECASE,
)


def _permissions(text: str, server: str) -> errors.JetsparkError:
    match = _PERMISSIONS.search(text)
    if match is None:
        return errors.ServerError(text)
    queue = None if match[3] is None else _unquoted(match[3])
    sid = None if match[4] is None else int(match[4])
    return errors.PermissionsError(text, match[1].casefold(), _unquoted(match[2]), queue, sid)


def _unquoted(text: str) -> str:
    """Undo Go's %q, whose escapes are also Python's."""
    try:
        return str(ast.literal_eval(f'"{text}"')) if "\\" in text else text
    except (SyntaxError, ValueError):
        return text


def _plain(error: type[errors.ServerError]) -> Make:
    return lambda text, server: error(text)


def _link(error: type[errors.ConnectionFailure], sentence: str) -> Make:
    """An error of the link. `sentence` has {} for the server, and may quote the text."""
    return lambda text, server: error(sentence.format(server, text=text), server=server)


_UNAUTHORIZED = "{} refused these credentials (authorization violation)."
_WRONG_PORT = "{} is not a client port ({text}): use the server's client port, often 4222."

ERRORS: Final[Mapping[str, Make]] = {
    # One subscription or one publish.
    "permissions violation for subscription": _permissions,
    "permissions violation for publish": _permissions,
    "maximum subscriptions exceeded": _plain(errors.SubscriptionLimitError),
    "invalid publish subject": _plain(errors.InvalidSubjectError),
    "invalid subject": _plain(errors.InvalidSubjectError),
    # Authentication. The longer texts first.
    "account authentication expired": _link(
        errors.AccountAuthExpiredError, "{}: the account's authentication has expired."
    ),
    "authentication expired": _link(
        errors.AuthExpiredError, "{}: the user's authentication has expired."
    ),
    "authentication revoked": _link(
        errors.AuthRevokedError, "{}: the user's authentication was revoked."
    ),
    "authorization violation": _link(errors.AuthorizationError, _UNAUTHORIZED),
    "authentication timeout": _link(errors.AuthorizationError, _UNAUTHORIZED),
    "failed account registration": _plain(errors.ServerError),
    "secure connection - tls required": _link(
        errors.SecureConnectionWantedError, "{} requires TLS."
    ),
    # Limits on connections; a later attempt may succeed.
    "maximum connections exceeded": _plain(errors.ConnectionLimitError),
    "maximum account active connections exceeded": _plain(errors.ConnectionLimitError),
    "connection throttling is active": _plain(errors.ConnectionLimitError),
    # What was sent, or was not sent in time.
    "maximum payload violation": _plain(errors.ServerError),
    "maximum control line exceeded": _plain(errors.ControlLineError),
    "unknown protocol operation": _plain(errors.ServerError),
    "parser error": _plain(errors.ServerError),
    "stale connection": _link(errors.StaleConnectionError, "{}: stale connection."),
    "slow consumer": _plain(errors.ServerError),
    # Not a port for this client.
    "invalid client protocol": _plain(errors.ServerError),
    "no responders requires headers support": _plain(errors.ServerError),
    "attempted to connect to route port": _link(errors.ServerRefusedError, _WRONG_PORT),
    "attempted to connect to gateway port": _link(errors.ServerRefusedError, _WRONG_PORT),
    "attempted to connect to leaf node port": _link(errors.ServerRefusedError, _WRONG_PORT),
}
"""The exceptions by a part of the -ERR, in lower case."""

_LINK_STAYS: Final[Mapping[str, Ends]] = {
    "permissions violation for subscription": "subscription",
    "permissions violation for publish": "publish",
    "maximum subscriptions exceeded": "subscription",
    "invalid publish subject": "publish",
    "invalid subject": "subscription",
}


def meaning_of(text: str, server: str) -> tuple[errors.JetsparkError, Ends | None]:
    """The exception for an -ERR text, and what it ends. `server`: its URL, without credentials."""
    folded = text.casefold()
    for text_of_error, make in ERRORS.items():
        if text_of_error in folded:
            return make(text, server), _LINK_STAYS.get(text_of_error, "link")
    return errors.ServerError(text), None


def error_of(text: str, server: str) -> errors.JetsparkError:
    """The exception for an -ERR text."""
    return meaning_of(text, server)[0]


# -- what a server accepts: a message published to one may be sent to the next one ---------------

COMMON_LINE = 200
"""Bytes of subjects that fit into any server's line, whose limit is at least 256."""

_NUMBERS = 22
"""Bytes that sizes or the subscription id may add to the subjects."""


def check_line(subject: str, target: bytes, limit: int) -> None:
    """Raise BadSubjectError when the line with these subjects is too long for a server.

    `target`: the encoded subject with its reply subject or queue group.
    """
    if len(target) + _NUMBERS > limit:
        raise errors.BadSubjectError(
            f"{subject[:40]}…",
            f"its protocol line is longer than max_control_line, {limit} bytes",
        )


def check_headers(info: ServerInfo | None) -> None:
    """Raise HeadersNotSupportedError for a known server without headers."""
    if info is not None and not info.headers:
        raise no_headers(info)


def no_headers(info: ServerInfo) -> errors.HeadersNotSupportedError:
    """The error for a server that is too old for headers."""
    return errors.HeadersNotSupportedError(
        f"The server (nats-server {info.version}) does not support message headers."
    )


class Dropped(NamedTuple):
    """A publish that will not be sent. `reply`: its reply subject, or ""."""

    error: errors.JetsparkError
    reply: str


def sendable(frames: list[bytes], info: ServerInfo) -> tuple[list[bytes], list[Dropped]]:
    """The publishes that a server accepts, and those that it does not."""
    accepted, dropped = [], []
    for frame in frames:
        if (refusal := _refusal(frame, info)) is None:
            accepted.append(frame)
        else:
            dropped.append(refusal)
    return accepted, dropped


def _refusal(frame: bytes, info: ServerInfo) -> Dropped | None:
    """Why a server would close the link over this PUB or HPUB; None if it would not."""
    if len(frame) <= info.max_payload and info.headers:
        return None
    words = frame[: frame.index(b"\r\n")].split()
    reply = reply_of(frame).decode()
    if (size := int(words[-1])) > info.max_payload:
        return Dropped(errors.MaxPayloadError(size, info.max_payload), reply)
    if words[0] == b"HPUB" and not info.headers:
        return Dropped(no_headers(info), reply)
    return None
