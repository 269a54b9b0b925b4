"""The window of a fast-ingest batch as a state machine: one fate for each message."""

from __future__ import annotations

import math
import threading

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.switching import switching

from jetspark.errors import BatchError, JetStreamError, PublishFailedError
from jetspark.jetstream.batches import IngestWindow

FLOW, OUTSTANDING = 3, 2
SUBJECTS = ("a", "b", "c")
LOST, REFUSED, LEFT = (JetStreamError(text) for text in ("lost", "refused", "left"))


class IngestMachine(RuleBasedStateMachine):
    """A window, and what a bystander knows of every message."""

    def __init__(self) -> None:
        super().__init__()
        self.window = IngestWindow(flow=FLOW, outstanding=OUTSTANDING)
        self.window.open()
        self.flow = FLOW
        self.heard = False  # the server has said how many it lets be on their way
        self.subjects: list[str] = []
        self.acked: set[int] = set()
        self.failed: dict[int, JetStreamError] = {}
        self.refused: set[str] = set()

    def pending(self) -> list[int]:
        numbers = range(1, len(self.subjects) + 1)
        return [n for n in numbers if n not in self.acked and n not in self.failed]

    @precondition(lambda self: not self.window.full)
    @rule(subject=st.sampled_from(SUBJECTS), taken=st.booleans())
    def a_message_is_sent(self, subject: str, taken: bool) -> None:
        index = self.window.reserve(subject)
        assert index == len(self.subjects)
        if self.window.closed or not taken:
            assert self.window.withdraw(index)
        else:
            self.window.published = index + 1
            self.subjects.append(subject)

    @rule(number=st.integers(0, 12), flow=st.none() | st.integers(1, 5))
    def the_server_acknowledges(self, number: int, flow: int | None) -> None:
        self.window.acked_up_to(number, flow)
        self.flow = flow or self.flow
        self.acked.update(n for n in self.pending() if n <= number)
        self.heard = True

    @rule(first=st.integers(0, 12), more=st.integers(0, 3))
    def messages_are_lost(self, first: int, more: int) -> None:
        self.window.failed(range(first, first + more + 1), LOST)
        self.failed.update((n, LOST) for n in self.pending() if first <= n <= first + more)
        self.heard = True

    @rule(subject=st.sampled_from(SUBJECTS))
    def a_subject_may_not_be_published_to(self, subject: str) -> None:
        numbers, news = self.window.refuse(subject)
        done = self.window.done
        assert numbers == [
            n for n, one in enumerate(self.subjects, 1) if n > done and one == subject
        ]
        assert not (news and subject in self.refused)
        if news:
            self.refused.add(subject)
        self.window.failed(numbers, REFUSED)
        self.failed.update((n, REFUSED) for n in self.pending() if n in numbers)
        self.heard = True

    @rule()
    def no_more_are_taken(self) -> None:
        self.window.close()

    @rule()
    def it_is_left(self) -> None:
        self.window.over(LEFT)
        self.failed.update((n, LEFT) for n in self.pending())

    @invariant()
    def every_message_has_one_fate_or_is_pending(self) -> None:
        window = self.window
        assert window.sent == len(self.subjects)
        assert window.pending == len(self.pending())
        assert window.acked == len(self.acked)
        told = [(one.index + 1, one.subject, one.error) for one in window.failures]
        wanted = [(n, self.subjects[n - 1], error) for n, error in self.failed.items()]
        assert sorted(told, key=str) == sorted(wanted, key=str)

    @invariant()
    def as_many_are_let_in_as_the_server_said(self) -> None:
        window = self.window
        if window.closed:
            assert window.limit == math.inf
        elif self.heard:
            assert window.limit == window.sent - window.pending + self.flow * OUTSTANDING
        else:
            assert window.limit == 1
        assert window.full == (window.sent >= window.limit)

    @invariant()
    def a_question_has_a_subject_that_is_let_through(self) -> None:
        subject = self.window.open_subject()
        assert subject not in self.refused
        if any(self.subjects[n - 1] not in self.refused for n in self.pending()):
            assert subject is not None


TestIngestWindow = IngestMachine.TestCase
TestIngestWindow.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_senders_and_the_loop_meet_without_losing_a_message() -> None:
    """Two threads at once, switched as often as they can: as in the blocking client."""
    window = IngestWindow(flow=10**9, outstanding=1)
    window.open()
    window.acked_up_to(0, 10**9)
    taken = withdrawn = 0

    def send() -> None:
        nonlocal taken, withdrawn
        while not window.closed:
            index = window.reserve("s")
            if window.closed or taken % 3 == 2:
                if window.withdraw(index):
                    withdrawn += 1
                    taken += not window.closed
                    continue
            else:
                window.published = index + 1
            taken += 1

    sender = threading.Thread(target=send)
    turn = 0
    with switching():
        sender.start()
        while window.sent < 30_000:
            turn += 1
            if turn % 7 == 0:
                window.failed(range(window.sent - 2, window.sent + 3), LOST)
            elif turn % 11 == 0:
                window.refuse("t")
                window.open_subject()
            else:
                window.acked_up_to(window.published - 1)
        window.over(LEFT)
        sender.join()
    assert withdrawn
    assert window.pending == 0
    assert window.sent == window.acked + len(window.failures)
    indexes = [one.index for one in window.failures]
    assert len(set(indexes)) == len(indexes)
    assert max(indexes) < window.sent


def test_message_reserved_when_the_batch_ends_fails_once() -> None:
    window = IngestWindow(flow=5, outstanding=1)
    window.open()
    index = window.reserve("a")
    window.over(LEFT)  # the loop's thread, before the sender has looked
    assert window.closed
    assert not window.withdraw(index), "its failure is listed already"
    assert [one.index for one in window.failures] == [index]
    late = window.reserve("a")
    assert window.withdraw(late)
    assert window.sent == 1


def test_the_error_names_the_first_message_and_how_many_may_be_stored() -> None:
    """Those that the server answers to fail first, though others were sent before them."""
    window = IngestWindow(flow=FLOW, outstanding=OUTSTANDING)
    window.open()
    for subject in ("a", "b", "c"):
        window.reserve(subject)
    window.failed((3,), BatchError(400, 10206, "unknown batch"))
    window.over(LOST)
    said = str(PublishFailedError(window.failures))
    assert said.startswith("3 messages were not acknowledged, of which 2 may be stored; the first ")
    assert said.endswith("has index 0 and is for 'a': lost")
