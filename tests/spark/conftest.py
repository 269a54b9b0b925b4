"""One Spark for the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jetspark.spark.session import close_session, local_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """local[2] without registration of the source: it has to be found by itself."""
    session = local_session(
        "tests",
        master="local[2]",
        log_file=tmp_path_factory.mktemp("spark") / "spark.log",
        conf={
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.task.maxFailures": "1",
        },
    )
    yield session
    close_session(session)
