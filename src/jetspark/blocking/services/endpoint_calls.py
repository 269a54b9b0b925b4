"""Adding endpoints and groups, without async."""

from __future__ import annotations

from jetspark.arguments import spelt
from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.generated.services.endpoint_calls import GeneratedEndpointCalls
from jetspark.blocking.services.handling import Handler, handling_in_threads
from jetspark.services.endpoint import EndpointOptions
from jetspark.services.service import EndpointCalls as AsyncEndpointCalls


class EndpointCalls(GeneratedEndpointCalls):
    """Mixed into services and groups."""

    def __init__(self, caller: CallerSide, inner: AsyncEndpointCalls) -> None:
        self._caller = caller
        self._thread = caller.thread
        self._inner = inner

    def _add(self, options: EndpointOptions, handler: Handler) -> None:
        handling = handling_in_threads(self._caller, handler)
        self._thread.run(self._inner.owner.add, options, handling)

    def _add_nowait(self, options: EndpointOptions, handler: Handler) -> None:
        handling = handling_in_threads(self._caller, handler)
        self._thread.call(self._inner.owner.add_nowait, options, handling)

    @spelt
    def add_group(self, name: str, *, queue_group: str | None = None) -> Group:
        """A group of endpoints whose subjects begin with `name`: tokens, or "" for no prefix.

        `queue_group`: the default of its endpoints; None: that of the group or service above; "":
        none.
        """
        return Group(self._caller, self._inner.add_group(name, queue_group=queue_group))

    def __repr__(self) -> str:
        return repr(self._inner)


class Group(EndpointCalls):
    """A prefix that endpoints of a service share; made by `add_group`."""
