"""Streaming queries in the JVM: their start, their sources, and their checkpoints."""

from __future__ import annotations

import logging
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from jetspark.errors import ConfigError
from jetspark.options.names import spark_name
from jetspark.spark.checkpoints import parse_query_id, remove_incomplete_start
from jetspark.spark.failures import NO_WORKER, explain
from jetspark.spark.local_folders import local_path
from jetspark.spark.source.options import SourceOptions, parse_options
from jetspark.spark.source.position_options import ENDINGS
from jetspark.spark.versions import CHECKPOINTS, HAS_LIMITS, end_when_idle

logger = logging.getLogger("jetspark.spark")

SETTING = "spark.sql.streaming.checkpointFileManagerClass"
BY_FILE_SYSTEM = f"{CHECKPOINTS}.FileSystemBasedCheckpointFileManager"
_LOCK_TIMEOUT = 10.0
"""Seconds, since the JVM of a killed run lives a moment longer."""
CHECKPOINT_IN_TABLE = "_checkpoint"
"""The folder of a checkpoint for which no other place was named."""
_LOCK = ".jetspark.lock"
_POLL_INTERVAL = 0.1
MAX_STARTS = 4

# -- starting ----------------------------------------------------------------------------------


def source_options(options: Mapping[str, str], *, follow: bool) -> dict[str, str]:
    """Options of a stream whose query `start_writing` starts. Raises ConfigError."""
    folded = set(map(str.casefold, options))
    for name in ENDINGS if follow else ():
        if spark_name(name).casefold() in folded:
            raise ConfigError(
                "is for a run that ends: leave it out, or do not follow the stream.", option=name
            )
    return dict(options) if follow or HAS_LIMITS else {**options, "availableNow": "true"}


def start_writing(
    spark: SparkSession, writer: DataStreamWriter, checkpoint: str, interval: float | None
) -> StreamingQuery:
    """Start a query that ends with what is there now, or goes on every `interval` seconds.

    Raises Spark's errors.
    """
    if interval is not None:
        writer = writer.trigger(processingTime=f"{interval} seconds")
    elif HAS_LIMITS:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime="0 seconds")
    query = start_query(with_quick_checkpoint(spark, checkpoint, writer.start))
    if interval is None and not HAS_LIMITS:
        end_when_idle(query)
    return query


