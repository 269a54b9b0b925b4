"""docs/kafka-options.md: every option of Spark's Kafka connector is there, and ours exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jetspark.errors import ConfigError
from jetspark.options.names import spark_name
from jetspark.options.scopes import CONNECTION, SourceScope, StreamSinkScope, parsers_of
from jetspark.options.spark_options import _KAFKA_OPTIONS
from jetspark.spark.source.options import parse_options
from jetspark.spark.stream_sink.options import parse_sink_options

_OPTIONS = {*CONNECTION, *parsers_of(SourceScope), *parsers_of(StreamSinkScope)}
PAGE = Path(__file__).parents[2] / "docs" / "kafka-options.md"
_KNOWN = set(map(spark_name, {**CONNECTION, **parsers_of(SourceScope)}))
# As Spark 4.3's guide to the connector lists them.
READING = [
    *("kafka.bootstrap.servers", "assign", "subscribe", "subscribePattern"),
    *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
    *("startingOffsetsByTimestampStrategy", "failOnDataLoss", "includeHeaders"),
    *("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"),
    *("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
    *("minPartitions", "maxRecordsPerPartition", "groupIdPrefix", "kafka.group.id"),
]
WRITING = ["topic", "includeHeaders"]
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    return [line.strip("|").split(" | ") for line in lines]


def quoted(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def test_every_option_and_column_of_the_connector_has_its_row() -> None:
    left = {name for row in rows() for name in quoted(row[0])}
    assert {*READING, *WRITING, *COLUMNS} <= left


def test_what_stands_on_the_right_is_there() -> None:
    known = {
        *_KNOWN,
        *map(spark_name, parsers_of(StreamSinkScope)),
        "lag_by_stream",
        "LagListener",
        "latestOffset",
    }
    columns = {"subject", "data", "stream", "seq", "timestamp", "headers"}
    for row in rows():
        if row[0].strip() == "Kafka":
            continue
        for name in quoted(row[1]):
            of_ours = [one for one in known if one.startswith(name.rstrip("…"))]
            assert of_ours if name.endswith("…") else name in known | columns, name
        if "the same" in row[1]:
            assert quoted(row[0]) <= set(_KNOWN)


def test_options_of_kafka_are_refused_with_our_name() -> None:
    for name in {*READING} - {*_KNOWN}:
        with pytest.raises(ConfigError, match="of Spark's Kafka connector is"):
            parse_options({"stream": "S", name: "x"})
    with pytest.raises(ConfigError, match="'topic' of Spark's Kafka connector is subject here"):
        parse_sink_options({"stream": "S", "topic": "x"})
    with pytest.raises(ConfigError, match=r"'kafka\.linger\.ms' is for Kafka"):
        parse_sink_options({"stream": "S", "kafka.linger.ms": "5"})
    for hint in _KAFKA_OPTIONS.values():
        assert set(re.findall("\x02(\\w+)\x03", hint)) <= _OPTIONS
