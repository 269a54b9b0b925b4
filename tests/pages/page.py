"""The pieces of a Markdown page that a reader runs, in their order.

A fenced block is, by its language:

- `python`: pasted into a Python prompt, the same one for the whole page. `print(…)  # text` says
  what is printed.
- `console`: typed into a shell, the same one for the whole page. In a block with `$ ` the other
  lines are what the command prints; in a block without it every line is a command.
- `text`: what the block before it prints. In what is shown `…` stands for anything, alone in a line
  for any lines.
- a file, whatever its language, when its first line is a comment with a path: `# orders.toml`.

An HTML comment before a block says what is special: `<!-- not run: reason -->`, or
`<!-- another terminal -->` for a command that goes on until the reader ends it with Ctrl-C.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!-- (.*) -->\s*\Z")
_FILE = re.compile(r"(?:#|--|//) ([\w./-]+\.\w+)$")
_PROMISE = re.compile(r"print\(.*\)  # (.*)$", re.MULTILINE)
_NOT_RUN = "not run: "
_ANOTHER_TERMINAL = "another terminal"
_ANYTHING = "…"


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    remark: str  # the HTML comment before it

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def reason(self) -> str:
        """Why it is not run; empty when it is."""
        return self.remark.removeprefix(_NOT_RUN) if self.remark.startswith(_NOT_RUN) else ""

    @property
    def in_another_terminal(self) -> bool:
        return self.remark == _ANOTHER_TERMINAL

    @property
    def file(self) -> str | None:
        """The path of the file that the block shows."""
        match = _FILE.match(self.text.partition("\n")[0])
        return match[1] if match else None

    @property
    def is_typed(self) -> bool:
        """True for Python that goes into the prompt."""
        return self.language == "python" and not self.reason and self.file is None

    @property
    def problem(self) -> str | None:
        """What keeps the block from being run, without a reason that the page gives."""
        if self.remark and not self.reason and not self.in_another_terminal:
            return f"the comment {self.remark!r} says nothing that the tests know"
        if self.reason or self.file or self.language in ("python", "console", "text"):
            return None
        return (
            f"a block of language {self.language!r} is no file (a first line such as "
            f"'# name.toml') and has no <!-- not run: reason -->"
        )

    @property
    def commands(self) -> list[tuple[str, str | None]]:
        """What to type into a shell, each with what it shall print (None: nothing is said)."""
        if not re.search(r"^\$ ", self.text, re.MULTILINE):
            return [(self.text, None)]
        found: list[tuple[str, str | None]] = []
        for piece in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            lines = piece.splitlines()
            end = 1
            while lines[end - 1].endswith("\\"):
                end += 1
            shown = "\n".join(lines[end:])
            found.append(("\n".join(lines[:end]), shown or None))
        return found


def read_page(file: Path, name: str) -> list[Block]:
    text = file.read_text("utf-8")
    blocks = []
    for match in _FENCE.finditer(text):
        before = text[: match.start()]
        remark = _COMMENT.search(before)
        blocks.append(
            Block(
                page=name,
                line=before.count("\n") + 1,
                language=match[1],
                text=match[2],
                remark=remark[1] if remark else "",
            )
        )
    assert len(blocks) * 2 == len(re.findall("^ *```", text, re.MULTILINE)), f"{name}: fences"
    return blocks


def prints_what_it_promises(code: str, printed: str) -> bool:
    """Every promise in its order; and nothing else, when every print promises something."""
    promises = [_words(promise) for promise in _PROMISE.findall(code)]
    only = len(promises) == len(re.findall(r"\bprint\b", code))
    between = " " if only else "(?: .*)? "
    pattern = between.join(map(_pattern, promises))
    if not only:
        pattern = f"(?:.* )?{pattern}(?: .*)?"
    return not promises or re.fullmatch(pattern, _words(printed), re.DOTALL) is not None


def is_as_shown(shown: str, printed: str) -> bool:
    pattern = ""
    for line in shown.rstrip().splitlines():
        pattern += r"(?:.*\n)*" if line.strip() == _ANYTHING else _pattern(line.rstrip()) + r"\s*\n"
    return re.fullmatch(pattern, printed.rstrip() + "\n") is not None


def _pattern(text: str) -> str:
    return ".*?".join(map(re.escape, text.split(_ANYTHING)))


def _words(text: str) -> str:
    return " ".join(text.split())
