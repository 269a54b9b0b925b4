"""Schemas in Spark's DDL, read without Spark: names and types of fields, and their types in Arrow.

Spark's own parser decides: it may refuse schemas that are accepted here, but accepts none that is
refused here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from jetspark.errors import ConfigError, named, safe_repr
from jetspark.nearest import nearest_name
from jetspark.reserved_names import check_names

_NUMBER_TYPES = (
    "tinyint byte smallint short int integer bigint long float real double decimal dec numeric"
)
_TIME_TYPES = "date time timestamp timestamp_ntz timestamp_ltz interval"
_OTHER_TYPES = (
    "string char character varchar binary boolean void variant geometry geography array map struct"
)
_TYPES = frozenset(f"{_NUMBER_TYPES} {_TIME_TYPES} {_OTHER_TYPES}".split())
_SHORT_NAMES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "timestamp_ltz": "timestamp",
}
"""Types that Spark writes by another name."""
_ARROW = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(),
    "bigint": pa.int64(), "float": pa.float32(), "real": pa.float32(), "double": pa.float64(),
    "string": pa.string(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
_SPARK = {kind: name for name, kind in reversed(_ARROW.items())}
_DIGITS = re.compile(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_TEXT = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_TEXT_OR_CHARACTER = re.compile(rf"`(?:[^`]|``)+`|{_TEXT}|.", re.DOTALL)
_MAX_NESTED = 100
_STRUCT = re.compile(r"struct\s*<(.*)>", re.DOTALL | re.IGNORECASE)
_FIELD = re.compile(
    rf"(`(?:[^`]|``)+`|\w+)(?:\s*:\s*|\s+|(?<=`))(\w+)(.*?)(?:\bcomment\s+(?:{_TEXT}))?",
    re.DOTALL | re.IGNORECASE,
)


class _Field(NamedTuple):
    """A field of a schema."""

    name: str
    kind: str
    """The first word of its type, in lower case."""
    suffix: str
    """What follows that word: `(10,2)`, `<STRING>`."""
    text: str
    """The whole field, as it was written."""

    @property
    def short_kind(self) -> str:
        """The first word of its type as Spark writes it: bigint for long."""
        return _SHORT_NAMES.get(self.kind, self.kind)


def check_fields(ddl: str, option: str) -> dict[str, str]:
    """Check a schema in Spark's DDL (`a STRING, b ARRAY<INT>`, also in STRUCT<…>), and return its
    fields with their types.

    A type of one word is in Spark's short form ("bigint"), any other is "". `option`: the one that
    has the schema, for the error. Raises ConfigError.
    """
    try:
        types = {field.name: "" if field.suffix else field.short_kind for field in _fields(ddl)}
    except ValueError as reason:
        raise ConfigError(
            f"{option} {ddl!r} is not a schema: {reason}; write for example "
            "'carrier STRING, delay DOUBLE, tags ARRAY<STRING>'."
        ) from None
    check_names(option.removesuffix(":"), types)
    return types


def with_types(ddl: str, kinds: Mapping[str, str]) -> str:
    """Return a schema in DDL with other types for some fields; fields that it lacks are added."""
    added, parts = dict(kinds), []
    for field in _fields(ddl):
        kind = added.pop(field.name, None)
        parts.append(field.text if kind is None else _quoted(field.name, kind))
    return ", ".join([*parts, *(_quoted(*field) for field in added.items())])


def arrow_columns(ddl: str) -> pa.Schema:
    """Return columns of plain types, as in `id BIGINT, amount DECIMAL(10,2)`. Raises ValueError."""
    columns = []
    for field in _fields(ddl):
        if (type_ := _plain_type(field.short_kind, field.suffix)) is None:
            raise ValueError(
                f"{safe_repr(field.text)} is not a column of a plain type, such as id BIGINT or "
                "amount DECIMAL(10,2); for others give a JSON Schema, or the one that Debezium "
                "writes"
            )
        columns.append(pa.field(field.name, type_))
    return pa.schema(columns)


def arrow_fields(ddl: str, option: str) -> pa.Schema:
    """Return the fields of a schema in Spark's DDL, of plain and nested types, as Arrow has them.
    `option`: the one that has the schema, for the error. Raises ConfigError, also for a type that
    payloads have no values of."""
    check_fields(ddl, option)
    try:
        return pa.schema(_nested_fields(ddl))
    except ValueError as reason:
        raise ConfigError(f"{option} {ddl!r}: {reason}.") from None


def type_in_ddl(kind: pa.DataType) -> str | None:
    """Return an Arrow type in Spark's DDL; None for a type that payloads cannot have (see
    `arrow_fields`)."""
    if pa.types.is_struct(kind):
        parts = [(field.name, type_in_ddl(field.type)) for field in kind]
        if not parts or any(text is None for _, text in parts):
            return None
        return f"struct<{', '.join(_quoted(name, text or '', ': ') for name, text in parts)}>"
    if pa.types.is_map(kind):
        item = type_in_ddl(kind.item_type)
        return f"map<string, {item}>" if item and kind.key_type == pa.string() else None
    if pa.types.is_list(kind):
        item = type_in_ddl(kind.value_type)
        return item and f"array<{item}>"
    return spark_type_name(kind) if pa.types.is_decimal128(kind) else _SPARK.get(kind)


def schema_in_ddl(fields: pa.Schema) -> str:
    """Return fields in the form that `arrow_fields` reads; one of another type is a STRING."""
    return ", ".join(_quoted(field.name, type_in_ddl(field.type) or "string") for field in fields)


def _nested_fields(ddl: str) -> list[pa.Field]:
    """Return the fields of a schema in DDL, of any type that payloads may have. Raises
    ValueError."""
    fields = [pa.field(field.name, _nested_type(field)) for field in _fields(ddl)]
    if duplicate := ambiguous((), (field.name for field in fields)):
        raise ValueError(f"{duplicate} is there twice, since Spark ignores case")
    return fields


def _nested_type(field: _Field) -> pa.DataType:
    """Return the Arrow type of a field in DDL, also of a nested one. Raises ValueError for a type
    that payloads cannot have."""
    kind, suffix, text = field.short_kind, field.suffix, safe_repr(field.text)
    if suffix.count("<") > _MAX_NESTED:
        raise ValueError(f"{text} has more than {_MAX_NESTED} types within each other")
    if kind in ("array", "map", "struct"):
        inside = suffix[1:-1]
        if not (suffix.startswith("<") and suffix.endswith(">") and inside.strip()):
            raise ValueError(f"{text} lacks what is in it, such as ARRAY<STRING>")
        if kind == "struct":
            return pa.struct(_nested_fields(inside))
        inner = [part.strip() for part in _split_at_commas(inside)]
        if len(inner) != (1 if kind == "array" else 2):
            raise ValueError(f"{text} is not one type in brackets, or two of a MAP")
        # A type alone is parsed as that of a field `_`.
        types = [_nested_type(_parse_field(f"_ {part}")._replace(text=part)) for part in inner]
        if kind == "array":
            return pa.list_(pa.field("element", types[0]))
        if types[0] != pa.string():
            raise ValueError(f"{text}: the keys of objects are texts, MAP<STRING, …>")
        return pa.map_(types[0], types[1])
    type_ = None if kind in ("char", "varchar") else _plain_type(kind, suffix)
    if type_ is None:
        raise ValueError(
            f"{text} is no type that payloads have; there are "
            f"{', '.join(_ARROW).upper()}, DECIMAL(p,s) up to 38 digits, ARRAY, MAP and STRUCT"
        )
    return type_


def spark_type_name(kind: pa.DataType) -> str:
    """Return Spark's name of an Arrow type; of a nested type without those in it, such as
    "array"."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _SPARK.get(kind) or str(kind).partition("<")[0].replace("list", "array")


