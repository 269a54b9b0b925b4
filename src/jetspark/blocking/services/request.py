"""A request to a service of the blocking client: answered as a publish is sent."""

from jetspark.blocking.generated.services.request import GeneratedRequest


class Request(GeneratedRequest):
    """One request to an endpoint of a service.

    Every answer raises ConfigError when the requester asks for none, ConnectionClosedError,
    OutboundBufferError during an outage, MaxPayloadError, BadPayloadError, BadHeaderError.
    """

    __slots__ = ()
