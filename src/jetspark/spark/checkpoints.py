"""A query's checkpoint: what it says, whether its folder may be used, and how Spark writes it.

A checkpoint has `metadata` (the query's id), `offsets` (planned batches) and `commits` (committed
batches). Spark plans a batch, writes it, and then commits it in the checkpoint.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from jetspark.errors import ConfigError

SETTING = "spark.sql.streaming.checkpointFileManagerClass"
BY_FILE_SYSTEM = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
LOCK_PATIENCE = 10.0
"""Seconds; the JVM of a killed run lives a moment longer."""
_LOCK = ".jetspark.lock"
_LOOK_SECONDS = 0.2
_BATCH = re.compile(r"\d+")
_LOGS = ("offsets", "commits")
_OWN = frozenset({"metadata", *_LOGS, "state", "sources"})
_TABLES = ("_delta_log", "_spark_metadata")

# -- folders -----------------------------------------------------------------------------------


def local_path(uri: str) -> str | None:
    """The path of a local file or folder, as far as that is known without Spark; else None."""
    parts = urlsplit(uri)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return unquote(parts.path)
    # Hadoop's configuration may give paths without a scheme another file system.
    return uri if not parts.scheme and "HADOOP_CONF_DIR" not in os.environ else None


def place(folder: str) -> str:
    """A canonical form, so that one folder has one text as far as possible."""
    path = folder.removeprefix("file://").removeprefix("file:")
    return path if "://" in path else os.path.abspath(path)


def check_way(what: str, name: str) -> None:
    """Raises ConfigError if a folder of this machine cannot be created or written."""
    here = local_path(name)
    if here is None:
        return
    there = next(part for part in (Path(here), *Path(here).absolute().parents) if part.exists())
    if there.is_file():
        which = "" if there == Path(here) else f"{name} cannot be made: "
        shown = there if which else name
        raise ConfigError(f"{which}{shown} is a file: name a folder for the {what}.")
    if not os.access(there, os.W_OK | os.X_OK):
        reason = "is not writable for this user"
        if os.name == "posix" and os.statvfs(there).f_flag & os.ST_RDONLY:
            reason = "is on a read-only file system"
        raise ConfigError(
            f"{name} cannot be written: {there} {reason}; name another folder for the {what}."
        )


def held_in(folder: str) -> str | None:
    """The nearest parent folder on this machine that is a table or a checkpoint."""
    for above in Path(place(folder)).parents:
        if (
            any((above / log).is_dir() for log in _TABLES)
            or next(above.glob("metadata/*.metadata.json*"), None) is not None
            or ((above / "metadata").is_file() and (above / "offsets").is_dir())
        ):
            return str(above)
    return None


# -- what a checkpoint says --------------------------------------------------------------------


@dataclass(frozen=True)
class CheckpointState:
    """The state of a checkpoint."""

    query: str | None = None
    planned: int | None = None
    committed: int | None = None
    others: tuple[str, ...] = ()
    """Other files in the folder of a new checkpoint."""
    within: str | None = None
    """The table or checkpoint whose folder contains that of a new checkpoint."""
    lost: int | None = None
    """The batch before the last planned one, if the checkpoint does not have it: Spark needs it."""

    @property
    def is_new(self) -> bool:
        """Whether no query has planned a batch with it."""
        return self.planned is None and self.committed is None

    def check_whole(self, name: str, advice: str) -> None:
        """Raises ConfigError for a checkpoint that was removed while a query used it, and has only
        what was planned since. `advice`: what to remove beside it, or to do in place of that."""
        if self.lost is not None:
            raise ConfigError(
                f"{name} has lost its batch {self.lost} and those before: it was removed, perhaps "
                f"with the table, while a query used it. To begin anew, remove it {advice}."
            )


def read_checkpoint(checkpoint: str) -> CheckpointState:
    """The state of a checkpoint in a folder of this machine."""
    folder = Path(checkpoint)
    batches = {
        log: [int(one) for one in _names(folder / log) if _BATCH.fullmatch(one)] for log in _LOGS
    }
    planned, committed = (max(batches[log], default=None) for log in _LOGS)
    try:
        query = _query((folder / "metadata").read_bytes())
    except OSError:
        query = None
    if planned is None and committed is None:
        others = (one for one in sorted(_names(folder)) if one not in _OWN and one[0] not in "._")
        return CheckpointState(query, others=tuple(others), within=held_in(checkpoint))
    lost = planned - 1 if planned and planned - 1 not in batches["offsets"] else None
    return CheckpointState(query, planned, committed, lost=lost)


def query_of(spark: SparkSession, checkpoint: str) -> str | None:
    """The id of a checkpoint's query, on any file system that Spark reaches; None for a new one."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/metadata")
    files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    if not files.exists(path):
        return None
    stream = files.open(path)
    try:
        return _query(bytes(stream.readAllBytes()))
    finally:
        stream.close()


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


