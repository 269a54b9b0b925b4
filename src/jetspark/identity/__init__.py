"""Who is who: NKeys, JWTs of users (ADR-14), and authorization callouts (ADR-26)."""

from jetspark.connection.nkeys import CurveKeyPair, KeyKind, KeyPair, verify
from jetspark.errors import CalloutRefusal, JWTError, NKeyError
from jetspark.identity.callout import AuthCallout, CalloutCalls, CalloutStats, Grant
from jetspark.identity.claims import (
    Allowed,
    AllowedResponses,
    AuthRequest,
    Claims,
    ClientIdentity,
    ClientTLS,
    ConnectOpts,
    HoursOfDay,
    ServerIdentity,
    UserClaims,
    permitted,
)
from jetspark.identity.jwt import check_times, creds_text, issue_user, read_jwt, user_claims

__all__ = [
    "Allowed",
    "AllowedResponses",
    "AuthCallout",
    "AuthRequest",
    "CalloutCalls",
    "CalloutRefusal",
    "CalloutStats",
    "Claims",
    "ClientIdentity",
    "ClientTLS",
    "ConnectOpts",
    "CurveKeyPair",
    "Grant",
    "HoursOfDay",
    "JWTError",
    "KeyKind",
    "KeyPair",
    "NKeyError",
    "ServerIdentity",
    "UserClaims",
    "check_times",
    "creds_text",
    "issue_user",
    "permitted",
    "read_jwt",
    "user_claims",
    "verify",
]
