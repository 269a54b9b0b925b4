"""The one table of options: each scope is a dataclass, and each field an option.

From it derive the names on all surfaces (`options.names`), the parsers of Spark's texts, the flags
of the command line with their help, the keys of a pipeline file, and docs/options.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from jetspark.connection.options import ConnectOptions, make_options
from jetspark.errors import named
from jetspark.kv_rules import check_bucket
from jetspark.options.names import spark_name
from jetspark.options.parsers import (
    Parser,
    Parsers,
    join_names,
    keep_text,
    one_of,
    parse_bool,
    parse_columns,
    parse_duration,
    parse_keys,
    parse_non_negative_int,
    parse_pattern,
    parse_positive_int,
    parse_proxy_url,
    parse_renames,
    parse_seconds,
    parse_servers,
    parse_streams,
    parse_subject,
    parse_subjects,
    parse_text,
)
from jetspark.options.spark_options import select_options, take_only_one
from jetspark.subjects import check_name

BACKFILLS = ("consumer", "snapshot", "snapshot-blocking-deletes")
STARTS = ("starting_offsets", "starting_timestamp", "starting_offsets_by_timestamp")
ENDINGS = ("ending_offsets", "ending_timestamp", "ending_offsets_by_timestamp")
"""Options for where reading begins and ends, of which only one each is given."""


_PARSERS_BY_TYPE: Parsers = {
    "bool": parse_bool,
    "int": parse_positive_int,
    "int | None": parse_positive_int,
    "float": parse_seconds,
    "tuple[str, ...]": parse_columns,
}
"""The parsers of fields that name none, by the field's type; `parse_text` for all others."""


def option(help: str, default: Any = None, *, parse: Parser[Any] | None = None) -> Any:
    """Define an option: a field of a scope, which is a dataclass of options.

    `help`: its description, in one sentence; `parse`: the parser of its text, by default that for
    the field's type.
    """
    return field(default=default, metadata={"help": help, "parse": parse})


def _parse_stream(_: str, text: str) -> str:
    """Take the text of an option as the name of a stream."""
    return check_name("stream", text)


def _parse_consumer(_: str, text: str) -> str:
    """Take the text of an option as the name of a consumer."""
    return check_name("consumer", text)


def _parse_bucket(_: str, text: str) -> str:
    """Take the text of an option as the name of a Key-Value bucket."""
    return check_bucket(text)


def parsers_of(scope: type) -> Parsers:
    """The parsers of the options of a scope (a dataclass of options), by name.

    An option without a parser of its own has that for its type.
    """
    return {
        option.name: option.metadata["parse"] or _PARSERS_BY_TYPE.get(str(option.type), parse_text)
        for option in fields(scope)
    }


def spark_texts(options: Any) -> dict[str, str]:
    """Turn options into texts by their names in Spark; those with their default are left out.

    `options`: an object of a scope, which is a dataclass of options.
    """
    return {
        spark_name(option.name): spark_text(value)
        for option in fields(options)
        if (value := getattr(options, option.name)) != option.default
    }


