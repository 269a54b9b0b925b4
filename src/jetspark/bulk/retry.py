"""Who tries again on the way to a stream's leader, after which errors, and until when.

| who | what again | after | until |
|---|---|---|---|
| `StreamAPI.call` | the request, same link | no answer (`answer_waits`) | 3 requests |
| `StreamAPI.call` | the call, same link | a refusal that passes (`CallRetry`) | its `timeout` |
| `Leaders.ask` | the question, new link | any transient error | `within` |
| `read_range`, `read_snapshot` | the rest, new link | any transient error | no progress |
| `StreamPublisher`, `BatchCopier` | connecting | any transient error | no progress |
| `StreamPublisher` | a refused message | a transient refusal | no progress |
| `BatchCopier` | a chunk, once its marker was read | refusals that leave it open | no progress |

"No progress" is for `timeout` seconds of the reader or writer.
The calls of a question have their own timeout, which is a part of what the question has: no loop
multiplies another one's time. What is transient is said by `jetspark.transient`. `proof` does not
try again; it asks the leader until its answers prove something.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from jetspark.errors import (
    APIError,
    ConsumerNotFoundError,
    JetsparkError,
    NoRespondersError,
    StreamNotFoundError,
)
from jetspark.transient import NO_JETSTREAM, is_transient

logger = logging.getLogger("jetspark.bulk")

T = TypeVar("T")

PAUSE_SECONDS: Final = 0.1
"""Between two attempts, unless somebody wants another pause."""
NO_RESPONDERS_SECONDS: Final = 1.0
"""JetStream does not answer on a server where nobody listens to its API for this long."""
NOT_FOUND_SECONDS: Final = 1.5
"""A leader of the cluster's metadata that runs learns within a second that another one leads."""
CUT_OFF_SECONDS: Final = 25.0
"""A leader of the metadata that reaches no quorum goes on answering for less than this."""
_ANSWER_PARTS: Final = (0.2, 0.3, 1.0)
_NOT_FOUND: Final = (StreamNotFoundError, ConsumerNotFoundError)


class Retry:
    """The time that one thing has to succeed, and the pauses between its attempts. In seconds."""

    def __init__(
        self,
        within: float,
        *,
        pause: float = PAUSE_SECONDS,
        longest_pause: float | None = None,
    ) -> None:
        """`within`: since the last progress. Pauses double up to `longest_pause`, if given."""
        self.since = time.monotonic()
        """When it began or made progress; who makes progress sets it."""
        self._within = within
        self._first_pause = self._pause = pause
        self._longest_pause = longest_pause or pause

    @property
    def idle(self) -> float:
        """Seconds without progress."""
        return time.monotonic() - self.since

    @property
    def deadline(self) -> float:
        """When the time is over, `time.monotonic()`."""
        return self.since + self._within

    def is_worth(self, error: JetsparkError) -> bool:
        """Whether it may succeed after this error."""
        return is_transient(error)

    def again(self, error: JetsparkError, *, first_pause: bool = False) -> bool:
        """Pause before the next attempt; False when there is none: raise the error.

        `first_pause`: the attempt got somewhere, so pauses begin anew.
        """
        if first_pause:
            self._pause = self._first_pause
        if not self.is_worth(error):
            return False
        left = self.deadline - time.monotonic()
        if left < self._first_pause:
            return False
        time.sleep(min(self._pause, left))
        self._pause = min(2 * self._pause, self._longest_pause)
        return True


class CallRetry(Retry):
    """For a call of the JetStream API on one link, whose server has to answer for it."""

    def __init__(self, timeout: float, *, not_found_for: float) -> None:
        """`not_found_for`: seconds of not being found until that is believed."""
        super().__init__(timeout)
        self._not_found_for = not_found_for

    def again(self, error: JetsparkError, *, first_pause: bool = False) -> bool:
        """As above; what is not found may take longer than the timeout to be believed."""
        if isinstance(error, _NOT_FOUND):
            self._within = max(self._within, self._not_found_for + PAUSE_SECONDS)
        return super().again(error, first_pause=first_pause)

    def is_worth(self, error: JetsparkError) -> bool:
        """No responders, and what is not found, pass within a while or not at all.

        A server without JetStream has none a moment later; other links are the caller's business.
        """
        if isinstance(error, NoRespondersError):
            return self.idle < NO_RESPONDERS_SECONDS
        if isinstance(error, _NOT_FOUND):
            return self.idle < self._not_found_for
        return (
            isinstance(error, APIError)
            and error.err_code not in NO_JETSTREAM
            and is_transient(error)
        )


def attempt(once: Callable[[], T], retry: Retry) -> T:
    """Call `once` until it succeeds. Raises its last error."""
    while True:
        try:
            return once()
        except JetsparkError as error:
            if not retry.again(error):
                raise
            logger.info("Trying again after: %s", error)


def answer_waits(timeout: float, deadline: float) -> Iterator[float]:
    """Seconds to wait for an answer, for each time that a request is sent.

    A leader that stops takes a request along, and nobody says so.
    """
    for part in _ANSWER_PARTS:
        now = time.monotonic()
        yield min(deadline, now + part * timeout) - now


def answer_within(timeout: float) -> float:
    """Seconds to wait for one answer, of the `timeout` in which all has to succeed."""
    return min(5.0, timeout / 4)
