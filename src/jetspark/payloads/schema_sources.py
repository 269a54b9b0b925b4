"""Where the schema of payloads comes from: a text, a file, a compiled class, or a registry."""

from __future__ import annotations

import base64
import re
from contextlib import suppress
from dataclasses import replace
from typing import Final, cast

from jetspark.errors import ConfigError, SchemaNotFoundError, named
from jetspark.files import read_small
from jetspark.payloads.protobuf_schema import message_of, schema_of_module
from jetspark.payloads.schema import PayloadFormat, PayloadSchema, SchemaLookup, name_schema_file
from jetspark.validation import check_whole

_COMPILED_CLASS = re.compile(r"[\w.]+:\w+")
MAX_FORMER: Final = 50
"""Earlier versions of a schema whose fields stay columns when a later one drops them."""


def read_schema(file: str) -> bytes:
    """Return the content of a file with a schema. Raises ConfigError."""
    try:
        return read_small(file)
    except OSError as error:
        raise ConfigError(f"The schema in {file} cannot be read: {error.strerror}.") from None


def find_schema(
    format_: str,
    schema: str | None = None,
    schema_file: str | None = None,
    lookup: SchemaLookup | None = None,
    schema_name: str | None = None,
    schema_version: int | None = None,
    message: str | None = None,
) -> PayloadSchema:
    """Return the schema of payloads that a user has given: as text, as a file, or by its name in
    the registry `lookup`. `message`: the name of Protobuf's. Raises ConfigError, and as
    `lookup`."""
    if schema is not None and schema_file is not None:
        raise ConfigError("Give the schema of the payloads, or the file that has it, not both.")
    if message is not None and format_ not in ("protobuf", "cloudevents"):
        raise ConfigError(f"A message is named for Protobuf, not for {format_}.")
    if schema_name is not None and (schema, schema_file) != (None, None):
        raise ConfigError("Give the schema of the payloads, or its name in the registry, not both.")
    if lookup is None and (schema_name, schema_version) != (None, None):
        raise ConfigError("A schema's name and version go with a registry that has it.")
    if lookup is not None and schema_name is not None:
        if schema_version is not None:
            check_whole("The schema's version", schema_version)
        reader = lookup.by_name(schema_name, schema_version, registry_format(format_))
        reader = replace(reader, name="")  # which is Protobuf's message here
        if format_ == "debezium" and reader.format == "avro":
            reader = replace(reader, format="debezium")
        if reader.format != format_:
            raise ConfigError(f"The schema {schema_name} is in {reader.format}, not {format_}.")
    else:
        reader = _schema_from_text_or_file(format_, schema, schema_file)
    with name_schema_file(schema_file):
        reader = reader if message is None else replace(reader, name=message)
        return message_of(reader) if format_ == "protobuf" else reader


def find_former_versions(
    lookup: SchemaLookup, name: str, latest: PayloadSchema
) -> tuple[PayloadSchema, ...]:
    """Return the versions of a schema before `latest` that the registry still has, the newest one
    first, at most `MAX_FORMER`. `name`: the schema's."""
    versions = []
    for version in range(latest.version - 1, max(latest.version - 1 - MAX_FORMER, 0), -1):
        with suppress(SchemaNotFoundError):
            versions.append(lookup.by_name(name, version, registry_format(latest.format)))
    return tuple(versions)


def registry_format(format_: str) -> str | None:
    """Return the format of schema to ask a registry for, by the format of payloads; None: any,
    since their schemas may be of several."""
    return format_ if format_ in ("avro", "protobuf", "json") else None


def _schema_from_text_or_file(decode: str, schema: str | None, file: str | None) -> PayloadSchema:
    """Return the schema that a user has given as text, as the name of a compiled class of Protobuf,
    or as a file. `decode`: the format of the payloads; JSON and CloudEvents may be without a
    schema. Raises ConfigError."""
    if decode == "protobuf" and schema is not None and _COMPILED_CLASS.fullmatch(schema):
        return schema_of_module(schema)
    if file is not None:
        content = read_schema(file)
        if decode == "protobuf" and not file.endswith(".proto"):
            schema = base64.b64encode(content).decode()
        else:
            try:
                schema = content.decode()
            except UnicodeDecodeError:
                raise ConfigError(f"The schema in {file} is not UTF-8 text.") from None
    if schema is None and decode in ("cloudevents", "json"):  # the data stays as it is
        schema = ""
    if schema is None:
        raise ConfigError(
            f"Payloads in {decode} need their schema: give {named('schema')}, "
            f"{named('schema_file')}, or {named('schema_name')} with {named('registry')}."
        )
    return PayloadSchema(cast("PayloadFormat", decode), schema)
