"""Where commands print: results on standard output, everything else on standard error."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

# No highlighting: rich would colour digits at random. Lines are not cut at the width of the
# terminal (soft_wrap below), since people copy URLs and paths out of them.
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def say(*lines: Text | str) -> None:
    """Prints lines on standard output, in one piece; strings are not taken for markup."""
    text = Text("\n").join(Text(line) if isinstance(line, str) else line for line in lines)
    out.print(text, soft_wrap=True)


def field(label: str, value: str, remark: str = "") -> Text:
    """A line `label  value  (remark)`, for a few facts below each other."""
    line = Text.assemble((f"  {label:<7}", "dim"), value)
    return line.append(f"  ({remark})", style="dim") if remark else line


def fail(sentence: str) -> None:
    """Prints one red sentence on standard error."""
    err.print(Text(sentence, style="red"), soft_wrap=True)
