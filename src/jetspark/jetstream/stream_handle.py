"""What all calls of a stream's handle share: the API, the name, and what is known of the stream."""

from __future__ import annotations

import jetspark.errors as errors
from jetspark.documents.streams import StreamInfo
from jetspark.jetstream.api import Api
from jetspark.subjects import check_name


class StreamHandle:
    """A stream by name. See `jetspark.jetstream.stream.Stream`, which has its calls."""

    def __init__(self, api: Api, stream: str | StreamInfo) -> None:
        """A handle without a request. `stream`: the name, or what the server told of it."""
        self._api = api
        self._info = stream if isinstance(stream, StreamInfo) else None
        self._name = stream.name if isinstance(stream, StreamInfo) else check_name("stream", stream)

    @property
    def name(self) -> str:
        """The stream's name."""
        return self._name

    @property
    def cached_info(self) -> StreamInfo:
        """The result of the last `info` or `update`, or of the call that created this object.

        Raises ConfigError when there was none.
        """
        if self._info is None:
            raise errors.ConfigError(f'Stream "{self.name}" was not asked yet: call info().')
        return self._info
