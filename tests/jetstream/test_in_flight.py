"""Messages in flight as state machines, one for each policy: one result for each message."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.switching import switching

from jetspark import errors
from jetspark.documents.streams import PubAck
from jetspark.jetstream.atomic_batch import AtomicWindow, BatchMessage
from jetspark.jetstream.fast_ingest import IngestWindow
from jetspark.jetstream.in_flight import CLOSED, InFlight, link_lost
from jetspark.jetstream.publisher import RetryWindow
from jetspark.wire.headers import COMMIT, COMMIT_BEFORE, Headers

SIZE, RETRY_FOR, TIMEOUT = 4, 30.0, 5.0
FLOW, OUTSTANDING = 3, 2
LOST, REFUSED, LEFT = (errors.JetStreamError(text) for text in ("lost", "refused", "left"))
ACK = PubAck(stream="S", seq=1)
WITH_ID = Headers({"Nats-Msg-Id": "1"})


class InFlightMachine(RuleBasedStateMachine):
    """A window, and what a bystander knows of every message."""

    window: InFlight

    def __init__(self) -> None:
        super().__init__()
        self.subjects: list[str] = []
        self.acked: set[int] = set()
        self.failed: dict[int, str] = {}
        self.make()
        self.window.open()

    def make(self) -> None:
        raise NotImplementedError

    def pending(self) -> list[int]:
        ended = self.acked | self.failed.keys()
        return [index for index in range(len(self.subjects)) if index not in ended]

    def reserve(self, subject: str) -> int:
        return self.window.reserve(subject)

    @precondition(lambda self: not self.window.full)
    @rule(subject=st.sampled_from("abc"), taken=st.booleans())
    def a_message_is_sent(self, subject: str, taken: bool) -> None:
        index = self.reserve(subject)
        assert (index == CLOSED) == self.window.closed
        if index != CLOSED:
            assert index == len(self.subjects)
            if taken:
                self.subjects.append(subject)
                self.was_sent(index)
            else:
                assert self.window.withdraw(index)

    def was_sent(self, index: int) -> None:
        """For subclasses."""

    @precondition(lambda self: len(self.subjects) > 3)
    @rule(error=st.sampled_from([LEFT, LOST]))
    def it_ends(self, error: errors.JetsparkError) -> None:
        ended = self.window.ended
        assert self.window.end(error) == (ended is None)
        assert self.window.ended is (ended or error)
        if ended is None:
            self.failed |= dict.fromkeys(self.pending(), str(error))

    @invariant()
    def every_message_has_one_result_or_is_in_flight(self) -> None:
        window = self.window
        assert window.sent == len(self.subjects)
        assert window.acked == len(self.acked)
        assert [index for index, _ in window.entries()] == self.pending()
        assert window.count() == len(self.pending())
        told = [(one.index, one.subject, str(one.error)) for one in window.failures]
        wanted = [(index, self.subjects[index], error) for index, error in self.failed.items()]
        assert sorted(told) == sorted(wanted)

    @invariant()
    def nobody_waits_when_it_is_closed(self) -> None:
        assert self.window.limit == math.inf or not self.window.closed


class RetryMachine(InFlightMachine):
    """Messages on "b" have a message id: they may be sent again although they may be stored."""

    window: RetryWindow

    def make(self) -> None:
        self.window = RetryWindow(SIZE, "auto", RETRY_FOR)
        self.now = 0.0
        self.window.deadline = TIMEOUT
        self.waits: set[int] = set()  # on their way
        self.refused: set[int] = set()  # the last sending was certainly not stored

    def reserve(self, subject: str) -> int:
        return self.window.reserve(subject, b"", WITH_ID if subject == "b" else None)

    def was_sent(self, index: int) -> None:
        self.waits.add(index)

    def fail(self, reason: str) -> None:
        """The window has failed some: which?"""
        for failure in self.window.failures[len(self.failed) :]:
            assert failure.index not in self.refused, "it was known not to be stored"
            self.failed[failure.index] = reason
        self.waits -= self.failed.keys()

    @precondition(lambda self: self.waits & set(self.pending()))
    @rule(data=st.data())
    def a_message_is_acknowledged(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(sorted(self.waits & set(self.pending()))))
        assert self.window.take(index)[0] == self.subjects[index]
        self.window.acknowledged(index)
        self.window.acked += 1
        self.acked.add(index)
        self.waits.discard(index)

    @precondition(lambda self: self.waits & set(self.pending()))
    @rule(data=st.data())
    def a_message_is_refused(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(sorted(self.waits & set(self.pending()))))
        self.waits.discard(index)
        if self.window.retry_later(index, self.now):
            self.refused.add(index)
        else:
            self.window.answered(index)
            self.window.fail(index, REFUSED)
            self.failed[index] = str(REFUSED)

    @rule(seconds=st.sampled_from([0.25, 3.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.window.deadline = self.now + TIMEOUT
        late = {index for index, entry in self.window.entries() if entry[3] <= self.now}
        count = self.window.outcome_unknown(self.now, lambda *_: LOST, overdue_only=True)
        failed = self.window.failures[len(self.failed) :]
        assert len(failed) == count
        assert {one.index for one in failed} <= late
        self.fail(str(LOST))

    @rule()
    def the_link_is_lost(self) -> None:
        self.window.outcome_unknown(self.now, lambda *_: LOST)
        self.fail(str(LOST))
        self.waits.clear()

    @rule(most=st.integers(0, SIZE))
    def a_round(self, most: int) -> None:
        paused = self.window.paused
        refused = self.refused & set(self.pending())
        due = self.window.due(self.now)
        assert due == sorted(due)
        assert not refused or due
        assert paused or refused <= set(due)
        for index in due[:most]:
            entry = self.window.take_due(index)
            assert entry is not None
            assert index in refused or entry[2] is WITH_ID, "it may be stored twice"
            self.refused.discard(index)
            self.waits.add(index)
            self.window.resume_if_done()
        assert all(self.window.take_due(index) is None for index in due[:most])

    @invariant()
    def new_ones_wait_only_for_a_reason(self) -> None:
        window = self.window
        assert window.count() <= SIZE
        if not window.closed:
            assert 0 <= window.limit <= SIZE
            if not window.paused and not window.resuming:
                assert window.limit == SIZE
            if window.resuming:
                assert window.due(self.now)


class IngestMachine(InFlightMachine):
    window: IngestWindow

    def make(self) -> None:
        self.window = IngestWindow(flow=FLOW, outstanding=OUTSTANDING)
        self.flow = FLOW
        self.heard = False  # the server has said how many it lets be in flight
        self.refused: set[str] = set()

    @rule(count=st.integers(0, 12), flow=st.none() | st.integers(1, 5))
    def the_server_acknowledges(self, count: int, flow: int | None) -> None:
        self.window.acked_to(count, flow)
        self.flow = flow or self.flow
        self.heard = self.heard or not self.window.closed
        self.acked.update(index for index in self.pending() if index < count)

    @rule(index=st.integers(0, 12))
    def a_message_is_lost(self, index: int) -> None:
        self.window.fail(index, LOST)
        if index in self.pending():
            self.failed[index] = str(LOST)

    @rule(subject=st.sampled_from("abc"))
    def a_subject_may_not_be_published_to(self, subject: str) -> None:
        in_flight = self.window.with_subject(subject)
        assert in_flight == [index for index in self.pending() if self.subjects[index] == subject]
        if self.window.refuse(subject):
            assert subject not in self.refused
            self.refused.add(subject)
        else:
            assert subject in self.refused or not in_flight
        for index in in_flight:
            self.window.fail(index, REFUSED)
            self.failed[index] = str(REFUSED)

    @rule()
    def no_more_are_taken(self) -> None:
        self.window.close()

    @invariant()
    def as_many_are_let_in_as_the_server_said(self) -> None:
        if not self.window.closed:
            assert self.window.limit == (self.flow * OUTSTANDING if self.heard else 1)

    @invariant()
    def a_question_has_a_subject_that_is_let_through(self) -> None:
        subject = self.window.open_subject()
        assert subject not in self.refused
        if any(self.subjects[index] not in self.refused for index in self.pending()):
            assert subject is not None


class AtomicMachine(InFlightMachine):
    window: AtomicWindow

    def make(self) -> None:
        self.window = AtomicWindow()
        self.released: list[tuple[int, BatchMessage]] = []

    @rule()
    def the_held_message_is_sent(self) -> None:
        if (held := self.window.release()) is not None:
            self.released.append(held)

    @precondition(lambda self: not self.window.committing)
    @rule(subject=st.sampled_from("ab"))
    def a_message_is_added(self, subject: str) -> None:
        self.the_held_message_is_sent()
        index = self.window.hold(BatchMessage(subject, b"", b""))
        assert (index == CLOSED) == self.window.closed
        if index != CLOSED:
            self.subjects.append(subject)

    def a_message_is_sent(self) -> None:
        """Not alone: `a_message_is_added`."""

    @precondition(lambda self: not self.window.committing)
    @rule()
    def it_is_committed(self) -> None:
        if not self.subjects:
            with pytest.raises(errors.ConfigError, match="empty"):
                self.window.commit()
            return
        held = self.window.held
        number, message, mark = self.window.commit()
        assert message.subject == self.subjects[-1]
        assert (mark is COMMIT, mark is COMMIT_BEFORE) == (held is not None, held is None)
        assert number == len(self.subjects) + (held is None)
        if held is not None:
            self.released.append((number, message))

    @precondition(lambda self: self.window.committing)
    @rule()
    def the_server_has_stored_all(self) -> None:
        self.window.stored(ACK)
        if self.window.ended is None:
            assert self.window.ack is ACK
            self.acked.update(self.pending())

    @precondition(lambda self: self.window.committing or len(self.subjects) > 3)
    @rule(error=st.sampled_from([LEFT, LOST]))
    def it_ends(self, error: errors.JetsparkError) -> None:
        if self.window.ack is None:
            super().it_ends(error)
        else:
            assert not self.window.end(error)

    @invariant()
    def the_errors_say_what_is_known(self) -> None:
        for error in (self.window.lost(), self.window.expired(5)):
            assert ("may be stored" in str(error)) == self.window.committing

    @invariant()
    def all_but_the_newest_were_released_in_order(self) -> None:
        held = [] if self.window.held is None else [(self.window.sent, self.window.held)]
        numbers = [number for number, _ in self.released + held]
        assert numbers == list(range(1, len(self.subjects) + 1))
        assert [message.subject for _, message in self.released + held] == self.subjects


for machine in (RetryMachine, IngestMachine, AtomicMachine):
    machine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestRetryWindow = RetryMachine.TestCase
TestIngestWindow = IngestMachine.TestCase
TestAtomicWindow = AtomicMachine.TestCase


# -- two threads, as in the blocking client ----------------------------------------------------


def publisher_window() -> tuple[InFlight, Callable[[int], None]]:
    """A window, and what a loop's thread does with it in its n-th turn."""
    window = RetryWindow(10**9, "auto", RETRY_FOR)
    window.open()
    window.deadline = 1.0

    def turn(n: int) -> None:
        window.outcome_unknown(1.0 if n % 7 == 0 else 0.0, link_lost, overdue_only=n % 11 != 0)
        for index in range(max(0, window.sent - 20), window.sent):
            if index % 3 and window.take(index, None) is not None:
                window.acked += 1

    return window, turn


