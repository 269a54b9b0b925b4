# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: full client."""

from __future__ import annotations

from jetspark.arguments import spelt
from jetspark.blocking.client import Client
from jetspark.blocking.jetstream.context import JetStream
from jetspark.timestamps import Seconds


class GeneratedClient(Client):
    """The calls of `Client` that hand on to its asyncio twin."""

    @spelt
    def jetstream(
        self,
        *,
        timeout: Seconds = 5.0,
        domain: str | None = None,
        api_prefix: str | None = None,
        trace: bool = False,
    ) -> JetStream:
        """JetStream over this connection; there may be several, with different options.

        `timeout`: seconds for each API call and ack. `domain`: a JetStream domain, such as that
        behind a leaf node. `api_prefix`: the whole prefix instead of "$JS.API", for an API
        imported from another account. With neither, the connection's options `jetstream_domain`
        and `jetstream_api_prefix` apply. `trace`: log each API request and answer to
        "jetspark.trace" at level DEBUG, without messages and secrets. Nothing is sent. Raises
        ConfigError when both domain and api_prefix are given, BadNameError, BadSubjectError.
        """
        return JetStream(self, timeout=timeout, domain=domain, api_prefix=api_prefix, trace=trace)
