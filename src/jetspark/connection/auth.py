"""The credentials that CONNECT carries."""

from __future__ import annotations

import time
from collections.abc import Mapping

from jetspark.connection.credentials import (
    Identity,
    find_seed,
    identity_of_creds,
    jwt_expiry,
    open_seed,
    read_credentials,
    text_of,
)
from jetspark.connection.options import ConnectOptions
from jetspark.connection.urls import ServerURL
from jetspark.errors import AuthExpiredError, AuthorizationError, JetsparkError


def credentials_of(options: ConnectOptions, server: ServerURL, nonce: str = "") -> dict[str, str]:
    """The CONNECT fields for one server: its URL takes precedence over the options.

    Reads the files, calls the callables, and signs `nonce` from the server's INFO. A user or token
    is sent together with a key or JWT, since each server takes what it checks. Raises ConfigError.
    """
    if server.token is not None:
        return {"auth_token": server.token}
    if server.user is not None:
        return {"user": server.user, "password": server.password or ""}
    fields: dict[str, str] = {}
    if options.token is not None:
        fields["auth_token"] = text_of("token", options.token)
    if options.user is not None and options.password is not None:
        fields["user"] = text_of("user", options.user)
        fields["password"] = text_of("password", options.password)
    identity = identity_of(options)
    return fields if identity is None else fields | identity.fields(nonce)


def identity_of(options: ConnectOptions) -> Identity | None:
    """The NKey or JWT that the options name; None when they name neither. Raises ConfigError."""
    if options.creds_file is not None:
        text = read_credentials("creds_file", options.creds_file)
        return identity_of_creds(text, f"creds_file {options.creds_file!r}")
    if options.creds is not None:
        return identity_of_creds(text_of("creds", options.creds), "creds")
    jwt = "" if options.jwt is None else text_of("jwt", options.jwt)
    if options.nkey_seed_file is not None:
        where = f"nkey_seed_file {options.nkey_seed_file!r}"
        text = read_credentials("nkey_seed_file", options.nkey_seed_file)
        public, sign = open_seed(find_seed(text, where), where)
        return Identity(jwt, public, sign)
    if options.nkey_seed is not None:
        public, sign = open_seed(text_of("nkey_seed", options.nkey_seed), "nkey_seed")
        return Identity(jwt, public, sign)
    if jwt or options.sign is not None:
        return Identity(jwt, options.nkey or "", options.sign)
    return None


def refusal(error: JetsparkError, given: Mapping[str, str]) -> JetsparkError:
    """The exception for a refused CONNECT with these credentials.

    The server does not say that a JWT has expired. This machine's clock decides, which is safe: the
    CONNECT has been refused in any case.
    """
    if not isinstance(error, AuthorizationError):
        return error
    if not given:
        return AuthorizationError(
            f"{error.server} wants credentials, and none were given (authorization violation): put "
            "user and password or a token into the URL, or name a context or a creds file.",
            server=error.server,
        )
    expires = jwt_expiry(given.get("jwt", ""))
    if expires is not None and expires <= time.time():
        return AuthExpiredError(
            f"{error.server} refused the user's JWT, which has expired.", server=error.server
        )
    return error
