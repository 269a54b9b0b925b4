"""A type checker accepts what the pages show, as it stands there."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from tests.pages.test_pages import ROOT, RUN

# A prompt takes functions without types, and another value of another type for a name.
PROMPT = (
    *("--allow-untyped-defs", "--allow-untyped-calls"),
    *("--allow-redefinition-new", "--local-partial-types"),
    "--follow-imports=silent",  # the package is not written for these settings
)
CACHE = ("--cache-dir", ".mypy_cache/pages")
WRONG = {"docs/from-nats-py.md": "shows what the errors say about names of nats-py"}


def test_mypy_accepts_the_snippets_of_each_page(tmp_path: Path) -> None:
    for name, blocks in RUN.items():
        typed = [textwrap.indent(block.text, "    ") for block in blocks if block.is_typed]
        if typed and name not in WRONG:
            module = name.removesuffix(".md").replace("/", "_").replace("-", "_")
            body = "async def page() -> None:\n" + "\n".join(typed)
            (tmp_path / f"{module}.py").write_text(body)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *PROMPT, *CACHE, "--no-error-summary", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == ""
