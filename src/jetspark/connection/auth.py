"""The credentials that CONNECT carries."""

from __future__ import annotations

import time

from jetspark.connection.credentials import (
    Identity,
    find_seed,
    identity_of_creds,
    jwt_expiry,
    open_seed,
    read_credentials,
)
from jetspark.connection.options import ConnectOptions
from jetspark.connection.urls import ServerURL
from jetspark.errors import AuthExpiredError, AuthorizationError, JetsparkError


def credentials_of(options: ConnectOptions, server: ServerURL, nonce: str = "") -> dict[str, str]:
    """The CONNECT fields for one server: its URL takes precedence over the options.

    Reads the files, and signs `nonce` from the server's INFO. Raises ConfigError.
    """
    if server.token is not None:
        return {"auth_token": server.token}
    if server.user is not None:
        return {"user": server.user, "password": server.password or ""}
    if options.token is not None:
        return {"auth_token": options.token}
    if options.user is not None:
        return {"user": options.user, "password": options.password or ""}
    identity = identity_of(options)
    return {} if identity is None else identity.fields(nonce)


def identity_of(options: ConnectOptions) -> Identity | None:
    """The NKey or JWT that the options name; None when they name neither. Raises ConfigError."""
    if options.creds_file is not None:
        text = read_credentials("creds_file", options.creds_file)
        return identity_of_creds(text, f"creds_file {options.creds_file!r}")
    if options.creds is not None:
        return identity_of_creds(options.creds, "creds")
    jwt = options.jwt or ""
    if options.nkey_seed_file is not None:
        where = f"nkey_seed_file {options.nkey_seed_file!r}"
        text = read_credentials("nkey_seed_file", options.nkey_seed_file)
        public, sign = open_seed(find_seed(text, where), where)
        return Identity(jwt, public, sign)
    if options.nkey_seed is not None:
        public, sign = open_seed(options.nkey_seed, "nkey_seed")
        return Identity(jwt, public, sign)
    if jwt or options.sign is not None:
        return Identity(jwt, options.nkey or "", options.sign)
    return None


def refusal(error: JetsparkError, jwt: str) -> JetsparkError:
    """The exception for a refused CONNECT: the server does not say that a JWT has expired.

    This machine's clock decides, which is safe: the CONNECT has been refused in any case.
    """
    expires = jwt_expiry(jwt)
    if isinstance(error, AuthorizationError) and expires is not None and expires <= time.time():
        return AuthExpiredError(
            f"{error.server} refused the user's JWT, which has expired.", server=error.server
        )
    return error
