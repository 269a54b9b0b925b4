"""The program of tests/spark/test_deployments.py on this machine."""

from __future__ import annotations

from pyspark.sql import SparkSession
from tests.spark.program import RIGHT, findings


def test_the_program_runs_on_one_machine(
    spark: SparkSession, program: tuple[str, str, str, str]
) -> None:
    assert findings(spark, *program) == RIGHT
