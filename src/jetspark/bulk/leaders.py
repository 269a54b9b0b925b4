"""Questions to the leaders of streams, repeated over a new link when one is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from jetspark.bulk import links
from jetspark.bulk.proof import leading, proven
from jetspark.bulk.retry import Retry, attempt
from jetspark.bulk.stream_api import StoredMessage, StreamAPI
from jetspark.connection.options import ConnectOptions
from jetspark.errors import ConnectionFailure, RequestTimeoutError

T = TypeVar("T")

_answered: set[ConnectOptions] = set()
"""Servers that have answered this process before."""


def expect(options: ConnectOptions) -> None:
    """For a process that works for a running query: these servers are not new to it, so one that
    cannot be reached is restarting, and not a wrong address."""
    _answered.add(options)


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

        `at_once_if_new`: servers that have never answered this process get one attempt only, unless
        they accept a link and then lose it, or are silent. So a wrong address, or a server that was
        not started, is an error at once, while a running query survives the restart of a server
        (see `expect`).
        """
        self._options = options
        self._within = within
        self._timeout = timeout
        self._at_once_if_new = at_once_if_new
        self.only_proven = False
        """Whether messages are read from proven leaders only; see `proven`."""

    def ask(self, question: Callable[[StreamAPI], T]) -> T:
        """The answer to a question, which must be idempotent.

        Raises what the question raises, and JetsparkError of the link (ConnectionFailure,
        RequestTimeoutError, ProtocolError) that persist.
        """
        once_only = self._at_once_if_new and self._options not in _answered
        retry = Retry(0.0 if once_only else self._within)

        def once() -> T:
            with links.borrowed(self._options) as link:
                try:
                    return question(StreamAPI(link, self._timeout))
                except (ConnectionFailure, RequestTimeoutError):
                    # Of a server that had accepted us: no wrong address.
                    retry.within = self._within
                    raise

        answer = attempt(once, retry)
        _answered.add(self._options)
        return answer

    @contextmanager
    def proven(self) -> Iterator[None]:
        """In the block, messages are read from proven leaders, so everything acknowledged is seen.

        Outside of it they may come from a leader that was replaced. That is enough where a
        compare-and-set follows, and to find a message, but not to find that there is none.
        """
        before, self.only_proven = self.only_proven, True
        try:
            yield
        finally:
            self.only_proven = before

    def message(self, stream: str, **which: int | str) -> StoredMessage | None:
        """A message by `seq`, `last_by_subj` or `next_by_subj`; None when there is none.

        Raises as `ask`, StreamNotFoundError.
        """

        def question(api: StreamAPI) -> StoredMessage | None:
            return api.message(stream, **which)

        if self.only_proven:
            return self.ask(lambda api: proven(api, [stream], question))
        return self.ask(question)

    def last_sequence(self, stream: str) -> int:
        """The last sequence of a stream, from a proven leader. Raises as `message`."""
        return self.ask(lambda api: leading(api, [stream])[stream].last_seq)
