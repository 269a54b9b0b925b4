"""Progress on the terminal: bars, and spinners with the time that has passed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from jetspark.cli import console

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn


@contextmanager
def progress_bar(
    label: str, *columns: ProgressColumn, **task: Any
) -> Iterator[Callable[..., None]]:
    """Show a progress bar on the terminal during the block.

    `task`: further fields of rich's task, such as `total`. Call the yielded function with the
    fields that have changed, such as `completed=10`.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *columns,
        TimeRemainingColumn(),
        console=console.err,
        transient=True,
        disable=not console.is_live(),
    ) as display:
        yield partial(display.update, display.add_task(label, **task))


@contextmanager
def spinner(description: str, *, quiet: bool = False) -> Iterator[None]:
    """Show a spinner on the terminal while the block, a slow operation, runs."""
    with spinner_lines(quiet) as display:
        display.add_task(description, total=None)
        yield


def spinner_lines(quiet: bool) -> Progress:
    """Make a display for the terminal: a line for each task, with a spinner and the time so far.

    It shows nothing if `quiet`, and where standard error is no terminal.
    """
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console.err,
        transient=True,
        disable=quiet or not console.is_live(),
    )
