"""The facts of many streams: asked together over one link, in place of one after the other.

The questions are those of `StreamAPI.stream`, one for each stream, so each is answered by the
stream's own leader and counts for its proof (`leadership`). STREAM.LIST would take fewer requests,
but in a cluster one server collects the answers, leaves out what comes late, and names no leader.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from jetspark.bulk.facts import StreamFacts, facts_of
from jetspark.bulk.leadership import look_of
from jetspark.bulk.retry import NOT_FOUND_SECONDS
from jetspark.bulk.stream_api import StreamAPI
from jetspark.errors import APIError, StreamNotFoundError
from jetspark.wire import js_api

_SILENCE_SECONDS = 1.0
"""Seconds without any answer after which the missing ones are asked for one by one."""


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
        found[name] = facts_of(name, answer)
    return found
