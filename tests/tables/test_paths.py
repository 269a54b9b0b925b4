"""Names of folders in which a table is, and of those in it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.tables.conftest import Place, written

from jetspark.errors import ConfigError
from jetspark.spark.table_sink.option_texts import parse_lakehouse_options
from jetspark.tables.arguments import resolve_table
from jetspark.tables.batches import commit_files
from jetspark.tables.formats import Format

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])


@pytest.mark.full
@pytest.mark.parametrize("text", ["x~y", "~", "a b%20#?", "50%", "%7E", "ü/=", "a+b&c:d*"])
def test_a_table_with_any_text_as_a_partition_is_compacted(place: Place, text: str) -> None:
    place.make(SCHEMA, "p")
    for id_ in (1, 2):
        table = place.open()
        commit_files(table, written(table, [{"id": id_, "p": text}]))
    assert place.open().compact(10**8).removed == 2
    assert place.column("p") == {text: 2}


def test_a_value_with_a_tilde_keeps_no_others_from_being_compacted(place: Place) -> None:
    place.make(SCHEMA, "p")

    def add(*values: str) -> None:
        table = place.open()
        commit_files(table, written(table, [{"id": 1, "p": value} for value in values]))

    assert place.open().compact(10**8).removed == 0
    for _ in range(2):
        add("~", "a~b", "c")
    assert place.open().compact(10**8).removed == 6
    for _ in range(2):
        add("~", "a~b", "c", "d")
    of_tilde = 0 if place.format is Format.DELTA else 6
    assert place.open().compact(10**8).removed == 5 + of_tilde
    assert place.open().compact(10**8).removed == 0
    assert place.open().bytes_to_merge(10**8) == 0
    assert place.column("p") == {"~": 4, "a~b": 4, "c": 4, "d": 2}


@pytest.mark.parametrize("name", ["a#b", "a?b", "a%20b"])
@pytest.mark.parametrize("format_", list(Format))
def test_a_path_that_libraries_take_for_another_place_is_refused(
    tmp_path: Path, name: str, format_: Format
) -> None:
    place, good = str(tmp_path / name), str(tmp_path / "good")
    for options in (
        {"path": place},
        {"path": f"{place}/t"},
        {"path": f"{place}/{{p}}"},
        {"path": good, "quarantine": place},
        {"path": f"{good}/{{p}}", "defaultTable": place},
    ):
        with pytest.raises(ConfigError, match="take a folder of another name"):
            parse_lakehouse_options(format_, options)
    with pytest.raises(ConfigError, match="take a folder of another name"):
        resolve_table(place, format_, {})
    assert resolve_table(str(tmp_path / "a%b c"), format_, {})[1].path == str(tmp_path / "a%b c")
