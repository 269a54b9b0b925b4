"""Payloads by both ways of `jetspark ingest`.

JSON, nearly, becomes a table by tasks that write what they read, and through Spark's parser, with
and without a table for records that do not become rows, in both formats. The tables must have the
same rows, and the records the same reasons.
"""

from __future__ import annotations

import random
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import campaign
from tests.support.both_ways import differences
from tests.support.java import small_jvms
from tests.support.json_payloads import FIELDS, SCHEMAS, payload
from tests.support.streams import Admin

from jetspark.lakehouse.formats import Format
from jetspark.server import NatsServer
from jetspark.spark.session import close_session, local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AT_A_TIME = 5_000
_FEW = {name: FIELDS[name] for name in ("l", "t", "at")}
_SCHEMAS = [SCHEMAS[0], (_FEW, _FEW), SCHEMAS[1]]


@dataclass
class Figures(campaign.Figures):
    rows: int = 0
    tables: int = 0


def fuzz(
    spark: SparkSession, server: NatsServer, folder: Path, figures: Figures, runs: int, seed: int
) -> None:
    turn = 0
    with Admin(server.url) as admin:
        while figures.runs < runs:
            rng = random.Random(f"{seed} {turn}")
            types, kinds = _SCHEMAS[turn % len(_SCHEMAS)]
            size = min(_AT_A_TIME, runs - figures.runs)
            name = admin.stream()
            admin.fill([(name, payload(rng, kinds)) for _ in range(size)])
            number, wrong = differences(
                spark,
                {"servers": server.url, "stream": name, "startingOffsets": "earliest"},
                folder / name,
                list(Format)[turn // 2 % 2],
                json_schema=", ".join(f"`{one}` {kind}" for one, kind in types.items()),
                quarantine=turn % 2 == 1,
                rest_column="the rest" if turn % 5 else None,
            )
            if number != size:
                wrong.append(f"{number} rows of {size} messages")
            figures.wrong += [f"turn {turn}: {one}" for one in wrong]
            figures.count_run(size)
            figures.rows += number
            figures.tables += 2 + 2 * (turn % 2)
            admin.call(f"STREAM.DELETE.{name}")
            turn += 1


def run(runs: int = 100_000, seed: int = 0) -> Figures:
    """A run is a payload."""
    small_jvms()
    figures = Figures()
    with NatsServer() as server, ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="both-ways-")))
        conf = {"spark.sql.shuffle.partitions": "1", "spark.local.dir": str(folder)}
        spark = local_session("ways", master="local[2]", log_file=folder / "log", conf=conf)
        stack.callback(close_session, spark)
        fuzz(spark, server, folder, figures, runs, seed)
    return figures
