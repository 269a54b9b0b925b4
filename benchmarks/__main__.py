"""The command line: every file in `suites/` is a sub-command."""

from __future__ import annotations

import argparse
import pkgutil
import signal
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from benchmarks import report, suites


def main() -> int:
    found = _suites()
    options = _parser(found).parse_args()
    # A polite kill cleans up as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    facts = report.circumstances(sys.argv[1:])
    sections: list[report.Section] = []
    try:
        for section in found[options.suite].run(options):
            sections.append(section)
            print(f"\n{report.table(section)}", flush=True)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"\n{report.footing(facts, sections)}")
    if options.json:
        report.write_json(options.json, facts, sections)
    return 0


def _suites() -> dict[str, ModuleType]:
    return {
        found.name: import_module(f"{suites.__name__}.{found.name}")
        for found in pkgutil.iter_modules(suites.__path__)
    }


def _parser(found: dict[str, ModuleType]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=suites.__doc__)
    commands = parser.add_subparsers(dest="suite", required=True, metavar="SUITE")
    for name, suite in found.items():
        help_line = (suite.__doc__ or "").partition("\n")[0]
        command = commands.add_parser(name, help=help_line, description=suite.__doc__)
        command.add_argument("--messages", type=int, default=1_000_000, metavar="N")
        command.add_argument("--size", type=int, default=128, metavar="BYTES")
        command.add_argument("--rounds", type=int, default=5, metavar="N")
        command.add_argument("--warm-up", type=int, default=20_000, metavar="N", dest="warm_up")
        command.add_argument(
            "--timeout", type=float, default=600, metavar="S", help="for one contestant, one round"
        )
        command.add_argument("--json", type=Path, metavar="FILE", help="write every round there")
        if hasattr(suite, "arguments"):
            suite.arguments(command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