def spark_text(value: object) -> str:
    """Write the value of an option as the text that jetspark's formats for Spark parse."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return join_names(value)
    if isinstance(value, list):  # expressions such as day(timestamp), not names
        return ",".join(value)
    return str(value)


@dataclass(frozen=True, kw_only=True)
class ConnectionScope:
    """Options of the connection to the servers, for reading and writing."""

    servers: str | None = option(
        "URLs of servers, separated by commas; by default nats://127.0.0.1:4222. tls:// requires "
        "TLS.",
        parse=parse_servers,
    )
    context: str | None = option(
        "A context of the nats command, in place of servers; it is read on the driver.",
        parse=keep_text,
    )
    user: str | None = option(
        "The user's name. In a program for Spark the URL must not have it, since Spark shows URLs.",
        parse=keep_text,
    )
    password: str | None = option("The user's password.", parse=keep_text)
    token: str | None = option("A token, in place of user and password.", parse=keep_text)
    creds_file: str | None = option(
        "Path of a .creds file, which must exist on the executors, too.", parse=keep_text
    )
    creds: str | None = option("The text of a .creds file.", parse=keep_text)
    nkey_seed_file: str | None = option(
        "Path of a file with the seed of an NKey, which must exist on the executors, too.",
        parse=keep_text,
    )
    nkey_seed: str | None = option("The seed of an NKey.", parse=keep_text)
    jwt: str | None = option("The JWT that goes with the NKey.", parse=keep_text)
    proxy: str | None = option(
        "http://host:port (HTTP CONNECT) or socks5://host:port; a proxy with a login stands in a "
        "context.",
        parse=parse_proxy_url,
    )
    tls: bool = option("Require TLS.", False)
    tls_first: bool = option(
        "Begin TLS before the server's first bytes, as handshake_first asks for.", False
    )
    tls_ca_file: str | None = option(
        "PEM file of the authorities to trust; all TLS files must exist on the executors, too.",
        parse=keep_text,
    )
    tls_ca_dir: str | None = option("Folder with the authorities to trust.", parse=keep_text)
    tls_cert_file: str | None = option("PEM file with the client's certificate.", parse=keep_text)
    tls_key_file: str | None = option("PEM file with the certificate's key.", parse=keep_text)
    tls_key_password: str | None = option("The password of that key.", parse=keep_text)
    tls_hostname: str | None = option(
        "The name that the server's certificate must have.", parse=keep_text
    )
    connect_timeout: float = option(
        "Seconds within which a server must accept the connection.", 2.0
    )
    inbox_prefix: str = option(
        "Prefix of inboxes, for accounts that restrict them.", "_INBOX", parse=parse_subject
    )
    jetstream_domain: str | None = option(
        "Name of the JetStream domain.", parse=lambda name, value: check_name("domain", value)
    )
    jetstream_api_prefix: str | None = option(
        "Prefix of a JetStream API that is imported from another account.",
        parse=lambda name, value: parse_subject(name, value.removesuffix(".")),
    )


CONNECTION = parsers_of(ConnectionScope)


def connection_options(option_values: Mapping[str, Any]) -> ConnectOptions:
    """The connection to the servers, from all options of a Spark format. Raises ConfigError.

    `option_values`: parsed options by name, of which those of the connection are taken.
    """
    # Both name the JetStream API: only one of them may be set.
    take_only_one(option_values, ("jetstream_domain", "jetstream_api_prefix"))
    options = make_options(**select_options(option_values, CONNECTION))
    # Credentials files that the options name are read on each machine. Those of a context or of the
    # environment exist on the driver only: it reads them here.
    has_files = {"creds_file", "nkey_seed_file"} & option_values.keys()
    return options if has_files else options.with_contents()


@dataclass(frozen=True, kw_only=True)
class SchemaScope:
    """Options of the schema of payloads, their framing and their compression."""

    schema: str | None = option(
        "The payloads' schema, as text; or a compiled class for Protobuf (shop_pb2:Order); or "
        'columns ("id BIGINT, amount DOUBLE") for JSON, Debezium and the data of CloudEvents; or a '
        "JSON Schema for JSON and CloudEvents."
    )
    schema_file: str | None = option(
        "File with the schema: .avsc, .proto, a descriptor set of protoc, or the JSON of Debezium."
    )
    schema_name: str | None = option("Name of the schema in the registry.")
    schema_version: int | None = option(
        "Version of that schema; by default the latest when the run begins."
    )
    registry: str | None = option(
        "Registry with the schemas: https://host for Confluent's interface, or nats for one on the "
        "servers."
    )
    registry_user: str | None = option("User of the registry.", parse=keep_text)
    registry_password: str | None = option("The user's password.", parse=keep_text)
    registry_token: str | None = option(
        "Token of the registry, in place of a user.", parse=keep_text
    )
    registry_ca_file: str | None = option(
        "PEM file of the authorities to trust in the registry's certificate.", parse=keep_text
    )
    message: str | None = option("Message type of Protobuf; by default the first in the schema.")
    framing: str | None = option(
        "How each payload or its headers name the schema: none (the default), confluent, apicurio, "
        "azure or nats."
    )
    compression: str | None = option(
        "Compression of the payloads: gzip, zstd, snappy or none; by default, where they are read, "
        "as the header Content-Encoding says."
    )


@dataclass(frozen=True, kw_only=True)
class PayloadScope(SchemaScope):
    """Options of decoding payloads to columns."""

    decode: str | None = option(
        "Format of the payloads, avro, protobuf, cloudevents, debezium or json: their fields "
        "become columns."
    )
    fields: tuple[str, ...] = option("Fields to keep, separated by commas; by default all.", ())
    keep_payload: bool = option("Keep the payload as a column, too.", False)
    on_new_version: str | None = option(
        "When the schema has a new version in the registry: ignore it, or stop.",
        parse=one_of("ignore", "stop"),
    )
    unavailable_value: str | None = option(
        "Debezium's unavailable.value.placeholder, if it is not the default."
    )
    rename: str | None = option(
        "Columns with other names than their fields: timestamp=sent_at,data=body. By default a "
        "field that is named as a column of the message becomes payload_timestamp and so on.",
        parse=parse_renames,
    )


@dataclass(frozen=True, kw_only=True)
class SourceScope:
    """Options of format("jetstream") for reading."""

    stream: str | None = option("The stream to read.", parse=_parse_stream)
    streams: tuple[str, ...] = option(
        "Several streams, separated by commas.", (), parse=parse_streams
    )
    stream_pattern: str | None = option(
        "A regular expression that matches the whole names of the streams to read; streams that "
        "match later are read from their earliest message.",
        parse=parse_pattern,
    )
    bucket: str | None = option("A Key-Value bucket, in place of a stream.", parse=_parse_bucket)
    keys: tuple[str, ...] = option(
        "With bucket: only these keys, separated by commas; wildcards are allowed.",
        (),
        parse=parse_keys,
    )
    history: bool = option(
        "With bucket, batch only: all revisions, in place of the current values.", False
    )
    present_values: bool = option(
        "With bucket, streaming only: the changes are merged into a row for each key, so values "
        "that expired unread are no data loss.",
        False,
    )
    orders_by_seq: bool = option(
        "Streaming only: the sink orders its rows by seq, so a stream whose sequences begin anew "
        f"ends the query; ingest and run set it for tables with {named('sequence_by')} seq.",
        False,
    )
    subjects: tuple[str, ...] = option(
        "Only messages under these subjects, separated by commas (several need nats-server 2.10); "
        "wildcards are allowed.",
        (),
        parse=parse_subjects,
    )
    columns: tuple[str, ...] = option(
        "A selection of the message's columns, separated by commas, in that order; without data "
        "and headers the server does not send them.",
        (),
    )
    starting_offsets: str | None = option(
        "Where a new query begins: earliest, latest (streaming only), a sequence, or JSON of these "
        "by stream; a batch and a sole reader begin at the earliest, a streaming query at the "
        "latest."
    )
    starting_timestamp: str | None = option(
        f"In place of {named('starting_offsets')}: the first message stored at or after a time, "
        "such as 2026-01-31T12:00:00Z, or milliseconds since 1970."
    )
    starting_offsets_by_timestamp: str | None = option("Times by stream, as JSON.")
    starting_offsets_by_timestamp_strategy: str = option(
        "Where to begin if all messages are older than the time: error, or latest; a streaming "
        "query always refuses a time in the future.",
        "error",
        parse=one_of("error", "latest"),
    )
    ending_offsets: str | None = option(
        f"The end of the read, exclusive, in the form of {named('starting_offsets')}; in a "
        "streaming query with trigger(availableNow=True) only. By default latest."
    )
    ending_timestamp: str | None = option("The end as a time.")
    ending_offsets_by_timestamp: str | None = option("Ends by stream as times, as JSON.")
    max_offsets_per_trigger: int | None = option(
        "Streaming only: maximum number of sequences in one micro-batch, gaps included, divided "
        "among the streams in proportion to their waiting messages."
    )
    max_bytes_per_trigger: int | None = option(
        "Streaming only: maximum number of bytes in one micro-batch, as the stream stores them, "
        "estimated from the stream's average."
    )
    min_offsets_per_trigger: int | None = option(
        "Streaming only: wait for this many sequences, but no longer than "
        f"{named('max_trigger_delay')}."
    )
    max_trigger_delay: float = option(
        f"Time after the last batch for which {named('min_offsets_per_trigger')} waits, in seconds "
        "or as 15m.",
        15 * 60.0,
        parse=parse_duration,
    )
    min_partitions: int = option(
        "Minimum number of partitions, each of which is a task of Spark; fewer if there are fewer "
        "sequences.",
        1,
    )
    max_records_per_partition: int = option(
        "Maximum number of sequences in one partition; a batch has at most 10,000 partitions.",
        250_000,
    )
    fail_on_data_loss: bool = option(
        "Stop when messages or a stream that should have been read are gone; otherwise continue "
        "with what is still there, and log a warning.",
        True,
    )
    max_rows_per_batch: int = option(
        "Maximum number of rows in an Arrow batch that is passed to Spark.", 30_000
    )
    max_bytes_per_batch: int = option("Maximum number of bytes in such a batch.", 8 << 20)
    read_timeout: float = option(
        "Seconds without progress, reconnecting included, after which a task or the query fails.",
        60.0,
    )
    sole_reader: bool = option(
        "Read a work queue, and remove the messages that the checkpoint covers.", False
    )
    trim: bool = option(
        "Streaming only: remove from the stream what the checkpoint, and so the table, has; not "
        "what another consumer or a mirror has not read, and not with a second query that trims.",
        False,
    )
    keep: str | None = option(
        f"With {named('trim')}: how long messages are kept, such as 7d or 12h, or how many of the "
        "newest."
    )
    trim_unread: bool = option(
        f"With {named('trim')}: remove also what consumers, mirrors and sourcing streams may not "
        "have read.",
        False,
    )
    interest_consumer: str | None = option(
        "Streaming only: read a stream with retention interest through a consumer of this name.",
        parse=_parse_consumer,
    )
    progress_consumer: str | None = option(
        "Streaming only: name of a consumer that shows the query's progress to NATS tools.",
        parse=_parse_consumer,
    )
    available_now: bool = option(
        "Streaming only: read only the messages that are in the stream when the query starts; for "
        "Spark 4.0 and 4.1.",
        False,
    )
    backfill: str = option(
        "How a batch read, or the first micro-batch of a query, comes: through a consumer, or a "
        "snapshot (or snapshot-blocking-deletes, before nats-server 2.15).",
        BACKFILLS[0],
        parse=one_of(*BACKFILLS),
    )
    backup: str | None = option(
        "Batch only: the folder of a stream's backup, in place of a stream and a server."
    )
    table: str | None = option(
        "Batch only: the table that ingest makes of the stream, a folder, a URI or "
        "catalog:namespace.table; the rows are those of the table, and those of the messages that "
        "it does not have yet, each once. Options storage.… are for its storage."
    )
    table_format: str | None = option("With a table at a URI: delta or iceberg.")


@dataclass(frozen=True, kw_only=True)
class StreamSinkScope:
    """Options of format("jetstream") for writing."""

    stream: str | None = option("The stream to write to.", parse=check_name)
    bucket: str | None = option(
        "The bucket to write to, in place of a stream.", parse=_parse_bucket
    )
    subject: str | None = option("The subject of all rows.", parse=parse_subject)
    guarantee: str = option(
        "How often a row may be stored: at-least-once, effectively-once or exactly-once.",
        "at-least-once",
    )
    encode: str | None = option("Format of the payloads to make of columns.")
    publish_timeout: float = option(
        "Seconds without progress, reconnecting included, after which a task fails.", 60.0
    )
    lanes: int = option("exactly-once: how many partitions are copied in parallel.", 4)
    prepare_stream: bool = option(
        "exactly-once: add to the stream's configuration the settings that it lacks.", False
    )
    transaction_id: str | None = option(
        "exactly-once, batch: name of the write; a second write of this name changes nothing.",
        parse=check_name,
    )
    adopt_ledger: bool = option(
        "exactly-once, streaming: start although the ledger does not have the previous batch, or "
        "has an earlier query of this name; for one run.",
        False,
    )
    writer_name: str | None = option(
        "exactly-once, streaming: the query's name in the ledger, by which it is recognised when "
        "its checkpoint is lost; by default derived from the checkpoint's path.",
        parse=keep_text,
    )


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Options of format("jetspark-delta") and format("jetspark-iceberg") for writing."""

    partition_by: list[str] | None = option(  # noqa: RUF009  it calls `field`
        "Columns and transforms to partition a new table by: region, day(timestamp), hour(…), or, "
        "in Iceberg, month(…), year(…), bucket(16, id), truncate(4, name).",
        parse=keep_text,
    )
    merge_schema: bool = option(
        "Add columns that the table lacks, instead of refusing the rows.", False
    )
    evolve: bool = option(
        "Add a column for each new field of the payloads, and in Iceberg widen int to long and "
        "float to double, so that no field is lost.",
        False,
    )
    target_file_size: str = option("Size at which a task begins a new file.", "128m")
    file_compression: str = option(
        "Compression of the table's files: zstd, snappy, gzip, lz4 or none.", "zstd"
    )
    keep_versions: str | None = option("How long older versions are kept, such as 12h, 7d or 2w.")
    transaction_id: str | None = option(
        "Name of a batch write; a second write of this name changes nothing."
    )
    writer_name: str | None = option(
        "The streaming query's name in the table, by which it is recognised when its checkpoint "
        "is lost; by default derived from the checkpoint's path."
    )
    adopt: bool = option(
        "Add the rows to a table that this query has not written, or has written with another "
        "checkpoint.",
        False,
    )
    keys: tuple[str, ...] = option(
        "Columns of the key, separated by commas (a name with a comma in backquotes): a row "
        "replaces the row with the same values in these columns.",
        (),
    )
    sequence_by: str | None = option(
        f"With {named('keys')}: the column that orders the rows of a key; the row with the "
        "greatest value wins."
    )
    apply_as_deletes: str | None = option(
        f"With {named('keys')}: rows that remove their key: a boolean column, column = 'text' or "
        "column IN ('text', …)."
    )
    apply_as_truncates: str | None = option(
        f"With {named('sequence_by')}: rows without a key, each of which removes all rows before "
        f"it; written like {named('apply_as_deletes')}."
    )
    history_by: str | None = option(
        f"With {named('sequence_by')}: the column with the time of a change; the table keeps all "
        "rows of a key, with valid_from and valid_to."
    )
    default_table: str | None = option("With a template: the table for rows that have no table.")
    max_new_tables: int = option(
        "With a template: maximum number of new tables that one task may create.", 1000
    )
    quarantine: str | None = option(
        "Table for records that do not become rows, with the reason: payloads that do not fit the "
        "schema, and rows without a table; or stream:NAME, a stream of dead letters."
    )
    on_bad_record: str | None = option(
        "Without quarantine: keep (the default) puts a payload that does not fit the schema into "
        "the column _corrupt_record; stop ends the write and names the message.",
        parse=one_of("keep", "stop"),
    )
    compact_every: int | None = option(
        "Streaming only, not with keys: merge the small files of a table after this many commits, "
        "0 for never; by default 100 where a command follows a stream.",
        parse=parse_non_negative_int,
    )


@dataclass(frozen=True, kw_only=True)
class TableReadScope:
    """Options of format("jetspark-delta") and format("jetspark-iceberg") for reading."""

    version_as_of: int | None = option("A version (Delta) or a snapshot's id (Iceberg).")
    prune: str | None = option(
        "A condition; files that cannot have such rows are not read.", parse=keep_text
    )
    min_partitions: int = option("Minimum number of tasks; fewer if there are fewer files.", 1)
