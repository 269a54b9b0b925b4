"""What a Python file imports: lazily, for type checking and by name too."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
_DYNAMIC = {"import_module", "__import__"}


def module_name(file: Path) -> str:
    """The dotted name of a file below `src`."""
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed(source: str) -> list[ast.AST]:
    """All nodes of the text of a module."""
    return list(ast.walk(ast.parse(source)))


@cache
def imported_modules(source: str, module: str, *, is_package: bool = False) -> set[str]:
    """The modules that `source`, the text of `module`, imports anywhere in it.

    `from jetspark.wire import frames` counts as jetspark.wire.frames when that is a module and
    as jetspark.wire otherwise.
    """
    package = module if is_package else module.rpartition(".")[0]
    found: set[str] = set()
    for node in parsed(source):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update(_from_import(node, package))
        elif isinstance(node, ast.Call) and _called(node.func) in _DYNAMIC and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                found.add(name.value)
    return found


def _from_import(node: ast.ImportFrom, package: str) -> Iterator[str]:
    base = node.module or ""
    if node.level:
        above = package.split(".")
        above = above[: len(above) - node.level + 1]
        base = ".".join([*above, base] if base else above)
    for alias in node.names:
        name = f"{base}.{alias.name}"
        yield name if _is_module(name) else base


def _is_module(name: str) -> bool:
    path = SOURCE.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