def ingest_window() -> tuple[InFlight, Callable[[int], None]]:
    window = IngestWindow(flow=10**9, outstanding=1)
    window.open()
    window.admit()

    def turn(n: int) -> None:
        if n % 7 == 0:
            for index in range(window.sent - 2, window.sent + 3):
                window.fail(index, LOST)
        elif n % 11 == 0:
            window.refuse("t")
            window.open_subject()
        else:
            window.acked_to(window.sent - 2)

    return window, turn


WINDOWS: Any = [publisher_window, ingest_window]


@pytest.mark.full
@pytest.mark.parametrize("make", WINDOWS)
def test_senders_and_the_loop_meet_without_losing_a_message(
    make: Callable[[], tuple[InFlight, Callable[[int], None]]],
) -> None:
    """Switched as often as they can."""
    window, turn = make()
    withdrawn = 0

    def send() -> None:
        nonlocal withdrawn
        taken = 0
        while (index := window.reserve("s")) != CLOSED:
            taken += 1
            withdrawn += taken % 3 == 2 and window.withdraw(index)

    sender = threading.Thread(target=send)
    turns = 0
    with switching():
        sender.start()
        while window.sent < 30_000:
            turns += 1
            turn(turns)
        window.end(LEFT)
        sender.join()
    assert withdrawn
    assert window.count() == 0
    assert window.sent == window.acked + len(window.failures)
    indexes = [one.index for one in window.failures]
    assert len(set(indexes)) == len(indexes)
    assert max(indexes) < window.sent


