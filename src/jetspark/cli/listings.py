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

_MIN_WIDTH = 8  # of a column that is cut


def show_list(
    items: Sequence[T],
    columns: Mapping[str, Callable[[T], object]],
    *,
    as_json: bool,
    document: Callable[[Any], object] = to_wire,
) -> None:
    """Print a table with a row for each item, or one JSON array of their documents.

    `columns`: for each heading a function that makes the cell of an item; `document`: makes the
    JSON document of an item.
    """
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
    """Print for each item its facts and a table of its parts, or one JSON array of all items.

    For example: a service's instances, each with its endpoints. `columns`: for each heading of that
    table a function that makes the cell of a part; `document`: makes the JSON document of an item.
    """
    if as_json:
        show_list(items, {}, as_json=True, document=document)
        return
    for index, item in enumerate(items):
        if index:
            say("")
        show_facts(facts(item))
        if rows := parts(item):
            say("")
            show_list(rows, columns, as_json=False)


def show_result(result: str | dict[str, object], document: object, *, as_json: bool) -> None:
    """Print the result of a command: a sentence or facts by label, or with --json a document."""
    if as_json:
        say_json(document, indent=True)
    elif isinstance(result, str):
        say(result)
    else:
        show_facts(result)


def show_table(*headings: str, rows: Iterable[Iterable[object]]) -> None:
    """Print a table whose columns are as wide as their longest cell.

    All columns but the first are right-justified. On a terminal that is too narrow, the widest
    columns are cut; but never the first, which names what the row is about, and none so far that
    cells that differ would look equal.
    """
    cells = [headings, *(tuple(escape_to_line(str(cell)) for cell in row) for row in rows)]
    columns = list(zip(*cells, strict=True))
    widths = [max(map(cell_len, column)) for column in columns]
    max_width = out.width - 2 * (len(widths) - 1)
    if out.is_terminal and sum(widths) > max_width:
        _narrow(widths, columns, max_width)
    lines = ["  ".join(_pad_cells(row, widths)) for row in cells]
    say(Text(lines[0], style="bold"), *lines[1:])


def _narrow(widths: list[int], columns: list[tuple[str, ...]], max_width: int) -> None:
    """Reduce the columns' widths, in place, until their sum is `max_width` at most.

    Each step takes one character from the widest column that may still be cut; without such a
    column the table stays too wide. The first column is never cut.
    """
    min_widths = [widths[0], *map(_find_min_width, columns[1:])]
    while sum(widths) > max_width:
        wide = [index for index, width in enumerate(widths) if width > min_widths[index]]
        if not wide:
            return
        widths[max(wide, key=widths.__getitem__)] -= 1


def _find_min_width(column: Sequence[str]) -> int:
    """The least width of a column at which cells that differ still look different when cut.

    Columns are not cut to less than `_MIN_WIDTH` characters.
    """
    width, distinct = max(map(cell_len, column)), len({*column})
    while width > _MIN_WIDTH and len({_cut_cell(cell, width - 1) for cell in column}) == distinct:
        width -= 1
    return width


def _cut_cell(cell: str, width: int) -> str:
    """The cell, with an ellipsis at its end if it is wider."""
    return cell if cell_len(cell) <= width else f"{set_cell_size(cell, width - 1)}…"


def _pad_cells(row: Iterable[str], widths: list[int]) -> Iterator[str]:
    """Cut or pad the cells of a row to their widths; all but the first are right-justified."""
    for index, (text, width) in enumerate(zip(row, widths, strict=True)):
        cell = _cut_cell(text, width)
        padding = " " * (width - cell_len(cell))
        yield padding + cell if index else cell + padding


def show_facts(facts: Mapping[str, object], *, title: Text | None = None) -> None:
    """Print facts in lines of a name and a value; those without a value are left out."""
    texts = {
        name: escape_to_line(str(value)) for name, value in facts.items() if value not in (None, "")
    }
    width = max(map(len, texts))
    lines = [Text.assemble((f"{name:<{width}}  ", "dim"), text) for name, text in texts.items()]
    say(*([title] if title else []), *lines)