def start_query(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a streaming query, and start it again when Spark's Python was too slow.

    `start`: begins the query, such as the `start` of a `DataStreamWriter`. Returns the query when
    its sources have started, or it has failed for another reason.

    For the offsets of each streaming query Spark starts a Python process, and allows it ten seconds
    to import Spark and Arrow and to connect; no setting changes that (`PythonWorkerFactory`'s
    simple workers; spark.python.authenticate.socketTimeout is for other sockets). On a busy machine
    that is too short. Nothing was read or written then, so the query is started again, three times
    at most. Raises PipelineError after that.
    """
    starts = 0
    while True:
        query = start()
        starts += 1
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(_POLL_INTERVAL)
        failure = query.exception()
        if failure is None or NO_WORKER not in str(failure):
            return query
        with suppress(StreamingQueryException):
            query.awaitTermination()  # Spark forgets it a moment after it has failed
        if starts == MAX_STARTS:
            raise explain(failure)
        logger.warning(
            "The query is started again: its Python did not start in Spark's ten seconds."
        )


def with_quick_checkpoint(
    spark: SparkSession, checkpoint: str, start: Callable[[], StreamingQuery]
) -> Callable[[], StreamingQuery]:
    """`start`, or a function that starts the same query with a faster checkpoint.

    By default Spark uses Hadoop's FileContext, which without Hadoop's native library runs
    `readlink` and `chmod` for each file: twenty processes and 80 ms for each micro-batch. Its other
    way is Hadoop's FileSystem. On a local disk both do the same: a temporary file, a look whether
    there is a file of the name, a rename, and a checksum in a second file. Elsewhere FileContext
    may be the only one that renames without replacing what another driver has written, so it stays.

    `start` itself for a checkpoint that is not on a local disk, and in a session that has the
    setting already.
    """
    if (folder := local_path(checkpoint)) is None:
        return start
    remove_incomplete_start(folder)
    # Through Spark Connect the class cannot be looked up.
    has_class = hasattr(spark, "_jvm") and _has_class(spark._jvm)
    if not has_class or spark.conf.get(SETTING, None) is not None:
        return start

    def start_quickly() -> StreamingQuery:
        spark.conf.set(SETTING, BY_FILE_SYSTEM)
        try:
            return start()  # the query has its own copy of the session's settings
        finally:
            spark.conf.unset(SETTING)

    return start_quickly


def _has_class(jvm: Any) -> bool:
    """Whether the class exists, since Spark has moved it before."""
    try:
        jvm.java.lang.Class.forName(BY_FILE_SYSTEM)
    except Py4JError:
        return False
    return True


# -- checkpoints -------------------------------------------------------------------------------


def query_of(spark: SparkSession, checkpoint: str) -> str | None:
    """The id of a checkpoint's query, on any file system that Spark reaches; None for a new one."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/metadata")
    files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    if not files.exists(path):
        return None
    stream = files.open(path)
    try:
        return parse_query_id(bytes(stream.readAllBytes()))
    finally:
        stream.close()


@contextmanager
def locked(spark: SparkSession, checkpoint: str) -> Iterator[None]:
    """Keep runs in other processes from a checkpoint on this machine, during the block.

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
    _check_lock(path)
    file = _open_in_jvm(spark, path)
    try:
        deadline = time.monotonic() + _LOCK_TIMEOUT
        while file.tryLock() is None:
            if time.monotonic() >= deadline:
                holder = path.read_text("utf-8", "replace")
                raise ConfigError(
                    f"Another run ({holder}) uses {checkpoint}: stop it first, or let it end."
                )
            time.sleep(_POLL_INTERVAL)
        file.truncate(0)
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        jvm: Any = spark._jvm
        file.write(jvm.java.nio.ByteBuffer.wrap(bytearray(holder.encode())))
        yield
    finally:
        with suppress(Py4JError, OSError):  # the JVM may have ended
            file.close()


def _check_lock(path: Path) -> None:
    """Raise ConfigError for a lock that is not a file of the checkpoint's own.

    By default the checkpoint is in the table's folder, where others may write, and what they link
    there would be emptied.
    """
    folder = path.parent
    if folder.name == CHECKPOINT_IN_TABLE and folder.is_symlink():
        raise ConfigError(
            f"{folder} is a symbolic link, and whoever may write in the table's folder could have "
            "made it: name the folder where it leads with --checkpoint, if it is yours."
        )
    with suppress(FileNotFoundError):
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise ConfigError(
                f"{path} is not a file of its own, but a link or something else. Remove it, if no "
                "run uses the checkpoint."
            )


def _open_in_jvm(spark: SparkSession, path: Path) -> Any:
    """A channel to the file, which is created if it is not there. Follows no link."""
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    options = jvm.java.util.HashSet()
    for option in ("CREATE", "READ", "WRITE"):
        options.add(jvm.java.nio.file.StandardOpenOption.valueOf(option))
    options.add(jvm.java.nio.file.LinkOption.valueOf("NOFOLLOW_LINKS"))
    attributes = gateway.new_array(jvm.java.nio.file.attribute.FileAttribute, 0)
    java_path = jvm.java.io.File(str(path)).toPath()
    try:
        return jvm.java.nio.channels.FileChannel.open(java_path, options, attributes)
    except Py4JJavaError as error:
        raise ConfigError(f"{path} cannot be opened: {explain(error)}") from None


def is_in_use(folder: str) -> bool:
    """Whether a run in another process has the checkpoint in a folder; true if nobody can tell."""
    try:
        import fcntl

        with Path(folder, _LOCK).open("rb+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of the kind that Java's is
    except (ImportError, OSError):
        return True
    return False


# -- sources -----------------------------------------------------------------------------------


def streaming_sources(rows: DataFrame) -> Iterator[SourceOptions]:
    """The options of each jetstream source in Spark's plan, in Spark's order.

    A source that is used twice is one (UNION), but two in a join with itself: equal leaves are read
    once.
    """
    return sources_in(rows._jdf.queryExecution().analyzed())


def sources_in(plan: Any) -> Iterator[SourceOptions]:
    """The options of each source in a plan of the JVM, also of a running query, whose source may be
    `jetspark-direct`."""
    leaves = plan.collectLeaves().distinct()
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        with suppress(Py4JError):  # a leaf of another kind has no such name
            if leaf.isStreaming() and leaf.sourceName() in ("jetstream", "jetspark-direct"):
                options = dict(leaf.extraOptions().asCaseSensitiveMap())
                yield parse_options(
                    {name: value for name, value in options.items() if not name.startswith("into.")}
                )
