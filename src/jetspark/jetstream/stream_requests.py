"""Requests about one stream, for its handle and for what is built on streams."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import jetspark.errors as errors
from jetspark import err_codes
from jetspark.documents.configuration import Configuration, changes_to_wire, merged
from jetspark.documents.document import from_wire
from jetspark.documents.requirements import check_feature, check_stream, stream_needs
from jetspark.documents.streams import StreamConfig, StreamInfo, StreamOptions, UnnamedStreamOptions
from jetspark.jetstream.api import Api
from jetspark.subjects import check_name, check_subscribe_subject
from jetspark.validation import check_text
from jetspark.wire import js_api

StreamConfigLike: TypeAlias = StreamConfig | Configuration
"""A StreamConfig, a mapping, JSON text, or the path of a JSON file.

Mappings and JSON are wire documents (durations in nanoseconds) and are sent unchanged.
"""


def checked_config(
    api: Api, config: StreamConfigLike | None, options: StreamOptions | UnnamedStreamOptions
) -> dict[str, Any]:
    """A configuration, or changes of one, as a wire document.

    Raises ConfigError, BadNameError, BadSubjectError, UnsupportedByServerError.
    """
    wire = changes_to_wire(StreamConfig, config, options)
    if "name" in wire:
        check_name("stream", wire["name"])
    for subject in wire.get("subjects") or []:
        check_subscribe_subject(subject)
    check_stream(wire, api.server)
    return wire


async def send_config(api: Api, call: js_api.Call, name: str, wire: dict[str, Any]) -> StreamInfo:
    """Create or update a stream with the whole configuration. Raises every API error."""
    wire = merged({}, wire)
    try:
        return to_stream_info(await api.call(call, wire, stream_needs(wire), stream=name))
    except errors.APIError as error:
        raise await naming_the_other(api, error, wire) from None


async def update_config(api: Api, name: str, wire: dict[str, Any]) -> StreamInfo:
    """Change some fields of a stream's configuration: it is read first."""
    current = await api.call(js_api.STREAM_INFO, stream=name)
    return await send_config(api, js_api.STREAM_UPDATE, name, merged(current["config"], wire))


async def stream_info(api: Api, name: str) -> StreamInfo:
    """Configuration and state of a stream. Raises StreamNotFoundError and every API error."""
    return from_wire(StreamInfo, await api.call(js_api.STREAM_INFO, stream=name))


def to_stream_info(answer: dict[str, Any]) -> StreamInfo:
    """The information in an answer, without the envelope of one that comes in pages."""
    return from_wire(
        StreamInfo, {k: v for k, v in answer.items() if k not in ("total", "offset", "limit")}
    )


async def naming_the_other(
    api: Api, error: errors.APIError, wire: Mapping[str, Any]
) -> errors.APIError:
    """The refusal of an overlapping configuration, with the subject and the other stream."""
    overlap = err_codes.STREAM_SUBJECT_OVERLAP  # a restore has it in the text of another error
    if error.err_code == overlap or f"({overlap})" in error.description:
        with suppress(errors.JetsparkError):  # not permitted to look it up
            for subject in wire.get("subjects") or [wire["name"]]:
                answer = await api.call(js_api.STREAM_NAMES, {"subject": subject})
                for stream in answer.get("streams") or ():
                    if stream != wire["name"]:
                        sentence = f'{subject!r} overlaps with a subject of stream "{stream}".'
                        return type(error)(error.code, error.err_code, error.description, sentence)
    return error


async def change_peer(api: Api, call: js_api.Call, peer: str, **names: str) -> None:
    """Evacuate or remove the server `peer` from the replicas of a stream or consumer.

    Raises UnsupportedByServerError, and as every API call.
    """
    old = call is js_api.STREAM_PEER_REMOVE
    needs = [] if old else check_feature("evacuate_peer and remove_peer", (2, 15), api.server)
    await api.call(call, {"peer": check_text("peer", peer)}, needs, **names)


async def step_down(api: Api, call: js_api.Call, preferred: str | None, **names: str) -> None:
    """Ask the leader of a stream or consumer to step down, for the `preferred` server if given.

    Raises UnsupportedByServerError, and as every API call.
    """
    if preferred is None:
        await api.call(call, **names)
    else:
        needs = check_feature("a preferred leader", (2, 11), api.server)
        await api.call(call, {"placement": {"preferred": preferred}}, needs, **names)
