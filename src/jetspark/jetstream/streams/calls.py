"""Streams: create, update, info, purge, delete, list.

Contract: a configuration is given as a StreamConfig, a mapping, JSON text, the path of a JSON
file, keyword arguments, or one of the first four with keyword arguments on top. Mappings and JSON
are wire documents (durations in nanoseconds) and are sent as they are. Names follow ADR-6.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, TypeAlias, Unpack

from jetspark.arguments import check_whole, checked
from jetspark.errors import (
    APIError,
    ConfigError,
    JetsparkError,
    NameInUseError,
    StreamNotFoundError,
)
from jetspark.jetstream.api import Api
from jetspark.jetstream.differences import differing, with_differences
from jetspark.jetstream.documents import StreamConfig, StreamInfo, StreamOptions
from jetspark.jetstream.documents.configuration import Configuration, config_to_wire, given
from jetspark.jetstream.documents.document import from_wire
from jetspark.jetstream.paging import Paged
from jetspark.jetstream.requirements import check_stream, stream_needs
from jetspark.jetstream.streams.overlap import naming_the_other
from jetspark.kinds import StreamSequence
from jetspark.subjects import check_name, check_subscribe_subject
from jetspark.wire import js_api
from jetspark.wire.subject_pages import SubjectPages

StreamConfigLike: TypeAlias = StreamConfig | Configuration


@checked
class StreamCalls:
    """The calls of JetStream for streams."""

    _api: Api

    async def create_stream(
        self, config: StreamConfigLike | None = None, /, **options: Unpack[StreamOptions]
    ) -> StreamInfo:
        """Create a stream. Options are the fields of StreamConfig; `name` is required.

        An existing one with the same configuration is left alone. Raises NameInUseError when it
        has another one, ConfigError, UnsupportedByServerError, and as every API call (see
        `JetStream`).
        """
        name, wire = self._named(config, options)
        try:
            return await self._send_config(js_api.STREAM_CREATE, name, wire)
        except NameInUseError as error:
            with suppress(JetsparkError):  # who may not ask gets the error as it is
                there = await self._api.call(js_api.STREAM_INFO, stream=name)
                # The server's default.
                wanted = (
                    wire
                    if wire.get("mirror") or wire.get("sources")
                    else {"subjects": [name], **wire}
                )
                error = with_differences(error, differing(there["config"], wanted))
            raise error from None

    async def update_stream(
        self, config: StreamConfigLike | None = None, /, **options: Unpack[StreamOptions]
    ) -> StreamInfo:
        """Change the stream `name`; options not given keep their values.

        The current configuration is read first, so of two concurrent updates one may undo the
        other. Raises StreamNotFoundError, ConfigError, UnsupportedByServerError, and as every API
        call (see `JetStream`).
        """
        return await self._update(*self._named(config, options))

    async def _update(self, name: str, wire: dict[str, Any]) -> StreamInfo:
        current = await self._api.call(js_api.STREAM_INFO, stream=name)
        return await self._send_config(js_api.STREAM_UPDATE, name, {**current["config"], **wire})

    async def create_or_update_stream(
        self, config: StreamConfigLike | None = None, /, **options: Unpack[StreamOptions]
    ) -> StreamInfo:
        """Update a stream, or create it. Raises as `update_stream` and `create_stream`."""
        name, wire = self._named(config, options)
        try:
            return await self._update(name, wire)
        except StreamNotFoundError:
            pass
        try:
            return await self._send_config(js_api.STREAM_CREATE, name, wire)
        except NameInUseError:  # created in between
            return await self._update(name, wire)

    async def delete_stream(self, name: str) -> None:
        """Delete a stream and its messages.

        Raises StreamNotFoundError, and as every API call (see `JetStream`).
        """
        await self._api.call(js_api.STREAM_DELETE, stream=name)

    async def purge_stream(
        self,
        name: str,
        *,
        filter: str | None = None,
        keep: int | None = None,
        seq: StreamSequence | None = None,
    ) -> int:
        """Delete all messages or some; returns how many.

        `filter`: only those of matching subjects. `keep`: all but the last so many. `seq`: those
        before this sequence. Raises ConfigError when both `keep` and `seq` are given,
        BadSubjectError, StreamNotFoundError, and as every API call (see `JetStream`).
        """
        if keep is not None and seq is not None:
            raise ConfigError("Give either keep or seq, not both.")
        if filter is not None:
            check_subscribe_subject(filter)
        # To the server, 0 is "not given": purge everything.
        if keep is not None:
            check_whole("keep", keep, 0)
        if seq == 1:  # nothing is before it; but servers before 2.14 would purge everything
            await self.stream_info(name)
            return 0
        body = given(filter=filter, keep=keep or None, seq=seq)
        answer = await self._api.call(js_api.STREAM_PURGE, body, stream=name)
        purged: int = answer.get("purged", 0)
        return purged

    async def stream_info(
        self, name: str, *, deleted_details: bool = False, subjects_filter: str | None = None
    ) -> StreamInfo:
        """Configuration and state of a stream.

        `deleted_details`: list the deleted sequences. `subjects_filter`: count the messages of
        each matching subject (">" for all), in as many pages as that takes. Raises
        StreamNotFoundError, BadSubjectError, and as every API call (see `JetStream`).
        """
        if subjects_filter is not None:
            check_subscribe_subject(subjects_filter)
        request = given(deleted_details=deleted_details or None, subjects_filter=subjects_filter)
        answer = await self._api.call(js_api.STREAM_INFO, request or None, stream=name)
        pages = SubjectPages()
        page = answer
        while subjects_filter is not None and not pages.add(page):
            page = await self._api.call(
                js_api.STREAM_INFO, {**request, "offset": pages.offset}, stream=name
            )
        if pages.found:
            answer["state"]["subjects"] = pages.found
        return _stream_info(answer)

    def stream_names(self, subject: str | None = None) -> Paged[str]:
        """The names of all streams, or of those with `subject` among their subjects.

        Raises BadSubjectError; while iterating, as every API call (see `JetStream`).
        """
        return Paged(self._api, js_api.STREAM_NAMES, "streams", str, _by_subject(subject))

    def streams(self, subject: str | None = None) -> Paged[StreamInfo]:
        """All streams, or those with `subject` among theirs. Raises as `stream_names`."""
        return Paged(self._api, js_api.STREAM_LIST, "streams", _stream_info, _by_subject(subject))

    def _named(
        self, config: StreamConfigLike | None, options: StreamOptions
    ) -> tuple[str, dict[str, Any]]:
        wire = config_to_wire(StreamConfig, config, options)
        name = wire.get("name")
        if not isinstance(name, str):
            raise ConfigError("The stream needs a name.")
        check_name("stream", name)
        for subject in wire.get("subjects") or []:
            check_subscribe_subject(subject)
        check_stream(wire, self._api.server)
        return name, wire

    async def _send_config(self, call: js_api.Call, name: str, wire: dict[str, Any]) -> StreamInfo:
        try:
            needs = stream_needs(wire)
            return _stream_info(await self._api.call(call, wire, needs, stream=name))
        except APIError as error:
            raise await naming_the_other(self._api, error, wire) from None


def _stream_info(answer: dict[str, Any]) -> StreamInfo:
    # The envelope of a paged answer does not belong to the stream.
    return from_wire(
        StreamInfo, {k: v for k, v in answer.items() if k not in ("total", "offset", "limit")}
    )


def _by_subject(subject: str | None) -> dict[str, Any]:
    if subject is not None:
        check_subscribe_subject(subject)
    return given(subject=subject)
