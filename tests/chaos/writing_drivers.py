"""Drivers and executors that are lost.

A driver that is killed is a process of its own; the query goes on from its checkpoint in the
session of the campaign, which is another driver. The killed one's Python process at the gate may
live on for a while, as it would on another machine, and do the rest of its work when the other
driver is somewhere else.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.chaos.campaign import Kind, Run
from tests.chaos.outcome import Outcome
from tests.chaos.spark import executor_of
from tests.chaos.writing_driver import Driver
from tests.chaos.writing_faults import IN_DRIVER, set_gate
from tests.chaos.writing_job import EXACTLY
from tests.chaos.writing_scene import Scene, scene
from tests.chaos.writing_steps import COMMITTED, PUBLISHING, STAGING
from tests.support.processes import wait_until_gone
from tests.support.spark_cluster import standalone_cluster

_SPARE, _STANDALONE = "spare driver", "standalone cluster"
_SPECULATING = {
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "500ms",
}


@contextmanager
def _spare() -> Iterator[Driver]:
    with TemporaryDirectory(prefix="chaos-driver-") as folder:
        driver = Driver(Path(folder))
        try:
            yield driver
        finally:
            driver.close()


@contextmanager
def _lent(
    run: Run, name: str, make: Callable[[], AbstractContextManager[Driver]]
) -> Iterator[Driver]:
    """A driver for one run; one that a run has left half-way is not used again."""
    try:
        yield run.shared.once(name, make)
    except BaseException:
        run.shared.drop(name)
        raise


def _lose(here: Scene, driver: Driver) -> None:
    """kill -9 of the driver; the next one for such a run starts in the background."""
    driver.kill()
    here.faults += 1
    here.run.shared.drop(_SPARE)
    here.run.shared.once(_SPARE, _spare)


def driver_killed(guarantee: str = EXACTLY, *, worker_lives_on: bool) -> Kind:
    """kill -9 while a process stands at a step of the commit."""

    def act(run: Run) -> Outcome:
        with scene(run, guarantee=guarantee) as here, ExitStack() as stack:
            driver = stack.enter_context(_lent(run, _SPARE, _spare))
            exactly = guarantee == EXACTLY
            step = set_gate(here, (*IN_DRIVER, COMMITTED) if exactly else (PUBLISHING, COMMITTED))
            pid = here.reached(driver.start(here.job))
            here.faults -= 1  # counted by what follows
            _lose(here, driver)
            here.healed()
            when = (
                "with it" if not worker_lives_on else run.rng.choice(["before", "during", "after"])
            )
            if when == "with it":
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if when != "after" and when != "during":
                here.gate.open()
            attempt = here.start()
            if when == "during":
                here.pause(0, 4)
                here.gate.open()
            here.finish(attempt)
            here.gate.open()
            wait_until_gone(pid, 90)
            return here.outcome(f"at {step}, its worker ended {when}")

    return act


def driver_killed_at_any_moment(guarantee: str = EXACTLY) -> Kind:
    """kill -9 at a moment after a batch has begun."""

    def act(run: Run) -> Outcome:
        with scene(run, guarantee=guarantee) as here, ExitStack() as stack:
            driver = stack.enter_context(_lent(run, _SPARE, _spare))
            attempt = driver.start(here.job)
            offsets = here.job.checkpoint / "offsets" / str(run.rng.randrange(3))
            deadline = time.monotonic() + 90
            while not offsets.exists() and not attempt.done and time.monotonic() < deadline:
                time.sleep(0.005)
            here.pause(0, 1.5)
            _lose(here, driver)
            here.healed()
            here.finish()
            return here.outcome(f"in batch {offsets.name}")

    return act


# -- a cluster with two workers ----------------------------------------------------------------


@contextmanager
def _standalone() -> Iterator[Driver]:
    with (
        TemporaryDirectory(prefix="chaos-cluster-") as folder,
        standalone_cluster(Path(folder)) as master,
    ):
        driver = Driver(Path(folder, "driver"), master=master, conf=_SPECULATING)
        try:
            yield driver
        finally:
            driver.close()


def executor_lost(guarantee: str = EXACTLY) -> Kind:
    """kill -9 of the executor whose task stands at the gate; the task itself may live on."""

    def act(run: Run) -> Outcome:
        with scene(run, guarantee=guarantee) as here, ExitStack() as stack:
            driver = stack.enter_context(_lent(run, _STANDALONE, _standalone))
            step = set_gate(here, [STAGING if guarantee == EXACTLY else PUBLISHING])
            attempt = driver.start(here.job)
            pid = here.reached(attempt)
            os.kill(executor_of(pid), signal.SIGKILL)
            lives_on = run.rng.random() < 0.5
            if not lives_on:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            here.pause(0, 1)
            here.gate.open()
            here.healed()
            here.finish(attempt, lambda: driver.start(here.job))
            wait_until_gone(pid, 90)
            return here.outcome(f"at {step}, its task {'lived on' if lives_on else 'died, too'}")

    return act


def slow_task(guarantee: str = EXACTLY) -> Kind:
    """A task stands still until Spark has run a second attempt of it; then both are there."""

    def act(run: Run) -> Outcome:
        with scene(run, guarantee=guarantee) as here, ExitStack() as stack:
            driver = stack.enter_context(_lent(run, _STANDALONE, _standalone))
            step = set_gate(here, [STAGING if guarantee == EXACTLY else PUBLISHING])
            attempt = driver.start(here.job)
            here.reached(attempt)
            here.pause(1.5, 4)
            here.gate.open()
            here.finish(attempt, lambda: driver.start(here.job))
            return here.outcome(f"at {step}")

    return act
