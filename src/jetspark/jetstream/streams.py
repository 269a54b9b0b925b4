"""Streams: create, find, delete, list.

Contract: a configuration is given as a StreamConfig, a mapping, JSON text, the path of a JSON file,
keyword arguments, or one of the first four with keyword arguments on top. Mappings and JSON are
wire documents (durations in nanoseconds) and are sent unchanged. Names follow ADR-6.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Unpack

import jetspark.errors as errors
from jetspark.documents.configuration import given
from jetspark.documents.streams import StreamConfig, StreamInfo, StreamOptions
from jetspark.jetstream.api import Api, Paged
from jetspark.jetstream.differences import differing, with_differences
from jetspark.jetstream.stream import Stream
from jetspark.jetstream.stream_requests import (
    StreamConfigLike,
    checked_config,
    send_config,
    to_stream_info,
    update_config,
)
from jetspark.subjects import check_subscribe_subject
from jetspark.wire import js_api


class StreamCalls:
    """The calls of JetStream that make, find and delete streams."""

    _api: Api

    async def create_stream(
        self, config: StreamConfigLike | None = None, /, **options: Unpack[StreamOptions]
    ) -> Stream:
        """Create a stream. Options are the fields of StreamConfig; `name` is required.

        Does nothing when it exists with the same configuration. Raises NameInUseError when it has
        another one, ConfigError, UnsupportedByServerError.

        Example:
            ```python
            from datetime import timedelta

            stream = await js.create_stream(
                name="INVOICES", subjects=["invoices.>"], max_age=timedelta(days=7), storage="file"
            )
            ```
        """
        name, wire = self._named(config, options)
        try:
            return Stream(self._api, await send_config(self._api, js_api.STREAM_CREATE, name, wire))
        except errors.NameInUseError as error:
            with suppress(errors.JetsparkError):  # not permitted to look it up
                existing = await self._api.call(js_api.STREAM_INFO, stream=name)
                # The server's default.
                own = {} if wire.get("mirror") or wire.get("sources") else {"subjects": [name]}
                different = differing(StreamConfig, existing["config"], own | wire)
                error = with_differences(error, different)
            raise error from None

    async def create_or_update_stream(
        self, config: StreamConfigLike | None = None, /, **options: Unpack[StreamOptions]
    ) -> Stream:
        """Update a stream, or create it: None is the server's default in both cases.

        Raises as `Stream.update` and `create_stream`.

        Example:
            ```python
            stream = await js.create_or_update_stream(name="INVOICES", subjects=["invoices.>"])
            print(stream.cached_info.config.subjects)  # ['invoices.>']
            ```
        """
        name, wire = self._named(config, options)
        try:
            return Stream(self._api, await update_config(self._api, name, wire))
        except errors.StreamNotFoundError:
            pass
        try:
            return Stream(self._api, await send_config(self._api, js_api.STREAM_CREATE, name, wire))
        except errors.NameInUseError:  # created in between
            return Stream(self._api, await update_config(self._api, name, wire))

    def stream(self, name: str) -> Stream:
        """A handle for the stream of this name; awaited, for one that exists.

        `stream = await js.stream("ORDERS")` asks the server for the stream. Without `await` nothing
        is sent, so that `await js.stream("ORDERS").purge()` is one request, and a missing stream
        shows there. Raises BadNameError, and when awaited StreamNotFoundError.

        Example:
            ```python
            await js.stream("ORDERS").purge(keep=2)
            stream = await js.stream("ORDERS")
            print((await stream.info()).state.messages)  # 2
            ```
        """
        return Stream(self._api, name)

    async def delete_stream(self, name: str) -> None:
        """Delete a stream and its messages. Raises StreamNotFoundError."""
        await self._api.call(js_api.STREAM_DELETE, stream=name)

    def stream_names(self, subject: str | None = None) -> Paged[str]:
        """The names of all streams, or of those that have `subject`.

        Raises BadSubjectError.
        """
        return Paged(self._api, js_api.STREAM_NAMES, "streams", str, _by_subject(subject))

    def streams(self, subject: str | None = None) -> Paged[StreamInfo]:
        """All streams, or those that have `subject`. Raises the errors of `stream_names`.

        Example:
            ```python
            async for info in js.streams():
                print(info.name, info.state.messages)
            ```
        """
        return Paged(self._api, js_api.STREAM_LIST, "streams", to_stream_info, _by_subject(subject))

    def _named(
        self, config: StreamConfigLike | None, options: StreamOptions
    ) -> tuple[str, dict[str, Any]]:
        """The name and the whole configuration of a stream, as a wire document."""
        wire = checked_config(self._api, config, options)
        if not isinstance(name := wire.get("name"), str):
            raise errors.ConfigError("The stream needs a name.")
        return name, wire


def _by_subject(subject: str | None) -> dict[str, Any]:
    if subject is not None:
        check_subscribe_subject(subject)
    return given(subject=subject)
