"""Finding services and calling them, without async."""

from __future__ import annotations

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.generated.services.discovery import GeneratedServices
from jetspark.services.discovery import Services as AsyncServices


class Services(GeneratedServices):
    """The services that can be reached over a connection; made by `Client.services`.

    `ping`, `info` and `stats` list the instances of all services, of those called `name`, or the
    one instance with this `id`, too (an id needs the name): iterate the result, or take its
    `all()`. Each iteration asks anew. It ends `stall` seconds after the last answer, after
    `max_msgs` answers (0: no limit), or after `timeout` seconds in all. No service at all is an
    empty list. An answer that cannot be read is reported and left out. They raise BadNameError,
    BadTimeoutError, ConfigError; iterating raises ConnectionClosedError,
    ConnectionLostError and PermissionsError.
    """

    def __init__(self, caller: CallerSide, inner: AsyncServices) -> None:
        self._caller = caller
        self._thread = caller.thread
        self._inner = inner
