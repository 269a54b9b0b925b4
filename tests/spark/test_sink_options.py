"""Options for writing: names, values, what excludes what."""

from __future__ import annotations

import pytest

from jetspark.errors import ConfigError
from jetspark.options.names import spark_name
from jetspark.options.scopes import SourceScope, StreamSinkScope, parsers_of
from jetspark.spark.source.options import parse_options
from jetspark.spark.stream_sink.options import Guarantee, parse_sink_options

MINIMAL = {"stream": "S"}


def test_options_for_writing_are_refused_when_reading() -> None:
    for name in set(parsers_of(StreamSinkScope)) - set(parsers_of(SourceScope)):
        with pytest.raises(ConfigError, match=f"{name} is for writing"):
            parse_options(MINIMAL | {spark_name(name): "x"})


def test_sink_options_have_defaults_and_ignore_case_and_what_spark_adds() -> None:
    options = parse_sink_options(MINIMAL)
    assert options.guarantee is Guarantee.AT_LEAST_ONCE
    assert (options.subject, options.lanes, options.publish_timeout) == (None, 4, 60.0)
    options = parse_sink_options(
        {"STREAM": "S", "Guarantee": "Exactly_Once", "lanes": "2", "checkpointLocation": "/c"}
    )
    assert options.guarantee is Guarantee.EXACTLY_ONCE
    assert options.lanes == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "stream or bucket"),
        ({"stream": "S", "bucket": "B"}, "stream or bucket"),
        ({"stream": "a b"}, "Bad stream name"),
        ({"guarante": "x"}, "did you mean 'guarantee'"),
        ({"guarantee": "exacly-once"}, "did you mean 'exactly-once'"),
        ({"startingOffsets": "earliest"}, "starting_offsets is for reading"),
        ({"lanes": "2"}, "lanes is for guarantee exactly-once"),
        ({"prepareStream": "true"}, "prepare_stream is for guarantee exactly-once"),
        ({"guarantee": "exactly-once", "lanes": "0"}, "at least 1"),
        ({"subject": "a.*"}, "wildcard"),
        ({"sign": "x"}, "for the client only"),
    ],
)
def test_sink_options_that_cannot_work_are_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_sink_options(options if not options or "stream" in options else MINIMAL | options)


def test_a_query_is_named_by_its_option_or_its_checkpoint() -> None:
    exactly = MINIMAL | {"guarantee": "exactly-once"}
    assert parse_sink_options(exactly).name is None
    at = parse_sink_options(exactly | {"CHECKPOINTLOCATION": "file:///c/q"})
    assert at.name == parse_sink_options(exactly | {"checkpointLocation": "/c/q/"}).name
    assert str(at.name).endswith(" /c/q")
    both = exactly | {"checkpointLocation": "/c/q", "writerName": "bills"}
    assert parse_sink_options(both).name == "bills"
    with pytest.raises(ConfigError, match="writer_name is for streaming queries"):
        parse_sink_options(both | {"transactionId": "t"}).for_batch()


def test_exactly_once_batch_write_requires_a_transaction_id() -> None:
    exactly = MINIMAL | {"guarantee": "exactly-once"}
    with pytest.raises(ConfigError, match="transaction_id"):
        parse_sink_options(exactly).for_batch()
    named = parse_sink_options(exactly | {"transactionId": "load-7"})
    assert named.for_batch() is named
    with pytest.raises(ConfigError, match="identified by its checkpoint"):
        named.for_streaming()
    with pytest.raises(ConfigError, match="streaming queries"):
        parse_sink_options(exactly | {"transactionId": "t", "adoptLedger": "true"}).for_batch()


def test_bucket_sink_refuses_a_guarantee() -> None:
    options = parse_sink_options({"bucket": "B"})
    assert (options.bucket, options.stream) == ("B", "KV_B")
    with pytest.raises(ConfigError, match="guarantee is for streams"):
        parse_sink_options({"bucket": "B", "guarantee": "exactly-once"})


def test_no_secret_is_in_a_repr() -> None:
    options = parse_sink_options(MINIMAL | {"user": "u", "password": "pass-word-1"})
    assert "pass-word-1" not in repr(options)
    assert options.connection.password == "pass-word-1"
