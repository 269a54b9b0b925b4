"""Questions to the leaders of streams, repeated over a new link when one is lost, and proofs.

A leader that was replaced without noticing gives outdated answers. They do no harm if the rest is
read later, or if a compare-and-set follows. But only a leader can show that a stream ends here,
that its head has moved, that nothing is left, or that a marker is gone. `confirmed_facts` and
`linearizable_read` repeat a question until the leader is proven to lead (`leader_terms`). With one
replica that takes no time. With more it takes until the next heartbeat, at most about 1.4 seconds,
or 2.4 when something was stored just before; within the lease that a proof gives on the same link,
it takes none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import jetspark.errors as errors
from jetspark.bulk.leader_terms import observation_of
from jetspark.bulk.links import pool
from jetspark.bulk.retry import NOT_FOUND_SECONDS, Retry, attempt
from jetspark.bulk.stream_api import StoredMessage, StreamAPI, StreamFacts, facts_of
from jetspark.connection.options import ConnectOptions
from jetspark.timestamps import parse_isotime
from jetspark.wire import js_api
from jetspark.wire.documents import encode_document
from jetspark.wire.kernel import MessageFrame

T = TypeVar("T")


class Leaders:
    """The leaders of streams on the servers of `options`. Each question uses a link of its own."""

    def __init__(
        self,
        options: ConnectOptions,
        within: float,
        *,
        timeout: float = 5.0,
        at_once_if_new: bool = False,
    ) -> None:
        """`within`: seconds for which a question is repeated; `timeout`: seconds for each call.

        `at_once_if_new`: a server that never answered this process gets one attempt only, unless it
        accepts a link and then loses it, or is silent. So a wrong address, or a server that was not
        started, fails at once, while a running query survives the restart of a server (see
        `LinkPool.known`).
        """
        self._options = options
        self._within = within
        self._timeout = timeout
        self._at_once_if_new = at_once_if_new
        self.reads_are_linearizable = False
        """Whether to read messages from proven leaders only; see `linearizable_reads`."""

    def ask(self, question: Callable[[StreamAPI], T]) -> T:
        """The answer to a question, which must be idempotent.

        Raises the errors of the question, and those of the link that persist (ConnectionFailure,
        RequestTimeoutError, ProtocolError).
        """
        once_only = self._at_once_if_new and self._options not in pool.known
        retry = Retry(0.0 if once_only else self._within)

        def once() -> T:
            with pool.link(self._options) as link:
                try:
                    return question(StreamAPI(link, self._timeout))
                except (errors.ConnectionFailure, errors.RequestTimeoutError):
                    # The server had accepted us, so the address is right.
                    retry.within = self._within
                    raise

        answer = attempt(once, retry)
        pool.known.add(self._options)
        return answer

    @contextmanager
    def linearizable_reads(self) -> Iterator[None]:
        """In the block, messages come from proven leaders, which have everything acknowledged.

        Outside of it they may come from a replaced leader, which is enough before a
        compare-and-set, and to find a message, but not to find that there is none.
        """
        before, self.reads_are_linearizable = self.reads_are_linearizable, True
        try:
            yield
        finally:
            self.reads_are_linearizable = before

    def message(self, stream: str, **which: int | str) -> StoredMessage | None:
        """A message by `seq`, `last_by_subj` or `next_by_subj`; None when there is none.

        Raises StreamNotFoundError, and the errors of `ask`.
        """

        def question(api: StreamAPI) -> StoredMessage | None:
            return api.message(stream, **which)

        if self.reads_are_linearizable:
            return self.ask(lambda api: linearizable_read(api, [stream], question))
        return self.ask(question)

    def last_sequence(self, stream: str) -> int:
        """The last sequence of a stream, from a proven leader. Raises the errors of `message`."""
        return self.ask(lambda api: confirmed_facts(api, [stream])[stream].last_seq)


# -- proofs --------------------------------------------------------------------------------------

_ASK_EVERY = 0.05
_WITHIN = 6.0
"""Seconds without a proof until it fails; then the caller may try another link."""
_RIVALS_WITHIN = 0.15
"""Seconds within which a running replica outside the quorum also confirms the leader."""


def confirmed_facts(api: StreamAPI, streams: Iterable[str]) -> dict[str, StreamFacts]:
    """Facts of streams, by name, from leaders that still led after the call.

    Raises RequestTimeoutError when a leader cannot be proven, and the errors of `StreamAPI.stream`.
    """
    return _prove(api, list(streams))[0]


def linearizable_read(
    api: StreamAPI, streams: Iterable[str], question: Callable[[StreamAPI], T]
) -> T:
    """An answer that includes all that the leaders of `streams` acknowledged before this call.

    `question` asks about these streams, and must be idempotent. A silent replica may be a suspended
    former leader: then two answers with a proof in between must be equal. Raises the errors of
    `confirmed_facts` and of the question.
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
            raise errors.RequestTimeoutError(
                f"{_these(names)} on {api.link.server}: a replica is silent, and answers differ."
            )
    return answer