def _plain_type(kind: str, suffix: str) -> pa.DataType | None:
    """Return the Arrow type of a type in DDL; None if it is nested or unknown. `kind`: its word,
    such as decimal; `suffix`: what follows in brackets, as the digits of a DECIMAL."""
    digits = _DIGITS.fullmatch(suffix)
    if suffix and digits is None:
        return None
    if kind in ("decimal", "dec", "numeric"):
        # Spark's default is DECIMAL(10,0).
        precision, scale = (int(digits[1]), int(digits[2] or 0)) if digits else (10, 0)
        return pa.decimal128(precision, scale) if scale <= precision <= 38 else None
    if kind in ("varchar", "char"):
        return pa.string()
    return None if digits else _ARROW.get(kind)


def _quoted(name: str, kind: str, between: str = " ") -> str:
    """Return a field in DDL, with its name in backticks."""
    return f"`{name.replace('`', '``')}`{between}{kind}"


def ambiguous(columns: Iterable[str], fields: Iterable[str]) -> str | None:
    """Return the first field that Spark, which ignores case, could not distinguish from a column or
    from a field before it."""
    folded_names = {name.casefold() for name in columns}
    for name in fields:
        if name.casefold() in folded_names:
            return name
        folded_names.add(name.casefold())
    return None


def _fields(ddl: str) -> Iterator[_Field]:
    """Yield the fields of a schema in DDL, with or without STRUCT<…> around them. Raises
    ValueError."""
    text = ddl.strip()
    if struct := _STRUCT.fullmatch(text):
        text = struct[1]
    names = set()
    for part in map(str.strip, _split_at_commas(text)):
        field = _parse_field(part)
        if field.name in names:
            raise ValueError(f"{field.name} is there twice")
        names.add(field.name)
        yield field


def _split_at_commas(text: str) -> list[str]:
    """Return the parts of a text between commas that are in no brackets or quotation marks. Raises
    ValueError if the brackets do not match."""
    parts, depth = [""], 0
    for token in _TEXT_OR_CHARACTER.findall(text):
        depth += (token in "<(") - (token in ">)")
        if token == "," and not depth:
            parts.append("")
        else:
            parts[-1] += token
    if depth:
        raise ValueError("its brackets do not match")
    return parts


def _parse_field(text: str) -> _Field:
    """Parse one field of a schema in DDL: its name and type. Raises ValueError."""
    match = _FIELD.fullmatch(text)
    if match is None and text.startswith("{"):
        raise ValueError(
            "it is JSON, and columns are written as id BIGINT, name STRING; a JSON Schema goes "
            f"into {named('schema')}, with {named('decode')} json"
        )
    if match is None:
        raise ValueError(
            f"{safe_repr(text, 60)} is not a name and a type" if text else "a field is missing"
        )
    name = match[1][1:-1].replace("``", "`") if match[1].startswith("`") else match[1]
    kind, rest = match[2].casefold(), match[3].strip()
    if kind not in _TYPES:
        near = nearest_name(kind, _TYPES)
        hint = f" (did you mean {near.upper()}?)" if near else ""
        raise ValueError(f"there is no type {kind.upper()}{hint}")
    # The text of a comment may have these words.
    if re.search(r"\bnot\s+null\b", re.sub(_TEXT, "", rest), re.IGNORECASE):
        raise ValueError(f"{name} is NOT NULL, but each column of payloads may be null")
    return _Field(name, kind, rest, text)