class _Metadata(msgspec.Struct):
    id: str


def _query(metadata: bytes) -> str | None:
    """The id; also None for an incompletely written file."""
    try:
        return msgspec.json.decode(metadata, type=_Metadata).id
    except ValueError:
        return None


# -- how Spark writes it -----------------------------------------------------------------------


def with_quick_checkpoint(
    spark: SparkSession, checkpoint: str, start: Callable[[], StreamingQuery]
) -> Callable[[], StreamingQuery]:
    """`start`, or what starts the same query with a checkpoint that is written faster.

    By default Spark uses Hadoop's FileContext, which without Hadoop's native library runs
    `readlink` and `chmod` for each file: twenty processes and 80 ms for each micro-batch. Its other
    way is Hadoop's FileSystem. On a local disk both do the same: a temporary file, a look whether
    there is a file of the name, a rename, and a checksum in a second file. Elsewhere FileContext
    may be the only one that renames without replacing what another driver has written, so it stays.

    `start` itself for a checkpoint that is not on a local disk, and in a session that has the
    setting already.
    """
    folder = local_path(checkpoint)
    if folder is None:
        return start
    _clear(folder)
    if spark.conf.get(SETTING, None) is not None or not _has_class(spark._jvm):
        return start

    def quicker() -> StreamingQuery:
        spark.conf.set(SETTING, BY_FILE_SYSTEM)
        try:
            return start()  # the query has its own copy of the session's settings
        finally:
            spark.conf.unset(SETTING)

    return quicker


def _clear(checkpoint: str) -> None:
    """Remove what a kill has left of a first batch: Spark starts a new query only if its logs are
    empty, counts their temporary files, and does not read metadata that was cut off."""
    state, folder = read_checkpoint(checkpoint), Path(checkpoint)
    if state.is_new:
        for log in _LOGS:
            for left in (folder / log).glob(".*"):
                left.unlink(missing_ok=True)
        if state.query is None:
            for name in ("metadata", ".metadata.crc"):
                (folder / name).unlink(missing_ok=True)


def _has_class(jvm: Any) -> bool:
    """Spark has moved it before."""
    try:
        jvm.java.lang.Class.forName(BY_FILE_SYSTEM)
    except Py4JError:
        return False
    return True


@contextmanager
def locked(spark: SparkSession, checkpoint: str) -> Iterator[None]:
    """Keep runs in other processes from a checkpoint on this machine while the block runs.

    The JVM, which writes the checkpoint, locks a file in it; the operating system releases the lock
    however the JVM ends. Raises ConfigError while another process has it.
    """
    folder = local_path(checkpoint)
    if folder is None:
        yield
        return
    path = Path(folder, _LOCK).absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{checkpoint} cannot be made ({error.strerror}).") from None
    jvm: Any = spark._jvm
    file = jvm.java.io.RandomAccessFile(str(path), "rw")
    try:
        deadline = time.monotonic() + LOCK_PATIENCE
        while file.getChannel().tryLock() is None:
            if time.monotonic() >= deadline:
                who = path.read_text("utf-8", "replace")
                raise ConfigError(
                    f"Another run ({who}) uses {checkpoint}: stop it first, or let it end."
                )
            time.sleep(_LOOK_SECONDS)
        file.setLength(0)
        file.write(bytearray(f"process {os.getpid()} on {socket.gethostname()}".encode()))
        yield
    finally:
        with suppress(Py4JError, OSError):  # the JVM may have ended
            file.close()
