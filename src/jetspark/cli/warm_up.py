"""`jetspark warm-up`: creates the class archive now, not in the background of other commands."""

from __future__ import annotations

from jetspark.cli import console
from jetspark.cli.flags import Switch
from jetspark.cli.progress import spinner
from jetspark.errors import ConfigError, SparkUnavailableError


def warm_up(*, remove: Switch = False) -> None:
    """Make Spark start faster on this machine, or in an image.

    Stores Spark's classes in a file of about 200 MB that Java maps at its start, in the folder
    ~/.cache/jetspark or JETSPARK_CLASS_ARCHIVES. demo, ingest, replay and run create it in the
    background when it is missing; this command creates it at once, for example in an image.
    JETSPARK_FAST_START=off turns this off. On a cluster it is off unless that variable is on.

    Args:
        remove: Remove the archives of all versions of Spark and Java.
    """
    from jetspark.spark.fast_start import switch
    from jetspark.spark.fast_start.class_archive import (
        VARIABLE,
        class_archive,
        configuration_folder,
        remove_archives,
    )

    if remove:
        console.say(f"{remove_archives()} removed.")
        return
    archive = class_archive()
    if not switch.is_on():
        raise ConfigError(f"It is switched off: {switch.VARIABLE}=off.")
    if archive is None and (conf := configuration_folder()) is not None:
        raise ConfigError(
            f"Java takes no archive where Spark has a configuration folder, here {conf}: "
            "unset SPARK_CONF_DIR, or rename the folder, and give settings with --conf."
        )
    if archive is None:
        raise ConfigError(f"There is no writable folder for it: set {VARIABLE} to one.")
    try:
        with spinner("loading Spark's classes …"):
            archive.make()
    except SparkUnavailableError as error:
        raise SparkUnavailableError(f"Spark does not start faster: {error}") from error
    console.say(f"Spark starts faster with {archive.file}.")
