"""Options of the source: each honoured, each mistake one sentence, no secret shown."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StructField, StructType

from jetspark.errors import ConfigError
from jetspark.options.parsers import join_names, parse_columns
from jetspark.ranges.arrow import BUCKET_SCHEMA as ARROW_BUCKET_SCHEMA
from jetspark.ranges.arrow import SCHEMA as ARROW_SCHEMA
from jetspark.ranges.fixed_range import AtTime, resolve_position
from jetspark.spark.data_source import BUCKET_SCHEMA, SCHEMA, check_schema, source_schema
from jetspark.spark.source.options import parse_options
from jetspark.spark.source.payload_columns import payload_ddl
from jetspark.spark.source.position_options import Positions
from jetspark.spark.versions import in_arrow

BASE = {"stream": "ORDERS"}


def test_every_option_is_taken_whatever_its_case() -> None:
    every = {"SERVERS": "nats://a:1,tls://b:2", "stream": "ORDERS", "columns": "seq, data"}
    every |= {"subjects": " orders.eu.> , orders.us.* ", "failOnDataLoss": "False"}
    every |= {"startingoffsets": "7", "endingOffsets": "latest", "maxTriggerDelay": "2m"}
    every |= {"maxOffsetsPerTrigger": "100", "minOffsetsPerTrigger": "10"}
    every |= {"maxBytesPerTrigger": "5000", "minPartitions": "4", "maxRecordsPerPartition": "1000"}
    every |= {"maxRowsPerBatch": "10", "maxBytesPerBatch": "2048", "readTimeout": "1.5"}
    every |= {"user": "u", "password": "p", "connectTimeout": "3", "tlsHostname": "h"}
    options = parse_options(every | {"inboxPrefix": "_MY"})
    assert options.subjects == ("orders.eu.>", "orders.us.*")
    assert options.streams == ("ORDERS",)
    assert options.batch_start.of("ORDERS") == 7
    assert options.ending.of("ORDERS") == "latest"
    assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (100, 10)
    assert (options.max_bytes_per_trigger, options.max_trigger_delay) == (5000, 120.0)
    assert options.columns == ("seq", "data")
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
        ({"minPartitions": "0"}, "min_partitions must be a whole number of at least 1, not '0'"),
        ({"maxOffsetsPerTrigger": "1e3"}, "max_offsets_per_trigger must be a whole number"),
        ({"failOnDataLoss": "no"}, "fail_on_data_loss must be true or false, not 'no'"),
        ({"startingOffsets": "0"}, "starting_offsets must be earliest, latest or a sequence"),
        ({"startingOffsets": '{"S":0}'}, "must be earliest, latest or a sequence number of at"),
        ({"startingOffsets": '{"ORDERS":[]}'}, "at least 1 for 'ORDERS', not []."),
        ({"startingOffsets": '{"ORDERS":'}, "starting_offsets must be JSON such as"),
        ({"startingOffsets": '{"ORDER": 5}'}, "names ORDER, but what is read is ORDERS: give"),
        ({"endingTimestamp": '{"ORDERS": 0, "ORDER": 0}'}, "names ORDERS, ORDER, but what is"),
        ({"endingTimestamp": "99999999999999999"}, "ending_timestamp must be a time"),
        ({"minPartitions": "9" * 30}, "min_partitions must be 9223372036854775807 at most"),
        ({"startingOffsets": "9" * 5000}, "starting_offsets must be earliest, latest or a sequ"),
        ({"startingOffsets": str(2**64)}, "starting_offsets must be earliest, latest or a sequ"),
        ({"endingTimestamp": "9" * 5000}, "ending_timestamp must be a time (2026-01-31T12"),
        ({"maxTriggerDelay": "9" * 400 + "d"}, "max_trigger_delay must be 1000000000 seconds at"),
        ({"startingOffsets": "{}"}, "starting_offsets names no stream"),
        ({"startingTimestamp": "1795426000"}, "starting_timestamp is in milliseconds since 1970"),
        ({"endingOffsetsByTimestamp": '{"ORDERS": 1795426000}'}, "multiply seconds by 1000."),
        ({"startingTimestamp": "yesterday"}, "starting_timestamp must be a time (2026-01-31T12"),
        ({"streams": "A,B"}, "Give only one of stream, streams."),
        ({"columns": "seq,sbject"}, "there is no column 'sbject'; did you mean 'subject'?"),
        ({"columns": "seq,seq"}, "columns names 'seq' twice"),
        ({"maxTriggerDelay": "soon"}, "max_trigger_delay must be a time such as 15m"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "must be error, latest, not 'x'"),
        ({"connectTimeout": "1e300"}, "connect_timeout must be a number of seconds above 0 and"),
        ({"readTimeout": "inf"}, "read_timeout must be a number of seconds above 0"),
        ({"subjects": " , "}, "subjects is empty"),
        ({"subjects": "a..b"}, "subjects: Bad subject 'a..b': an empty token"),
        ({"subjects": "a.*,b,a.b"}, "'a.*' and 'a.b' overlap"),
        ({"servers": "http://x"}, "servers: "),
        ({"servers": "http://x"}, "the scheme must be one of"),
        ({"inboxPrefix": "a.>"}, "inbox_prefix: Bad subject"),
        ({"jetstreamDomain": "a.b"}, "jetstream_domain: Bad domain name"),
        ({"jetstreamDomain": "a", "jetstreamApiPrefix": "b"}, "only one of jetstream_domain, jet"),
        ({"tlsKeyFile": "k"}, "tls_key_file needs tls_cert_file"),
        ({"progressConsumer": "a b"}, "progress_consumer: Bad consumer name 'a b'"),
        ({"user": "u"}, "user and password go together"),
    ],
)
def test_mistakes_are_one_sentence(wrong: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options(BASE | wrong)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_and_bad_stream_names_are_refused() -> None:
    for wrong, says in (
        ({"servers": "nats://a"}, "stream is missing"),
        ({"stream": "a b"}, "^stream: Bad stream name 'a b': white space"),
        ({"bucket": "B", "keys": "a b"}, "^keys: Bad key name 'a b'"),
    ):
        with pytest.raises(ConfigError, match=says):
            parse_options(wrong)


@pytest.mark.parametrize(
    ("options", "kinds", "says"),
    [
        (BASE | {"maxOffsetsPerTrigger": "1"}, "batch", "is for readStream"),
        (BASE | {"startingOffsets": "latest"}, "batch", "cannot be latest"),
        (BASE | {"endingOffsets": "earliest"}, "batch streaming", "cannot be earliest"),
        (
            {"bucket": "B", "presentValues": "true", "endingOffsets": "5"},
            "streaming",
            "cannot be used with present_values",
        ),
        (BASE | {"maxTriggerDelay": "2m"}, "streaming", "needs min_offsets_per_trigger"),
        (
            BASE | {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "streaming",
            "is more than max_offsets_per_trigger",
        ),
    ],
)
def test_a_batch_and_a_stream_refuse_options_that_do_not_fit(
    options: dict[str, str], kinds: str, says: str
) -> None:
    for kind in kinds.split():
        with pytest.raises(ConfigError, match=says):
            getattr(parse_options(options), f"for_{kind}")()


def test_read_options_win_over_table_options() -> None:
    of_table = {"option.stream": "OLD", "option.minPartitions": "3", "provider": "jetstream"}
    options = parse_options({"stream": "NEW", "owner": "me", **of_table})
    assert (options.streams, options.min_partitions) == (("NEW",), 3)


def test_no_secret_in_a_repr_and_all_of_it_in_a_pickle() -> None:
    options = parse_options(BASE | {"user": "joe", "password": "s3cret"})
    assert "s3cret" not in repr(options)
    assert "s3cret" not in repr(options.connection)
    assert pickle.loads(pickle.dumps(options)) == options


def test_spark_and_arrow_agree_on_the_schema() -> None:
    for ours, arrow in ((SCHEMA, ARROW_SCHEMA), (BUCKET_SCHEMA, ARROW_BUCKET_SCHEMA)):
        assert in_arrow(ours).equals(arrow)


def test_a_schema_of_ones_own_is_refused() -> None:
    check_schema(SCHEMA, source_schema(parse_options(BASE)))
    some = source_schema(parse_options(BASE | {"columns": "seq, data"}))
    check_schema(some, some)
    with pytest.raises(ConfigError, match="fixed schema"):
        check_schema(StructType([StructField("seq", LongType())]), SCHEMA)


# -- which streams, and from where to where --------------------------------------------------


def test_streams_by_name_list_or_pattern() -> None:
    assert parse_options({"streams": "A, B"}).streams == ("A", "B")
    assert parse_options({"streamPattern": "ORD.*"}).stream_pattern == "ORD.*"
    with pytest.raises(ConfigError, match="is not a regular expression"):
        parse_options({"streamPattern": "("})
    with pytest.raises(ConfigError, match="names 'A' twice"):
        parse_options({"streams": "A,A"})


def test_starting_offsets_by_stream_name_exactly_the_streams() -> None:
    given = '{"A": 5, "B": "earliest", "C": "latest"}'
    options = parse_options({"streams": "A,B,C", "startingOffsets": given})
    starting = options.batch_start
    assert [starting.of(name) for name in "ABC"] == [5, "earliest", "latest"]
    with pytest.raises(ConfigError, match="but what is read is A, B, C, D: give"):
        parse_options({"streams": "A,B,C,D", "startingOffsets": given})
    of_pattern = parse_options({"streamPattern": ".*", "startingOffsets": given})
    with pytest.raises(ConfigError, match="names A, B, C, but what is read is A, B: give"):
        of_pattern.batch_start.check(["A", "B"])
    with pytest.raises(ConfigError, match="starting_offsets cannot be latest"):
        options.for_batch()


def test_times_in_both_forms() -> None:
    base = {"stream": "A"}
    text = parse_options(base | {"startingTimestamp": "2026-01-31T12:00:00.000000001Z"})
    milliseconds = parse_options(base | {"startingOffsetsByTimestamp": '{"A": 1769860800000}'})
    assert text.batch_start.of("A") == AtTime(1769860800_000000001)
    assert milliseconds.batch_start.of("A") == AtTime(1769860800_000000000)
    with pytest.raises(ConfigError, match="Give only one of starting_off"):
        parse_options(
            base | {"startingTimestamp": "0", "startingOffsets": "earliest"}
        ).for_streaming()


def test_a_time_is_a_sequence_or_by_strategy_the_end() -> None:
    asked: list[int] = []

    def sequence_at(ns: int) -> int | None:
        asked.append(ns)
        return 7 if ns < 100 else None

    assert resolve_position(AtTime(99), "A", sequence_at, none_is_latest=False) == 7
    assert resolve_position(AtTime(100), "A", sequence_at, none_is_latest=True) == "latest"
    with pytest.raises(ConfigError, match="has no message at or after 1970-01-01T00:00:00"):
        resolve_position(AtTime(100), "A", sequence_at, none_is_latest=False)
    assert resolve_position("earliest", "A", sequence_at, none_is_latest=False) == "earliest"
    assert asked == [99, 100, 100]
    assert Positions("x", 3).of("anything") == 3


# -- payloads ----------------------------------------------------------------------------------

AVRO = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}'
OF_AVRO = {"decode": "avro", "schema": AVRO}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"schema": AVRO}, "schema goes with decode"),
        ({"decode": "xml", "schema": AVRO}, "decode must be avro, protobuf, json, cloudevents"),
        (
            {"decode": "avro"},
            "need their schema: give schema, schema_file, or schema_name with regis",
        ),
        (OF_AVRO | {"schemaFile": "x"}, "not both"),
        ({"decode": "avro", "schemaFile": "/no/such"}, "The schema in /no/such cannot be read"),
        ({"decode": "avro", "schema": "{"}, "The Avro schema cannot be used: it is not JSON"),
        ({"decode": "avro", "schema": '"nothing"'}, "it does not define nothing"),
        (OF_AVRO | {"fields": "ib"}, "no field 'ib'; it has id"),
        (OF_AVRO | {"framing": "x"}, "framing must be none, confluent"),
        (OF_AVRO | {"compression": "x"}, "compression must be header"),
        (OF_AVRO | {"message": "R"}, "A message is named for Protobuf"),
        (OF_AVRO | {"columns": "seq"}, "needs the column data"),
        (OF_AVRO | {"framing": "nats", "columns": "data"}, "column headers"),
        ({"decode": "json", "schema": "a STRING, A INT"}, "A is there twice"),
        ({"decode": "json", "schema": "a STRNG"}, "no type STRNG (did you mean STRING"),
        ({"decode": "json", "schema": "a CHAR(3)"}, "is no type that payloads have"),
        (OF_AVRO | {"registryUser": "u"}, "registry_user goes with registry"),
        ({"decode": "avro", "schemaName": "n"}, "go with a registry"),
        (OF_AVRO | {"schemaName": "n"}, "or its name in the registry"),
        ({"framing": "confluent", "columns": "seq"}, "framing needs the column data"),
        ({"compression": "lz9"}, "compression must be header, none, gzip"),
    ],
)
def test_wrong_options_of_payloads_are_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says).replace(r"\ ", " ")):
        parse_options(BASE | options)


def test_options_of_payloads_are_sent_to_tasks_without_secrets() -> None:
    of_registry = {"registry": "https://registry", "registryUser": "u", "registryPassword": "s3c"}
    options = parse_options(BASE | {"decode": "avro", "schema": AVRO, **of_registry})
    assert "s3c" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options
    assert source_schema(options).names[-3:] == ["id", "_corrupt_record", "_corrupt_reason"]


def test_a_schema_of_json_is_ddl_or_a_json_schema(tmp_path: Path) -> None:
    options = {"stream": "S", "Decode": "json", "schema": "a INT", "compression": "gzip"}
    assert payload_ddl(parse_options(options).decoding) == "`a` int"
    document = {"type": "object", "properties": {"a": {"type": "array", "items": {}}, "b c": True}}
    (tmp_path / "a.json").write_text(json.dumps(document))
    options = {"stream": "S", "decode": "json", "schemaFile": str(tmp_path / "a.json")}
    assert payload_ddl(parse_options(options).decoding) == "`a` array<string>, `b c` string"
    with pytest.raises(ConfigError, match="become columns by a schema"):
        parse_options({"stream": "S", "decode": "json"})
    with pytest.raises(ConfigError, match="is for streams"):
        parse_options({"bucket": "B", "decode": "json", "schema": "a INT"})


@pytest.mark.parametrize("decode", ["json", "avro"])
def test_fields_named_as_columns_of_the_message_have_other_columns(decode: str) -> None:
    fields = ["timestamp", "SEQ", "data", "id"]
    schema = ", ".join(f"{one} INT" for one in fields)
    if decode == "avro":
        of_avro = [{"name": one, "type": "int"} for one in fields]
        schema = json.dumps({"type": "record", "name": "R", "fields": of_avro})
    options = BASE | {"decode": decode, "schema": schema, "rename": "timestamp=sent_at"}
    names = source_schema(parse_options(options)).names[-6:-1]
    assert names == ["sent_at", "payload_SEQ", "payload_data", "id", "_corrupt_record"]
    for rename in ("timestamp=seq", "timestamp=ID", "id", "id=a,id=b", "id=_jetspark_x"):
        with pytest.raises(ConfigError):
            parse_options(options | {"rename": rename})


@given(st.lists(st.text("ab ,`_-.", min_size=1).filter(str.strip), min_size=1, unique=True))
def test_a_list_of_columns_is_read_as_it_was_given(names: list[str]) -> None:
    assert parse_columns("keys", join_names(names)) == tuple(names)


def test_columns_may_be_written_with_blanks_and_backquotes() -> None:
    assert parse_columns("keys", " a , `b,c`,`d``e` , f`g") == ("a", "b,c", "d`e", "f`g")
    with pytest.raises(ConfigError, match="'b,c' twice"):
        parse_columns("keys", "`b,c`, a, `b,c`")
