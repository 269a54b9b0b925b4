"""The fields of a schema in Spark's DDL, read without Spark to report most mistakes early, and
their types in Arrow, of those that a database's columns have.

Spark's own parser decides: it may refuse schemas that are accepted here, but accepts none that is
refused here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from jetspark.errors import ConfigError, safe_repr
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
_SHORT = {
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
_PIECE = re.compile(rf"`(?:[^`]|``)+`|{_TEXT}|.", re.DOTALL)
_MAX_NESTED = 100
_STRUCT = re.compile(r"struct\s*<(.*)>", re.DOTALL | re.IGNORECASE)
_FIELD = re.compile(
    rf"(`(?:[^`]|``)+`|\w+)(?:\s*:\s*|\s+|(?<=`))(\w+)(.*?)(?:\bcomment\s+(?:{_TEXT}))?",
    re.DOTALL | re.IGNORECASE,
)


def check_fields(ddl: str, option: str, *, timestamp: str = "") -> dict[str, str]:
    """The fields of JSON payloads, `a STRING, b ARRAY<INT>`, also in STRUCT<…>: names and types.

    Types of one word are in Spark's short form ("bigint"), others are "". `option`: for the
    message; `timestamp`: what this type is, which in Spark depends on a setting. Raises
    ConfigError.
    """
    fields: dict[str, str] = {}
    try:
        for name, kind, more, _ in _fields(ddl):
            short = timestamp if kind == "timestamp" else _SHORT.get(kind, kind)
            fields[name] = "" if more else short
    except ValueError as reason:
        raise ConfigError(
            f"{option} {ddl!r} is not a schema: {reason}; write for example "
            "'carrier STRING, delay DOUBLE, tags ARRAY<STRING>'."
        ) from None
    check_names(option.removesuffix(":"), fields)
    return fields


def with_types(ddl: str, kinds: Mapping[str, str]) -> str:
    """A schema that `check_fields` takes, with other types for these fields, and further ones."""
    left, parts = dict(kinds), []
    for name, _, _, part in _fields(ddl):
        kind = left.pop(name, None)
        parts.append(part if kind is None else _quoted(name, kind))
    return ", ".join([*parts, *(_quoted(*field) for field in left.items())])


def arrow_columns(ddl: str) -> pa.Schema:
    """Columns as in `id BIGINT, amount DECIMAL(10,2)`. Raises ValueError."""
    columns = []
    for name, kind, more, part in _fields(ddl):
        if (arrow := _arrow_type(_SHORT.get(kind, kind), more)) is None:
            raise ValueError(
                f"{safe_repr(part)} is not a column of a plain type, such as id BIGINT or amount "
                "DECIMAL(10,2); for others give a JSON Schema, or the one that Debezium writes"
            )
        columns.append(pa.field(name, arrow))
    return pa.schema(columns)


def arrow_fields(ddl: str, option: str) -> pa.Schema:
    """The fields that `check_fields` takes, as Arrow types. Raises ConfigError, also for a type
    that payloads have no values of."""
    check_fields(ddl, option)
    try:
        return pa.schema(_nested_fields(ddl))
    except ValueError as reason:
        raise ConfigError(f"{option} {ddl!r}: {reason}.") from None


def type_in_ddl(kind: pa.DataType) -> str | None:
    """A type as `arrow_fields` reads it; None if it has no such form."""
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


def in_ddl(fields: pa.Schema) -> str:
    """Fields that payloads can have, as `arrow_fields` reads them."""
    return ", ".join(_quoted(field.name, type_in_ddl(field.type) or "string") for field in fields)


def _nested_fields(ddl: str) -> list[pa.Field]:
    fields = [
        pa.field(name, _nested_type(kind, more, part)) for name, kind, more, part in _fields(ddl)
    ]
    if twice := ambiguous((), (field.name for field in fields)):
        raise ValueError(f"{twice} is there twice, since Spark ignores case")
    return fields


def _nested_type(kind: str, more: str, part: str) -> pa.DataType:
    if more.count("<") > _MAX_NESTED:
        raise ValueError(f"{safe_repr(part)} has more than {_MAX_NESTED} types within each other")
    kind = _SHORT.get(kind, kind)
    if kind in ("array", "map", "struct"):
        if not (more.startswith("<") and more.endswith(">") and more[1:-1].strip()):
            raise ValueError(f"{safe_repr(part)} lacks what is in it, such as ARRAY<STRING>")
        inside = more[1:-1]
        if kind == "struct":
            return pa.struct(_nested_fields(inside))
        parts = _split(inside)
        if len(parts) != (1 if kind == "array" else 2):
            raise ValueError(f"{safe_repr(part)} is not one type in brackets, or two of a MAP")
        types = [_nested_type(*_field(f"_ {inner.strip()}")[1:], inner.strip()) for inner in parts]
        if kind == "array":
            return pa.list_(pa.field("element", types[0]))
        if types[0] != pa.string():
            raise ValueError(f"{safe_repr(part)}: the keys of objects are texts, MAP<STRING, …>")
        return pa.map_(types[0], types[1])
    type_ = None if kind in ("char", "varchar") else _arrow_type(kind, more)
    if type_ is None:
        raise ValueError(
            f"{safe_repr(part)} is no type that payloads have; there are "
            f"{', '.join(_ARROW).upper()}, DECIMAL(p,s) up to 38 digits, ARRAY, MAP and STRUCT"
        )
    return type_


def spark_type_name(kind: pa.DataType) -> str:
    """The name that Spark has for a type, without what is in it."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _SPARK.get(kind) or str(kind).partition("<")[0].replace("list", "array")


def _arrow_type(kind: str, more: str) -> pa.DataType | None:
    digits = _DIGITS.fullmatch(more)
    if more and digits is None:
        return None
    if kind in ("decimal", "dec", "numeric"):
        precision, scale = (int(digits[1]), int(digits[2] or 0)) if digits else (10, 0)
        return pa.decimal128(precision, scale) if scale <= precision <= 38 else None
    if kind in ("varchar", "char"):
        return pa.string()
    return None if digits else _ARROW.get(kind)


def _quoted(name: str, kind: str, between: str = " ") -> str:
    return f"`{name.replace('`', '``')}`{between}{kind}"


def ambiguous(columns: Iterable[str], fields: Iterable[str]) -> str | None:
    """The first field that Spark, which ignores case, could not distinguish from a column or from
    a field before it."""
    folded_names = {name.casefold() for name in columns}
    for name in fields:
        if name.casefold() in folded_names:
            return name
        folded_names.add(name.casefold())
    return None


def _fields(ddl: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield the name of each field, its type's first word and what follows it, and its text."""
    text = ddl.strip()
    if struct := _STRUCT.fullmatch(text):
        text = struct[1]
    names = set()
    for part in map(str.strip, _split(text)):
        name, kind, more = _field(part)
        if name in names:
            raise ValueError(f"{name} is there twice")
        names.add(name)
        yield name, kind, more, part


def _split(text: str) -> list[str]:
    """The text between commas that are in no brackets or quotation marks."""
    parts, depth = [""], 0
    for piece in _PIECE.findall(text):
        depth += (piece in "<(") - (piece in ">)")
        if piece == "," and not depth:
            parts.append("")
        else:
            parts[-1] += piece
    if depth:
        raise ValueError("its brackets do not match")
    return parts


def _field(text: str) -> tuple[str, str, str]:
    match = _FIELD.fullmatch(text)
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
    if re.search(r"\bnot\s+null\b", re.sub(_TEXT, "", rest), re.IGNORECASE):
        raise ValueError(f"{name} is NOT NULL, but each column of payloads may be null")
    return name, kind, rest
