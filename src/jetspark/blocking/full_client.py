"""The client that users get, composed above the layers as in `jetspark.full_client`."""

from __future__ import annotations

from jetspark.blocking.generated.full_client import GeneratedClient


class Client(GeneratedClient):
    """A connection to NATS; see `jetspark.blocking.client`."""
