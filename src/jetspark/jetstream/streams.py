"""Streams and stream templates."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, TypeAlias, Unpack

import msgspec

import jetspark.errors as errors
from jetspark import err_codes
from jetspark.documents.configuration import (
    Configuration,
    changes_to_wire,
    comparable,
    config_to_wire,
    given,
    merged,
)
from jetspark.documents.consumers import ConsumerConfig
from jetspark.documents.document import Document, from_wire, time_fields
from jetspark.documents.requirements import check_feature, check_stream, stream_needs
from jetspark.documents.streams import StreamConfig, StreamInfo, StreamOptions, UnnamedStreamOptions
from jetspark.jetstream.api import Api, Paged
from jetspark.subjects import check_name, check_subscribe_subject
from jetspark.validation import check_sequence, check_whole
from jetspark.wire import js_api
from jetspark.wire.documents import encode_document
from jetspark.wire.js_api import SubjectPages

# -------------------------------------------------------------------------------------------------
# How an existing stream or consumer differs from the wanted one, for NameInUseError.


_TIMES: Final = dict(time_fields(StreamConfig)) | dict(time_fields(ConsumerConfig))
_ANOTHER: Final = "another configuration"
_OF_SERVER: Final = "_nats."  # metadata that the server adds
# What a server fills in for a missing field, besides nothing, 0 and -1; and the fields that it
# computes from others or from its configuration.
_FILLED: Final[Mapping[str, Any]] = {
    "retention": "limits",
    "discard": "old",
    "storage": "file",
    "compression": "none",
    "num_replicas": 1,
    "deliver_policy": "all",
    "replay_policy": "instant",
}
_COMPUTED: Final = frozenset(
    {*("subjects", "duplicate_window", "allow_direct", "mirror_direct", "allow_msg_ttl")}
    | {*("ack_wait", "max_ack_pending", "max_waiting", "max_deliver", "inactive_threshold")}
)


def differing(
    cls: type[Document], existing: Mapping[str, Any], requested: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """The fields in which two wire documents surely differ: existing and wanted values.

    `cls`: the class of both.
    """
    existing_fields, requested_fields = comparable(cls, existing), comparable(cls, requested)
    differences = {}
    for name in dict.fromkeys([*requested, *existing]):
        actual, expected = (
            _plain(name, existing_fields.get(name)),
            _plain(name, requested_fields.get(name)),
        )
        if name == "name" or actual == expected or (expected is None and name in _COMPUTED):
            continue
        if expected is not None and _holds(actual, expected):  # with the server's defaults
            continue
        differences[name] = existing.get(name), requested.get(name)
    return differences


def _plain(name: str, value: Any) -> Any:
    """The value; None for one that means "not given"."""
    if isinstance(value, dict):
        value = {k: v for k, v in value.items() if not k.startswith(_OF_SERVER)}
    return None if not value or value == -1 or value == _FILLED.get(name) else value


def _holds(actual: Any, expected: Any) -> bool:
    if isinstance(actual, dict) and isinstance(expected, dict):
        return all(_holds(actual.get(name), value) for name, value in expected.items())
    if isinstance(actual, list) and isinstance(expected, list):
        return len(actual) == len(expected) and all(map(_holds, actual, expected))
    return bool(actual == expected)


def with_differences(
    error: errors.NameInUseError, differences: Mapping[str, tuple[Any, Any]]
) -> errors.NameInUseError:
    """The error with the differences in its sentence."""
    return _error(error, str(error), differences, {})


def known_as(
    error: errors.NameInUseError, label: str, names: Mapping[str, str]
) -> errors.NameInUseError:
    """The error about a stream in terms of what it is to the caller, such as a bucket.

    `names`: the fields' names there; "" for fields that do not exist there.
    """
    differences = {name: pair for name, pair in error.differences.items() if names.get(name, name)}
    sentence = f"{label} exists with {_ANOTHER}: {js_api.UPDATE}."
    return _error(error, sentence, differences, names)


def _error(
    error: errors.NameInUseError,
    sentence: str,
    differences: Mapping[str, tuple[Any, Any]],
    names: Mapping[str, str],
) -> errors.NameInUseError:
    description = "; ".join(
        f"{names.get(name, name)} is {_display_value(name, actual)}, "
        + (f"not {_display_value(name, expected)}" if expected is not None else "and was not given")
        for name, (actual, expected) in differences.items()
    )
    if description:
        sentence = sentence.replace(_ANOTHER, f"{_ANOTHER} ({description})", 1)
    named = errors.NameInUseError(error.code, error.err_code, error.description, sentence)
    named.differences = {names.get(name, name): pair for name, pair in differences.items()}
    return named


def _display_value(name: str, value: Any) -> str:
    if name in _TIMES and isinstance(value, int):
        return str(timedelta(microseconds=value // 1000))
    if isinstance(value, dict):
        value = {k: v for k, v in value.items() if not k.startswith(_OF_SERVER)}
    return "unset" if value in (None, "", [], {}) else encode_document(value).decode()


async def stream_info(api: Api, name: str) -> StreamInfo:
    """Configuration and state of a stream. Raises StreamNotFoundError and every API error."""
    return from_wire(StreamInfo, await api.call(js_api.STREAM_INFO, stream=name))


async def naming_the_other(
    api: Api, error: errors.APIError, wire: Mapping[str, Any]
) -> errors.APIError:
    """The refusal of an overlapping configuration, with the subject and the other stream."""
    overlap = err_codes.SUBJECT_OVERLAP  # a restore has it in the text of another error
    if error.err_code == overlap or f"({overlap})" in error.description:
        with suppress(errors.JetsparkError):  # not permitted to look it up
            for subject in wire.get("subjects") or [wire["name"]]:
                answer = await api.call(js_api.STREAM_NAMES, {"subject": subject})
                for stream in answer.get("streams") or ():
                    if stream != wire["name"]:
                        sentence = f'{subject!r} overlaps with a subject of stream "{stream}".'
                        return errors.APIError(
                            error.code, error.err_code, error.description, sentence
                        )
    return error


async def step_down(api: Api, call: js_api.Call, preferred: str | None, **names: str) -> None:
    """Raises UnsupportedByServerError, and as every API call."""
    if preferred is None:
        await api.call(call, **names)
    else:
        needs = check_feature("a preferred leader", (2, 11), api.server)
        await api.call(call, {"placement": {"preferred": preferred}}, needs, **names)


# -------------------------------------------------------------------------------------------------
# Stream templates: the server creates a stream for each new subject.
#
# Contract: only servers before 2.14 that are not clustered have them; with a newer one, calls raise
# UnsupportedByServerError before anything is sent. Behind a domain or an API prefix the server is
# unknown; a newer one does not answer, and the call times out.


class StreamTemplateConfig(Document, frozen=True, kw_only=True):
    """A template: the configuration of its streams, and their maximum number."""

    name: str
    config: StreamConfig
    max_streams: int


class StreamTemplateInfo(Document, frozen=True, kw_only=True):
    """A template and the names of its streams."""

    config: StreamTemplateConfig
    streams: list[str] = msgspec.field(default_factory=list)


# -------------------------------------------------------------------------------------------------
# Streams: create, update, info, purge, delete, list.
#
# Contract: a configuration is given as a StreamConfig, a mapping, JSON text, the path of a JSON
# file, keyword arguments, or one of the first four with keyword arguments on top. Mappings and JSON
# are wire documents (durations in nanoseconds) and are sent unchanged. Names follow ADR-6.


StreamConfigLike: TypeAlias = StreamConfig | Configuration


class StreamCalls:
    """The calls of JetStream for streams."""

    _api: Api

    async def create_stream(
        self, config: StreamConfigLike | None = None, /, **options: Unpack[StreamOptions]
    ) -> StreamInfo:
        """Create a stream. Options are the fields of StreamConfig; `name` is required.

        Does nothing when it exists with the same configuration. Raises NameInUseError when it has
        another one, ConfigError, UnsupportedByServerError.
        """
        name, wire = self._named(config, options)
        try:
            return await self._send_config(js_api.STREAM_CREATE, name, wire)
        except errors.NameInUseError as error:
            with suppress(errors.JetsparkError):  # not permitted to look it up
                existing = await self._api.call(js_api.STREAM_INFO, stream=name)
                # The server's default.
                own = {} if wire.get("mirror") or wire.get("sources") else {"subjects": [name]}
                different = differing(StreamConfig, existing["config"], own | wire)
                error = with_differences(error, different)
            raise error from None

    async def update_stream(
        self, config: StreamConfigLike | None = None, /, **options: Unpack[StreamOptions]
    ) -> StreamInfo:
        """Change the stream `name`. Options that are not given keep their values; None removes one.

        It reads the current configuration first, so one of two concurrent updates may undo the
        other. Raises StreamNotFoundError, ConfigError, UnsupportedByServerError.
        """
        return await self._update(*self._named(config, options))

    async def _update(self, name: str, wire: dict[str, Any]) -> StreamInfo:
        current = await self._api.call(js_api.STREAM_INFO, stream=name)
        return await self._send_config(js_api.STREAM_UPDATE, name, merged(current["config"], wire))

    async def create_or_update_stream(
        self, config: StreamConfigLike | None = None, /, **options: Unpack[StreamOptions]
    ) -> StreamInfo:
        """Update a stream, or create it: None is the server's default in both cases.

        Raises as `update_stream` and `create_stream`.
        """
        name, wire = self._named(config, options)
        try:
            return await self._update(name, wire)
        except errors.StreamNotFoundError:
            pass
        try:
            return await self._send_config(js_api.STREAM_CREATE, name, wire)
        except errors.NameInUseError:  # created in between
            return await self._update(name, wire)

    async def delete_stream(self, name: str) -> None:
        """Delete a stream and its messages. Raises StreamNotFoundError."""
        await self._api.call(js_api.STREAM_DELETE, stream=name)

    async def purge_stream(
        self,
        name: str,
        *,
        filter: str | None = None,
        keep: int | None = None,
        seq: int | None = None,
    ) -> int:
        """Delete all messages or some; returns how many.

        `filter`: only those of matching subjects. `keep`: keep so many of the last ones. `seq`:
        only those before this sequence. Raises ConfigError for both `keep` and `seq`, and for less
        than 1, BadSubjectError, StreamNotFoundError.
        """
        if keep is not None and seq is not None:
            raise errors.ConfigError("Give either keep or seq, not both.")
        if filter is not None:
            check_subscribe_subject(filter)
        # To the server, 0 is "not given": purge everything.
        if keep is not None:
            check_whole("keep", keep)
        if seq is not None:
            check_sequence("seq", seq)
        if seq == 1:  # nothing is before 1, but servers before 2.14 would purge everything
            await self.stream_info(name)
            return 0
        body = given(filter=filter, keep=keep, seq=seq)
        answer = await self._api.call(js_api.STREAM_PURGE, body, stream=name)
        purged: int = answer.get("purged", 0)
        return purged

    async def stream_info(
        self, name: str, *, deleted_details: bool = False, subjects_filter: str | None = None
    ) -> StreamInfo:
        """Configuration and state of a stream.

        `deleted_details`: list the deleted sequences. `subjects_filter`: count the messages of each
        matching subject (">" for all), in as many pages as that takes. Raises StreamNotFoundError,
        BadSubjectError.
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
        if pages.counts:
            answer["state"]["subjects"] = pages.counts
        return _stream_info(answer)

    def stream_names(self, subject: str | None = None) -> Paged[str]:
        """The names of all streams, or of those that have `subject`.

        Raises BadSubjectError.
        """
        return Paged(self._api, js_api.STREAM_NAMES, "streams", str, _by_subject(subject))

    def streams(self, subject: str | None = None) -> Paged[StreamInfo]:
        """All streams, or those that have `subject`. Raises the errors of `stream_names`."""
        return Paged(self._api, js_api.STREAM_LIST, "streams", _stream_info, _by_subject(subject))

    async def stream_leader_stepdown(self, stream: str, *, preferred: str | None = None) -> None:
        """Make the stream's leader step down; `preferred` names the next one (server 2.11).

        Raises APIError on a server that is not clustered, UnsupportedByServerError,
        StreamNotFoundError.
        """
        await step_down(self._api, js_api.STREAM_LEADER_STEPDOWN, preferred, stream=stream)

    async def create_template(
        self,
        name: str,
        config: StreamConfigLike | None = None,
        /,
        *,
        max_streams: int,
        **options: Unpack[UnnamedStreamOptions],
    ) -> StreamTemplateInfo:
        """Create a template: each new subject gets a stream of its own, named after it.

        `config` and `options` are the fields of StreamConfig without a name; `subjects` are the
        template's. Raises APIError when the template exists, ConfigError, BadSubjectError,
        UnsupportedByServerError.
        """
        self._check_template(name)
        if max_streams < 1:
            raise errors.ConfigError("max_streams must be at least 1.")
        wire = config_to_wire(StreamConfig, config, options)
        for subject in wire.get("subjects") or []:
            check_subscribe_subject(subject)
        check_stream(wire, self._api.server)
        body = {"name": name, "config": wire, "max_streams": max_streams}
        needs = stream_needs(wire)
        answer = await self._api.call(js_api.TEMPLATE_CREATE, body, needs, template=name)
        return from_wire(StreamTemplateInfo, answer)

    async def template_info(self, name: str) -> StreamTemplateInfo:
        """A template and the names of its streams.

        Raises UnsupportedByServerError, APIError when there is no such template.
        """
        self._check_template(name)
        return from_wire(
            StreamTemplateInfo, await self._api.call(js_api.TEMPLATE_INFO, template=name)
        )

    async def delete_template(self, name: str) -> None:
        """Delete a template and all its streams. Raises as `template_info`."""
        self._check_template(name)
        await self._api.call(js_api.TEMPLATE_DELETE, template=name)

    def template_names(self) -> Paged[str]:
        """The names of all templates. Raises UnsupportedByServerError."""
        self._check_template()
        return Paged(self._api, js_api.TEMPLATE_NAMES, "streams", str, {})

    def _named(
        self, config: StreamConfigLike | None, options: StreamOptions
    ) -> tuple[str, dict[str, Any]]:
        wire = changes_to_wire(StreamConfig, config, options)
        name = wire.get("name")
        if not isinstance(name, str):
            raise errors.ConfigError("The stream needs a name.")
        check_name("stream", name)
        for subject in wire.get("subjects") or []:
            check_subscribe_subject(subject)
        check_stream(wire, self._api.server)
        return name, wire

    async def _send_config(self, call: js_api.Call, name: str, wire: dict[str, Any]) -> StreamInfo:
        wire = merged({}, wire)
        try:
            needs = stream_needs(wire)
            return _stream_info(await self._api.call(call, wire, needs, stream=name))
        except errors.APIError as error:
            raise await naming_the_other(self._api, error, wire) from None

    def _check_template(self, name: str | None = None) -> None:
        if name is not None:
            check_name("template", name)
        server = self._api.server
        if server is not None and server.at_least(2, 14):
            raise errors.UnsupportedByServerError("A stream template", "< 2.14", server.version)


def _stream_info(answer: dict[str, Any]) -> StreamInfo:
    # The envelope of a paged answer is not part of the stream's information.
    return from_wire(
        StreamInfo, {k: v for k, v in answer.items() if k not in ("total", "offset", "limit")}
    )


def _by_subject(subject: str | None) -> dict[str, Any]:
    if subject is not None:
        check_subscribe_subject(subject)
    return given(subject=subject)
