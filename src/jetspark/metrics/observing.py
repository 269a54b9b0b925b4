"""`jetspark.observe`: loads prometheus-client only when it is called."""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from typing import TYPE_CHECKING

from jetspark.errors import ConfigError

if TYPE_CHECKING:
    from jetspark.client.hooks import Hooks

_served = ExitStack()
_addresses: list[str] = []


def observe(address: str | None = None) -> Hooks:
    """Hooks for `connect(hooks=…)` that give a client's metrics to prometheus-client's registry.

    `address`: also serve the registry on HOST:PORT or :PORT, until the program ends. One object is
    for any number of clients; their option `name` is the label `messaging_client_id`. Raises
    ConfigError for a wrong address, for a second one, and without the extra `metrics`.

    Example:
        ```python
        nc = await jetspark.connect("nats://127.0.0.1:4222", name="shop", hooks=jetspark.observe())
        await nc.close()
        ```
    """
    from jetspark.metrics.endpoint import serving

    if address is not None and address not in _addresses:
        if _addresses:
            raise ConfigError(f"Metrics of this program are served on {_addresses[0]} already.")
        _served.enter_context(serving(address))
        atexit.register(_served.close)
        _addresses.append(address)
    from jetspark.metrics.clients import every_client

    return every_client()
