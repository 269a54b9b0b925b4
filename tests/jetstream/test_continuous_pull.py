"""The engine's bookkeeping, against a server made of dice: bounds are kept and nothing stalls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jetspark.documents.consumers import ConsumerConfig
from jetspark.errors import JetsparkError
from jetspark.jetstream.consume import ContinuousPull, StopReason, make_consume_options
from jetspark.retries import PAUSE
from jetspark.wire.kernel import MessageFrame

BODY = bytes(80)


class Timer:
    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Peer:
    """Client, loop, link and server in one: `pulls` are the requests that wait, as [left, inbox].

    It breaks into the engine at its only way out: what the engine asks of its client.
    """

    is_connected = True

    def __init__(self) -> None:
        self.loop = self
        self.client = self
        self.prefix = "$JS.API"
        self.subject = ""
        self.received = 0
        self.pulls: list[list[Any]] = []
        self.timers: list[Timer] = []
        self.reported: list[JetsparkError] = []
        self.asked = 0
        self.handler: Callable[[MessageFrame], None] = lambda _: None

    # the client
    def new_inbox(self) -> str:
        return "inbox"

    def listen(self, subject: str, handler: Callable[[MessageFrame], None], **_: Any) -> Any:
        self.subject, self.handler = subject, handler
        return self

    def close(self) -> None:
        self.pulls.clear()

    def note_request(self, subject: str, payload: bytes) -> None:
        pass

    def publish_nowait(self, subject: str, payload: bytes, *, reply: str) -> None:
        request = json.loads(payload)
        self.asked += 1
        self.pulls.append([request.get("max_bytes", request["batch"]), reply])

    def report(self, error: JetsparkError) -> None:
        self.reported.append(error)

    # the loop
    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        timer = Timer(call)
        if seconds == PAUSE:
            self.timers.append(timer)
        return timer

    def create_future(self) -> asyncio.Future[None]:
        raise NotImplementedError

    # the server
    def deliver(self, cost: Callable[[MessageFrame], int]) -> None:
        frame = MessageFrame(1, b"s", b"$JS.ACK.x", None, BODY)
        pull = self.pulls[0]
        pull[0] -= cost(frame)
        self._hear(frame)
        if pull[0] <= 0:
            self.pulls.remove(pull)

    def end(self, status: str, *, numbered: bool) -> None:
        left, inbox = self.pulls.pop(0)
        block = f"NATS/1.0 {status}\r\n"
        if numbered:
            block += f"Nats-Pending-Messages: {left}\r\nNats-Pending-Bytes: {left}\r\n"
        self._hear(MessageFrame(1, inbox.encode(), None, f"{block}\r\n".encode(), b""))

    def _hear(self, frame: MessageFrame) -> None:
        self.received += 1
        self.handler(frame)

    def time_passes(self) -> None:
        timers, self.timers = self.timers, []
        for timer in timers:
            if not timer.cancelled:
                timer.call()


def size(frame: MessageFrame) -> int:
    return len(frame.subject) + len(frame.reply or b"") + len(frame.payload)


def asked(inbox: str) -> int:
    return int(inbox.rpartition(".")[2].partition("-")[0])


STEPS = st.lists(
    st.sampled_from(["deliver"] * 4 + ["take"] * 4 + ["timeout", "refuse", "pin", "restart"]),
    max_size=120,
)


@given(
    steps=STEPS,
    full=st.integers(1, 12),
    threshold=st.integers(0, 12),
    own_most=st.sampled_from([0, 1, 5]),
    in_bytes=st.booleans(),
)
def test_the_buffer_never_exceeds_its_limit_and_is_always_refilled(
    steps: list[str], full: int, threshold: int, own_most: int, in_bytes: bool
) -> None:
    unit = size(MessageFrame(1, b"s", b"$JS.ACK.x", None, BODY)) if in_bytes else 1
    full, most = full * unit, own_most * unit
    threshold = min(threshold * unit, full)
    if in_bytes:
        config = ConsumerConfig(max_bytes=most)
        limits = make_consume_options(config, max_bytes=full, threshold_bytes=threshold)
    else:
        config = ConsumerConfig(max_batch=most)
        limits = make_consume_options(config, max_messages=full, threshold_messages=threshold)
    peer = Peer()
    troubles: list[StopReason] = []
    pull = ContinuousPull(peer, limits, lambda trouble, _: troubles.append(trouble))  # type: ignore[arg-type]
    pull.start("S", "c")
    for step in steps:
        if step == "take" and pull.frames:
            pull.take()
        elif step == "restart":
            pull.start("S", "c")
        elif not peer.pulls:
            continue
        elif step == "deliver":
            peer.deliver(size if in_bytes else lambda _: 1)
        elif step == "timeout":
            peer.end("408 Request Timeout", numbered=True)
        elif step == "refuse" and peer.pulls[0][0] == asked(peer.pulls[0][1]):
            peer.end("409 Exceeded MaxWaiting", numbered=False)
        elif step == "pin":
            peer.end("423 Nats-Wrong-Pin-Id", numbered=True)
        here = len(pull.frames) * unit
        owed = sum(left for left, _ in peer.pulls)
        assert here + owed <= limits.full
        if here + owed <= limits.threshold and here + owed < limits.full:
            assert peer.timers, "nothing asks for more"
        assert not owed or max(left for left, _ in peer.pulls) <= limits.max_request
    # Whatever happened, a server that works and a user who takes see every message.
    peer.time_passes()
    for _ in range(36):
        while pull.frames:
            pull.take()
        assert peer.pulls
        peer.deliver(size if in_bytes else lambda _: 1)
    assert troubles == []
    assert len(peer.reported) <= 1 + steps.count("restart")
