"""Requests to the leaders of streams, repeated over a new link when one is lost, and proofs.

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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import jetspark.errors as errors
from jetspark.connection.options import ConnectOptions
from jetspark.links.link_pool import pool
from jetspark.links.many_streams import fetch_stream_facts
from jetspark.links.retry import Retry, attempt
from jetspark.links.stream_api import StoredMessage, StreamAPI
from jetspark.links.stream_facts import StreamFacts

T = TypeVar("T")


class Leaders:
    """Sends requests to the leaders of streams, each over a link from the pool, with retries."""

    def __init__(
        self,
        options: ConnectOptions,
        retry_seconds: float,
        *,
        timeout: float = 5.0,
        at_once_if_new: bool = False,
    ) -> None:
        """Nothing connects yet. `options`: the servers; `timeout`: seconds for each call.

        `retry_seconds`: how long a request is repeated after transient errors.

        `at_once_if_new`: a server that never answered this process gets one attempt only, unless it
        accepts a link and then loses it, or is silent. So a wrong address, or a server that was not
        started, fails at once, while a running query survives the restart of a server (see
        `LinkPool.reachable`).
        """
        self._options = options
        self._retry_seconds = retry_seconds
        self._timeout = timeout
        self._at_once_if_new = at_once_if_new
        self.reads_are_linearizable = False
        """Whether to read messages from proven leaders only; see `linearizable_reads`."""

    def call(self, request: Callable[[StreamAPI], T]) -> T:
        """Make a request, which must be idempotent, and return its result.

        It is repeated over a new link after a transient error. Raises the errors of the request,
        and those of the link that persist (ConnectionFailure, RequestTimeoutError, ProtocolError).
        """
        fails_at_once = self._at_once_if_new and self._options not in pool.reachable
        retry = Retry(0.0 if fails_at_once else self._retry_seconds)

        def request_over_a_link() -> T:
            """Make the request once, over a link from the pool."""
            with pool.link(self._options) as link:
                try:
                    return request(StreamAPI(link, self._timeout))
                except (errors.ConnectionFailure, errors.RequestTimeoutError):
                    # The server had accepted this link, so its address is right: do try again.
                    retry.timeout = self._retry_seconds
                    raise

        answer = attempt(request_over_a_link, retry)
        pool.reachable.add(self._options)
        return answer

    @contextmanager
    def linearizable_reads(self) -> Iterator[None]:
        """In the block, `message` reads only from leaders that are proven to lead.

        So it misses nothing that was acknowledged. Outside of the block a replaced leader may
        answer, which is enough before a compare-and-set, and to find a message, but not to find
        that there is none.
        """
        before, self.reads_are_linearizable = self.reads_are_linearizable, True
        try:
            yield
        finally:
            self.reads_are_linearizable = before

    def message(self, stream: str, **selector: int | str) -> StoredMessage | None:
        """Read a message of the stream by `seq`, `last_by_subj` or `next_by_subj` from its leader.

        None when there is none. Raises StreamNotFoundError, and the errors of `call`.
        """

        def request(api: StreamAPI) -> StoredMessage | None:
            return api.message(stream, **selector)

        if self.reads_are_linearizable:
            return self.call(lambda api: linearizable_read(api, [stream], request))
        return self.call(request)

    def last_sequence(self, stream: str) -> int:
        """The last sequence of a stream, from a proven leader. Raises the errors of `message`."""
        return self.call(lambda api: confirmed_facts(api, [stream])[stream].last_seq)


# -- proofs --------------------------------------------------------------------------------------

_REQUEST_INTERVAL = 0.05
_PROOF_TIMEOUT = 6.0
"""Seconds without a proof until it fails; then the caller may try another link."""
_RIVALS_TIMEOUT = 0.15
"""Seconds within which a running replica outside the quorum also confirms the leader."""


def confirmed_facts(api: StreamAPI, streams: Iterable[str]) -> dict[str, StreamFacts]:
    """Request the configuration and state of streams, by name, from proven leaders.

    They include everything that was acknowledged before this call. Raises RequestTimeoutError when
    a leader cannot be proven to lead, and the errors of `StreamAPI.stream`.
    """
    return _prove_leaders(api, list(streams)).facts


def linearizable_read(
    api: StreamAPI, streams: Iterable[str], request: Callable[[StreamAPI], T]
) -> T:
    """Make a request whose answer has all that the leaders of `streams` acknowledged before.

    `request` asks about these streams, and must be idempotent. Raises the errors of
    `confirmed_facts` and of the request.
    """
    names = list(streams)
    # Only the proven leader can answer, unless it has a rival: a former leader that does not know
    # of its replacement. A silent replica may be one, which was suspended and could resume and
    # answer. While the leader is proven again, the rival learns of its replacement, so answers
    # before and after that are not both its own: if they are equal, they are right.
    unrivalled = _prove_leaders(api, names).unrivalled
    answer = request(api)
    deadline = time.monotonic() + 2 * _PROOF_TIMEOUT
    while not unrivalled:
        unrivalled = _prove_leaders(api, names).unrivalled
        before, answer = answer, request(api)
        if before == answer:
            break
        if time.monotonic() > deadline:
            raise errors.RequestTimeoutError(
                f"{_list_streams(names)} on {api.link.server}: a replica is silent, and answers "
                "differ."
            )
    return answer


class LeaderProof(NamedTuple):
    """The facts of streams from leaders that are proven to lead."""

    facts: dict[str, StreamFacts]
    unrivalled: bool
    """Whether no other replica of any of the streams can still believe itself the leader."""


def _prove_leaders(api: StreamAPI, names: list[str]) -> LeaderProof:
    """Request the facts of streams again and again until each leader is proven to lead.

    That takes contact with a quorum of replicas. It waits a little longer for the other replicas,
    since any of them may be a rival: a former leader that has not learnt of its replacement. Raises
    the errors of `confirmed_facts`.
    """
    started = time.monotonic()
    terms = api.link.leader_terms
    facts: dict[str, StreamFacts] = {}
    all_led_at: float | None = None
    rivalled = names  # streams whose leader may have a rival, as far as proven
    while True:
        answers, missing = fetch_stream_facts(api, rivalled)
        for error in missing.values():
            raise error
        facts |= answers
        rivalled = [name for name in rivalled if not terms[name].unrivalled_since(started)]
        now = time.monotonic()
        if not rivalled:
            return LeaderProof(facts, unrivalled=True)
        unproven = [name for name in rivalled if not terms[name].led_since(started)]
        if not unproven:
            all_led_at = now if all_led_at is None else all_led_at
            if now > all_led_at + _RIVALS_TIMEOUT:
                return LeaderProof(facts, unrivalled=False)
        elif now > started + _PROOF_TIMEOUT:
            raise errors.RequestTimeoutError(
                f"{_list_streams(unproven)} on {api.link.server}: the leader has not heard from a "
                f"quorum of replicas for {_PROOF_TIMEOUT:g} s, so another may lead."
            )
        time.sleep(_REQUEST_INTERVAL)


def _list_streams(names: list[str]) -> str:
    """The beginning of a sentence about streams: "Stream 'A'", "Streams 'A', 'B'"."""
    return f"Stream{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"
