"""What the long forms of tests share: figures that print themselves, and a command line."""

from __future__ import annotations

import argparse
import asyncio
import inspect
import logging
import signal
import sys
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints


@dataclass
class Figures:
    """What a campaign did. Its text names each figure that is not zero."""

    wrong: list[str] = field(default_factory=list)
    """What must not be, a sentence each."""
    seconds: float = 0.0

    def __str__(self) -> str:
        told = [_told(one.name.replace("_", " "), getattr(self, one.name)) for one in fields(self)]
        return "; ".join([*filter(None, told[1:]), f"{len(self.wrong)} wrong"])


def _told(name: str, value: Any) -> str:
    match value:
        case Counter():
            counts = (f"{count:,} {what}" for what, count in sorted(value.items()))
            return f"{name}: {', '.join(counts)}" if value else ""
        case float():
            return f"{name} {value:.2f}" if value else ""
        case int():
            return f"{value:,} {name}" if value else ""
        case Collection():
            return f"{len(value):,} {name}" if value else ""
    return f"{name}: {value}"


def command(
    campaign: Callable[..., Any], arguments: Sequence[str] | None = None, **choices: Collection[str]
) -> int:
    """Run a campaign as the command line says, and print its figures: 1 when something was wrong.

    The parameters of `campaign` are the options: those without a default, and keywords that are
    given `choices`, come by position, the others by name.
    """
    module = inspect.getmodule(campaign)
    parser = argparse.ArgumentParser(description=module.__doc__ if module else None)
    types = get_type_hints(campaign)
    for name, parameter in inspect.signature(campaign).parameters.items():
        flag, default = f"--{name.replace('_', '-')}", parameter.default
        if default is parameter.empty:
            parser.add_argument(name, type=types[name], choices=choices.get(name))
        elif types[name] is bool:
            parser.add_argument(flag, action="store_true")
        else:
            of = types[name] if default is None else type(default)
            parser.add_argument(flag, type=of, default=default, choices=choices.get(name))
    options = parser.parse_args(arguments)
    logging.getLogger("jetspark").setLevel(logging.CRITICAL)
    # Told to end, it ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    figures = campaign(**vars(options))
    if inspect.iscoroutine(figures):
        figures = asyncio.run(figures)
    print(figures)
    print(*figures.wrong[:20], sep="\n", end="", file=sys.stderr)
    return 1 if figures.wrong else 0
