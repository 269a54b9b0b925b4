"""A stop at a chosen step of writing, in whichever of Spark's Python processes comes to it first.

`ChaosDataSource` is the data source of the package under another name. Its option `chaosFolder`
names a folder in which `Gate` (in the process of the campaign) says at which step to stop; the
first process that comes there leaves the file "reached" and waits for the file "go", while the
campaign does its harm. Nothing of the package itself is changed, only wrapped.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.types import StructType

from jetspark.spark.data_source import JetStreamDataSource
from jetspark.spark.stream_sink.writers import (
    JetStreamBatchWriter,
    JetStreamStreamWriter,
    WriteReport,
)
from jetspark.stream_writes.batch_copier import BatchCopier
from jetspark.stream_writes.ledger import Ledger
from jetspark.stream_writes.publish import StreamPublisher

W = TypeVar("W", bound="_Stopping")

FORMAT = "jetstream_chaos"
_LOOK_EVERY = 0.005  # seconds
_LONGEST_STOP = 60.0

STAGING, DECIDING, DECIDED, COPYING, SENT, COPIED, COMMITTED, PUBLISHING = STEPS = (
    "staging",
    "deciding",
    "decided",
    "copying",
    "sent",
    "copied",
    "committed",
    "publishing",
)
"""Before rows are staged, before the decision, after it, before a chunk of each lane, with a chunk
under way, after the last chunk, before Spark hears of the commit; before a block is published."""
PASSES = {STAGING: 6, COPYING: 6, SENT: 12, PUBLISHING: 20}
PASSES |= dict.fromkeys((DECIDING, DECIDED, COPIED, COMMITTED), 3)
"""How often a query of three batches comes to each step at least."""
ONE_BATCH = PASSES | {STAGING: 4} | dict.fromkeys((DECIDING, DECIDED, COPIED, COMMITTED), 1)
"""How often a batch write does."""

ALL = (STAGING, DECIDING, DECIDED, COPYING, SENT, COPIED)
IN_DRIVER = (DECIDING, DECIDED, COPYING, SENT, COPIED)


class Gate:
    """The campaign's side: where to stop, and when to go on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def set(self, step: str, after: int = 0) -> None:
        """Stop once, at the step, when it was passed `after` times."""
        for name in ("reached", "go", "passed"):
            (self.folder / name).unlink(missing_ok=True)
        new = self.folder / "step.new"
        new.write_text(f"{step} {after}")
        new.rename(self.folder / "step")

    def reached(self) -> int | None:
        """The pid of the process that stands at the step; None before one does."""
        try:
            return int((self.folder / "reached").read_text())
        except FileNotFoundError:
            return None

    def open(self, *, fail: bool = False) -> None:
        """Let it go on, or fail there; nobody stops any more. What was said first holds."""
        (self.folder / "step").unlink(missing_ok=True)
        if (self.folder / "go").exists():
            return
        new = self.folder / "go.new"
        new.write_text("fail" if fail else "")
        new.rename(self.folder / "go")


class _Stops:
    """The side of Spark's Python processes."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.wrapped = False

    def use(self, folder: str) -> None:
        self.folder = Path(folder)
        if self.wrapped:
            return
        self.wrapped = True
        self._wrap(Ledger, "_publish", STAGING, lambda *call: ".stage." in call[1])
        self._wrap(Ledger, "decide", DECIDING)
        self._wrap(BatchCopier, "copy", DECIDED)
        self._wrap(BatchCopier, "_exchange_chunks", COPYING)
        self._wrap(BatchCopier, "_receive_acks", SENT)
        self._wrap(Ledger, "purge_staged", COPIED)
        self._wrap(StreamPublisher, "_write", PUBLISHING)

    def _wrap(
        self, owner: type, name: str, step: str, when: Callable[..., bool] = lambda *_: True
    ) -> None:
        original = getattr(owner, name)

        def stopping(*arguments: Any, **options: Any) -> Any:
            if when(*arguments):
                self.at(step)
            return original(*arguments, **options)

        setattr(owner, name, stopping)

    def at(self, step: str) -> None:
        """Stop here if that is where to stop."""
        assert self.folder is not None
        try:
            where, after = (self.folder / "step").read_text().split()
        except FileNotFoundError:
            return
        if where != step or self._pass() <= int(after):
            return
        new = self.folder / f"reached.{os.getpid()}"
        new.write_text(str(os.getpid()))
        try:
            (self.folder / "reached").hardlink_to(new)  # one process, once
        except FileExistsError:
            return
        finally:
            new.unlink()
        # On another machine it would not hear that its driver is gone.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        deadline = time.monotonic() + _LONGEST_STOP
        go = self.folder / "go"
        while not go.exists() and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY)
        if go.exists() and go.read_text() == "fail":
            raise OSError(f"failed on purpose at the step {step}")

    def _pass(self) -> int:
        """How often the step was come to, by all processes."""
        assert self.folder is not None
        file = os.open(self.folder / "passed", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(file, b".")
            return os.fstat(file).st_size
        finally:
            os.close(file)


_stops = _Stops()


class _Stopping:
    """What both writers do beside writing."""

    folder = ""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriteReport:
        _stops.use(self.folder)
        written: WriteReport = super().write(iterator)  # type: ignore[misc]
        return written

    def commit(self, *arguments: Any) -> None:
        _stops.use(self.folder)
        super().commit(*arguments)  # type: ignore[misc]
        _stops.at(COMMITTED)


class _BatchWriter(_Stopping, JetStreamBatchWriter):
    pass


class _StreamWriter(_Stopping, JetStreamStreamWriter):
    pass


class ChaosDataSource(JetStreamDataSource):
    """The package's data source, with stops."""

    def __init__(self, options: dict[str, str]) -> None:
        self._folder = options.pop("chaosFolder")
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> _BatchWriter:
        return self._in_our_folder(super().writer(schema, overwrite), _BatchWriter)

    def streamWriter(self, schema: StructType, overwrite: bool) -> _StreamWriter:
        return self._in_our_folder(super().streamWriter(schema, overwrite), _StreamWriter)

    def _in_our_folder(self, made: Any, kind: Callable[..., W]) -> W:
        writer = kind(made._options, made._target)
        writer.folder = self._folder
        return writer
