"""docs/parity.md names every row of the contract once, and only tests that exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROWS = [
    f"{letter}{n}"
    for letter, last in zip("CJWKS", (18, 19, 6, 5, 9), strict=True)
    for n in range(1, last + 1)
]
ROWS.insert(ROWS.index("J19") + 1, "J22")


def lines() -> list[list[str]]:
    text = (ROOT / "docs" / "parity.md").read_text("utf-8")
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if re.match(r"\| [CJWKVSAOD]\d", line)
    ]


@cache
def functions(path: str) -> set[str]:
    """Names of the functions in a file, wherever they stand."""
    text = (ROOT / path).read_text("utf-8")
    return set(re.findall(r"^ *(?:async )?def (\w+)\(", text, re.MULTILINE))


def test_every_row_stands_there_once() -> None:
    """Those of the first contract all; later ones as they are kept."""
    found = [row for row, *_ in lines()]
    assert found == sorted(set(found), key=lambda row: ("CJWKVSAOD".index(row[0]), int(row[1:])))
    assert set(ROWS) <= set(found)


def test_what_is_not_open_has_tests_that_exist() -> None:
    for row, name, tests in lines():
        named = re.findall(r"(tests/[\w/]+\.py)::(\w+)", tests)
        assert bool(named) != (name == "open"), row
        for path, function in named:
            assert function in functions(path), f"{row}: {path}::{function}"