def test_of_two_ends_that_meet_one_counts() -> None:
    """That of the thread that adds to an atomic batch, and that of the loop's thread."""
    with switching(), ThreadPoolExecutor(2) as pool:
        for _ in range(100):
            windows = [AtomicWindow() for _ in range(100)]
            both = threading.Barrier(2)

            def end_all(
                error: errors.JetStreamError,
                windows: list[AtomicWindow] = windows,
                both: threading.Barrier = both,
            ) -> list[bool]:
                both.wait()
                return [window.end(error) for window in windows]

            for one, other in zip(*pool.map(end_all, (LEFT, LOST)), strict=True):
                assert one != other


@pytest.mark.parametrize("make", WINDOWS)
def test_message_reserved_when_it_ends_fails_once(make: Callable[[], Any]) -> None:
    window, _ = make()
    index = window.reserve("a")
    window.end(LEFT)  # the loop's thread, before the sender has sent it
    assert not window.withdraw(index), "its failure is listed already"
    assert [one.index for one in window.failures] == [index]
    assert window.reserve("a") == CLOSED
    assert window.sent == 1


# -- publishers --------------------------------------------------------------------------------


def opened(size: int = 10) -> RetryWindow:
    window = RetryWindow(size, "resend", RETRY_FOR)
    window.open()
    return window


