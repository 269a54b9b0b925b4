"""docs/compared.md: every feature has a cell for everybody, and ours are rows of docs/parity.md."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
WHERE = re.compile(r"`[\w./-]+(?::\d+)?`")


def rows() -> list[list[str]]:
    lines = (DOCS / "compared.md").read_text("utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [each for each in cells if len(each) == 9 and set(each[1]) != {"-"}]


def test_every_cell_says_where_it_was_read_or_that_it_was_not() -> None:
    found = [row for row in rows() if row[0] != "feature"]
    assert len(found) > 50
    for name, ours, *others in found:
        assert ours, name
        for cell in others:
            known = cell.startswith("–") or cell in ("Orbit", "not checked", "the language blocks")
            assert known or WHERE.search(cell), f"{name}: {cell}"


def test_our_cells_name_rows_of_the_parity_page() -> None:
    parity = (DOCS / "parity.md").read_text("utf-8")
    for name, ours, *_ in rows():
        for row in re.findall(r"\b[CJWKVS]\d+\b", ours):
            assert f"| {row} |" in parity or "†" in ours, f"{name}: {row}"


def test_every_cell_about_ways_into_a_lakehouse_says_where_it_was_read() -> None:
    text = (DOCS / "compared.md").read_text("utf-8").partition("\n## Into a lakehouse")[2]
    lines = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    table = [row for row in cells if len(row) == 7 and row[0] != "feature"]
    assert len(table) > 15
    plain = (
        *("–", "not checked", "through other sinks", "a sink for each", "a call for each"),
        "in Python",
    )
    for name, _, *others in table:
        for cell in others:
            by = cell.startswith(
                (*plain, "20 and more in `io`", "yes, by the repository's license")
            )
            assert by or WHERE.search(cell), f"{name}: {cell}"
    assert any(row[1].startswith("–") for row in table)  # rows in which we are behind stay in
