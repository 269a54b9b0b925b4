"""The queue below subscriptions, consuming and events: who waits for it, and how long."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, cast

import pytest

import jetspark.errors as errors
from jetspark.client.subscription import FrameReader
from jetspark.connection.waiting import Waiters
from jetspark.wire.kernel import MessageFrame


class OwnClient:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.reported: list[errors.JetsparkError] = []

    def adopt(self, reading: object, end: object) -> Any:
        return lambda: None

    def check_loop(self) -> None:
        pass

    def report(self, error: errors.JetsparkError) -> None:
        self.reported.append(error)


class Words(FrameReader[str]):
    """An item for each frame with a payload."""

    def __init__(self, callback: Any = None) -> None:
        self.own = OwnClient()
        super().__init__(cast(Any, self.own), callback, deque(), Waiters())
        self._begin_reading("words", lambda: None)

    def arrive(self, *words: bytes) -> None:
        self._frames += [MessageFrame(1, b"s", None, None, word) for word in words]
        self._waiters.wake()

    def end(self, error: errors.JetsparkError | None = None) -> None:
        self._end_reading(error)

    @property
    def source(self) -> str:
        return "words"

    def _take(self) -> str | None:
        return self._frames.popleft().payload.decode() or None

    def _over(self) -> errors.JetsparkError:
        return errors.ClosedError("over")

    def _leave(self) -> None:
        self.end()


async def test_each_of_several_waiting_tasks_gets_an_item() -> None:
    words = Words()
    waiting = [asyncio.ensure_future(words.next(10)) for _ in range(4)]
    await asyncio.sleep(0)
    waiting.pop(1).cancel()
    for word in (b"a", b"b", b"c"):
        words.arrive(word)
    assert sorted(await asyncio.gather(*waiting)) == ["a", "b", "c"]


async def test_frame_that_makes_no_item_leaves_the_timeout_of_next() -> None:
    words = Words()
    words.arrive(b"", b"a", b"")
    assert await words.next(0) == "a"
    with pytest.raises(errors.RequestTimeoutError, match="Nothing received from words"):
        await words.next(0.01)
    words.arrive(b"b")
    assert await words.next(30) == "b"


async def test_what_is_queued_at_the_end_is_given_out_before_the_error() -> None:
    words = Words()
    words.arrive(b"a")
    lost = errors.ConnectionLostError()
    lost.__cause__ = OSError()
    words.end(lost)
    assert await words.next() == "a"
    with pytest.raises(errors.ConnectionLostError):
        await words.next()
    with pytest.raises(errors.ConnectionLostError):
        await words.__anext__()


@pytest.mark.parametrize("error", [None, errors.ConnectionClosedError()])
async def test_iterator_ends_quietly_at_a_meant_end(error: errors.JetsparkError | None) -> None:
    words = Words()
    words.end(error)
    with pytest.raises(StopAsyncIteration):
        await words.__anext__()
    with pytest.raises(errors.ClosedError):
        await words.next()


async def test_callback_gets_items_one_after_the_other_and_what_it_raises_is_reported() -> None:
    got = []

    async def callback(word: str) -> None:
        got.append(f"{word}?")
        await asyncio.sleep(0)
        got.append(f"{word}!")
        raise ValueError(word)

    words = Words(callback)
    with pytest.raises(errors.ConfigError, match="callback"):
        await words.next()
    with pytest.raises(errors.ConfigError, match="callback"):
        aiter(words)
    words.arrive(b"a", b"", b"b")
    words.end()
    assert words.callback_task is not None
    await words.callback_task
    assert got == ["a?", "a!", "b?", "b!"]
    assert len(words.own.reported) == 2
