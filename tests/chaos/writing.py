"""The campaign of writing: streaming queries and batch writes while things break.

Each kind names the guarantee it is about. What a query wrote is read by nats-py afterwards and
counted, id by id. Runs of at-least-once may repeat rows, and those with message ids behind the
duplicate window; their notes say how often.

A driver that is killed is a process of its own; the query goes on from its checkpoint in the
session of the campaign, which is another driver. The killed one's Python process at the gate may
live on for a while, as it would on another machine, and do the rest of its work when the other
driver is somewhere else.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.chaos import faults
from tests.chaos import writing_refusals as refusals
from tests.chaos.campaign import Figures, Kind, Kinds, Run, run_kinds
from tests.chaos.faults import Fault, Site
from tests.chaos.outcome import Outcome
from tests.chaos.spark import executor_of, kill
from tests.chaos.writing_driver import Driver
from tests.chaos.writing_job import AT_LEAST, EFFECTIVELY, EXACTLY
from tests.chaos.writing_scene import Scene, at_step, scene
from tests.chaos.writing_steps import ALL, COMMITTED, IN_DRIVER, PUBLISHING, STAGING
from tests.support.processes import wait_until_gone
from tests.support.spark_cluster import standalone_cluster

# -- faults --------------------------------------------------------------------------------------


@contextmanager
def server_restarted(here: Scene) -> Iterator[None]:
    """A graceful stop and a start at once."""
    here.servers[0].restart()
    yield


@contextmanager
def worker_killed(here: Scene) -> Iterator[None]:
    """kill -9 of the Python process at the gate: a task's, or the one that commits."""
    os.kill(here.at_gate, signal.SIGKILL)
    yield


@contextmanager
def step_failed(here: Scene) -> Iterator[None]:
    """The step raises: a task is tried again by Spark, a commit is not."""
    here.gate.open(fail=True)
    yield


@contextmanager
def network_cut(site: Site) -> Iterator[None]:
    """Sometimes nobody may connect for a while."""
    fault = faults.network_refused if site.rng.random() < 0.5 else faults.network_cut
    with fault(site):
        yield


@contextmanager
def server_slow(site: Site) -> Iterator[None]:
    """Answers trickle."""
    site.proxy.slow(site.rng.randrange(3_000, 30_000))
    yield
    site.proxy.heal()


def at_any_moment(fault: Fault, times: int, *, lasts: tuple[float, float]) -> Kind:
    """Runs in which the fault comes again and again from the first row on."""

    def act(run: Run) -> Outcome:
        with scene(run) as here:
            here.gate.set(STAGING)
            attempt = here.start()
            here.reached(attempt)
            here.gate.open()
            for _ in range(run.rng.randint(1, times)):
                here.pause(0, 0.5)
                if attempt.done:
                    break
                with fault(here):
                    here.pause(*lasts)
                here.faults += 1
                here.healed()
            here.finish(attempt)
            here.faults -= 1  # of the gate, where nothing was done
            return here.outcome()

    return act


# -- drivers that are killed ---------------------------------------------------------------------

_SPARE, _STANDALONE = "spare driver", "standalone cluster"


@contextmanager
def _spare() -> Iterator[Driver]:
    with (
        TemporaryDirectory(prefix="chaos-driver-") as folder,
        closing(Driver(Path(folder))) as driver,
    ):
        yield driver


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
        with scene(run, guarantee=guarantee) as here, _lent(run, _SPARE, _spare) as driver:
            exactly = guarantee == EXACTLY
            step = here.set_gate((*IN_DRIVER, COMMITTED) if exactly else (PUBLISHING, COMMITTED))
            pid = here.reached(driver.start(here.job))
            here.faults -= 1  # counted by what follows
            _lose(here, driver)
            here.healed()
            when = (
                "with it" if not worker_lives_on else run.rng.choice(["before", "during", "after"])
            )
            if when == "with it":
                kill(pid)
            if when in ("with it", "before"):
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


def driver_killed_at_any_moment(run: Run) -> Outcome:
    """kill -9 at a moment after a batch has begun."""
    with scene(run) as here, _lent(run, _SPARE, _spare) as driver:
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


# -- a cluster with two workers ------------------------------------------------------------------


@contextmanager
def _standalone() -> Iterator[Driver]:
    conf = {
        "spark.executor.memory": "512m",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "500ms",
    }
    with (
        TemporaryDirectory(prefix="chaos-cluster-") as folder,
        standalone_cluster(Path(folder)) as master,
        closing(Driver(Path(folder, "driver"), master=master, conf=conf)) as driver,
    ):
        yield driver


def _in_cluster(act: Callable[[Scene], str], guarantee: str = EXACTLY) -> Kind:
    """A task stands at the gate; `act` opens it, and says what becomes of the task if it ends."""

    def kind(run: Run) -> Outcome:
        with (
            scene(run, guarantee=guarantee) as here,
            _lent(run, _STANDALONE, _standalone) as driver,
        ):
            step = here.set_gate([STAGING if guarantee == EXACTLY else PUBLISHING])
            attempt = driver.start(here.job)
            pid = here.reached(attempt)
            became = act(here)
            here.finish(attempt, lambda: driver.start(here.job))
            if became:
                wait_until_gone(pid, 90)
            return here.outcome(f"at {step}{became}")

    return kind


