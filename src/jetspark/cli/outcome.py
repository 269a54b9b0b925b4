"""How `ingest`, `replay` and `run` report their result: for people, for programs, or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from cyclopts import Parameter
from rich.text import Text

from jetspark.cli import console

QuietOption: TypeAlias = Annotated[bool, Parameter(name=("--quiet", "-q"), negative=())]
JsonOutputOption: TypeAlias = Annotated[
    bool, Parameter(name=("--json-output", "--json"), negative=())
]
# For commands where --json means something else.
JsonOutputFlag: TypeAlias = Annotated[bool, Parameter(name=("--json-output",), negative=())]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`quiet`: print only errors, and JSON if requested. `as_json`: one document at the end, on
    standard output, whether the work was done or stopped."""

    quiet: bool = False
    as_json: bool = False

    def note(self, sentence: str) -> None:
        """Print a line on standard error during the work."""
        if not self.quiet:
            console.err.print(Text(sentence), soft_wrap=True)

    def tell(self, *sentences: str, **facts: object) -> None:
        """Print the result: sentences for people, or facts for programs."""
        if self.as_json:
            console.say_json(facts)
        elif not self.quiet:
            console.say(*sentences)
