"""A contestant's work is done twice: to warm up, then for good under the clock.

Standard library only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import ParamSpec, Protocol, TypeVar

from benchmarks.measure import Job, Measure, Stopwatch, Tally

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def timed(job: Job, work: Callable[[int], object]) -> Measure:
    """`work(messages)`."""
    work(job.warm_messages)
    with Stopwatch() as watch:
        work(job.messages)
    return watch.measure(job.messages)


def timed_reading(job: Job, read: Callable[[str, int], Tally]) -> Measure:
    """`read(stream, messages)`, whose sums must be those of the stream."""
    read(job.warm_stream, job.warm_messages)
    with Stopwatch() as watch:
        seen = read(job.stream, job.messages)
    seen.check(job.messages, job.size)
    return watch.measure(job.messages)


class Plain(Protocol):
    """Makes a plain function of an async one: each call runs to its end."""

    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Callable[P, R]: ...


@contextmanager
def in_one_loop(
    opening: AbstractAsyncContextManager[T], *, uvloop: bool = False
) -> Iterator[tuple[T, Plain]]:
    """`async with opening as opened`, from outside: (opened, what makes functions plain)."""
    with asyncio.Runner(loop_factory=_new_uvloop if uvloop else None) as runner:

        def plain(function: Callable[P, Awaitable[R]], /) -> Callable[P, R]:
            async def finished(*args: P.args, **kwargs: P.kwargs) -> R:
                return await function(*args, **kwargs)

            return lambda *args, **kwargs: runner.run(finished(*args, **kwargs))

        opened = runner.run(opening.__aenter__())
        try:
            yield opened, plain
        finally:
            runner.run(opening.__aexit__(None, None, None))


def _new_uvloop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()
