"""The campaign of reading: `python -m tests.chaos reading --runs 200 --seed 1`.

Each run is a streaming query from JetStream into Parquet while something breaks. What counts is
the table afterwards: every message that a server has acknowledged, once, and in order.
"""

from __future__ import annotations

from tests.chaos import reading_loss, reading_servers, reading_spark
from tests.chaos.campaign import Kinds

KINDS: Kinds = {**reading_servers.KINDS, **reading_spark.KINDS, **reading_loss.KINDS}
