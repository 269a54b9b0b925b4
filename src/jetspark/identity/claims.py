"""The claims of JWTs: their subject, and what a user may do (ADR-14). Pure.

Field names are those of the wire; unknown fields are in `extra`. None means "not given". Issuing
refuses claims that no server can read or enforce: the server would lock the user out or restrict
nothing, unknown to the issuer.
"""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import Any, Final

import msgspec

from jetspark.acl import Permissions
from jetspark.documents.configuration import document_to_wire
from jetspark.documents.document import Document, Span, to_duration
from jetspark.errors import BadSubjectError, ConfigError, safe_repr
from jetspark.subjects import check_subscribe_subject

NO_LIMIT = -1
LIMITS: Final = ("subs", "data", "payload")
KIND: Final = "user"
VERSION: Final = 2
"""The version of the JWTs that we write and read."""
_TIME: Final = re.compile(r"([01]\d|2[0-3])(:[0-5]\d){2}")


def checked_claims(claims: UserClaims) -> dict[str, Any]:
    """The claims in the form of a JWT. Raises ConfigError."""
    wire = document_to_wire(claims)
    for side in ("pub", "sub"):
        for name in ("allow", "deny"):
            for subject in wire.get(side, {}).get(name) or ():
                _check_subject(f"{side}.{name}", subject, queue=side == "sub")
    for name in LIMITS:
        _check_limit(name, wire.get(name))
    responses = wire.get("resp", {})
    _check_limit("resp.max", responses.get("max"))
    if responses.get("ttl", 0) < 0:
        raise ConfigError("resp.ttl cannot be negative.")
    for network in wire.get("src") or ():
        if not _is_network(network):
            raise ConfigError(
                f'src needs networks such as "192.0.2.0/24", not {safe_repr(network)}.'
            )
    for hours in wire.get("times") or ():
        for time in (hours["start"], hours["end"]):
            if not _TIME.fullmatch(time):
                raise ConfigError(f'times must be such as "08:00:00", not {safe_repr(time)}.')
    for name, fixed in (("type", KIND), ("version", VERSION)):
        if wire.get(name, fixed) != fixed:
            raise ConfigError(f"{name} is {fixed!r} in a user's JWT: leave it out.")
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
        raise ConfigError(f"{name} must be at least 0, or {NO_LIMIT} for no limit, not {limit}.")


def _is_network(text: str) -> bool:
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return text.partition("/")[2].isdigit()


def check_enforced(claims: UserClaims) -> None:
    """Raise ConfigError for claims that servers ignore in a callout's answer.

    They enforce permissions, times and expiry.
    """
    ignored = [name for name in LIMITS if getattr(claims, name) not in (None, NO_LIMIT)]
    more = ("src", "allowed_connection_types", "bearer_token", "issuer_account")
    if ignored := [*ignored, *(name for name in more if getattr(claims, name))]:
        raise ConfigError(
            f"Servers do not enforce {' and '.join(ignored)} for users of a callout: leave it out "
            "of may, and limit the account, or refuse the login."
        )


class Allowed(Document, frozen=True, kw_only=True):
    """Subjects that are allowed and denied; without `allow`, all that are not denied.

    In `sub`, "subject group" means a queue group only.
    """

    allow: list[str] | None = None
    deny: list[str] | None = None


class AllowedResponses(Document, frozen=True, kw_only=True):
    """Permission to publish to the reply subjects of received messages, besides `pub`."""

    max: int = 1
    """Publishes for each message; -1: no limit."""
    ttl: Span | None = None
    """Time after the message in which they may be published."""


class HoursOfDay(Document, frozen=True, kw_only=True):
    """When a user may be connected, as "08:00:00"."""

    start: str
    end: str


class UserClaims(Document, frozen=True, kw_only=True):
    """The claims of a user's JWT: what the user may do. A limit defaults to -1: none.

    For a user of a scoped signing key give nothing: the server uses the key's template.
    """

    pub: Allowed | None = None
    sub: Allowed | None = None
    resp: AllowedResponses | None = None
    subs: int | None = None
    """Subscriptions of each connection."""
    data: int | None = None
    """Total bytes; no server up to 2.15 enforces it."""
    payload: int | None = None
    """Most bytes of a message."""
    src: list[str] | None = None
    """Networks from which to connect, such as "192.0.2.0/24"."""
    times: list[HoursOfDay] | None = None
    times_location: str | None = None
    """The time zone of `times`, such as "Europe/Berlin"; otherwise the server's."""
    bearer_token: bool | None = None
    """Log in with the JWT alone, without proving the key."""
    proxy_required: bool | None = None
    """Log in through a trusted proxy only (server 2.12; older ones ignore it)."""
    allowed_connection_types: list[str] | None = None
    """Some of "STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS".
    """
    issuer_account: str | None = None
    """The account, when one of its signing keys signed."""
    tags: list[str] | None = None
    type: str | None = None
    version: int | None = None


