"""What is tried again on the way to a leader, and for how long; by a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import jetspark.errors as errors
from jetspark import err_codes
from jetspark.links import retry
from jetspark.links.retry import CUT_OFF_SECONDS, CallRetry, Retry, answer_waits, attempt
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


BROKEN = errors.BrokenSocketError("gone")
NOT_FOUND = errors.StreamNotFoundError(404, err_codes.STREAM_NOT_FOUND, "stream not found")


def attempts(policy: Retry, error: errors.JetsparkError) -> int:
    """How often it is tried when it always fails so."""
    count = 1
    while policy.wait_to_retry(error):
        count += 1
    return count


call = partial(CallRetry, not_found_for=0)
"""Of the API, on one link."""


@pytest.mark.parametrize(
    ("policy", "seconds", "error", "count"),
    [
        (Retry, 1.05, BROKEN, 11),
        (Retry, 0.0, BROKEN, 1),
        (Retry, 60, errors.AuthorizationError("no"), 1),
        (
            Retry,
            60,
            errors.WrongLastSequenceError(400, err_codes.STREAM_WRONG_LAST_SEQUENCE, ""),
            1,
        ),
        (call, 1.05, errors.APIError(503, err_codes.CLUSTER_NOT_LEADER, ""), 11),
        (call, 1.05, errors.APIError(503, err_codes.INSUFFICIENT_RESOURCES, ""), 11),
        (call, 1.05, errors.APIError(503, 0, "raft: not leader"), 11),
        (call, 5, errors.NoRespondersError("$JS.API.INFO"), 11),
        (call, 5, errors.JetStreamNotEnabledError(503, err_codes.NOT_ENABLED, ""), 1),
        (call, 5, NOT_FOUND, 1),
    ],
)
def test_a_transient_error_is_tried_again_until_the_time_is_over_and_a_lasting_one_is_not(
    clock: Clock, policy: Callable[[float], Retry], seconds: float, error: Any, count: int
) -> None:
    assert attempts(policy(seconds), error) == count
    assert clock.pauses == [0.1] * (count - 1)


def test_progress_restarts_the_time_of_a_retry(clock: Clock) -> None:
    policy = Retry(1.05)
    clock.now += 1
    assert not policy.wait_to_retry(BROKEN)
    policy.since = clock.now
    assert policy.idle == 0
    assert policy.wait_to_retry(BROKEN)


def test_pauses_double_until_an_attempt_gets_somewhere(clock: Clock) -> None:
    policy = Retry(60, Backoff(0.5, 1.5))
    for _ in range(4):
        policy.wait_to_retry(BROKEN)
    policy.wait_to_retry(BROKEN, first_pause=True)
    assert clock.pauses == [0.5, 1, 1.5, 1.5, 0.5]


def test_attempt_returns_the_first_success_or_raises_the_last_error(clock: Clock) -> None:
    failures = [BROKEN, BROKEN]

    def once() -> str:
        if failures:
            raise failures.pop()
        return "answer"

    assert attempt(once, Retry(60)) == "answer"
    assert clock.pauses == [0.1, 0.1]
    failures.append(BROKEN)
    with pytest.raises(errors.BrokenSocketError):
        attempt(once, Retry(0.0))


def test_the_last_error_says_for_how_long_was_tried(clock: Clock) -> None:
    def fail() -> None:
        raise errors.BrokenSocketError(f"No link; see {errors.named('connect_timeout')}.")

    with pytest.raises(errors.BrokenSocketError) as caught:
        attempt(fail, Retry(2))
    assert str(caught.value) == "No link; see connect_timeout. Tried for 2 s."
    in_spark = caught.value.sentence(lambda _: "connectTimeout")
    assert in_spark == "No link; see connectTimeout. Tried for 2 s."


def test_not_found_is_final_after_its_time_which_may_exceed_the_timeout(clock: Clock) -> None:
    attempts(CallRetry(1, not_found_for=CUT_OFF_SECONDS), NOT_FOUND)
    assert clock.now == pytest.approx(100 + CUT_OFF_SECONDS)


def test_a_request_is_sent_three_times_within_the_timeout(clock: Clock) -> None:
    waits = []
    for seconds in answer_waits(10, clock.now + 10):
        waits.append(seconds)
        clock.now += seconds
    assert waits == pytest.approx([2, 3, 5])
