"""Messages mention options by their marks (`named`, `switching`), so each surface shows its own
names: `--on-bad-record`, `'onBadRecord'`, `on_bad_record`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import jetspark
from jetspark.options.names import flag_name, spark_name
from jetspark.options.scopes import (
    ConnectionScope,
    PayloadScope,
    SourceScope,
    StreamSinkScope,
    TableOptions,
    TableReadScope,
)

PACKAGE = Path(jetspark.__file__).parent
SCOPES = (ConnectionScope, PayloadScope, SourceScope, StreamSinkScope, TableOptions, TableReadScope)
IN_PYTHON = {option.name for scope in SCOPES for option in fields(scope)}
IN_SPARK = {spark_name(name) for name in IN_PYTHON if "_" in name} | {"checkpointLocation"}
FLAGS = {f"--{flag_name(name)}" for name in IN_PYTHON} | {"--checkpoint", "--format", "--interval"}
OF_ONE_SURFACE = {
    "metrics/names.py": "the help of a metric",
    "nats_py_names.py": "names in Python, for those who come from nats-py",
    "options/scopes.py": "the table of options itself",
    "spark/pipelines/pipeline.py": "messages of `jetspark run` about its file",
    "spark/pipelines/pipeline_sinks.py": "messages about a pipeline file",
    "spark/pipelines/pipeline_tables.py": "messages about a pipeline file",
}


def sentences(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Texts of several words, but for docstrings, with the numbers of their lines."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in docstrings:
            continue
        if isinstance(node.value, str) and " " in node.value.strip():
            yield node.lineno, node.value


def names_of_surfaces(text: str, *, in_cli: bool) -> set[str]:
    """The options that a text mentions by their names on one surface."""
    words = set(re.findall(r"\w+", text.replace("trigger(availableNow=True)", "")))
    mentions = words & IN_SPARK | {name for name in words & IN_PYTHON if "_" in name}
    mentions |= {*re.findall(r"\b(?:option|without|same|leave) '(\w+)'", text)} & IN_PYTHON
    if not in_cli and "jetspark " not in text and not text.startswith(" --"):  # not in a command
        mentions |= {*re.findall(r"--[a-z][a-z-]*", text)} & FLAGS
    return mentions


def test_no_message_has_the_name_that_an_option_has_on_one_surface() -> None:
    mentions = {}
    for path in PACKAGE.rglob("*.py"):
        file = path.relative_to(PACKAGE).as_posix()
        if file in OF_ONE_SURFACE:
            continue
        for line, text in sentences(ast.parse(path.read_text("utf-8"))):
            if names := names_of_surfaces(text, in_cli=file.startswith("cli/")):
                mentions[f"{file}:{line}"] = names
    assert mentions == {}