def executor_lost(here: Scene) -> str:
    """kill -9 of the executor of the task at the gate; the task itself may live on."""
    os.kill(executor_of(here.at_gate), signal.SIGKILL)
    lives_on = here.rng.random() < 0.5
    if not lives_on:
        kill(here.at_gate)
    here.pause(0, 1)
    here.gate.open()
    here.healed()
    return f", its task {'lived on' if lives_on else 'died, too'}"


def slow_task(here: Scene) -> str:
    """A task stands still until Spark has run a second attempt of it; then both are there."""
    here.pause(1.5, 4)
    here.gate.open()
    return ""


# -- all of them ---------------------------------------------------------------------------------


def _while_publishing(guarantee: str, fault: Fault, **of_scene: Any) -> Kind:
    return at_step(fault, [PUBLISHING], guarantee=guarantee, **of_scene)


def _at_steps(fault: Fault, steps: Sequence[str] = ALL, **of_scene: Any) -> Kind:
    return at_step(fault, steps, **of_scene)


_EXACTLY: Kinds = {
    "server killed": _at_steps(faults.server_killed),
    "server killed again and again": at_any_moment(faults.server_killed, 3, lasts=(0, 0.5)),
    "server restarted": _at_steps(server_restarted),
    "leader killed": _at_steps(faults.leader_killed, replicas=3),
    "leader paused": _at_steps(faults.leader_paused, replicas=3, lasts=(1, 6)),
    "leaders change": _at_steps(faults.leaders_changed, replicas=3, lasts=(1, 4)),
    "worker killed": _at_steps(worker_killed, (*ALL, COMMITTED)),
    "step fails": _at_steps(step_failed, (*ALL, COMMITTED)),
    "network cut": _at_steps(network_cut, proxied=True),
    "half-open": _at_steps(faults.half_open, proxied=True, lasts=(0.2, 2)),
    "server slow": _at_steps(server_slow, proxied=True, lasts=(1, 3)),
    "driver killed": driver_killed(worker_lives_on=False),
    "driver killed, its worker lives on": driver_killed(worker_lives_on=True),
    "driver killed at any moment": driver_killed_at_any_moment,
    "executor lost": _in_cluster(executor_lost),
    "slow task, speculation": _in_cluster(slow_task),
    "stream full": refusals.stream_full(EXACTLY),
    "storage full": refusals.storage_full,
    "login revoked": refusals.login_revoked,
    "ledger lost": refusals.ledger_lost,
    "target lost": refusals.target_lost,
    "other partitions": refusals.comes_again(partitions=True),
    "batch comes late": refusals.comes_again(window=0.5),
    "row too large": refusals.row_too_large,
    "two drivers, one transaction": refusals.two_drivers,
    "transaction, server killed": _at_steps(faults.server_killed, transaction="load"),
    "transaction, worker killed": _at_steps(worker_killed, transaction="load"),
}

_EFFECTIVELY: Kinds = {
    "server killed": _while_publishing(EFFECTIVELY, faults.server_killed),
    "leader killed": _while_publishing(EFFECTIVELY, faults.leader_killed, replicas=3),
    "leaders change": _while_publishing(
        EFFECTIVELY, faults.leaders_changed, replicas=3, lasts=(1, 4)
    ),
    "worker killed": _while_publishing(EFFECTIVELY, worker_killed),
    "network cut": _while_publishing(EFFECTIVELY, network_cut, proxied=True),
    "half-open": _while_publishing(EFFECTIVELY, faults.half_open, proxied=True, lasts=(0.2, 2)),
    "driver killed": driver_killed(EFFECTIVELY, worker_lives_on=True),
    "slow task, speculation": _in_cluster(slow_task, EFFECTIVELY),
    "stream full": refusals.stream_full(EFFECTIVELY),
    "other partitions": refusals.comes_again(EFFECTIVELY, partitions=True),
    "batch comes behind the window": refusals.comes_again(EFFECTIVELY, window=0.5),
}

_AT_LEAST: Kinds = {
    "server killed": _while_publishing(AT_LEAST, faults.server_killed),
    "leader killed": _while_publishing(AT_LEAST, faults.leader_killed, replicas=3),
    "worker killed": _while_publishing(AT_LEAST, worker_killed),
    "network cut": _while_publishing(AT_LEAST, network_cut, proxied=True),
}

KINDS: Kinds = {
    f"{guarantee}: {name}": kind
    for guarantee, kinds in (
        (EXACTLY, _EXACTLY),
        (EFFECTIVELY, _EFFECTIVELY),
        (AT_LEAST, _AT_LEAST),
    )
    for name, kind in kinds.items()
}

COSTLY = frozenset(
    name
    for name in KINDS
    if any(word in name for word in ("driver killed", "executor lost", "speculation"))
)
"""They start a Spark of their own."""


def run(runs: int = 200, seed: int = 0, first: int = 0, only: str = "") -> Figures:
    return run_kinds(KINDS, runs, seed, first, only, COSTLY)