def permitted(permissions: Permissions, **more: Any) -> UserClaims:
    """The claims of a user with the permissions of roles (`jetspark.acl`).

    `more`: other fields of UserClaims.
    """
    resp = None
    if (responses := permissions.responses) is not None:
        resp = AllowedResponses(max=responses.max, ttl=to_duration(responses.expires))
    sides = permissions.to_dict()
    pub, sub = (Allowed(**sides[side]) for side in ("publish", "subscribe"))
    return UserClaims(pub=pub, sub=sub, resp=resp, **more)


class Claims(Document, frozen=True, kw_only=True):
    """A JWT with a valid signature. Whether to trust its issuer is up to the caller."""

    iss: str
    """The public key of the signer."""
    sub: str
    """The public key of its subject."""
    name: str = ""
    aud: str = ""
    jti: str = ""
    iat: int = 0
    """When it was issued, seconds since 1970."""
    exp: int = 0
    """When it expires, seconds since 1970; 0: never."""
    nbf: int = 0
    nats: dict[str, Any] = msgspec.field(default_factory=dict)
    """The claims of its kind, as parsed JSON."""

    @property
    def kind(self) -> str:
        """ "user", "account", "operator", "authorization_request" …"""
        return str(self.nats.get("type", ""))


class ServerIdentity(Document, frozen=True, kw_only=True):
    """The server that asks."""

    id: str
    name: str = ""
    host: str = ""
    version: str = ""
    cluster: str = ""
    tags: list[str] = msgspec.field(default_factory=list)
    xkey: str = ""
    """The server's curve key for this request, if that is encrypted."""


class ClientIdentity(Document, frozen=True, kw_only=True):
    """A client that logs in, as the server knows it. Its repr does not show `user`."""

    host: str = ""
    id: int = 0
    user: str = ""
    """The user's name, NKey or the like; before server 2.11 it may be a token."""
    name: str = ""
    tags: list[str] = msgspec.field(default_factory=list)
    name_tag: str = ""
    kind: str = ""
    type: str = ""
    """ "nats", "websocket" or "mqtt"."""
    mqtt_id: str = ""
    nonce: str = ""
    """The nonce that the client signed, when `ConnectOpts.sig` is given."""

    def __repr__(self) -> str:
        return f"ClientIdentity(host={self.host!r}, id={self.id}, name={self.name!r}, …)"


class ConnectOpts(Document, frozen=True, kw_only=True):
    """The fields of CONNECT with which a client logs in. The repr shows no secrets."""

    user: str = ""
    auth_token: str = ""
    jwt: str = ""
    nkey: str = ""
    sig: str = ""
    name: str = ""
    lang: str = ""
    version: str = ""
    protocol: int = 0

    @property
    def password(self) -> str:
        """The password; empty without one. (Its name on the wire is a keyword of Python.)"""
        return str(self.extra.get("pass", ""))

    def __repr__(self) -> str:
        return f"ConnectOpts(user={self.user!r}, nkey={self.nkey!r}, name={self.name!r}, …)"


class ClientTLS(Document, frozen=True, kw_only=True):
    """The client's TLS. Certificates are PEM."""

    version: str = ""
    cipher: str = ""
    certs: list[str] = msgspec.field(default_factory=list)
    """Chains that were not verified."""
    verified_chains: list[list[str]] = msgspec.field(default_factory=list)
    """The chains, each beginning with the client's own certificate."""


class AuthRequest(Document, frozen=True, kw_only=True):
    """A login that a server asks about (ADR-26)."""

    user_nkey: str
    """The key that the server made for this login: the user of the answer."""
    server_id: ServerIdentity
    client_info: ClientIdentity
    connect_opts: ConnectOpts
    client_tls: ClientTLS | None = None
    request_nonce: str = ""
