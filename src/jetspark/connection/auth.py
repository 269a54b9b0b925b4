"""Credentials for CONNECT, and what the server's -ERR texts mean."""

from __future__ import annotations

import re

from jetspark.connection.options import ConnectOptions
from jetspark.connection.urls import ServerURL
from jetspark.errors import (
    AccountAuthExpiredError,
    AuthExpiredError,
    AuthorizationError,
    AuthRevokedError,
    InvalidSubjectError,
    JetsparkError,
    PermissionsError,
    SecureConnectionWantedError,
    ServerError,
    StaleConnectionError,
)

_PERMISSIONS = re.compile(
    r'permissions violation for (publish|subscription) to "([^"]*)"(?: using queue "([^"]*)")?',
    re.IGNORECASE,
)


def credentials_of(options: ConnectOptions, server: ServerURL) -> dict[str, str]:
    """The CONNECT fields for one server: what its URL says wins over the options."""
    if server.token is not None:
        return {"auth_token": server.token}
    if server.user is not None:
        return {"user": server.user, "password": server.password or ""}
    if options.token is not None:
        return {"auth_token": options.token}
    if options.user is not None:
        return {"user": options.user, "password": options.password or ""}
    return {}


def error_of(text: str, server: str) -> JetsparkError:
    """The exception for an -ERR text. `server` is its URL without credentials."""
    folded = text.casefold()
    if match := _PERMISSIONS.search(text):
        return PermissionsError(text, match[1].casefold(), match[2], match[3])
    if "account authentication expired" in folded:
        return AccountAuthExpiredError(
            f"{server}: the account's authentication has expired.", server=server
        )
    if "authentication expired" in folded:
        return AuthExpiredError(f"{server}: the user's authentication has expired.", server=server)
    if "authentication revoked" in folded:
        return AuthRevokedError(f"{server}: the user's authentication was revoked.", server=server)
    if "authorization violation" in folded or "authentication timeout" in folded:
        return AuthorizationError(
            f"{server} refused these credentials (authorization violation).", server=server
        )
    if "stale connection" in folded:
        return StaleConnectionError(f"{server}: stale connection.", server=server)
    if "secure connection - tls required" in folded:
        return SecureConnectionWantedError(f"{server} requires TLS.", server=server)
    if folded.startswith("invalid subject") or "invalid publish subject" in folded:
        return InvalidSubjectError(text)
    return ServerError(text)


def ends_connection(error: JetsparkError) -> bool:
    """Whether the server closes the connection after this error (row C15)."""
    return not isinstance(error, PermissionsError | InvalidSubjectError)
