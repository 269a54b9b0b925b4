"""`spark.python.daemon.module`: what Spark's Python workers import is in the daemon already.

A campaign has Spark fork some workers for each command, and each would spend a second on that.
"""

from __future__ import annotations

import pandas  # noqa: F401
import pyarrow  # noqa: F401
import pyspark.sql.worker.plan_data_source_read
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import jetspark.spark.source
import jetspark.spark.stream  # noqa: F401

if __name__ == "__main__":
    manager()
