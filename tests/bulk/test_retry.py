"""What is tried again on the way to a leader, and for how long; by a clock of the test's own."""

from __future__ import annotations

import pytest

from jetspark.bulk import retry
from jetspark.bulk.retry import CUT_OFF_SECONDS, CallRetry, Retry, answer_waits, attempt
from jetspark.err_codes import (
    INSUFFICIENT_RESOURCES,
    NOT_ENABLED,
    NOT_LEADER,
    STREAM_NOT_FOUND,
    WRONG_LAST_SEQUENCE,
)
from jetspark.errors import (
    APIError,
    AuthorizationError,
    BrokenSocketError,
    JetsparkError,
    JetStreamNotEnabledError,
    NoRespondersError,
    StreamNotFoundError,
    WrongLastSequenceError,
)
from jetspark.retries import Backoff


class Clock:
    """Goes on only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now = round(self.now + seconds, 6)
        self.pauses.append(round(seconds, 3))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(retry, "time", clock)
    return clock


BROKEN = BrokenSocketError("gone")
NOT_FOUND = StreamNotFoundError(404, STREAM_NOT_FOUND, "stream not found")


def attempts(policy: Retry, error: JetsparkError) -> int:
    """How often it is tried when it always fails so."""
    count = 1
    while policy.again(error):
        count += 1
    return count


def test_a_transient_error_is_tried_again_until_the_time_is_over(clock: Clock) -> None:
    assert attempts(Retry(1.05), BROKEN) == 11
    assert clock.now == pytest.approx(101.0)


def test_a_lasting_error_is_tried_once(clock: Clock) -> None:
    refused = WrongLastSequenceError(400, WRONG_LAST_SEQUENCE, "wrong last sequence")
    assert attempts(Retry(60), AuthorizationError("no")) == 1
    assert attempts(Retry(60), refused) == 1
    assert clock.pauses == []


def test_without_time_there_is_one_attempt(clock: Clock) -> None:
    assert attempts(Retry(0.0), BROKEN) == 1
    assert clock.pauses == []


def test_progress_restarts_the_time_of_a_retry(clock: Clock) -> None:
    policy = Retry(1.05)
    clock.now += 1
    assert not policy.again(BROKEN)
    policy.since = clock.now
    assert policy.idle == 0
    assert policy.again(BROKEN)


def test_pauses_double_until_an_attempt_gets_somewhere(clock: Clock) -> None:
    policy = Retry(60, Backoff(0.5, 1.5))
    for _ in range(4):
        policy.again(BROKEN)
    policy.again(BROKEN, first_pause=True)
    assert clock.pauses == [0.5, 1, 1.5, 1.5, 0.5]


def test_attempt_returns_the_first_success(clock: Clock) -> None:
    errors = [BROKEN, BROKEN]

    def once() -> str:
        if errors:
            raise errors.pop()
        return "answer"

    assert attempt(once, Retry(60)) == "answer"
    assert clock.pauses == [0.1, 0.1]


def test_attempt_raises_the_last_error() -> None:
    def once() -> None:
        raise BROKEN

    with pytest.raises(BrokenSocketError):
        attempt(once, Retry(0.0))


# -- calls of the API on one link ----------------------------------------------------------------


def test_a_call_is_made_again_while_a_leader_is_elected_or_the_store_is_full(clock: Clock) -> None:
    for code in (NOT_LEADER, INSUFFICIENT_RESOURCES):
        assert attempts(CallRetry(1.05, not_found_for=0), APIError(503, code, "")) == 11
    assert attempts(CallRetry(1.05, not_found_for=0), APIError(503, 0, "raft: not leader")) == 11


def test_a_call_waits_a_second_for_responders(clock: Clock) -> None:
    assert attempts(CallRetry(5, not_found_for=0), NoRespondersError("$JS.API.INFO")) == 11


def test_a_server_without_jetstream_is_reported_at_once(clock: Clock) -> None:
    error = JetStreamNotEnabledError(503, NOT_ENABLED, "JetStream not enabled")
    assert attempts(CallRetry(5, not_found_for=0), error) == 1


def test_not_found_is_final_after_its_time_which_may_exceed_the_timeout(clock: Clock) -> None:
    assert attempts(CallRetry(5, not_found_for=0), NOT_FOUND) == 1
    attempts(CallRetry(1, not_found_for=CUT_OFF_SECONDS), NOT_FOUND)
    assert clock.now == pytest.approx(100 + CUT_OFF_SECONDS)


def test_a_request_is_sent_three_times_within_the_timeout(clock: Clock) -> None:
    waits = []
    for seconds in answer_waits(10, clock.now + 10):
        waits.append(seconds)
        clock.now += seconds
    assert waits == pytest.approx([2, 3, 5])
