"""The fields of a schema in Spark's DDL, read without Spark to report most mistakes early.

Spark's own parser decides: it may refuse schemas that are accepted here, but accepts none that is
refused here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from jetspark.errors import ConfigError
from jetspark.subjects import nearest_name

_NUMBERS = (
    "tinyint byte smallint short int integer bigint long float real double decimal dec numeric"
)
_TIMES = "date time timestamp timestamp_ntz timestamp_ltz interval"
_OTHERS = (
    "string char character varchar binary boolean void variant geometry geography array map struct"
)
_TYPES = frozenset(f"{_NUMBERS} {_TIMES} {_OTHERS}".split())
_SHORT = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "timestamp_ltz": "timestamp",
}
"""Types that Spark writes by another name."""
_TEXT = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_PIECE = re.compile(rf"`(?:[^`]|``)+`|{_TEXT}|.", re.DOTALL)
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
    text = ddl.strip()
    if whole := _STRUCT.fullmatch(text):
        text = whole[1]
    fields: dict[str, str] = {}
    try:
        for part in _split(text):
            name, kind = _field(part.strip())
            if name in fields:
                raise _NoSchema(f"{name} is there twice")
            fields[name] = timestamp if kind == "timestamp" else _SHORT.get(kind, kind)
    except _NoSchema as reason:
        raise ConfigError(
            f"{option} {ddl!r} is not a schema: {reason}; write for example "
            "'carrier STRING, delay DOUBLE, tags ARRAY<STRING>'."
        ) from None
    return fields


def with_types(ddl: str, kinds: Mapping[str, str]) -> str:
    """A schema that `check_fields` takes, with other types for these fields, and further ones."""
    text = ddl.strip()
    if whole := _STRUCT.fullmatch(text):
        text = whole[1]
    left, parts = dict(kinds), []
    for part in _split(text):
        name, _ = _field(part.strip())
        kind = left.pop(name, None)
        parts.append(part.strip() if kind is None else _quoted(name, kind))
    return ", ".join([*parts, *(_quoted(*one) for one in left.items())])


def _quoted(name: str, kind: str) -> str:
    return f"`{name.replace('`', '``')}` {kind}"


def ambiguous(columns: Iterable[str], fields: Iterable[str]) -> str | None:
    """The first field that Spark, which ignores case, could not distinguish from a column or from
    a field before it."""
    taken = {name.casefold() for name in columns}
    for name in fields:
        if name.casefold() in taken:
            return name
        taken.add(name.casefold())
    return None


class _NoSchema(Exception):
    pass


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
        raise _NoSchema("its brackets do not match")
    return parts


def _field(text: str) -> tuple[str, str]:
    match = _FIELD.fullmatch(text)
    if match is None:
        raise _NoSchema(f"{text!r} is not a name and a type" if text else "a field is missing")
    name = match[1][1:-1].replace("``", "`") if match[1].startswith("`") else match[1]
    kind, rest = match[2].casefold(), match[3].strip()
    if kind not in _TYPES:
        near = nearest_name(kind, _TYPES)
        hint = f" (did you mean {near.upper()}?)" if near else ""
        raise _NoSchema(f"there is no type {kind.upper()}{hint}")
    if re.search(r"\bnot\s+null\b", re.sub(_TEXT, "", rest), re.IGNORECASE):
        raise _NoSchema(f"{name} is NOT NULL, but each column of JSON payloads may be null")
    return name, "" if rest else kind
