"""Servers that ask an authorization callout, and the keys for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from jetspark.identity import CurveKeyPair, KeyKind, KeyPair

AUTH_TIMEOUT = 10
"""Seconds: the machine may be slow."""


@dataclass(frozen=True, slots=True)
class CalloutKeys:
    """The keys of a service, and the configuration of a server that asks it: accounts AUTH, APP and
    SYS, the user "auth" of the service."""

    signer: KeyPair = field(default_factory=lambda: KeyPair.new(KeyKind.ACCOUNT))
    xkey: CurveKeyPair | None = None

    def config(self) -> str:
        xkey = "" if self.xkey is None else f"xkey: {self.xkey.public}"
        return f"""
            accounts {{
              AUTH: {{ users: [ {{ user: auth, password: auth }} ] }}
              APP: {{ jetstream: enabled }}
              SYS: {{ users: [ {{ user: sys, password: sys }} ] }}
            }}
            system_account: SYS
            authorization {{
              timeout: {AUTH_TIMEOUT}
              auth_callout {{
                issuer: {self.signer.public}
                account: AUTH
                auth_users: [ auth, sys ]
                {xkey}
              }}
            }}
        """
