"""`jetspark schema`: schemas of payloads in a registry."""

from __future__ import annotations

import base64
import json as plain_json
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from cyclopts import Parameter

import jetspark.registry.documents as documents
from jetspark.cli import console
from jetspark.cli.app import FAILED, SUCCEEDED, command, group
from jetspark.cli.flags import ForceOption, JsonOption, RawOption, check_json_or_raw, confirm
from jetspark.cli.formatting import format_time
from jetspark.cli.listings import show_list, show_result
from jetspark.cli.server_flags import DEFAULT_SERVER, ServerFlags
from jetspark.documents.document import to_wire
from jetspark.errors import ConfigError, SchemaNotFoundError, ServiceError
from jetspark.files import read_small
from jetspark.payloads.schema import is_proto_source

if TYPE_CHECKING:
    from jetspark.registry.client import SchemaRegistry
    from jetspark.registry.documents import SchemaVersion

T = TypeVar("T")

FormatOption: TypeAlias = Annotated[
    str | None,
    Parameter(help="avro, protobuf or jsonschema; needed if the name has several formats."),
]
_SUFFIXES = {
    ".avsc": "avro",
    ".json": "jsonschema",
    ".proto": "protobuf",
    **dict.fromkeys((".desc", ".binpb", ".protoset"), "protobuf"),
}
_ERRORS_OF_DEFINITION = (
    documents.Code.DEFINITION_INVALID,
    documents.Code.INCOMPATIBLE,
    documents.Code.TOO_LARGE,
)
_COLUMNS: dict[str, Callable[[documents.Schema], object]] = {
    "schema": lambda schema: schema.name,
    "format": lambda schema: schema.format,
    "version": lambda schema: schema.version,
    "revision": lambda schema: schema.revision,
    "policy": lambda schema: schema.compat_policy,
    "stored": lambda schema: format_time(schema.time),
    "description": lambda schema: schema.description or "–",
}

schema = group(
    "schema",
    "jetspark schema add orders order.avsc",
    "jetspark schema check orders order.avsc",
    "jetspark schema diff orders 1 2",
)