def _prove(api: StreamAPI, names: list[str]) -> tuple[dict[str, StreamFacts], bool]:
    """Facts from proven leaders, and whether none of them can have a rival."""
    begun = time.monotonic()
    terms = api.link.leader_terms
    facts: dict[str, StreamFacts] = {}
    led: float | None = None
    left = names
    while True:
        found, missing = streams_of(api, left)
        for error in missing.values():
            raise error
        facts |= found
        left = [name for name in left if not terms[name].unrivalled_since(begun)]
        now = time.monotonic()
        if not left:
            return facts, True
        unproven = [name for name in left if not terms[name].led_since(begun)]
        if not unproven:
            led = now if led is None else led
            if now > led + _RIVALS_WITHIN:
                return facts, False
        elif now > begun + _WITHIN:
            raise errors.RequestTimeoutError(
                f"{_these(unproven)} on {api.link.server}: the leader has not heard from a "
                f"quorum of replicas for {_WITHIN:g} s, so another may lead."
            )
        time.sleep(_ASK_EVERY)


def _these(names: list[str]) -> str:
    return f"Stream{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"


# -- many streams --------------------------------------------------------------------------------

# The questions go together over one link, not one after the other. Each stream's own leader
# answers, which counts for its proof. STREAM.LIST would take fewer requests, but in a cluster one
# server collects the answers, leaves out late ones, and names no leader.

_SILENCE_SECONDS = 1.0
"""Seconds without any answer after which the missing ones are requested one by one."""
_MESSAGES_SILENCE_SECONDS = 5.0
_MESSAGES_AT_ONCE = 8
"""Answers with a message each may be large, and servers cut off a client that does not take 64 MB.
"""


def streams_of(
    api: StreamAPI, names: Iterable[str], *, not_found_for: float = NOT_FOUND_SECONDS
) -> tuple[dict[str, StreamFacts], dict[str, errors.StreamNotFoundError]]:
    """Facts by name, in the order of `names`, and the errors of the streams that are not found.

    A stream without an answer, or with an error, is asked about again alone, with the retries and
    the errors of `StreamAPI.stream`.
    """
    wanted = list(names)
    found = _asked_together(api, wanted) if len(wanted) > 1 else {}
    facts: dict[str, StreamFacts] = {}
    missing: dict[str, errors.StreamNotFoundError] = {}
    for name in wanted:
        try:
            facts[name] = found.get(name) or api.stream(name, not_found_for=not_found_for)
        except errors.StreamNotFoundError as error:
            missing[name] = error
    return facts, missing


def _asked_together(api: StreamAPI, names: list[str]) -> dict[str, StreamFacts]:
    found: dict[str, StreamFacts] = {}
    link, call = api.link, js_api.STREAM_INFO
    for name, frame, sent in _replies(api, call, names, _SILENCE_SECONDS):
        try:
            answer = js_api.parse_answer(call, frame.payload, {"stream": name})
        except errors.APIError:
            continue
        link.leader_terms[name].add(observation_of(answer, sent, time.monotonic()))
        found[name] = facts_of(name, answer, link.info.server_id)
    return found


def times_of(api: StreamAPI, wanted: Mapping[str, int]) -> dict[str, int]:
    """By stream, when the message of a sequence was stored, in nanoseconds since the epoch.

    Leaves out a stream without the message, or without an answer. Raises the errors of
    `StreamAPI.message`, and PermissionsError where the user may not get messages.
    """
    times: dict[str, int] = {}
    call, refused = js_api.MSG_GET, []
    payloads = [encode_document({"seq": sequence}) for sequence in wanted.values()]
    how = {"payloads": payloads, "at_once": _MESSAGES_AT_ONCE}
    for name, frame, _ in _replies(api, call, list(wanted), _MESSAGES_SILENCE_SECONDS, **how):
        try:
            answer = js_api.parse_answer(call, frame.payload, {"stream": name})
            times[name] = parse_isotime(answer["message"]["time"])
        except (errors.MessageNotFoundError, errors.StreamNotFoundError):
            continue
        except errors.APIError:
            refused.append(name)
    for name in refused:
        if (message := api.message(name, seq=wanted[name])) is not None:
            times[name] = parse_isotime(message.time)
    return times


def _replies(
    api: StreamAPI, call: js_api.Call, names: list[str], silence: float, **how: Any
) -> Iterator[tuple[str, MessageFrame, float]]:
    prefix = api.link.api_prefix
    subjects = [js_api.subject_of(prefix, call, {"stream": name}) for name in names]
    for number, frame, sent in api.link.replies(subjects, silence, **how):
        yield names[number], frame, sent
