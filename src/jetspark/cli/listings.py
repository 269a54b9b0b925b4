"""Tables, facts and single results, for people or as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from jetspark.cli.console import escape_to_line, out, say, say_json
from jetspark.documents.document import to_wire

P = TypeVar("P")
T = TypeVar("T")

_NARROW = 8  # cells of a column that is not cut further


def show_list(
    items: Sequence[T],
    columns: Mapping[str, Callable[[T], object]],
    *,
    as_json: bool,
    document: Callable[[Any], object] = to_wire,
) -> None:
    """Print a table with a row for each item, or one JSON array of their documents."""
    if as_json:
        say_json([document(item) for item in items], indent=True)
    else:
        rows = ([cell(item) for cell in columns.values()] for item in items)
        show_table(*columns, rows=rows)


def show_infos(
    items: Sequence[T],
    facts: Callable[[T], dict[str, object]],
    parts: Callable[[T], Sequence[P]],
    columns: Mapping[str, Callable[[P], object]],
    *,
    as_json: bool,
    document: Callable[[Any], object] = to_wire,
) -> None:
    """Print facts of each item and a table of its parts, or one JSON array of the documents."""
    if as_json:
        say_json([document(item) for item in items], indent=True)
        return
    for index, item in enumerate(items):
        if index:
            say("")
        show_facts(facts(item))
        if rows := parts(item):
            say("")
            show_list(rows, columns, as_json=False)


def show_result(result: str | dict[str, object], document: object, *, as_json: bool) -> None:
    """Print a sentence or facts for people, or a JSON document."""
    if as_json:
        say_json(document, indent=True)
    elif isinstance(result, str):
        say(result)
    else:
        show_facts(result)


def show_table(*headings: str, rows: Iterable[Iterable[object]]) -> None:
    """Print columns as wide as their longest cell, all but the first right-justified.

    On a terminal that is too narrow the widest are cut, but not the first one, which names what the
    row is about, and none so far that different cells look equal.
    """
    cells = [headings, *(tuple(escape_to_line(str(cell)) for cell in row) for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    room = out.width - 2 * (len(widths) - 1) if out.is_terminal else sum(widths)
    if sum(widths) > room:
        _narrow(widths, list(zip(*cells, strict=True)), room)
    lines = ["  ".join(_padded(row, widths)) for row in cells]
    say(Text(lines[0], style="bold"), *lines[1:])


def _narrow(widths: list[int], columns: list[tuple[str, ...]], room: int) -> None:
    """Cut the widest columns, until all fit into the room, or no more can be cut."""
    min_widths = [widths[0], *map(_least_width, columns[1:])]
    while sum(widths) > room:
        wide = [index for index, width in enumerate(widths) if width > min_widths[index]]
        if not wide:
            return
        widths[max(wide, key=widths.__getitem__)] -= 1


def _least_width(column: Sequence[str]) -> int:
    """The least width at which the cells differ that are different."""
    width, distinct = max(map(cell_len, column)), len({*column})
    while width > _NARROW and len({_cut(cell, width - 1) for cell in column}) == distinct:
        width -= 1
    return width


def _cut(cell: str, width: int) -> str:
    return cell if cell_len(cell) <= width else f"{set_cell_size(cell, width - 1)}…"


def _padded(row: Iterable[str], widths: list[int]) -> Iterator[str]:
    for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
        cell = _cut(cell, width)
        space = " " * (width - cell_len(cell))
        yield space + cell if index else cell + space


def show_facts(facts: dict[str, object], *, title: Text | None = None) -> None:
    """Print names and values in lines, without empty values; below a title, if any."""
    texts = {
        name: escape_to_line(str(value)) for name, value in facts.items() if value not in (None, "")
    }
    width = max(map(len, texts))
    lines = [Text.assemble((f"{name:<{width}}  ", "dim"), text) for name, text in texts.items()]
    say(*([title] if title else []), *lines)
