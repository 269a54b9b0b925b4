"""The Java that Spark will use."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from jetspark.errors import SparkUnavailableError

MIN_JAVA_VERSION = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def find_java() -> Path:
    """Find the Java program that Spark will use: of JAVA_HOME, or else the first on PATH.

    Raises SparkUnavailableError if it is missing, too old, or does not work.
    """
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else shutil.which("java")
    advice = (
        f"Spark needs Java {MIN_JAVA_VERSION} or newer: install it and put it on PATH (or set "
        "JAVA_HOME)."
    )
    if java is None or not os.access(java, os.X_OK):
        problem = f"there is no java in JAVA_HOME ({home})" if home else "no java was found"
        raise SparkUnavailableError(f"{advice} Now {problem}.")
    match = _VERSION.search(read_version_text(Path(java)))
    if match is None or int(match[1]) < MIN_JAVA_VERSION:
        is_now = f"version {match[1]}" if match else "not a working Java"
        raise SparkUnavailableError(f"{advice} {java} is {is_now}.")
    return Path(java)


@cache
def read_version_text(java: Path) -> str:
    """The output of `java -version`, which Java prints on standard error."""
    ran = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    return ran.stderr
