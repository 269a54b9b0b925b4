"""`python -m tests.chaos reading --runs 200 --seed 1`: Spark and NATS while things break.

Exit code 1 when a message was missing, repeated, unexpected or out of order, or when a run hung or
ended in another way than it had to. `--only RUN` repeats a single one.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import signal
import sys
from pathlib import Path

from tests.chaos.campaign import campaign
from tests.chaos.leaders import believe
from tests.chaos.outcome import table

from jetspark.bulk import leaders


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("what", choices=["reading", "backfill", "writing", "leaders", "ingesting"])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, metavar="RUN", help="number to begin with")
    parser.add_argument("--only", type=int, metavar="RUN", help="this run and no other")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", action="append", default=[], help="only these kinds of faults")
    parser.add_argument("--results", type=Path, help="outcomes so far, as JSON lines; goes on")
    parser.add_argument("--table", type=Path, help="where the Markdown table goes")
    parser.add_argument(
        "--without-proof",
        action="store_true",
        help="leaders: believe each answer, to see what the campaign would notice",
    )
    options = parser.parse_args()
    logging.getLogger("jetspark").setLevel(logging.CRITICAL)
    # Told to end, it ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Most of these JVMs live for seconds: what is compiled better costs more than it gives.
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    module = importlib.import_module(f"tests.chaos.{options.what}")
    kinds, costly = module.KINDS, getattr(module, "COSTLY", ())
    if unknown := set(options.kind) - set(kinds):
        parser.error(f"no such kind: {', '.join(unknown)}; there are {', '.join(sorted(kinds))}")
    if options.without_proof:
        leaders._prove = believe
    numbers = range(options.first, options.first + options.runs)
    if options.only is not None:
        numbers = range(options.only, options.only + 1)
    outcomes = campaign(kinds, options.seed, numbers, options.kind, costly, options.results)
    text = table(outcomes)
    print(text)
    if options.table is not None:
        options.table.write_text(text, "utf-8")
    wrong = [outcome for outcome in outcomes if not outcome.good]
    for outcome in wrong:
        print(outcome, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
