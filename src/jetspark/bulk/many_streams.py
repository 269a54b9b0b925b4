"""The facts and messages of many streams: asked together over one link, not one after the other.

The questions are those of `StreamAPI.stream`, one for each stream, so each is answered by the
stream's own leader and counts for its proof (`leadership`). STREAM.LIST would take fewer requests,
but in a cluster one server collects the answers, leaves out what comes late, and names no leader.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from jetspark.bulk.facts import StreamFacts, facts_of
from jetspark.bulk.leadership import look_of
from jetspark.bulk.retry import NOT_FOUND_SECONDS
from jetspark.bulk.stream_api import StreamAPI
from jetspark.errors import APIError, MessageNotFoundError, StreamNotFoundError
from jetspark.timestamps import parse_isotime
from jetspark.wire import js_api
from jetspark.wire.documents import encode_document

_SILENCE_SECONDS = 1.0
"""Seconds without any answer after which the missing ones are asked for one by one."""
_MESSAGES_SILENCE_SECONDS = 5.0
_MESSAGES_AT_ONCE = 8
"""Answers with a message in each may be large, and servers cut off who does not take 64 MB."""


def streams_of(
    api: StreamAPI, names: Iterable[str], *, not_found_for: float = NOT_FOUND_SECONDS
) -> tuple[dict[str, StreamFacts], dict[str, StreamNotFoundError]]:
    """Facts by name, in the order of `names`, and the errors of the streams that are not found.

    A stream without an answer, or with an error for one, is asked for again alone, with the
    retries of `StreamAPI.stream`. Raises as that.
    """
    wanted = list(names)
    found = _asked_together(api, wanted) if len(wanted) > 1 else {}
    facts: dict[str, StreamFacts] = {}
    missing: dict[str, StreamNotFoundError] = {}
    for name in wanted:
        try:
            facts[name] = found.get(name) or api.stream(name, not_found_for=not_found_for)
        except StreamNotFoundError as error:
            missing[name] = error
    return facts, missing


def _asked_together(api: StreamAPI, names: list[str]) -> dict[str, StreamFacts]:
    found: dict[str, StreamFacts] = {}
    link, call = api.link, js_api.STREAM_INFO
    subjects = [js_api.subject_of(link.api_prefix, call, {"stream": name}) for name in names]
    for number, frame, sent in link.replies(subjects, _SILENCE_SECONDS):
        name = names[number]
        try:
            answer = js_api.parse_answer(call, frame.payload, {"stream": name})
        except APIError:
            continue
        api.tenure(name).add(look_of(answer, sent, time.monotonic()))
        found[name] = facts_of(name, answer, link.info.server_id)
    return found


def times_of(api: StreamAPI, wanted: Mapping[str, int]) -> dict[str, int]:
    """When the message of a sequence was stored, in nanoseconds since the epoch, by stream.

    A stream is left out that has no such message, is not found, or from which no answer comes.
    Raises as `StreamAPI.message`, PermissionsError where the user may not get messages.
    """
    times: dict[str, int] = {}
    link, call = api.link, js_api.MSG_GET
    names = list(wanted)
    subjects = [js_api.subject_of(link.api_prefix, call, {"stream": name}) for name in names]
    payloads = [encode_document({"seq": wanted[name]}) for name in names]
    refused: list[str] = []
    for number, frame, _sent in link.replies(
        subjects, _MESSAGES_SILENCE_SECONDS, payloads=payloads, at_once=_MESSAGES_AT_ONCE
    ):
        name = names[number]
        try:
            answer = js_api.parse_answer(call, frame.payload, {"stream": name})
            times[name] = parse_isotime(answer["message"]["time"])
        except (MessageNotFoundError, StreamNotFoundError):
            continue
        except APIError:
            refused.append(name)
    for name in refused:
        if (message := api.message(name, seq=wanted[name])) is not None:
            times[name] = parse_isotime(message.time)
    return times
