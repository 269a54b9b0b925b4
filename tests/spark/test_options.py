"""Options of the source: each honoured, each mistake one sentence, no secret shown."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from jetspark.bulk.arrow import SCHEMA as ARROW_SCHEMA
from jetspark.errors import BadNameError, ConfigError
from jetspark.spark.options import parse_options
from jetspark.spark.schema import SCHEMA, check_schema

BASE = {"stream": "ORDERS"}


def test_every_option_is_taken_whatever_its_case() -> None:
    options = parse_options(
        {
            "SERVERS": "nats://a:1,tls://b:2",
            "stream": "ORDERS",
            "subjects": " orders.eu.> , orders.us.* ",
            "startingoffsets": "7",
            "endingOffsets": "latest",
            "maxOffsetsPerTrigger": "100",
            "minPartitions": "4",
            "maxRecordsPerPartition": "1000",
            "failOnDataLoss": "False",
            "maxRowsPerBatch": "10",
            "maxBytesPerBatch": "2048",
            "readTimeout": "1.5",
            "user": "u",
            "password": "p",
            "connectTimeout": "3",
            "tlsHostname": "h",
            "inboxPrefix": "_MY",
        }
    )
    assert options.subjects == ("orders.eu.>", "orders.us.*")
    assert (options.starting_offsets, options.ending_offsets) == (7, "latest")
    assert options.max_offsets_per_trigger == 100
    assert (options.min_partitions, options.max_records_per_partition) == (4, 1000)
    assert options.fail_on_data_loss is False
    limits = options.limits()
    assert (limits.max_rows, limits.max_bytes, limits.timeout) == (10, 2048, 1.5)
    connection = options.connection
    assert [str(url) for url in connection.urls()] == ["nats://a:1", "tls://b:2"]
    assert (connection.user, connection.password, connection.connect_timeout) == ("u", "p", 3.0)
    assert (connection.tls_hostname, connection.inbox_prefix) == ("h", "_MY")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"straem": "X"}, "Unknown option 'straem' for format jetstream; did you mean 'stream'?"),
        ({"qqq": "X"}, "Unknown option 'qqq' for format jetstream; known: servers, "),
        ({"minPartitions": "0"}, "'minPartitions' must be a whole number of at least 1, not '0'"),
        ({"maxOffsetsPerTrigger": "1e3"}, "'maxOffsetsPerTrigger' must be a whole number"),
        ({"failOnDataLoss": "no"}, "'failOnDataLoss' must be true or false, not 'no'"),
        ({"startingOffsets": "0"}, "'startingOffsets' must be earliest, latest or a sequence"),
        ({"startingOffsets": '{"S":1}'}, "'startingOffsets' must be earliest, latest or a seq"),
        ({"readTimeout": "inf"}, "'readTimeout' must be a number of seconds above 0"),
        ({"subjects": " , "}, "'subjects' is empty"),
        ({"subjects": "a..b"}, "Bad subject 'a..b': an empty token"),
        ({"subjects": "a.*,b,a.b"}, "'a.*' and 'a.b' overlap"),
        ({"servers": "http://x"}, "the scheme must be one of"),
        ({"user": "u"}, "user and password go together"),
    ],
)
def test_mistakes_are_one_sentence(wrong: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options(BASE | wrong)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_stream_has_to_be_named_well() -> None:
    with pytest.raises(ConfigError, match="'stream' is missing"):
        parse_options({"servers": "nats://a"})
    with pytest.raises(BadNameError):
        parse_options({"stream": "a b"})


def test_batch_and_streaming_refuse_each_others_options() -> None:
    with pytest.raises(ConfigError, match="is for readStream"):
        parse_options(BASE | {"maxOffsetsPerTrigger": "1"}).for_batch()
    with pytest.raises(ConfigError, match="cannot be latest"):
        parse_options(BASE | {"startingOffsets": "latest"}).for_batch()
    with pytest.raises(ConfigError, match="cannot be earliest"):
        parse_options(BASE | {"endingOffsets": "earliest"}).for_batch()
    with pytest.raises(ConfigError, match=r"is for spark\.read;"):
        parse_options(BASE | {"endingOffsets": "5"}).for_streaming()


def test_a_tables_options_come_twice_and_those_of_the_read_win() -> None:
    options = parse_options(
        {
            "stream": "NEW",
            "option.stream": "OLD",
            "option.minPartitions": "3",
            "provider": "jetstream",
            "owner": "me",
        }
    )
    assert (options.stream, options.min_partitions) == ("NEW", 3)


def test_no_secret_in_a_repr_and_all_of_it_in_a_pickle() -> None:
    options = parse_options(
        BASE | {"user": "joe", "password": "s3cret", "servers": "nats://u:t0psecret@host"}
    )
    assert "s3cret" not in repr(options)
    assert "t0psecret" not in repr(options)
    assert "t0psecret" not in repr(options.connection)
    assert pickle.loads(pickle.dumps(options)) == options


def test_spark_and_arrow_agree_on_the_schema() -> None:
    assert to_arrow_schema(SCHEMA, timezone="UTC").equals(ARROW_SCHEMA)


def test_a_schema_of_ones_own_is_refused() -> None:
    check_schema(SCHEMA)
    with pytest.raises(ConfigError, match="fixed schema"):
        check_schema(StructType([StructField("seq", LongType())]))
