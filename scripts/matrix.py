"""The tests with other versions: `python scripts/matrix.py --servers --spark 4.0 4.1 --kills 12`.

`--servers`: `pytest -m "server and not spark"` with every supported line of nats-server
(`scripts/servers.py`). `--spark`: the tests of formats and tables with the newest PySpark of each
line, in an environment of its own (in JETSPARK_TEST_CACHE, or the user's cache), and then
the campaign `ingesting`. `--lowest`: all tests with the lowest versions that pyproject.toml allows.
What is given behind `--` is added for pytest, such as `-n 4` or a folder of tests. Prints a
Markdown table, and what failed on standard error. Standard library only.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

import servers

_ROOT = Path(__file__).parent.parent
_COUNTS = ("passed", "failed", "error", "skipped")
_SPARKS = ("4.0", "4.1", "4.2", "4.3")
_TESTS = tuple(
    f"tests/spark/test_{name}.py"
    for name in (
        *("source", "sink", "buckets", "claims", "direct", "lakehouse", "listed_tables"),
        *("pipeline", "json_payloads", "session", "older_copies"),
    )
)
# What old libraries themselves leave open and deprecate, which the suite calls an error.
_QUIET = (
    *("-W", "ignore::ResourceWarning", "-W", "ignore::DeprecationWarning"),
    *("-W", "ignore::FutureWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", nargs="*", default=None, metavar="LINE")
    parser.add_argument("--spark", nargs="*", default=None, choices=_SPARKS, metavar="LINE")
    parser.add_argument("--lowest", action="store_true")
    parser.add_argument("--kills", type=int, default=16, metavar="RUNS")
    parser.add_argument("pytest", nargs="*", metavar="ARGUMENT", help="for pytest, behind --")
    options = parser.parse_args()
    if options.servers is None and options.spark is None and not options.lowest:
        parser.error("give --servers, --spark or --lowest")
    print("| version | " + " | ".join(_COUNTS) + " | time | kills | date |")
    print("|---|" + "---|" * (len(_COUNTS) + 3), flush=True)
    good = True
    for line in () if options.servers is None else options.servers or servers.LINES:
        binary = servers.server(line)
        if isinstance(binary, str):
            print(f"| nats-server {line} | {binary} |", flush=True)
            continue
        command = [sys.executable, *("-m", "pytest", "-q", "--full", "-m", "server and not spark")]
        environment = {"JETSPARK_NATS_SERVER": str(binary)}
        good &= _row(f"nats-server {line}", [*command, *options.pytest], environment)
    for line in () if options.spark is None else options.spark or _SPARKS:
        python = _environment(f"spark-{line}")
        _pip(python, "install", "-e", f"{_ROOT}[dev]", f"pyspark[connect]=={line}.*")
        command = [python, "-m", "pytest", "-q", *_QUIET, *_TESTS, *options.pytest]
        kills = [python, "-m", "tests.campaigns", "ingesting", "--runs", str(options.kills)]
        good &= _row(f"PySpark {line}", command, {}, kills if options.kills else None)
    if options.lowest:
        command = [_lowest(), "-m", "pytest", "-q", "--full", *_QUIET, *options.pytest]
        good &= _row("lowest dependencies", command, {})
    return not good


def _row(
    name: str,
    tests: Sequence[str],
    environment: Mapping[str, str],
    kills: Sequence[str] | None = None,
) -> bool:
    """Print a row; whether everything passed."""
    start = time.perf_counter()
    code, output = _run(tests, environment)
    seconds = time.perf_counter() - start
    if code:
        print(f"\n== {name}\n{_summary(output)}", file=sys.stderr)
    counts = _counts(output)
    cells = [name, *(str(counts.get(one, 0)) for one in _COUNTS), f"{seconds:.0f} s"]
    killed = 0
    if kills is None:
        cells.append("")
    else:
        killed, output = _run(kills, environment)
        found = re.search(r"^ingesting: seed \d+; (.* runs?);.*; (.*) faults;", output, re.M)
        cells.append(f"{found[2]} in {found[1]}" if found and not killed else "wrong")
        if killed:
            print(f"\n== {name}\n{output[-2000:]}", file=sys.stderr)
    print("| " + " | ".join([*cells, time.strftime("%Y-%m-%d")]) + " |", flush=True)
    return not code and not killed


def _environment(name: str) -> str:
    """The Python of this environment."""
    folder = servers.cache() / name
    python = str(folder / "bin" / "python")
    if not Path(python).exists():
        venv.create(folder, with_pip=True)
    return python


def _lowest() -> str:
    """The Python with the lowest versions, and the tree."""
    python = _environment("lowest")
    _pip(python, "install", "uv")  # pip takes the newest versions only
    lowest = ("--resolution", "lowest-direct", "--upgrade", "-e", f"{_ROOT}[dev]")
    subprocess.run([python, "-m", "uv", "pip", "install", "-p", python, *lowest], check=True)
    return python


def _pip(python: str, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", "--quiet", *arguments], check=True)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str]:
    done = subprocess.run(
        command,
        cwd=_ROOT,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


def _counts(output: str) -> dict[str, int]:
    """Of pytest's last line."""
    last = (output.strip().splitlines() or [""])[-1]
    return {name: int(count) for count, name in re.findall(r"(\d+) ([a-z]+?)s?\b", last)}


def _summary(output: str) -> str:
    """What failed and what was skipped, without the tracebacks."""
    lines = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return "\n".join(lines) or output[-2000:]


if __name__ == "__main__":
    sys.exit(main())
