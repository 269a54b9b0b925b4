"""One look at a stream, for whoever has no need of the public call's options."""

from __future__ import annotations

from jetspark.jetstream.api import Api
from jetspark.jetstream.documents import StreamInfo
from jetspark.jetstream.documents.document import from_wire
from jetspark.wire import js_api


async def stream_info(api: Api, name: str) -> StreamInfo:
    """Configuration and state of a stream. Raises StreamNotFoundError, and as every API call."""
    return from_wire(StreamInfo, await api.call(js_api.STREAM_INFO, stream=name))
