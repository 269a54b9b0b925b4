"""Questions about many streams, sent together over one link and not one after the other.

Each stream's own leader answers, which counts for its proof. STREAM.LIST would take fewer
requests, but in a cluster one server collects the answers, leaves out late ones, and names no
leader.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import jetspark.errors as errors
from jetspark.links.leader_terms import observation_of
from jetspark.links.retry import NOT_FOUND_SECONDS
from jetspark.links.stream_api import StreamAPI
from jetspark.links.stream_facts import StreamFacts, facts_of
from jetspark.timestamps import parse_isotime
from jetspark.wire import js_api
from jetspark.wire.documents import encode_document

_SILENCE_SECONDS = 1.0
"""Seconds without any answer after which the missing ones are requested one by one."""
_MESSAGES_SILENCE_SECONDS = 5.0
_MAX_MESSAGES_UNANSWERED = 8
"""Answers with a message each may be large, and servers cut off a client that does not take 64 MB.
"""


def fetch_stream_facts(
    api: StreamAPI, names: Iterable[str], *, not_found_for: float = NOT_FOUND_SECONDS
) -> tuple[dict[str, StreamFacts], dict[str, errors.StreamNotFoundError]]:
    """Request the configuration and state of many streams at once.

    Returns the facts by name, in the order of `names`, and by name the error for each stream that
    does not exist. A stream without an answer, or with an error, is requested again alone, with the
    retries and the errors of `StreamAPI.stream`.
    """
    requested = list(names)
    answers = _request_facts_together(api, requested) if len(requested) > 1 else {}
    facts: dict[str, StreamFacts] = {}
    missing: dict[str, errors.StreamNotFoundError] = {}
    for name in requested:
        try:
            facts[name] = answers.get(name) or api.stream(name, not_found_for=not_found_for)
        except errors.StreamNotFoundError as error:
            missing[name] = error
    return facts, missing


def _request_facts_together(api: StreamAPI, names: list[str]) -> dict[str, StreamFacts]:
    """Send STREAM.INFO for all streams at once; returns the facts of each that answered, by name.

    Leaves out errors, and answers that had not come after some seconds without any.
    """
    facts: dict[str, StreamFacts] = {}
    link, call = api.link, js_api.STREAM_INFO
    for index, frame, sent in link.replies(_subjects(api, call, names), _SILENCE_SECONDS):
        name = names[index]
        try:
            answer = js_api.parse_answer(call, frame.payload, {"stream": name})
        except errors.APIError:
            continue
        link.leader_terms[name].add(observation_of(answer, sent, time.monotonic()))
        facts[name] = facts_of(name, answer, link.info.server_id)
    return facts


def fetch_message_times(api: StreamAPI, sequences: Mapping[str, int]) -> dict[str, int]:
    """Look up when one message of each stream was stored: nanoseconds since the epoch, by stream.

    `sequences`: the sequence of the message, by stream. A request that is refused is made again
    alone, with retries.

    Leaves out a stream without the message, or without an answer. Raises the errors of
    `StreamAPI.message`, and PermissionsError where the user may not get messages.
    """
    times: dict[str, int] = {}
    call, names, refused = js_api.MSG_GET, list(sequences), []
    replies = api.link.replies(
        _subjects(api, call, names),
        _MESSAGES_SILENCE_SECONDS,
        payloads=[encode_document({"seq": sequence}) for sequence in sequences.values()],
        max_unanswered=_MAX_MESSAGES_UNANSWERED,
    )
    for index, frame, _ in replies:
        name = names[index]
        try:
            answer = js_api.parse_answer(call, frame.payload, {"stream": name})
            times[name] = parse_isotime(answer["message"]["time"])
        except (errors.MessageNotFoundError, errors.StreamNotFoundError):
            continue
        except errors.APIError:
            refused.append(name)
    for name in refused:
        if (message := api.message(name, seq=sequences[name])) is not None:
            times[name] = parse_isotime(message.time)
    return times


def _subjects(api: StreamAPI, call: js_api.Call, streams: list[str]) -> list[str]:
    """The subject of an API call about each stream."""
    return [js_api.subject_of(api.link.api_prefix, call, {"stream": name}) for name in streams]
