"""`jetspark warm-up`: the class archive now, instead of beside the first commands."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from jetspark.cli import console
from jetspark.cli.spark_runs import spinner
from jetspark.errors import ConfigError, SparkUnavailableError


def warm_up(*, remove: Annotated[bool, Parameter(negative=())] = False) -> None:
    """Make Spark start faster on this machine, or in an image.

    Keeps Spark's classes in a file of about 200 MB that Java maps when it starts, in the folder
    ~/.cache/jetspark, or the one that JETSPARK_CLASS_ARCHIVES names. demo, ingest, replay and run
    make it by themselves, in the background, after they have needed it; an image has it from the
    start with this command. With JETSPARK_CLASS_ARCHIVES=off there is none.

    Args:
        remove: Remove what was made, for all versions of Spark and Java; with
            JETSPARK_CLASS_ARCHIVES=off from ~/.cache/jetspark.
    """
    from jetspark.spark.class_archive import VARIABLE, class_archive, remove_archives, switched_off

    if remove:
        removed, busy = remove_archives()
        console.say(f"{removed} removed.")
        if busy:
            raise ConfigError(
                "One is being made by another process, and stays: run this again when that is done."
            )
        return
    archive = class_archive()
    if archive is None and switched_off():
        raise ConfigError(f"It is switched off: {VARIABLE}=off.")
    if archive is None:
        raise ConfigError(
            f"There is no folder for it: set {VARIABLE} to one that can be written to."
        )
    with spinner("loading Spark's classes …"):
        made = archive.make()
    if not made:
        raise SparkUnavailableError(f"Spark starts as before: {archive.failure()}")
    console.say(f"Spark starts faster with {archive.file}.")
