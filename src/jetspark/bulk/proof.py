"""Answers that are not older than the question: the one way to what nobody may know better.

What is only behind does no harm where the rest comes later, or where a compare-and-set follows.
But that a stream ends here, that its head has moved, that nothing is left, that a marker is gone:
these are asked for by `leading` and `proven`, which wait until the leader is known to lead
(`leadership`). On a stream with one copy that costs nothing, on one with replicas the wait for the
next heartbeat: about 1.4 seconds at most, or 2.4 when something was stored just before; within the
lease that a proof gives, and on the same link, nothing again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from jetspark.bulk.facts import StreamFacts
from jetspark.bulk.stream_api import StreamAPI
from jetspark.errors import RequestTimeoutError

T = TypeVar("T")

_LOOK_EVERY = 0.05
_WITHIN = 6.0
"""Seconds without a proof after which it fails, to be tried on another link."""
_RIVALS_WITHIN = 0.15
"""A replica that lives agrees with the others, a little later perhaps."""


def leading(api: StreamAPI, streams: Iterable[str]) -> dict[str, StreamFacts]:
    """What streams say of themselves, by leaders that led after this was called.

    Raises RequestTimeoutError when a leader cannot be proven, and as `StreamAPI.stream`.
    """
    return _prove(api, list(streams))[0]


def proven(api: StreamAPI, streams: Iterable[str], question: Callable[[StreamAPI], T]) -> T:
    """An answer that holds whatever the leaders of `streams` had acknowledged before this call.

    `question` asks these streams, perhaps several times, and must be harmless to ask twice. While
    a replica is silent, which may be a former leader that stands still, two answers have to agree,
    with a proof in between. Raises as `leading`.
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
        left = [name for name in left if not _settled(api, name, begun, facts)]
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
                f"{_these(unproven)} on {api.link.server}: who answers has not heard from a "
                f"quorum of replicas for {_WITHIN:g} s, so another may lead."
            )
        time.sleep(_LOOK_EVERY)


def _settled(api: StreamAPI, name: str, begun: float, facts: dict[str, StreamFacts]) -> bool:
    facts[name] = api.stream(name)
    return api.tenure(name).unrivalled_since(begun)


def _these(names: list[str]) -> str:
    return f"Stream{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"
