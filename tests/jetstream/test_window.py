"""The window of a publisher as a state machine: one fate for each message, nothing sent twice."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.switching import switching

from jetspark.jetstream.publisher import CLOSED, Window

if TYPE_CHECKING:
    from jetspark.jetstream.publisher import Unacked

SIZE, RETRY_FOR, TIMEOUT = 4, 30.0, 5.0


class WindowMachine(RuleBasedStateMachine):
    """A window, the server behind it, and what a bystander knows of every message.

    A message with an even payload may be sent again although its fate is not known.
    """

    def __init__(self) -> None:
        super().__init__()
        self.window = Window(SIZE, retry_for=RETRY_FOR, unknown_again=may_be_repeated)
        self.window.open()
        self.now = 0.0
        self.window.deadline = TIMEOUT
        self.sent: set[int] = set()  # without an answer to the last sending
        self.refused: set[int] = set()  # the last sending was certainly not stored
        self.payloads: dict[int, int] = {}
        self.fates: dict[int, str] = {}
        self.closed = False

    def end(self, index: int, fate: str) -> None:
        assert index not in self.fates, "a message has two fates"
        self.fates[index] = fate
        self.sent.discard(index)
        self.refused.discard(index)

    @precondition(lambda self: self.window.count() < self.window.limit)
    @rule(payload=st.integers(0, 1), taken=st.booleans())
    def a_message_is_sent(self, payload: int, taken: bool) -> None:
        index = self.window.reserve("s", b"%d" % payload, None, None)
        assert (index == CLOSED) == self.closed
        if index == CLOSED:
            return
        assert index == len(self.payloads)
        if taken:
            self.payloads[index] = payload
            self.sent.add(index)
        else:
            assert self.window.withdraw(index)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def a_message_is_acknowledged(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(sorted(self.sent)))
        entry = self.window.take(index)
        assert int(entry[1]) == self.payloads[index]
        self.window.acknowledged(index)
        self.end(index, "acked")

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def a_message_is_refused(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(sorted(self.sent)))
        if self.window.refused(index, self.now):
            self.sent.discard(index)
            self.refused.add(index)
        else:
            self.window.take(index)
            self.window.settled(index)
            self.end(index, "given up")

    @rule(seconds=st.sampled_from([0.25, 3.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.window.deadline = self.now + TIMEOUT
        for index, entry in self.window.overdue(self.now):
            assert entry[3] <= self.now
            self.end(index, "no ack")

    @rule()
    def the_link_is_lost(self) -> None:
        for index, _ in self.window.lost(self.now):
            assert index not in self.refused, "it was known not to be stored"
            self.end(index, "link lost")

    @rule(most=st.integers(0, SIZE))
    def a_round(self, most: int) -> None:
        held = self.window.held
        due = self.window.due(self.now)
        assert due == sorted(due)
        if self.refused:
            assert due
            assert held or self.refused <= set(due)
        for index in due[:most]:
            entry = self.window.again(index)
            assert entry is not None
            assert index in self.refused or may_be_repeated(entry), "it may be stored twice"
            self.refused.discard(index)
            self.sent.add(index)
        assert all(self.window.again(index) is None for index in due[:most])

    @rule()
    def it_is_left(self) -> None:
        self.closed = True
        for index, _ in self.window.close():
            self.end(index, "left")

    @invariant()
    def every_message_has_one_fate_or_is_here(self) -> None:
        assert self.window.sent == len(self.payloads)
        assert self.window.count() == len(self.payloads) - len(self.fates)
        assert self.window.count() <= SIZE
        assert 0 <= self.window.limit <= SIZE

    @invariant()
    def new_ones_wait_only_for_a_reason(self) -> None:
        if not self.window.held and not self.window.released:
            assert self.window.limit == SIZE
        if self.window.released:
            assert self.window.due(self.now)


def may_be_repeated(entry: Unacked) -> bool:
    return entry[1] == b"0"


TestWindow = WindowMachine.TestCase
TestWindow.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def always(_: Unacked) -> bool:
    return True


def test_a_refusal_holds_back_new_messages_until_one_has_another_answer() -> None:
    window = Window(10, retry_for=30, unknown_again=always)
    window.open()
    first, second = (window.reserve("s", b"", None, None) for _ in range(2))
    assert window.refused(first, 1.0)
    assert window.limit == 0
    # An ack of what was sent before says nothing about now.
    window.take(second)
    window.settled(second)
    assert window.limit == 0
    # A round lets one in, so that a subject without a stream does not stop all others.
    assert window.due(1.0) == [first]
    assert window.limit == window.count() + 1
    third = window.reserve("s", b"", None, None)
    window.take(third)
    window.settled(third)
    # What waits goes before what is new.
    assert window.released
    assert window.limit == 0
    assert window.due(1.0) == [first]
    assert window.again(first) is not None
    assert window.limit == 10


def test_a_window_has_waited_for_those_behind_it_until_a_message_is_acknowledged() -> None:
    window = Window(2, retry_for=30, unknown_again=always)
    window.open()

    def refused(now: float) -> bool:
        index = window.reserve("s", b"", None, None)
        if not (again := window.refused(index, now)):
            window.take(index)
            window.settled(index)
        return again

    assert refused(1.0)
    window.refused(0, 31.0)
    window.take(0)
    window.settled(0)
    assert not refused(31.1)
    assert not refused(50.0)
    taken = window.reserve("s", b"", None, None)
    window.take(taken)
    assert window.watched
    window.acknowledged(taken)
    assert refused(51.0)  # another time of trouble
    assert not refused(81.0)
    assert refused(200.0)  # long after it


def test_after_silence_one_message_a_round_probes_for_an_answer() -> None:
    window = Window(3, retry_for=30, unknown_again=lambda _: False)
    window.open()
    window.deadline = 5.0
    for _ in range(3):
        window.reserve("s", b"", None, None)
    assert len(window.overdue(5.0)) == 3
    window.hold()
    assert window.limit == 0
    assert window.due(5.0) == []
    assert window.limit == 1
    probe = window.reserve("s", b"", None, None)
    assert window.watched
    window.take(probe)
    window.settled(probe)
    assert window.limit == 3


def test_only_the_first_of_a_subject_finds_out_whether_there_is_a_leader() -> None:
    window = Window(10, retry_for=30, unknown_again=always)
    window.open()
    sent = [window.reserve(subject, b"", None, None) for subject in "aabab"]
    for index in sent:
        assert window.refused(index, 1.0)
    assert window.due(1.0) == [0, 2]
    assert window.due(31.0) == sent  # for the last time
    window.again(0)
    window.again(2)
    window.take(2)
    window.settled(2)
    assert window.due(2.0) == [1, 3, 4]


def test_senders_and_the_loop_meet_without_losing_a_message() -> None:
    """Two threads at once, switched as often as they can: as in the blocking client."""
    window = Window(10**9, retry_for=30, unknown_again=lambda _: False)
    window.open()
    window.deadline = 1.0
    stop = threading.Event()
    withdrawn = 0

    def send() -> None:
        nonlocal withdrawn
        while not stop.is_set():
            index = window.reserve("s", b"", None, None)
            if index % 3 == 0 and window.withdraw(index):
                withdrawn += 1
                window.sent += 1  # so that numbers go on

    sender = threading.Thread(target=send)
    acked = failed = 0
    with switching():
        sender.start()
        turn = 0
        while window.sent < 50_000:
            turn += 1
            failed += len(window.overdue(1.0 if turn % 7 == 0 else 0.0))
            failed += len(window.lost(1.0)) if turn % 11 == 0 else 0
            for index in range(max(0, window.sent - 20), window.sent):
                if index % 3 and window.find(index) and window.take(index):
                    acked += 1
        stop.set()
        failed += len(window.close())
        sender.join()
    assert window.count() == 0
    assert window.sent == acked + failed + withdrawn
