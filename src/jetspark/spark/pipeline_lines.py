"""The lines of the parts of a pipeline file, for errors.

Read from the text, since Python's TOML parser keeps no positions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_HEADER = re.compile(r"\s*\[+\s*([^\]]+?)\s*\]")
_PART = re.compile(r"""(?:"[^"]*"|'[^']*'|[^."'\s])+""")
_KEY = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w.\s-])+?)\s*=""")
_TELLING = 4
"""Minimum length of a value that is searched for in a sentence without quotation marks."""


@dataclass(frozen=True)
class Places:
    """The lines of a file's tables and keys; empty for a pipeline without a file."""

    file: str = ""
    lines: Mapping[tuple[str, ...], int] = field(default_factory=dict, repr=False)

    def line(self, where: tuple[str, ...]) -> int | None:
        """The line of the key, else of the nearest table that contains it."""
        for length in range(len(where), 0, -1):
            if (line := self.lines.get(where[:length])) is not None:
                return line
        return None

    def told(self, where: tuple[str, ...], sentence: str) -> str:
        """The sentence after the file's name and the line."""
        if not self.file:
            return sentence
        line = self.line(where)
        return f"{self.file}{'' if line is None else f':{line}'}: {sentence}"


def read_places(file: str, text: str) -> Places:
    """The lines of tables and keys. A line in a long text may be mistaken for a key: harmless."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        where: tuple[str, ...] = ()
        if header := _HEADER.match(line):
            table = where = _path(header[1])
        elif key := _KEY.match(line):
            where = (*table, *_path(key[1]))
        for length in range(1, len(where) + 1):  # [a.b] begins a, too
            found.setdefault(where[:length], number)
    return Places(file, found)


def _path(dotted: str) -> tuple[str, ...]:
    """The parts of a key, each bare or quoted."""
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))


def meant_by(sentence: str, options: Mapping[str, str]) -> str | None:
    """The option of an error: the one that it names, or whose value it quotes."""
    named = re.search(r"option '([^']+)'", sentence, re.IGNORECASE)
    if named:
        return next((name for name in options if name.casefold() == named[1].casefold()), None)
    for mark in "'\"":
        for name, value in options.items():
            if value and f"{mark}{value}{mark}" in sentence:
                return name
    for name, value in options.items():
        # A name such as credsFile does not occur in a sentence about something else.
        if name != name.lower() and re.search(rf"\b{re.escape(name)}\b", sentence):
            return name
        if any(len(one) >= _TELLING and one in sentence for one in re.split(r"[,\s]+", value)):
            return name
    return None
