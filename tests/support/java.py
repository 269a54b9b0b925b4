"""JVMs of tests and campaigns: the second compiler and a parallel collector cost those that live
for seconds more than they give, on two cores a third of the processor time."""

from __future__ import annotations

import os

_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def small_jvms() -> None:
    """From now on, also for those that commands start; what the environment says wins."""
    for variable in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
        os.environ.setdefault(variable, _OPTIONS)
