"""What a query cannot or must not outlive: full streams, lost ledgers, rows that are too large.

It has to fail with a sentence that says why. Where the cause can be removed the query goes on and
every row is there once; where rows were lost it has to stay stopped, and none may be wrong.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.chaos.campaign import Run
from tests.chaos.outcome import Outcome
from tests.chaos.writing_job import EXACTLY, write_file
from tests.chaos.writing_scene import NANOSECONDS, Scene, at_step, scene
from tests.chaos.writing_steps import ALL, COMMITTED, COPYING, DECIDED, SENT
from tests.support.streams import Admin

from jetspark.server import NatsServer
from jetspark.stream_writes.ledger import ledger_stream

# -- room --------------------------------------------------------------------------------------


def stream_full(guarantee: str) -> Callable[[Run], Outcome]:
    """The target has a limit of bytes and refuses what is more, until it is enlarged."""

    def act(run: Run) -> Outcome:
        limit = run.rng.randrange(1_000_000, 2_500_000)
        full = {"max_bytes": limit, "discard": "new"}
        with scene(run, guarantee=guarantee, stream=full) as here:
            for _ in range(run.rng.randint(1, 2)):
                here.refused("maximum bytes exceeded")
            here.faults += 1
            found = here.finding()
            if found.repeated or found.unexpected:
                return here.outcome("while it was full", stopped=True)
            with here.admin() as admin:
                config = admin.api.config(here.job.stream)
                admin.api.update({**config, "max_bytes": -1})
            here.healed()
            here.finish()
            return here.outcome()

    return act


def storage_full(run: Run) -> Outcome:
    """The server's own limit of storage is reached, while staging or copying; then it is raised."""

    def text(megabytes: int) -> str:
        return f"jetstream {{ max_file_store: {megabytes}MB }}\n"

    file = run.folder / "server.conf"
    file.write_text(text(run.rng.randint(1, 3)))
    options = {"publishTimeout": "2"}
    with scene(run, server=lambda _: _configured(file), options=options) as here:
        error = here.start().wait()
        if error is None:
            raise RuntimeError("the storage was large enough")
        here.errors.append(error)
        here.faults += 1
        file.write_text(text(1000))
        here.servers[0].restart()
        here.healed()
        here.finish()
        return here.outcome()


def _configured(file: Path) -> NatsServer:
    return NatsServer(port=0, host="127.0.0.1", jetstream=True, config=file)


# -- who may -----------------------------------------------------------------------------------


def _login_config(password: str) -> str:
    return f'authorization {{ user: writer, password: "{password}" }}\n'


@contextmanager
def _login_revoked(here: Scene) -> Iterator[None]:
    _reload(here, "another")
    yield
    _reload(here, "first")


def _reload(here: Scene, password: str) -> None:
    (here.run.folder / "server.conf").write_text(_login_config(password))
    os.kill(here.servers[0].pid, signal.SIGHUP)


def login_revoked(run: Run) -> Outcome:
    """The server is told another password while the query runs, and the right one again."""
    file = run.folder / "server.conf"
    file.write_text(_login_config("first"))
    kind = at_step(_login_revoked, ALL, server=lambda _: _configured(file), login="writer:first@")
    return kind(run)


# -- what was lost -----------------------------------------------------------------------------


Loss = Callable[[Admin, str], None]


def _delete_ledger(admin: Admin, stream: str) -> None:
    admin.call(f"STREAM.DELETE.{ledger_stream(stream)}")


def _purge_ledger(admin: Admin, stream: str) -> None:
    admin.purge(ledger_stream(stream))


def _recreate_target(admin: Admin, stream: str) -> None:
    config = admin.api.config(stream)
    admin.call(f"STREAM.DELETE.{stream}")
    admin.call(f"STREAM.CREATE.{stream}", config)


def _purge_target(admin: Admin, stream: str) -> None:
    admin.purge(stream)


def lost_between_batches(lose: Loss, says: str) -> Callable[[Run], Outcome]:
    """While the query was stopped. It must not go on, however often it is started."""

    def act(run: Run) -> Outcome:
        with scene(run, files=run.rng.choice([2, 4])) as here:
            here.finish()
            here.lose(lose)
            here.faults += 1
            here.files(6, 2000)
            for _ in range(2):
                here.refused(says)
            if "LEDGER" not in lose.__name__.upper():
                return here.outcome("stayed stopped", stopped=True)
            # All that was written is known to be right, so the user says: go on.
            here.change(options={**here.job.options, "adoptLedger": "true"})
            here.finish()
            return here.outcome("went on with adoptLedger")

    return act


