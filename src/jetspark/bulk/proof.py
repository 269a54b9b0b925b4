"""Answers that include everything that the stream had acknowledged when the question was asked.

An outdated answer does no harm if the rest is read later, or if a compare-and-set follows. But only
a leader's answer can show that a stream ends here, that its head has moved, that nothing is left,
or that a marker is gone. `leading` and `proven` repeat a question until it is proven that the
leader leads (`leadership`). With one replica that takes no time. With more it takes until the next
heartbeat, at most about 1.4 seconds, or 2.4 when something was stored just before; and no time
within the lease that a proof gives on the same link.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from jetspark.bulk.facts import StreamFacts
from jetspark.bulk.many_streams import streams_of
from jetspark.bulk.stream_api import StreamAPI
from jetspark.errors import RequestTimeoutError

T = TypeVar("T")

_LOOK_EVERY = 0.05
_WITHIN = 6.0
"""Seconds without a proof until it fails; the caller may try another link."""
_RIVALS_WITHIN = 0.15
"""Seconds within which a running replica outside the quorum also confirms the leader."""


def leading(api: StreamAPI, streams: Iterable[str]) -> dict[str, StreamFacts]:
    """Facts of streams, by name, from leaders that still led after the call.

    Raises RequestTimeoutError when a leader cannot be proven, and as `StreamAPI.stream`.
    """
    return _prove(api, list(streams))[0]


def proven(api: StreamAPI, streams: Iterable[str], question: Callable[[StreamAPI], T]) -> T:
    """An answer that includes all that the leaders of `streams` acknowledged before this call.

    `question` asks about these streams, and must be idempotent. While a replica is silent, it may
    be a suspended former leader: then two answers with a proof in between have to be equal. Raises
    as `leading`, and what the question raises.
    """
    names = list(streams)
    _, unrivalled = _prove(api, names)
    answer = question(api)
    deadline = time.monotonic() + 2 * _WITHIN
    while not unrivalled:
        _, unrivalled = _prove(api, names)
        before, answer = answer, question(api)
        if before == answer:
            break
        if time.monotonic() > deadline:
            raise RequestTimeoutError(
                f"{_these(names)} on {api.link.server}: a replica is silent, and answers differ."
            )
    return answer


def _prove(api: StreamAPI, names: list[str]) -> tuple[dict[str, StreamFacts], bool]:
    """Facts by proven leaders, and whether none of them can have a rival."""
    begun = time.monotonic()
    facts: dict[str, StreamFacts] = {}
    led: float | None = None
    left = names
    while True:
        found, missing = streams_of(api, left)
        for error in missing.values():
            raise error
        facts |= found
        left = [name for name in left if not api.tenure(name).unrivalled_since(begun)]
        now = time.monotonic()
        if not left:
            return facts, True
        unproven = [name for name in left if not api.tenure(name).led_since(begun)]
        if not unproven:
            led = now if led is None else led
            if now > led + _RIVALS_WITHIN:
                return facts, False
        elif now > begun + _WITHIN:
            raise RequestTimeoutError(
                f"{_these(unproven)} on {api.link.server}: the leader has not heard from a "
                f"quorum of replicas for {_WITHIN:g} s, so another may lead."
            )
        time.sleep(_LOOK_EVERY)


def _these(names: list[str]) -> str:
    return f"Stream{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"
