"""The tests against every supported line of nats-server: `python scripts/matrix.py`.

Runs `pytest -m "server and not spark"` once a line, with what is given behind `--` added, and
prints a table. The servers come from `scripts/servers.py`. Standard library only.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import servers

_ROOT = Path(__file__).parent.parent
_COUNTS = ("passed", "failed", "error", "skipped")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", nargs="+", default=servers.LINES, metavar="LINE")
    parser.add_argument("pytest", nargs="*", metavar="ARGUMENT", help="for pytest, behind --")
    options = parser.parse_args()
    rows = []
    worst = 0
    for line in options.lines:
        binary = servers.server(line)
        if isinstance(binary, str):
            rows.append([line, binary])
            continue
        start = time.perf_counter()
        code, output = _test(binary, options.pytest)
        seconds = time.perf_counter() - start
        counts = _counts(output)
        rows.append([line, *(str(counts.get(name, 0)) for name in _COUNTS), f"{seconds:.0f} s"])
        if code:
            worst = 1
            print(f"\n== nats-server {line}\n{_summary(output)}", file=sys.stderr)
        print(" ".join(rows[-1]), file=sys.stderr, flush=True)
    print("| nats-server | " + " | ".join(_COUNTS) + " | time |")
    print("|---|" + "---|" * (len(_COUNTS) + 1))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    return worst


def _test(binary: Path, arguments: list[str]) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "server and not spark", *arguments],
        cwd=_ROOT,
        env=os.environ | {"JETSPARK_NATS_SERVER": str(binary)},
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
