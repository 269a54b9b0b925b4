"""Lines with others below them, drawn as a tree of text. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Line:
    """One line, and those below it. `wrong`: it tells of an error."""

    text: str
    below: list[Line] = field(default_factory=list)
    wrong: bool = False


def drawn(line: Line) -> Iterator[str]:
    """The lines of the tree, without control characters."""
    yield ("✗ " if line.wrong else "") + plain(line.text)
    for place, one in enumerate(line.below):
        last = place == len(line.below) - 1
        first, *rest = drawn(one)
        yield ("└─ " if last else "├─ ") + first
        yield from (("   " if last else "│  ") + text for text in rest)


def plain(text: str) -> str:
    """The text with control characters as escapes: names are given by others."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode()
        for c in text
    )
