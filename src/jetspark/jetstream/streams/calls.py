"""Streams: make, change, look at, empty, delete (row J7).

Contract: a configuration is given as a StreamConfig, a mapping, JSON text, the path of a JSON
file, keyword arguments, or one of the first four with keyword arguments on top; all but a
StreamConfig are wire documents (durations in nanoseconds) and are sent as they are. Every call
raises BadNameError (ADR-6), ConfigError and UnsupportedByServerError before anything is sent, and
then what `Api.call` raises.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from jetspark.arguments import check_whole, checked
from jetspark.errors import (
    ConfigError,
    NameInUseError,
    StreamNotFoundError,
)
from jetspark.jetstream.api import Api
from jetspark.jetstream.documents import StreamConfig, StreamInfo
from jetspark.jetstream.documents.document import Configuration, config_to_wire, from_wire
from jetspark.jetstream.paging import Paged
from jetspark.jetstream.requirements import check_stream
from jetspark.subjects import check_name, check_subscribe_subject
from jetspark.wire import js_api

StreamConfigLike: TypeAlias = StreamConfig | Configuration


@checked
class StreamCalls:
    """The part of JetStream that is about streams."""

    _api: Api

    async def create_stream(
        self, config: StreamConfigLike | None = None, /, **options: Any
    ) -> StreamInfo:
        """Make a stream. Options are the fields of StreamConfig; `name` is required.

        One that exists with the same configuration is left alone; with another one,
        NameInUseError.
        """
        name, wire = self._named(config, options)
        return await self._send_config(js_api.STREAM_CREATE, name, wire)

    async def update_stream(
        self, config: StreamConfigLike | None = None, /, **options: Any
    ) -> StreamInfo:
        """Change a stream; what is not named keeps its value. `name` says which.

        The current configuration is read first, so of two updates at the same moment one may
        undo the other. Raises StreamNotFoundError.
        """
        return await self._update(*self._named(config, options))

    async def _update(self, name: str, wire: dict[str, Any]) -> StreamInfo:
        current = await self._api.call(js_api.STREAM_INFO, stream=name)
        return await self._send_config(js_api.STREAM_UPDATE, name, {**current["config"], **wire})

    async def create_or_update_stream(
        self, config: StreamConfigLike | None = None, /, **options: Any
    ) -> StreamInfo:
        """update_stream, or create_stream when there is none."""
        name, wire = self._named(config, options)
        try:
            return await self._update(name, wire)
        except StreamNotFoundError:
            pass
        try:
            return await self._send_config(js_api.STREAM_CREATE, name, wire)
        except NameInUseError:  # somebody made it in between
            return await self._update(name, wire)

    async def delete_stream(self, name: str) -> None:
        """Delete a stream with all it holds. Raises StreamNotFoundError."""
        await self._api.call(js_api.STREAM_DELETE, stream=name)

    async def purge_stream(
        self,
        name: str,
        *,
        filter: str | None = None,
        keep: int | None = None,
        seq: int | None = None,
    ) -> int:
        """Delete messages, all or some; returns how many.

        `filter`: only those of matching subjects. `keep`: all but the last so many. `seq`: those
        before this sequence. `keep` and `seq` exclude each other.
        """
        if keep is not None and seq is not None:
            raise ConfigError("Give either keep or seq, not both.")
        if filter is not None:
            check_subscribe_subject(filter)
        # To the server 0 is "not said", that is: purge everything.
        if keep is not None:
            check_whole("keep", keep, 0)
        if seq is not None:
            check_whole("seq", seq)
        body = _said(filter=filter, keep=keep or None, seq=seq)
        answer = await self._api.call(js_api.STREAM_PURGE, body, stream=name)
        return int(answer.get("purged", 0))

    async def stream_info(
        self, name: str, *, deleted_details: bool = False, subjects_filter: str | None = None
    ) -> StreamInfo:
        """Configuration and state. Raises StreamNotFoundError.

        `deleted_details`: list the deleted sequences. `subjects_filter`: count the messages of
        each matching subject (">" for all), however many pages that takes.
        """
        if subjects_filter is not None:
            check_subscribe_subject(subjects_filter)
        request = _said(deleted_details=deleted_details or None, subjects_filter=subjects_filter)
        answer = await self._api.call(js_api.STREAM_INFO, request or None, stream=name)
        subjects = answer["state"].get("subjects") or {}
        total = answer.get("total", 0)
        while subjects_filter is not None and len(subjects) < total:
            page = await self._api.call(
                js_api.STREAM_INFO, {**request, "offset": len(subjects)}, stream=name
            )
            more = page["state"].get("subjects") or {}
            if not more.keys() - subjects.keys():
                break
            subjects.update(more)
            total = page.get("total", 0)
        return _stream_info(answer)

    def stream_names(self, subject: str | None = None) -> Paged[str]:
        """The names of all streams, or of those that listen to `subject`."""
        return Paged(self._api, js_api.STREAM_NAMES, "streams", str, _by_subject(subject))

    def streams(self, subject: str | None = None) -> Paged[StreamInfo]:
        """All streams, or those that listen to `subject`."""
        return Paged(self._api, js_api.STREAM_LIST, "streams", _stream_info, _by_subject(subject))

    def _named(
        self, config: StreamConfigLike | None, options: dict[str, Any]
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
        return _stream_info(await self._api.call(call, wire, stream=name))


def _stream_info(answer: dict[str, Any]) -> StreamInfo:
    # The envelope of a paged answer is not a part of the stream.
    return from_wire(
        StreamInfo, {k: v for k, v in answer.items() if k not in ("total", "offset", "limit")}
    )


def _by_subject(subject: str | None) -> dict[str, Any]:
    if subject is not None:
        check_subscribe_subject(subject)
    return _said(subject=subject)


def _said(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