def lost_while_committing(lose: Loss) -> Callable[[Run], Outcome]:
    """In the middle of a commit: it ends well or stops, and no row is there twice."""

    def act(run: Run) -> Outcome:
        with scene(run) as here:
            step = here.set_gate((DECIDED, COPYING, SENT, COMMITTED))
            attempt = here.start()
            here.reached(attempt)
            here.lose(lose)
            here.gate.open(fail=run.rng.random() < 0.5)
            for _ in range(2):
                error = attempt.wait()
                here.errors += [error] if error else []
                attempt = here.start()
            attempt.wait()
            return here.outcome(f"at {step}", stopped=True)

    return act


# -- what comes again --------------------------------------------------------------------------


def comes_again(
    guarantee: str = EXACTLY, *, window: float | None = None, partitions: bool = False
) -> Callable[[Run], Outcome]:
    """A batch fails when all of it is stored, and comes again.

    `window`: only after the stream has forgotten its message ids. `partitions`: with others.
    """

    def act(run: Run) -> Outcome:
        stream = {} if window is None else {"duplicate_window": round(window * NANOSECONDS)}
        before = run.rng.choice([0, 1, 8]) if partitions else 0
        with scene(run, guarantee=guarantee, stream=stream, partitions=before) as here:
            here.gate.set(COMMITTED, run.rng.randrange(3))
            attempt = here.start()
            here.reached(attempt)
            here.gate.open(fail=True)
            here.errors.append(str(attempt.wait()))
            if window is not None:
                here.pause(window * 1.5, window * 2)
                here.allowed_repeats = guarantee != EXACTLY
            if partitions:
                here.change(partitions=run.rng.choice([n for n in (1, 3, 8) if n != before]))
            here.healed()
            here.finish()
            return here.outcome(f"partitions {before}, {here.job.partitions}" if partitions else "")

    return act


def row_too_large(run: Run) -> Outcome:
    """One row is larger than the server takes; then it is taken out of its file."""
    with scene(run, files=0) as here:
        spoiled = run.rng.randrange(6)
        ids = [
            write_file(here.job, number, 2000, large=1_200_000 if number == spoiled else None)
            for number in range(6)
        ]
        for _ in range(2):
            here.refused("the server and this guarantee take")
        here.faults += 1
        found = here.finding()
        ids[spoiled] = write_file(here.job, spoiled, 1000)
        here.expected = [one for some in ids for one in some]
        here.healed()
        here.finish()
        return here.outcome(f"{found.found} rows were stored before")


# -- batch writes ------------------------------------------------------------------------------


def two_drivers(run: Run) -> Outcome:
    """Two writes of one transaction at once, with other partitions; a third one afterwards."""
    with scene(run, transaction="load") as here:
        step = here.set_gate(ALL)
        first = here.start()
        here.reached(first)
        here.change(partitions=run.rng.choice([1, 3, 8]))
        second = here.start()
        here.pause(0, 3)
        here.gate.open()
        for attempt in (first, second, here.start()):
            here.finish(attempt)
        return here.outcome(f"at {step}")


def one_of(*kinds: Callable[[Run], Outcome]) -> Callable[[Run], Outcome]:
    """One of several, by the run's dice."""

    def act(run: Run) -> Outcome:
        return run.rng.choice(kinds)(run)

    return act


_LOST_LEDGER = "it has no record of the batches in between"
_LOST_ROWS = "no longer has the last marker"

ledger_lost: Any = one_of(
    lost_between_batches(_delete_ledger, _LOST_LEDGER),
    lost_between_batches(_purge_ledger, _LOST_LEDGER),
    lost_while_committing(_delete_ledger),
    lost_while_committing(_purge_ledger),
)
target_lost: Any = one_of(
    lost_between_batches(_recreate_target, _LOST_ROWS),
    lost_between_batches(_purge_target, _LOST_ROWS),
    lost_while_committing(_recreate_target),
    lost_while_committing(_purge_target),
)
