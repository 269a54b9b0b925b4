"""What is done to a query that writes, and the kinds of runs that do it.

A harm is a context manager: entering does it, leaving makes it good again; in between the query
goes on as well as it can.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tests.chaos.campaign import Kind, Run
from tests.chaos.outcome import Outcome
from tests.chaos.writing_job import EXACTLY
from tests.chaos.writing_scene import Scene, scene
from tests.chaos.writing_steps import (
    COMMITTED,
    COPIED,
    COPYING,
    DECIDED,
    DECIDING,
    PUBLISHING,
    SENT,
    STAGING,
)

from jetspark.bulk.exactly_once import ledger_stream

Harm = Callable[[Scene, int], AbstractContextManager[None]]
"""Gets the pid of the process that stands at the gate."""

PASSES = {
    STAGING: 6,
    DECIDING: 3,
    DECIDED: 3,
    COPYING: 6,
    SENT: 12,
    COPIED: 3,
    COMMITTED: 3,
    PUBLISHING: 20,
}
"""How often a query of three batches comes to each step at least."""
ONE_BATCH = PASSES | {STAGING: 4} | dict.fromkeys((DECIDING, DECIDED, COPIED, COMMITTED), 1)
"""How often a batch write does."""

ALL = (STAGING, DECIDING, DECIDED, COPYING, SENT, COPIED)
IN_DRIVER = (DECIDING, DECIDED, COPYING, SENT, COPIED)


# -- harms -------------------------------------------------------------------------------------


@contextmanager
def server_killed(here: Scene, _: int) -> Iterator[None]:
    """kill -9, back after a while."""
    here.servers[0].kill()
    yield
    here.servers[0].start()


@contextmanager
def server_restarted(here: Scene, _: int) -> Iterator[None]:
    """A graceful stop and a start at once."""
    here.servers[0].restart()
    yield


@contextmanager
def leader_killed(here: Scene, _: int) -> Iterator[None]:
    """kill -9 of the leader of the target or of the ledger."""
    leader = here.leader(_one_stream(here))
    leader.kill()
    yield
    leader.start()


@contextmanager
def leader_paused(here: Scene, _: int) -> Iterator[None]:
    """SIGSTOP: its connections stay, the others choose another leader; then it comes back."""
    leader = here.leader(_one_stream(here))
    leader.pause()
    yield
    leader.resume()


@contextmanager
def leaders_changed(here: Scene, _: int) -> Iterator[None]:
    """Leaders step down all the while, of the target and of the ledger."""
    stop = threading.Event()

    def unseat() -> None:
        with here.admin() as admin:
            while not stop.wait(0.25):
                for stream in _streams(here):
                    admin.link.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}", b"", 10)

    thread = threading.Thread(target=unseat)
    thread.start()
    yield
    stop.set()
    thread.join()


@contextmanager
def worker_killed(here: Scene, pid: int) -> Iterator[None]:
    """kill -9 of the Python process at the gate: a task's, or the one that commits."""
    os.kill(pid, signal.SIGKILL)
    yield


@contextmanager
def step_failed(here: Scene, _: int) -> Iterator[None]:
    """The step raises: a task is tried again by Spark, a commit is not."""
    here.gate.open(fail=True)
    yield


@contextmanager
def network_cut(here: Scene, _: int) -> Iterator[None]:
    """All connections reset; sometimes nobody may connect for a while."""
    assert here.proxy is not None
    if here.run.rng.random() < 0.5:
        here.proxy.refuse()
    else:
        here.proxy.cut()
    yield
    here.proxy.heal()


@contextmanager
def half_open(here: Scene, _: int) -> Iterator[None]:
    """Nothing is carried and nothing is closed; connections of that time stay dead."""
    assert here.proxy is not None
    here.proxy.half_open()
    yield
    here.proxy.heal()


@contextmanager
def server_slow(here: Scene, _: int) -> Iterator[None]:
    """Answers trickle."""
    assert here.proxy is not None
    here.proxy.slow(here.run.rng.randrange(3_000, 30_000))
    yield
    here.proxy.heal()


def _streams(here: Scene) -> Sequence[str]:
    stream = here.job.stream
    return (stream, ledger_stream(stream)) if here.job.guarantee == EXACTLY else (stream,)


def _one_stream(here: Scene) -> str:
    return here.run.rng.choice(_streams(here))


# -- kinds -------------------------------------------------------------------------------------


def set_gate(here: Scene, steps: Sequence[str]) -> str:
    """Stop at one of the steps, somewhere in the run."""
    step = here.run.rng.choice(steps)
    passes = ONE_BATCH if here.job.transaction else PASSES
    here.gate.set(step, here.run.rng.randrange(passes[step]))
    return step


def at_step(
    harm: Harm, steps: Sequence[str], *, lasts: tuple[float, float] = (0.05, 0.6), **of_scene: Any
) -> Kind:
    """Runs in which the harm is done while a process stands at one of the steps."""

    def act(run: Run) -> Outcome:
        with scene(run, **of_scene) as here:
            step = set_gate(here, steps)
            attempt = here.start()
            pid = here.reached(attempt)
            with harm(here, pid):
                if harm is not step_failed:
                    here.gate.open()
                here.pause(*lasts)
            here.healed()
            here.finish(attempt)
            return here.outcome(f"at {step}")

    return act


def at_any_moment(harm: Harm, times: int, *, lasts: tuple[float, float], **of_scene: Any) -> Kind:
    """Runs in which the harm is done again and again from the first row on."""

    def act(run: Run) -> Outcome:
        with scene(run, **of_scene) as here:
            first = STAGING if here.job.guarantee == EXACTLY else PUBLISHING
            here.gate.set(first)
            attempt = here.start()
            pid = here.reached(attempt)
            here.gate.open()
            for _ in range(run.rng.randint(1, times)):
                here.pause(0, 0.5)
                if attempt.done:
                    break
                with harm(here, pid):
                    here.pause(*lasts)
                here.faults += 1
                here.healed()
            here.finish(attempt)
            here.faults -= 1  # of the gate, where nothing was done
            return here.outcome()

    return act
