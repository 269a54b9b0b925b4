"""The retry policy on the way to a stream's leader: who retries, for which errors, until when.

| who | retries | after | until |
|---|---|---|---|
| `StreamAPI.call` | the request, same link | no answer (`answer_waits`) | 3 requests |
| `StreamAPI.call` | the call, same link | a refusal that passes (`CallRetry`) | its `timeout` |
| `Leaders.call` | the question, new link | any transient error | `timeout` |
| `read_range`, `read_last_per_subject` | the rest, new link | any transient error | no progress |
| `StreamPublisher`, `BatchCopier` | connecting | any transient error | no progress |
| `StreamPublisher` | a refused message | a transient refusal | no progress |
| `BatchCopier` | a chunk, once its marker was read | refusals that leave it open | no progress |

"No progress" means: for `timeout` seconds of the reader or writer. Each call of a question has its
own timeout, a part of the question's. `jetspark.retries` has the transient errors and the pauses. A
proof (`leaders`) does not retry errors; it repeats its question until the answers are a proof.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import ClassVar, Final, TypeVar

import jetspark.errors as errors
from jetspark.retries import NO_JETSTREAM, Backoff, is_transient

logger = logging.getLogger("jetspark.links")

T = TypeVar("T")

PAUSE_SECONDS: Final = 0.1
"""Seconds between two attempts, by default."""
_PAUSES: Final = Backoff(PAUSE_SECONDS, PAUSE_SECONDS)
NO_RESPONDERS_SECONDS: Final = 1.0
"""Seconds without responders on its API after which JetStream is considered absent."""
NOT_FOUND_SECONDS: Final = 1.5
"""Seconds; longer than it takes a resumed former metadata leader to learn that it was replaced."""
CUT_OFF_SECONDS: Final = 25.0
"""Seconds; longer than a metadata leader without a quorum keeps answering."""
_ANSWER_SHARES: Final = (0.2, 0.3, 1.0)
"""Shares of the timeout to wait for an answer to the first, second and last request."""
_NOT_FOUND: Final = (errors.StreamNotFoundError, errors.ConsumerNotFoundError)


class Retry:
    """Decides whether to try again after an error, and pauses before another attempt.

    There are no more attempts after `timeout` seconds without progress.
    """

    repeated: ClassVar[int] = 0
    """Attempts in this process that were made again."""

    def __init__(self, timeout: float, pauses: Backoff = _PAUSES) -> None:
        """`timeout`: seconds since the last progress; `pauses`: between attempts."""
        self.since = time.monotonic()
        """`time.monotonic()` of the start or the last progress; set by the caller."""
        self.timeout = timeout
        self._pauses = pauses
        self._attempts = 0

    @property
    def idle(self) -> float:
        """Seconds without progress."""
        return time.monotonic() - self.since

    @property
    def deadline(self) -> float:
        """The `time.monotonic()` after which there are no more attempts."""
        return self.since + self.timeout

    def is_worth(self, error: errors.JetsparkError) -> bool:
        """Whether another attempt may succeed after this error."""
        return is_transient(error)

    def wait_to_retry(self, error: errors.JetsparkError, *, first_pause: bool = False) -> bool:
        """Pause before another attempt, and return True; False at once if there should be none.

        There is none after an error that would persist, or when the time is up. `first_pause`:
        restart with the first, shortest pause, since the attempt made progress.
        """
        if first_pause:
            self._attempts = 0
        if not self.is_worth(error):
            return False
        left = self.deadline - time.monotonic()
        if left < self._pauses.first:
            return False
        self._attempts += 1
        Retry.repeated += 1
        time.sleep(min(self._pauses.pause(self._attempts), left))
        return True

    def wait_to_continue_reading(
        self, stream: str, error: errors.JetsparkError, at: str = "", *, first_pause: bool = False
    ) -> None:
        """Pause after an error, before the reading of a stream continues over another link.

        `at`: the position, in words; `first_pause`: see `wait_to_retry`. Raises the error itself
        unless it is transient, and IncompleteRangeError without progress for the timeout.
        """
        if not is_transient(error):
            raise error
        if not self.wait_to_retry(error, first_pause=first_pause):
            raise errors.IncompleteRangeError(
                stream,
                f"Reading stream {stream!r} made no progress for {self.timeout:g} s{at}: {error}",
            ) from error


class CallRetry(Retry):
    """Retries one call of the JetStream API on one link, after errors that may pass there.

    "Not found" may pass, since a former metadata leader does not know new streams or consumers.
    """

    def __init__(self, timeout: float, *, not_found_for: float) -> None:
        """`not_found_for`: seconds after which "not found" is final."""
        super().__init__(timeout)
        self._not_found_for = not_found_for

    def wait_to_retry(self, error: errors.JetsparkError, *, first_pause: bool = False) -> bool:
        """Pause as `Retry` does, but retry "not found" until final, even after the timeout."""
        if isinstance(error, _NOT_FOUND):
            self.timeout = max(self.timeout, self._not_found_for + PAUSE_SECONDS)
        return super().wait_to_retry(error, first_pause=first_pause)

    def is_worth(self, error: errors.JetsparkError) -> bool:
        """Whether another attempt may succeed: for "no responders" and "not found" a limited time.

        "JetStream is not enabled" is not retried: only another link may get another answer.
        """
        if isinstance(error, errors.NoRespondersError):
            return self.idle < NO_RESPONDERS_SECONDS
        if isinstance(error, _NOT_FOUND):
            return self.idle < self._not_found_for
        return (
            isinstance(error, errors.APIError)
            and error.err_code not in NO_JETSTREAM
            and is_transient(error)
        )


def attempt(operation: Callable[[], T], retry: Retry) -> T:
    """Call `operation` until it succeeds, and return its result.

    Raises its last error when `retry` allows no more attempts.
    """
    while True:
        try:
            return operation()
        except errors.JetsparkError as error:
            if not retry.wait_to_retry(error):
                if retry.timeout and retry.is_worth(error):  # only the time was up
                    error.replace_message(f"{error.message} Tried for {retry.timeout:g} s.")
                raise
            logger.info("Trying again after: %s", error)


def answer_waits(timeout: float, deadline: float) -> Iterator[float]:
    """Yield how many seconds to wait for an answer, for each of three times a request is sent.

    The caller sends it again after silence, since a leader that stops loses requests without
    notice. The waits are shares of `timeout`, and end at `deadline` (`time.monotonic()`).
    """
    for share in _ANSWER_SHARES:
        sent = time.monotonic()
        yield min(deadline, sent + share * timeout) - sent


def answer_timeout(timeout: float) -> float:
    """Seconds to wait for one answer: a share of the `timeout` of the whole operation."""
    return min(5.0, timeout / 4)
