"""Dotted names of our modules in backquotes, as `ranges.reader`, are those of the code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
# Properties of tables, and the logger of frames.
NO_CODE = {"jetspark.written", "jetspark.rewriting", "jetspark.trace"}
# A name of nats-py, of which an error says what ours is.
OF_NATS_PY = {"jetspark.errors.TimeoutError"}


def is_there(name: str) -> bool:
    """Whether this is a module of ours, or a name in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            if not hasattr(value, part):
                return part in getattr(value, "__annotations__", {})
            value = getattr(value, part)
        return True
    return False


def names_in(page: Path) -> list[str]:
    """In full. The page of the architecture leaves out the package."""
    names = re.findall(
        r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\([^`]*\))?`", page.read_text("utf-8")
    )
    if page.stem == "architecture":
        ours = [name for name in names if not re.search(r"\.(?:py|c|h|md)$", name)]
        names = [f"jetspark.{name.removeprefix('jetspark.')}" for name in ours]
    return [name for name in names if name.startswith("jetspark.")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_name_on_a_page_is_in_the_code(page: Path) -> None:
    names = set(names_in(page)) - NO_CODE - OF_NATS_PY
    assert [name for name in sorted(names) if not is_there(name)] == []


def test_a_name_that_is_gone_is_noticed() -> None:
    assert is_there("jetspark.errors.ConfigError")
    assert not is_there("jetspark.ranges.gone")
    assert not is_there("jetspark.errors.gone")
