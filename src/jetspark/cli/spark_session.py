"""Spark for commands: starts it quietly, and stops it at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetspark.cli import console
from jetspark.cli.folders import temporary_folder
from jetspark.cli.progress import spinner
from jetspark.cli.signals import signals_held
from jetspark.errors import ConfigError, PipelineError, SparkUnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jetspark.cli.spark_flags import SparkFlags

_MAX_SHORT_JOB_MESSAGES = 2_000_000
"""Up to this many messages the JVM is started with options for a short life."""


@contextmanager
def quiet_spark(
    name: str,
    flags: SparkFlags,
    settings: Mapping[str, str] | None = None,
    *,
    messages: int | None = None,
    keep_nothing: bool = False,
    name_setting: Callable[[str], str] = "--conf {}".format,
) -> Iterator[SparkSession]:
    """Run a Spark session during the block, whose log goes to a file and not to the terminal.

    The file is removed at the end, but stays when Spark has failed; not after a user's mistake.
    `messages`: how many go through the JVM at most, by which the JVM is started for a short or a
    long job; None if unknown or endless. `keep_nothing`: do not make a class archive, the file
    that lets Spark start faster the next time. `name_setting`: how errors name a setting.
    """
    with signals_held():
        from jetspark.spark.session.jvm import WrongSettingError
        from jetspark.spark.session.session import close_session, local_session, short_job_options
        from jetspark.spark.session.warm_up_job import warm_up

    master, quiet = flags.master, flags.quiet
    is_short = messages is not None and messages <= _MAX_SHORT_JOB_MESSAGES
    with temporary_folder("jetspark-spark-") as folder:
        log = folder / "spark.log"
        # Temporary files of Spark and its libraries stay in one folder.
        conf = {
            "spark.local.dir": str(folder),
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder}",
            **(settings or {}),
        }
        options = short_job_options(conf) if is_short else []
        with _log_kept_after_failure(log), _logs_in(log):
            with spinner("starting Spark …", quiet=quiet):
                try:
                    spark = local_session(
                        name, master=master, log_file=log, conf=conf, jvm_options=options
                    )
                except WrongSettingError as error:
                    problem = f"{name_setting(error.setting)}: {error.reason}"
                    raise SparkUnavailableError(problem) from error
            context = spark.sparkContext
            log_failures(context._accumulatorServer)
            # For a short job, an empty one in the background loads classes on an idle core.
            if is_short and master.startswith("local") and context.defaultParallelism > 1:
                warm_up(spark)
            try:
                with _explaining_failures(log):
                    yield spark
            finally:
                with spinner("stopping Spark …", quiet=quiet):
                    close_session(spark)
            if not keep_nothing:
                _make_class_archive(master, quiet=quiet)


@contextmanager
def _explaining_failures(log: Path) -> Iterator[None]:
    """Turn an error of Spark in the block, or the end of its JVM, into a PipelineError.

    Its sentence is the reason; `log`, Spark's log, says why a JVM has ended.
    """
    from py4j.protocol import Py4JError, Py4JNetworkError
    from pyspark.errors import PySparkException

    from jetspark.spark.failures import explain
    from jetspark.spark.session.jvm import read_end_reason

    try:
        yield
    except (Py4JNetworkError, ConnectionError) as error:  # the JVM has ended
        raise PipelineError(
            f"Spark ended: {read_end_reason(log) or explain(error).message}"
        ) from error
    except (PySparkException, Py4JError) as error:
        raise PipelineError(explain(error).message) from error


@contextmanager
def _log_kept_after_failure(log: Path) -> Iterator[None]:
    """Move Spark's log out of its temporary folder when Spark fails, and add a note with its path.

    A mistake of the user needs no log: a wrong setting, SQL that Spark cannot analyse.
    """
    from pyspark.errors import AnalysisException

    from jetspark.spark.session.jvm import WrongSettingError

    mistakes = AnalysisException | ConfigError | WrongSettingError
    try:
        yield
    except (PipelineError, SparkUnavailableError) as error:
        # The error itself is a mistake of the user, or its cause is one.
        is_mistake = isinstance(error, PipelineError) and error.is_mistake
        if not is_mistake and not isinstance(error.__cause__, mistakes):
            # Beside the temporary folder, under its name.
            kept_log = log.parent.with_suffix(".log")
            with suppress(OSError):
                log.chmod(0o600)  # it may have rows in it
                log.rename(kept_log)
                error.add_note(f"Spark's log: {kept_log}")
        raise


def _make_class_archive(master: str, *, quiet: bool) -> None:
    """Begin to make Spark's class archive in the background, if there is none for this master.

    Java maps that file at its start, so that later commands start Spark faster.
    """
    from jetspark.spark.fast_start.class_archive import class_archive
    from jetspark.spark.fast_start.switch import VARIABLE

    archive = class_archive(master)
    # `make_later` says whether it has started to make one.
    if archive is not None and archive.make_later() and not quiet:
        console.warn(
            "Preparing Spark's classes in the background, once, for faster starts"
            f" ({VARIABLE}=off turns this off)."
        )


def log_failures(server: Any) -> None:
    """Have PySpark's accumulator server (`server`) log its errors, not print tracebacks.

    It receives counters from tasks, and to it the end of a connection is an error, even after a
    query was stopped.
    """

    def handle_error(_request: object, address: object) -> None:
        # `socketserver` calls this during the handling of the exception.
        logging.getLogger("py4j").debug("Accumulators of %s", address, exc_info=True)

    server.handle_error = handle_error


@contextmanager
def _logs_in(file: Path) -> Iterator[None]:
    """Write this process's logs of PySpark and Py4J to the file, not to the terminal.

    They have the Java stack traces of errors that commands print as one sentence.
    """
    from pyspark.logger import PySparkLogger

    handler = logging.FileHandler(file, delay=True)
    loggers = [logging.getLogger(name) for name in ("py4j", "py.warnings")]
    # These handlers write to the terminal as soon as they are created.
    loggers += [
        PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")
    ]
    before = [(logger.handlers, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [handler], False
    logging.captureWarnings(True)
    logging.root.addHandler(handler)  # Py4J also logs when its JVM ends
    try:
        yield
    finally:
        logging.root.removeHandler(handler)
        logging.captureWarnings(False)
        for logger, (handlers, propagate) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
        handler.close()
