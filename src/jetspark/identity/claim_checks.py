"""What a caller says that a user may do: refused where no server could read or enforce it. Pure.

A claim that a server cannot read either keeps the user out or restricts nothing, and neither is
told to whoever has issued it.
"""

from __future__ import annotations

import re
from datetime import timedelta
from ipaddress import ip_network
from typing import Any, Final

from jetspark.errors import BadSubjectError, ConfigError, shown
from jetspark.identity.claims import NO_LIMIT, UserClaims
from jetspark.jetstream.documents.configuration import config_to_wire
from jetspark.subjects import check_subscribe_subject

LIMITS: Final = ("subs", "data", "payload")
KIND: Final = "user"
VERSION: Final = 2
"""Of the JWTs that we write and read."""
_TIME: Final = re.compile(r"([01]\d|2[0-3])(:[0-5]\d){2}")


def checked_claims(claims: UserClaims) -> dict[str, Any]:
    """The claims as they stand in a JWT. Raises ConfigError."""
    wire = config_to_wire(UserClaims, claims, {})
    for side in ("pub", "sub"):
        for name in ("allow", "deny"):
            for subject in wire.get(side, {}).get(name) or ():
                _check_subject(f"{side}.{name}", subject, queue=side == "sub")
    for name in LIMITS:
        _check_limit(name, wire.get(name))
    if claims.resp is not None:
        _check_limit("resp.max", claims.resp.max)
        if claims.resp.ttl is not None and claims.resp.ttl < timedelta(0):
            raise ConfigError("resp.ttl cannot be negative.")
    for network in wire.get("src") or ():
        if not _is_network(network):
            raise ConfigError(f'src has networks such as "192.0.2.0/24", not {shown(network)}.')
    for hours in claims.times or ():
        for time in (hours.start, hours.end):
            if not _TIME.fullmatch(time):
                raise ConfigError(f'times are such as "08:00:00", not {shown(time)}.')
    for name, ours in (("type", KIND), ("version", VERSION)):
        if wire.get(name, ours) != ours:
            raise ConfigError(f"{name} is {ours!r} in a user's JWT: leave it out.")
    return wire


def _check_subject(name: str, subject: str, *, queue: bool) -> None:
    # A subscription for a queue group only is written "subject group".
    parts = subject.split(" ", 1) if queue else [subject]
    try:
        for part in parts:
            check_subscribe_subject(part)
    except BadSubjectError as error:
        raise BadSubjectError(subject, error.reason, f"subject in {name}") from None


def _check_limit(name: str, limit: int | None) -> None:
    if limit is not None and limit < NO_LIMIT:
        raise ConfigError(f"{name} is at least 0, or {NO_LIMIT} for no limit, not {limit}.")


def _is_network(text: str) -> bool:
    """As servers read it: an address, and how many of its bits count."""
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return text.partition("/")[2].isdigit()


def check_enforced(claims: UserClaims) -> None:
    """Raises ConfigError for claims that servers do not enforce for the users of a callout.

    They take permissions, times and expiry from a callout's answer, and nothing else.
    """
    ignored = [name for name in LIMITS if getattr(claims, name) not in (None, NO_LIMIT)]
    more = ("src", "allowed_connection_types", "bearer_token", "issuer_account")
    if ignored := [*ignored, *(name for name in more if getattr(claims, name))]:
        raise ConfigError(
            f"Servers do not enforce {' and '.join(ignored)} for users of a callout: leave it out "
            "of may, and limit the account, or refuse the login."
        )
