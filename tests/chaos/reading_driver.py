"""A driver that is going to be killed: `python -m tests.chaos.reading_driver JSON`.

The document says where Spark is (`master`), its `conf`, the `options` of the source and the
`folder` of the table; the query runs until somebody ends the process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.chaos.reading_scene import begin

from jetspark.spark.session import local_session


def main(document: str) -> None:
    told = json.loads(document)
    folder = Path(told["folder"])
    session = local_session(
        "chaos-driver", master=told["master"], log_file=folder / "driver.log", conf=told["conf"]
    )
    begin(session, told["options"], folder).awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
