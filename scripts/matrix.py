"""The tests with other versions: `python scripts/matrix.py --spark 4.0 4.1 --kills 12`.

For each version of Spark, an environment of its own (in JETSPARK_TEST_CACHE, or the user's cache)
gets this tree with all that its tests need, the newest PySpark of that line, and runs the tests of
format("jetstream") and of tables, then `tests.chaos ingesting`. The result is a Markdown table on
standard output; what failed is in the folder that it names. Needs pip, Java 17 and hours.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINES = ("4.0", "4.1", "4.2", "4.3")
TESTS = tuple(
    f"tests/spark/test_{name}.py"
    for name in (
        *("source", "sink", "buckets", "claims", "direct", "lakehouse", "listed_tables"),
        *("pipeline", "json_payloads", "session", "older_copies"),
    )
)
# What PySpark 4.0 and 4.1 themselves leave open and deprecate, which the suite calls an error.
QUIET = (
    *("-W", "ignore::ResourceWarning", "-W", "ignore::DeprecationWarning"),
    *("-W", "ignore::FutureWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spark", nargs="+", default=LINES, choices=LINES, metavar="LINE")
    parser.add_argument("--python", default=sys.executable, help="an interpreter for all of them")
    parser.add_argument("--tests", nargs="+", default=TESTS, metavar="FILE")
    parser.add_argument("--kills", type=int, default=16, metavar="RUNS")
    options = parser.parse_args()
    cache = Path(os.environ.get("JETSPARK_TEST_CACHE", "~/.cache/jetspark-matrix")).expanduser()
    bad = False
    print("| PySpark | tests | kills | date |\n|---|---|---|---|", flush=True)
    for line in options.spark:
        folder = cache / f"spark-{line}"
        python = _environment(folder, options.python, line)
        found = _run(python, "-c", "import pyspark; print(pyspark.__version__)").stdout.strip()
        tests = _run(python, "-m", "pytest", "-q", *QUIET, *options.tests)
        (folder / "tests.log").write_text(tests.stdout)
        kills = _run(python, "-m", "tests.chaos", "ingesting", "--runs", str(options.kills))
        (folder / "kills.log").write_text(kills.stdout)
        wrong = re.search(r"\| \*\*all\*\* \| (\d+) \| (\d+) .*", kills.stdout)
        told = wrong and f"{wrong[1]} runs, {wrong[2]} kills: {'wrong' if kills.returncode else 0}"
        summary = re.sub(r" in .*", "", tests.stdout.strip().rpartition("\n")[2].strip("= "))
        print(
            f"| {found} | {summary} | {told or 'none'} | {time.strftime('%Y-%m-%d')} |", flush=True
        )
        if tests.returncode or kills.returncode:
            bad = True
            print(f"  see {folder}/*.log", file=sys.stderr)
    return int(bad)


def _environment(folder: Path, python: str, line: str) -> str:
    if not (folder / "bin" / "python").exists():
        if python == sys.executable:
            venv.create(folder, with_pip=True)
        else:
            subprocess.run([python, "-m", "venv", str(folder)], check=True)
    found = str(folder / "bin" / "python")
    pip = [found, "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "-e", f"{ROOT}[dev]", f"pyspark[connect]=={line}.*"], check=True)
    return found


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


if __name__ == "__main__":
    sys.exit(main())