def answer(window: RetryWindow, index: int) -> None:
    window.take(index)
    window.acknowledged(index)


def test_a_refusal_pauses_senders_until_one_message_has_another_answer() -> None:
    window = opened()
    first, second = (window.reserve("s") for _ in range(2))
    assert window.retry_later(first, 1.0)
    assert window.limit == 0
    # An ack of what was sent before says nothing about now.
    answer(window, second)
    assert window.limit == 0
    # A round lets one in, so that a subject without a stream does not stop all others.
    assert window.due(1.0) == [first]
    assert window.limit == window.count() + 1
    answer(window, window.reserve("s"))
    # What waits goes before what is new.
    assert window.resuming
    assert window.limit == 0
    assert window.due(1.0) == [first]
    assert window.take_due(first) is not None
    assert window.limit == 0, "it is not sent yet"
    window.resume_if_done()
    assert window.limit == 10


def test_a_message_that_is_refused_again_pauses_nobody() -> None:
    window = opened()
    nowhere = window.reserve("nowhere")
    assert window.retry_later(nowhere, 1.0)
    assert window.due(1.0) == [nowhere]
    answer(window, window.reserve("s"))
    assert window.take_due(nowhere) is not None
    window.resume_if_done()
    assert window.retry_later(nowhere, 1.25)
    assert window.limit == 10


def test_a_message_that_may_be_stored_is_sent_again_for_a_time() -> None:
    window = opened()
    index = window.reserve("s")
    assert window.outcome_unknown(1.0, link_lost) == 0
    assert not window.withdraw(index), "it is sent again, whatever its sender has done"
    assert window.take_due(index) is not None
    assert window.outcome_unknown(30.0, link_lost) == 0
    assert window.take_due(index) is not None
    assert window.outcome_unknown(31.0, link_lost) == 1


def test_a_window_has_waited_for_those_behind_it_until_a_message_is_acknowledged() -> None:
    window = opened(2)

    def refused(now: float) -> bool:
        index = window.reserve("s")
        if not (again := window.retry_later(index, now)):
            window.answered(index)
            window.fail(index, REFUSED)
        return again

    assert refused(1.0)
    assert not window.retry_later(0, 31.0)
    window.answered(0)
    window.fail(0, REFUSED)
    assert not refused(31.1)
    assert not refused(50.0)
    assert window.disturbed
    answer(window, window.reserve("s"))
    assert refused(51.0)  # another time of trouble
    assert not refused(81.0)
    assert refused(200.0)  # long after it


def test_after_silence_one_message_a_round_probes_for_an_answer() -> None:
    window = RetryWindow(3, "fail", RETRY_FOR)
    window.open()
    for _ in range(3):
        window.reserve("s")
    assert window.outcome_unknown(5.0, link_lost) == 3
    window.pause_senders()
    assert window.limit == 0
    assert window.due(5.0) == []
    assert window.limit == 1
    assert window.disturbed
    answer(window, window.reserve("s"))
    assert window.limit == 3


def test_only_the_first_of_a_subject_finds_out_whether_there_is_a_leader() -> None:
    window = opened()
    sent = [window.reserve(subject) for subject in "aabab"]
    for index in sent:
        assert window.retry_later(index, 1.0)
    assert window.due(1.0) == [0, 2]
    assert window.due(31.0) == sent  # for the last time
    window.take_due(0)
    window.take_due(2)
    answer(window, 2)
    assert window.due(2.0) == [1, 3, 4]


# -- fast ingest -------------------------------------------------------------------------------


def test_the_error_names_the_first_message_and_how_many_may_be_stored() -> None:
    """Those that the server answers to fail first, though others were sent before them."""
    window = IngestWindow(flow=FLOW, outstanding=OUTSTANDING)
    window.open()
    for subject in ("a", "b", "c"):
        window.reserve(subject)
    window.fail(2, errors.BatchError(400, 10206, "unknown batch"))
    window.end(LOST)
    said = str(errors.PublishFailedError(window.failures))
    assert said.startswith("3 messages were not acknowledged (2 may be stored); the first ")
    assert said.endswith("has index 0 and is for 'a': lost")