@command(
    schema,
    "jetspark schema add orders order.avsc",
    "jetspark schema add shop.Order order.proto --policy full",
)
def add(
    name: str,
    file: Path,
    /,
    *,
    format: FormatOption = None,
    policy: str | None = None,
    description: str | None = None,
    connection: ServerFlags = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Register a schema: the first version under this name, or another one.

    Args:
        name: Name of the schema.
        file: The schema: .avsc, .proto, a set of descriptors (.desc, .binpb), a JSON Schema.
        format: avro, protobuf or jsonschema; by default that of the file's suffix.
        policy: Compatibility rule for later versions: none, backwards, forward or full; by default
            backwards. It is set with the first version.
        description: Description of the schema.
    """
    definition, file_format = _read_definition(file, format)
    _check_policy(policy)

    async def check_no_other_format(registry: SchemaRegistry) -> None:
        """Raise ConfigError if the name has a schema in another format, so --format is needed."""
        with suppress(SchemaNotFoundError):
            latest = await registry.get(name)
            raise ConfigError(
                f"{name} is in {latest.format}: to have it in {file_format}, too, say --format "
                f"{file_format}."
            )

    async def register(registry: SchemaRegistry) -> SchemaVersion:
        """Add the first version of the schema, or a further one."""
        try:
            latest = await registry.get(name, format=file_format)
        except SchemaNotFoundError:
            if format is None:
                await check_no_other_format(registry)
            return await registry.add(
                name, definition, format=file_format, compat_policy=policy, description=description
            )
        if policy is not None and documents.policy_of(latest.compat_policy) != policy:
            raise ConfigError(f"The policy of {name} is {latest.compat_policy}, and cannot change.")
        return await registry.update(name, definition, format=file_format, description=description)

    added = _call_registry(connection, register, file)
    sentence = f"{name} in {file_format}: version {added.version}, revision {added.revision}"
    show_result(sentence, to_wire(added), as_json=json)


@command(schema, "jetspark schema ls", 'jetspark schema ls "shop.*" --json')
def ls(
    filter: str | None = None,
    /,
    *,
    connection: ServerFlags = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """List the schemas, every version and revision.

    Args:
        filter: Only names that match this filter; * and > as in subjects.
    """
    schemas = _call_registry(connection, lambda registry: registry.schemas(filter).all())
    show_list(schemas, _COLUMNS, as_json=json)


@command(schema, "jetspark schema show orders", "jetspark schema show orders 2 --raw > order.avsc")
def show(
    name: str,
    version: int | None = None,
    /,
    *,
    revision: int | None = None,
    format: FormatOption = None,
    connection: ServerFlags = DEFAULT_SERVER,
    json: JsonOption = False,
    raw: RawOption = False,
) -> None:
    """Show a schema.

    Args:
        name: Name of the schema.
        version: Its version; by default the latest.
        revision: Its revision; by default the latest.
        raw: Only the definition, as a file that add takes: of Protobuf the source, or the bytes of
            the set of descriptors.
    """
    check_json_or_raw(as_json=json, raw=raw)
    chosen = _call_registry(
        connection,
        lambda registry: _get_only_format(
            registry, name, version, revision=revision, format=format
        ),
    )
    if raw:
        console.write_bytes(_encode_file(chosen))
        return
    facts = {heading: cell(chosen) for heading, cell in _COLUMNS.items()}
    pairs = (f"{key}={value}" for key, value in chosen.metadata.items())
    facts["metadata"] = ", ".join(pairs)
    show_result(facts, to_wire(chosen), as_json=json)
    if not json:
        console.say("", *_format_definition(chosen))


@command(schema, "jetspark schema check orders order.avsc")
def check(
    name: str,
    file: Path,
    /,
    *,
    format: FormatOption = None,
    policy: str | None = None,
    connection: ServerFlags = DEFAULT_SERVER,
    json: JsonOption = False,
) -> int:
    """Check whether a file could be the next version of a schema; it fails if not.

    Args:
        name: Name of the schema.
        file: The schema, as for add.
        format: avro, protobuf or jsonschema; by default that of the file's suffix.
        policy: Check against this policy instead of the schema's own.
    """
    from jetspark.registry.compatibility import check_definition, violations

    definition, format = _read_definition(file, format)
    _check_policy(policy)
    latest = _call_registry(connection, lambda registry: registry.get(name, format=format))
    policy = policy or documents.policy_of(latest.compat_policy) or latest.compat_policy
    new = documents.as_payload_schema(format, definition, name)
    try:
        check_definition(new)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    reasons = violations(policy, latest.payload_schema(), new)
    outcome = "not compatible" if reasons else "compatible"
    sentence = f"{file} is {outcome} ({policy}) with {name} version {latest.version}"
    document = {"compatible": not reasons, "policy": policy, "version": latest.version}
    document["reasons"] = reasons
    show_result("\n".join([sentence, *reasons]), document, as_json=json)
    return FAILED if reasons else SUCCEEDED


@command(schema, "jetspark schema diff orders", "jetspark schema diff orders 1 3 --json")
def diff(
    name: str,
    before: int | None = None,
    after: int | None = None,
    /,
    *,
    format: FormatOption = None,
    connection: ServerFlags = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Show what differs between two versions, and whether each reads what the other wrote.

    Args:
        name: Name of the schema.
        before: The old version; by default the version before AFTER.
        after: The new version; by default the latest.
    """
    from jetspark.registry.compatibility import incompatibilities

    async def get_both(registry: SchemaRegistry) -> tuple[documents.Schema, documents.Schema]:
        """Fetch the old and the new version; by default the one before the new one, the latest."""
        new = await _get_only_format(registry, name, after, format=format)
        if before is not None:
            return await registry.get(name, before, format=new.format), new
        earlier = [
            schema
            async for schema in registry.schemas(name)
            if schema.format == new.format and schema.version < new.version
        ]
        if not earlier:
            raise ConfigError(f"{name} has no version before {new.version}.")
        return max(earlier, key=lambda schema: schema.ref), new

    old, new = _call_registry(connection, get_both)
    titles = [f"{name} version {schema.version}" for schema in (old, new)]
    lines = list(
        unified_diff(
            _format_definition(old), _format_definition(new), titles[0], titles[1], lineterm=""
        )
    )
    # Why the first schema does not read what was written with the second one.
    backwards = incompatibilities(new.payload_schema(), old.payload_schema())
    forward = incompatibilities(old.payload_schema(), new.payload_schema())
    if json:
        document: dict[str, Any] = {"before": old.version, "after": new.version, "diff": lines}
        console.say_json(document | {"backwards": backwards, "forward": forward}, indent=True)
        return
    old_title, new_title = titles
    directions = (new_title, old_title, backwards), (old_title, new_title, forward)
    for reader, writer, reasons in directions:
        verb = "does not read" if reasons else "reads"
        lines += ["", f"{reader} {verb} what {writer} wrote", *reasons]
    console.say(*lines)


@command(schema, "jetspark schema rm orders 3", "jetspark schema rm orders --force")
def rm(
    name: str,
    version: int | None = None,
    /,
    *,
    format: FormatOption = None,
    force: ForceOption = False,
    connection: ServerFlags = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Remove a version of a schema, or all. Numbers of removed versions are not used again.

    Args:
        name: Name of the schema.
        version: The version; by default all.
    """
    chosen = _call_registry(
        connection, lambda registry: _get_only_format(registry, name, version, format=format)
    )
    versions = "all versions" if version is None else f"version {version}"
    target = f"{versions} of {name} in {chosen.format}"
    confirm(f"Remove {target}?", force)
    _call_registry(
        connection, lambda registry: registry.remove(name, format=chosen.format, version=version)
    )
    document = {"removed": name, "format": chosen.format, "version": version}
    show_result(f"Removed {target}.", document, as_json=json)


async def _get_only_format(
    registry: SchemaRegistry,
    name: str,
    version: int | None,
    *,
    revision: int | None = None,
    format: str | None,
) -> documents.Schema:
    """Fetch a schema from the registry; without a `format`, in the only format that it has.

    Raises ConfigError for a name with schemas in several formats. Without a version or a revision
    it is the latest.
    """
    chosen = await registry.get(name, version, revision=revision, format=format)
    formats = {chosen.format}
    for other_format in () if format else set(documents.FORMATS) - formats:
        with suppress(SchemaNotFoundError):
            await registry.get(name, version, revision=revision, format=other_format)
            formats.add(other_format)
    if len(formats) > 1:
        reference = documents.SchemaRef(name, version=version, revision=revision)
        raise ConfigError(f"The {reference} is in {' and '.join(sorted(formats))}: say --format.")
    return chosen


def _call_registry(
    connection: ServerFlags,
    call: Callable[[SchemaRegistry], Awaitable[T]],
    file: Path | None = None,
) -> T:
    """Connect to the server and call its schema registry; returns what `call` returns.

    An error answer of the registry becomes a ConfigError. `file`: the file whose content is sent,
    to be named in errors about that.
    """
    try:
        return connection.run(lambda nc: call(nc.schema_registry()))
    except ServiceError as error:
        if error.code not in set(documents.Code):  # not an error of the registry's protocol
            raise
        prefix = f"{file}: " if file is not None and error.code in _ERRORS_OF_DEFINITION else ""
        raise ConfigError(f"{prefix}{error.description}") from None


def _read_definition(file: Path, format: str | None) -> tuple[str, str]:
    """Read a file with a schema; returns its text as registries take it, and its format.

    `format`: by default that of the file's suffix. Descriptors of Protobuf, which are bytes, become
    Base64. Raises ConfigError.
    """
    schema_format = format or _SUFFIXES.get(file.suffix)
    if schema_format not in documents.FORMATS:
        raise ConfigError(f"What is {file}? Say --format, one of {', '.join(documents.FORMATS)}.")
    try:
        data = read_small(file)
        if schema_format == "protobuf" and file.suffix != ".proto":
            return base64.b64encode(data).decode(), schema_format
        return data.decode(), schema_format
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"{file} cannot be read: {reason}.") from None


def _check_policy(policy: str | None) -> None:
    """Raise ConfigError if --policy is not one of the compatibility policies of registries."""
    if policy is not None and policy not in documents.POLICIES:
        raise ConfigError(f"--policy is one of {', '.join(documents.POLICIES)}.")


def _encode_file(schema: documents.Schema) -> bytes:
    """The bytes of a file with the schema's definition, as `jetspark schema add` takes it.

    Descriptors of Protobuf are Base64 in the registry, and bytes in a file.
    """
    text = schema.definition
    if schema.format == "protobuf" and not is_proto_source(text):
        with suppress(NotBase64):  # a registry may not check its definitions
            return base64.b64decode(text, validate=True)
    return text.encode()


def _format_definition(schema: documents.Schema) -> list[str]:
    """Format a schema's definition in lines for people: indented JSON, or Protobuf's source."""
    text = schema.definition
    with suppress(ValueError):  # a registry may not check its definitions
        if schema.format != "protobuf":
            text = plain_json.dumps(plain_json.loads(text), indent=2, ensure_ascii=False)
        elif not is_proto_source(text):
            from jetspark.registry.protobuf_rules import descriptor_text

            text = descriptor_text(text)
    return text.splitlines()
