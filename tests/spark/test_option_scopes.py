"""The one table of options, and what is derived from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import options

from jetspark.errors import ConfigError
from jetspark.options.names import flag_name, in_spark, on_command_line, spark_name
from jetspark.options.scopes import SourceScope, TableOptions, spark_texts
from jetspark.spark.source.options import parse_options

PAGE = Path(__file__).parent.parent.parent / "docs" / "options.md"


def test_the_page_of_options_is_made_from_their_table() -> None:
    assert PAGE.read_text("utf-8") == options.page()


def test_an_option_has_one_name_on_each_surface() -> None:
    assert spark_name("on_bad_record") == "onBadRecord"
    assert spark_name("nkey_seed") == "nkeySecret"
    assert flag_name("on_bad_record") == "on-bad-record"
    assert on_command_line("servers") == "--server"


def test_each_surface_names_the_option_of_an_error_in_its_own_way() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_options({"stream": "S", "decode": "avro", "maxTriggerDelay": "soon"})
    error = refused.value
    assert (error.option, error.value) == ("max_trigger_delay", "soon")
    assert error.sentence(on_command_line).startswith("--max-trigger-delay must be a time")
    assert error.sentence(in_spark).startswith("'maxTriggerDelay' must be a time")
    assert str(error) == "max_trigger_delay must be a time such as 15m or 90s, not 'soon'."


def test_only_options_that_differ_from_their_defaults_go_to_spark() -> None:
    assert spark_texts(SourceScope()) == spark_texts(TableOptions()) == {}
    table = TableOptions(keys=("a", "b,c"), evolve=True, compact_every=0, partition_by=["x", "y"])
    assert spark_texts(table) == {
        "keys": "a,`b,c`",
        "evolve": "true",
        "compactEvery": "0",
        "partitionBy": "x,y",
    }
