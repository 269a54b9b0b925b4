"""Scopes of options (`options.scopes`) as flags of commands, in groups of the help."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import asdict, field, fields, make_dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_type_hints
from urllib.parse import unquote

from cyclopts import Group, Parameter

import jetspark.errors as errors
from jetspark.cli.flags import convert_duration, parse_pairs
from jetspark.cli.server_flags import ServerFlags
from jetspark.connection.options import make_options
from jetspark.options.names import on_command_line
from jetspark.options.parsers import parse_duration
from jetspark.options.scopes import (
    ENDINGS,
    STARTS,
    ConnectionScope,
    PayloadScope,
    SchemaScope,
    SourceScope,
    StreamSinkScope,
    TableOptions,
    TableReadScope,
    spark_texts,
)

if TYPE_CHECKING:
    from jetspark.payloads.codec import Codec

S = TypeVar("S")

READING: Final = Group.create_ordered("What to read")
WRITING: Final = Group.create_ordered("Where to write")
PAYLOADS: Final = Group.create_ordered("What a payload means")
TABLE: Final = Group.create_ordered("The table")
BAD_RECORDS: Final = Group.create_ordered("Records that do not fit")
RUN: Final = Group.create_ordered("The run")
CONNECTION: Final = Group.create_ordered("The connection")

_REGISTRY = re.compile(
    r"(?P<scheme>https?://)(?P<user>[^/:@]*)(?::(?P<password>[^/@]*))?@(?P<address>.+)"
)


def make_flags(
    scope: type[S], group: Group, *, leave_out: Collection[str] = (), **groups: Group
) -> type[S]:
    """Make a class whose fields are flags of a command, from a scope: a class of options.

    It is a subclass of the scope. `group`: the part of the help for these flags; `groups`: that of
    single options, by name; `leave_out`: options that are no flags, and keep their defaults.
    """
    types = get_type_hints(scope)
    flags = []
    for option in fields(scope):  # type: ignore[arg-type]
        is_duration = option.metadata["parse"] is parse_duration
        parameter = Parameter(
            converter=convert_duration if is_duration else None,
            parse=option.name not in leave_out,
            # Only a switch that is on by default gets a flag --no-…
            negative=None if option.default is True else (),
            group=groups.get(option.name, group),
        )
        # The help mentions other options, by their names in Python; here by their flags.
        help_ = errors.JetsparkError(option.metadata["help"]).sentence(on_command_line)
        flag = field(default=option.default, metadata={**option.metadata, "help": help_})
        flags.append((option.name, Annotated[types[option.name], parameter], flag))
    flags_class = make_dataclass(
        scope.__name__,
        flags,
        bases=(scope,),
        frozen=True,
        kw_only=True,
        namespace={"__module__": __name__},  # cyclopts flattens no class of `types`
    )
    return Parameter(name="*")(flags_class)


_NO_SOURCE_FLAGS = (
    *("stream", "streams", "stream_pattern", "bucket", "backup", "keys", "history"),
    *("present_values", "orders_by_seq", "available_now"),
    *(*STARTS, *ENDINGS),  # commands have --start and --end
    *("table", "table_format"),
)

if TYPE_CHECKING:
    ConnectionFlags = ConnectionScope
    PayloadFlags = PayloadScope
    SchemaFlags = SchemaScope
    SourceFlags = SourceScope
    StreamSinkFlags = StreamSinkScope
    TableFlags = TableOptions
    TableReadFlags = TableReadScope
else:
    ConnectionFlags = make_flags(ConnectionScope, CONNECTION, leave_out=("servers", "context"))
    PayloadFlags = make_flags(PayloadScope, PAYLOADS, leave_out=("keep_payload",))
    SchemaFlags = make_flags(SchemaScope, PAYLOADS)
    SourceFlags = make_flags(SourceScope, READING, leave_out=_NO_SOURCE_FLAGS)
    StreamSinkFlags = make_flags(
        StreamSinkScope,
        WRITING,
        leave_out=("stream", "bucket", "subject", "adopt_ledger", "writer_name"),
    )
    TableFlags = make_flags(
        TableOptions,
        TABLE,
        leave_out=("transaction_id",),
        quarantine=BAD_RECORDS,
        on_bad_record=BAD_RECORDS,
    )
    TableReadFlags = make_flags(TableReadScope, READING)

NO_CONNECTION = ConnectionFlags()
NO_PAYLOADS = PayloadFlags()
NO_SCHEMA = SchemaFlags()
NO_SOURCE = SourceFlags()
NO_SINK = StreamSinkFlags()
NO_TABLE = TableFlags()
NO_TABLE_READ = TableReadFlags()


def connection_texts(connection: ServerFlags, flags: ConnectionScope) -> dict[str, str]:
    """The options of Spark's format for a connection, as texts, from a command's flags.

    Raises ConfigError for a login that is in the server's URL and in a flag.
    """
    options, flag_options = connection.spark_options(), spark_texts(flags)
    for name in options.keys() & flag_options.keys():
        raise errors.ConfigError(
            f"Give the {name} either in {errors.named('servers')} or as {errors.named(name)}."
        )
    return options | flag_options


def schema_texts(schema: SchemaScope) -> dict[str, str]:
    """The options of Spark's format for a schema, as texts; no secrets in the registry's URL."""
    return spark_texts(_move_login_out_of_url(schema))


def _move_login_out_of_url(schema: SchemaScope) -> SchemaScope:
    """Move user and password from the registry's URL to options of their own.

    Spark shows URLs in its plans, but masks such options.
    """
    url = None if schema.registry is None else _REGISTRY.fullmatch(schema.registry)
    if url is None:
        return schema
    login: dict[str, Any] = {
        f"registry_{name}": unquote(url[name])
        for name in ("user", "password")
        if url[name] is not None
    }
    return replace(schema, registry=url["scheme"] + url["address"], **login)


def codec_of(
    schema: SchemaScope, option: str, format_: str | None, connection: ServerFlags
) -> Codec | None:
    """Make the codec for payloads in a format such as avro, from a command's flags.

    None if no format is given. `schema`: the flags for the payloads' schema; `option`: decode or
    encode, the flag that gives `format_`; `connection`: the NATS servers, on which the registry of
    schemas may be. Raises ConfigError for flags of a schema without a format.
    """
    values = asdict(_move_login_out_of_url(schema))
    arguments = {name: value for name, value in values.items() if value is not None}
    if format_ is None and arguments:
        raise errors.ConfigError(f"goes with {errors.named(option)}.", option=min(arguments))
    if format_ is None:
        return None
    from jetspark.payloads.codec import Codec  # it loads PyArrow
    from jetspark.spark.source.options import with_lookup

    return Codec(format_, **with_lookup(arguments, make_options(**connection.options())))


def parse_storage(storage: list[str] | None) -> dict[str, str]:
    """Parse the texts name=value of --storage as options of a table. Raises ConfigError."""
    return {f"storage.{name}": value for name, value in parse_pairs("--storage", storage).items()}
