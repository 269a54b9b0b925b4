"""A lock that keeps other runs from a checkpoint on this machine."""

from __future__ import annotations

import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from jetspark.errors import ConfigError, named
from jetspark.spark.failures import explain
from jetspark.spark.local_folders import local_path

CHECKPOINT_IN_TABLE = "_checkpoint"
"""The folder, in the table's, of a checkpoint that nobody named."""
_LOCK_FILE = ".jetspark.lock"
_LOCK_TIMEOUT = 10.0
"""Seconds, since the JVM of a killed run lives a moment longer."""
_POLL_INTERVAL = 0.1


@contextmanager
def locked(spark: SparkSession, checkpoint: str) -> Iterator[None]:
    """Lock a checkpoint during the block, so that no query in another process uses it.

    The JVM, which writes the checkpoint, locks a file in it; the operating system releases the lock
    however the JVM ends. A checkpoint on another file system is not locked. Raises ConfigError if
    another process has the lock and keeps it for some seconds.
    """
    folder = local_path(checkpoint)
    if folder is None:
        yield
        return
    path = Path(folder, _LOCK_FILE).absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{checkpoint} cannot be made ({error.strerror}).") from None
    _check_is_own_file(path)
    file = _open_in_jvm(spark, path)
    try:
        deadline = time.monotonic() + _LOCK_TIMEOUT
        while file.tryLock() is None:  # the JVM of a killed run may live a moment longer
            if time.monotonic() >= deadline:
                holder = path.read_text("utf-8", "replace")
                raise ConfigError(
                    f"Another run ({holder}) uses {checkpoint}: stop it first, or let it end."
                )
            time.sleep(_POLL_INTERVAL)
        file.truncate(0)  # then the file names the process that has the lock, for messages
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        jvm: Any = spark._jvm
        file.write(jvm.java.nio.ByteBuffer.wrap(bytearray(holder.encode())))
        yield
    finally:
        with suppress(Py4JError, OSError):  # the JVM may have ended
            file.close()


def _check_is_own_file(path: Path) -> None:
    """Raise ConfigError if the path of a lock's file leads, by a link, to a file elsewhere.

    Taking the lock empties the file. By default the checkpoint is in the table's folder, where
    others may write, so a link that they put there could have us empty any file of this user.
    """
    folder = path.parent
    if folder.name == CHECKPOINT_IN_TABLE and folder.is_symlink():
        raise ConfigError(
            f"{folder} is a symbolic link, and whoever may write in the table's folder could have "
            f"made it: name the folder where it leads in {named('checkpoint')}, if it is yours."
        )
    with suppress(FileNotFoundError):
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise ConfigError(
                f"{path} is not a file of its own, but a link or something else. Remove it, if no "
                "run uses the checkpoint."
            )


def _open_in_jvm(spark: SparkSession, path: Path) -> Any:
    """Open a file in the JVM, as a FileChannel of Java, which can lock it.

    The file is created if it is missing; a symbolic link is not followed.
    """
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    options = jvm.java.util.HashSet()
    for option in ("CREATE", "READ", "WRITE"):
        options.add(jvm.java.nio.file.StandardOpenOption.valueOf(option))
    options.add(jvm.java.nio.file.LinkOption.valueOf("NOFOLLOW_LINKS"))
    no_attributes = gateway.new_array(jvm.java.nio.file.attribute.FileAttribute, 0)
    java_path = jvm.java.io.File(str(path)).toPath()
    try:
        return jvm.java.nio.channels.FileChannel.open(java_path, options, no_attributes)
    except Py4JJavaError as error:
        raise ConfigError(f"{path} cannot be opened: {explain(error)}") from None


def is_in_use(folder: str) -> bool:
    """Whether a query in another process has locked the checkpoint in this folder.

    True, to be safe, if that cannot be known, as for a checkpoint without the lock's file.
    """
    try:
        import fcntl

        with Path(folder, _LOCK_FILE).open("rb+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kind of lock that Java takes
    except (ImportError, OSError):
        return True
    return False
