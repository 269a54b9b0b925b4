"""A wrong text of any option is refused under the option's name on the surface where it stands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jetspark.cli import app
from jetspark.errors import ConfigError
from jetspark.options.names import in_spark, on_command_line, spark_name
from jetspark.options.parsers import Parser
from jetspark.options.scopes import (
    ENDINGS,
    STARTS,
    ConnectionScope,
    PayloadScope,
    SourceScope,
    StreamSinkScope,
    TableOptions,
    TableReadScope,
    parsers_of,
)
from jetspark.spark.failures import names_of_spark
from jetspark.spark.pipelines.pipeline_file import read_pipeline
from jetspark.spark.source.options import parse_options
from jetspark.spark.stream_sink.options import parse_sink_options
from jetspark.spark.table_sink.option_texts import parse_lakehouse_options
from jetspark.tables.formats import Format

BAD_TEXTS = ("", "no such value", "-1", "*", "a..b", "[", "http://u:p@h:1", "nats://u:p@h")
SOURCE = (SourceScope, PayloadScope, ConnectionScope)


def bad_text(name: str, parser: Parser[Any]) -> str | None:
    """A text that an option does not take; None if it takes all of them."""
    for text in BAD_TEXTS:
        try:
            parser(name, text)
        except ConfigError:
            return text
    return None


def mistakes(*of_scopes: type) -> list[tuple[str, str]]:
    """The options of scopes, each with a text that it does not take."""
    options = {name: parser for scope in of_scopes for name, parser in parsers_of(scope).items()}
    texts = ((name, bad_text(name, parser)) for name, parser in options.items())
    return [(name, text) for name, text in texts if text is not None]


def of_source(options: dict[str, str]) -> object:
    return parse_options({"stream": "S", **options})


def of_sink(options: dict[str, str]) -> object:
    return parse_sink_options({"stream": "S", **options})


def of_table(options: dict[str, str]) -> object:
    return parse_lakehouse_options(Format.DELTA, {"path": "/lake/x", **options})


@pytest.mark.parametrize(
    ("parse", "name", "text"),
    [
        *((of_source, *mistake) for mistake in mistakes(*SOURCE)),
        *((of_sink, *mistake) for mistake in mistakes(StreamSinkScope, ConnectionScope)),
        *((of_table, *mistake) for mistake in mistakes(TableOptions, TableReadScope)),
    ],
)
def test_in_spark_and_python(
    parse: Callable[[dict[str, str]], object], name: str, text: str
) -> None:
    with pytest.raises(ConfigError) as refused, names_of_spark():
        parse({spark_name(name): text})
    error = refused.value
    assert error.option == name
    assert str(error).startswith(f"Option {in_spark(name)}")
    assert error.sentence().startswith(name)
    assert error.sentence(on_command_line).startswith(on_command_line(name))


TABLE = 'from = "s"\nformat = "jetspark-delta"\n'
STREAM = 'from = "s"\nformat = "jetstream"\nstream = "T"\nsubject = "t"\n'


def pipeline_file(*, source: str = "", sink: str = f'{TABLE}path = "lake/x"\n') -> str:
    return f'checkpoint = "c"\n[sources.s]\nstream = "S"\n{source}\n[sinks.t]\n{sink}\n'


def replace_key(text: str, name: str, line: str) -> str:
    """The text of a table with a line for this key in place of one that it may have."""
    lines = [old for old in text.splitlines() if not old.startswith(f"{name} = ")]
    return "\n".join([*lines, line])


@pytest.mark.parametrize(
    ("section", "name", "text"),
    [
        *(("source", *mistake) for mistake in mistakes(*SOURCE)),
        *((STREAM, *mistake) for mistake in mistakes(StreamSinkScope)),
        *((TABLE, *mistake) for mistake in mistakes(TableOptions)),
    ],
)
def test_in_a_pipeline_file(section: str, name: str, text: str, tmp_path: Path) -> None:
    line = f"{name} = {json.dumps(text)}"
    if section == "source":
        content = pipeline_file(source=line)
        if name == "stream":
            content = content.replace('stream = "S"\n', "")
    else:
        path = 'path = "lake/x"\n' if section == TABLE else ""
        content = pipeline_file(sink=replace_key(f"{section}{path}", name, line))
    file = tmp_path / "p.toml"
    file.write_text(content, "utf-8")
    with pytest.raises(ConfigError) as refused:
        read_pipeline(file, {})
    message = str(refused.value)
    assert message.startswith(f"{file}:{content.splitlines().index(line) + 1}: ")
    assert name in message
    assert spark_name(name) == name or spark_name(name) not in message


ELSEWHERE = {"stream", *STARTS, *ENDINGS}
"""Options for which the command line has an argument, and flags that ask the server."""


@pytest.mark.parametrize(
    ("name", "text"),
    [mistake for mistake in mistakes(*SOURCE, TableOptions) if mistake[0] not in ELSEWHERE],
)
def test_on_the_command_line(
    name: str, text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flag = on_command_line(name)
    code = app.run(["ingest", "S", "--to", f"{tmp_path}/x", f"{flag}={text}"])
    error = capfd.readouterr().err
    assert code in (app.FAILED, app.WRONG_USAGE)
    assert flag in error
    assert spark_name(name) == name or spark_name(name) not in error
