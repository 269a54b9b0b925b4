"""The window of an atomic batch as a state machine: all or nothing, and one end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.switching import switching

from jetspark.documents.streams import PubAck
from jetspark.errors import ConfigError, JetsparkError, JetStreamError
from jetspark.jetstream.batches import AtomicWindow, BatchMessage
from jetspark.wire.headers import COMMIT, COMMIT_BEFORE

if TYPE_CHECKING:
    from collections.abc import Callable

ACK = PubAck(stream="S", seq=1)


class AtomicMachine(RuleBasedStateMachine):
    """A window, and the server that keeps its messages aside."""

    def __init__(self) -> None:
        super().__init__()
        self.window = AtomicWindow()
        self.window.open()
        self.added: list[BatchMessage] = []
        self.given_out: list[tuple[int, BatchMessage]] = []
        self.ends: list[JetsparkError | PubAck] = []
        self.committed = False
        self.is_open = True

    def is_usable(self) -> bool:
        return self.is_open and not self.ends and not self.committed

    def release(self) -> None:
        if (held := self.window.release()) is not None:
            self.given_out.append(held)

    @rule(subject=st.sampled_from("ab"))
    def a_message_is_added(self, subject: str) -> None:
        if not self.is_usable():
            with pytest.raises(JetsparkError):
                self.window.check_open()
            return
        self.window.check_open()
        message = BatchMessage(subject, b"%d" % len(self.added), b"")
        if self.window.waits:
            self.release()
            self.window.kept = True
        self.release()
        self.added.append(message)
        assert self.window.reserve(message) == len(self.added)

    @precondition(is_usable)
    @rule()
    def all_are_sent(self) -> None:
        self.release()
        self.window.kept = bool(self.given_out)
        assert self.window.held is None

    @precondition(is_usable)
    @rule()
    def it_is_committed(self) -> None:
        if not self.added:
            with pytest.raises(ConfigError, match="empty"):
                self.window.commit()
            return
        number, message, mark = self.window.commit()
        self.committed = True
        if mark is COMMIT:
            assert (number, message) == (len(self.added), self.added[-1])
            self.given_out.append((number, message))
        else:
            assert mark is COMMIT_BEFORE
            assert (number, message.payload) == (len(self.added) + 1, b"")
            assert message.subject == self.added[-1].subject
        assert self.given_out == list(enumerate(self.added, 1))

    @precondition(lambda self: self.committed)
    @rule()
    def the_server_has_stored_all(self) -> None:
        self.window.acked(ACK)
        self.ends.append(ACK)

    @precondition(lambda self: self.committed or len(self.added) > 2)
    @rule(how=st.sampled_from(["refused", "lost", "expired"]))
    def it_fails(self, how: str) -> None:
        window = self.window
        makers: dict[str, Callable[[], JetsparkError]] = {
            "refused": lambda: JetStreamError("refused"),
            "lost": window.lost,
            "expired": lambda: window.expired(5),
        }
        error = makers[how]()
        if how != "refused":
            assert ("may be stored" in str(error)) == self.committed, "it says what is known"
        assert window.failed(error) == (not self.ends)
        self.ends.append(error)

    @precondition(lambda self: self.committed or len(self.added) > 2)
    @rule()
    def it_is_left(self) -> None:
        told = self.window.close()
        assert told == (self.window.kept and not self.committed), "the server should forget it"
        self.is_open = False

    @invariant()
    def all_but_the_newest_were_given_out_in_order(self) -> None:
        assert self.window.size == len(self.added)
        held = [self.window.held] if self.window.held is not None else []
        assert [message for _, message in self.given_out] + held == self.added
        assert [number for number, _ in self.given_out] == list(range(1, len(self.given_out) + 1))
        assert self.window.subjects == {message.subject for _, message in self.given_out}

    @invariant()
    def the_first_end_counts(self) -> None:
        first = self.ends[0] if self.ends else None
        assert self.window.ack is (ACK if first is ACK else None)
        assert self.window.error is (None if first is ACK else first)


TestAtomicWindow = AtomicMachine.TestCase
TestAtomicWindow.settings = settings(max_examples=100, stateful_step_count=15, deadline=None)


def test_of_two_ends_that_meet_one_counts() -> None:
    """The thread that adds and the loop's thread, switched as often as they can."""
    with switching(), ThreadPoolExecutor(2) as pool:
        for _ in range(1000):
            window = AtomicWindow()
            errors = [JetStreamError(name) for name in "ab"]
            counted = list(pool.map(window.failed, errors))
            assert [one for one, first in zip(errors, counted, strict=True) if first] == [
                window.error
            ]
