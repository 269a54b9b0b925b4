"""Checks a schema in Spark's DDL before Spark is started, to report mistakes early.

Spark's own parser decides: it may refuse schemas that are accepted here, but accepts none that is
refused here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from jetspark.errors import ConfigError
from jetspark.subjects import nearest_name

_TOKEN = re.compile(
    r"\s*(?:(`(?:[^`]|``)+`)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(\w+)|([<>(),:]))"
)
_NUMBERS = (
    "tinyint byte smallint short int integer bigint long float real double decimal dec numeric"
)
_TIMES = "date time timestamp timestamp_ntz timestamp_ltz interval"
_TEXTS = "string char character varchar binary"
_OTHERS = "boolean void variant geometry geography array map struct"
_TYPES = frozenset(f"{_NUMBERS} {_TIMES} {_TEXTS} {_OTHERS}".split())
_AS_THEY_ARE = "tinyint smallint int bigint float double string binary boolean date timestamp_ntz"
_SHORT = {name: name for name in _AS_THEY_ARE.split()} | {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
}
"""The names by which Spark writes types; that of TIMESTAMP depends on a setting."""
_NOT_IN_JSON = frozenset(("char", "character", "varchar", "geometry", "geography"))
_NOT_IN_LAKES = frozenset(("time", "void", "variant", "interval", "interval of fields", "struct<>"))
_COLLATION = re.compile(
    r"utf8_(?:binary|lcase)(?:_rtrim)?"
    r"|(?:unicode|[a-z]{2,3}(?:_[a-z]{4})?(?:_[a-z]{3})?)(?:_(?:c[is]|a[is]|rtrim))*",
    re.IGNORECASE,
)
_PARTS = ("year", "month", "day", "hour", "minute", "second", "to")
"""What may follow INTERVAL."""
_DIGITS = 38
_ADVICE = "write for example 'carrier STRING, delay DOUBLE, tags ARRAY<STRING>'."


def check_fields(ddl: str, said: str, *, in_lake: bool = False) -> dict[str, str]:
    """The fields of JSON payloads, `a STRING, b ARRAY<INT>`, also in STRUCT<…>: names and types.

    Types are in Spark's short form ("array<int>"), "" where only Spark knows. `said`: the name of
    the option, for the message. `in_lake`: they become columns of a Delta or Iceberg table.
    Raises ConfigError.
    """
    try:
        return _Parser(ddl, _NOT_IN_LAKES if in_lake else frozenset()).fields()
    except _Wrong as wrong:
        raise ConfigError(f"{said} {ddl!r} is no schema: {wrong}; {_ADVICE}") from None
    except _Impossible as impossible:
        raise ConfigError(f"{said.removesuffix(':')}: column {impossible}.") from None


def column_collated(ddl: str, collation: str) -> str | None:
    """The first column of a checked schema, also in a STRUCT, that has this collation."""
    parser = _Parser(ddl, frozenset())
    parser.fields()
    return parser.collated.get(collation.casefold())


def ambiguous(columns: Iterable[str], fields: Iterable[str]) -> str | None:
    """The first field that Spark, which ignores case, could not distinguish from a column or from
    a field before it."""
    taken = {name.casefold() for name in columns}
    for name in fields:
        if name.casefold() in taken:
            return name
        taken.add(name.casefold())
    return None


class _Wrong(Exception):
    pass


class _Impossible(Exception):
    """A column that is a schema's, but not one of JSON payloads."""


class _Parser:
    def __init__(self, text: str, lacking: frozenset[str]) -> None:
        """`lacking`: types that the rows' table does not take."""
        self._lacking = lacking
        self.collated: dict[str, str] = {}
        """Columns by the folded name of their collation."""
        self._tokens: list[str] = []
        at, text = 0, text.strip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise _Wrong(f"{text[at:].strip()[:20]!r} cannot stand there")
            self._tokens.append(match[0].strip())
            at = match.end()
        self._at = 0

    def fields(self) -> dict[str, str]:
        if not self._tokens:
            raise _Wrong("it is empty")
        whole = self._next_is("struct") and self._tokens[1:2] == ["<"]
        if whole:
            self._at = 2
        fields = self._fields()
        if whole:
            self._need(">")
        if self._at < len(self._tokens):
            raise _Wrong(f"{self._tokens[self._at]!r} cannot stand there")
        return fields

    def _fields(self) -> dict[str, str]:
        fields: dict[str, str] = {}
        twice = set()
        while True:
            name = self._name()
            if name in fields:
                twice.add(name)
            self._take(":")
            fields[name] = self._type(name)
            self._attributes(name)
            if not self._take(","):
                break
        if twice:
            raise _Wrong(f"{min(twice)} is there twice")
        return fields

    def _name(self) -> str:
        token = self._word("a name")
        return token[1:-1].replace("``", "`") if token.startswith("`") else token

    def _type(self, of: str) -> str:
        """The type in Spark's short form; "" where its settings or its parser decide."""
        name = self._word(f"the type of {of}").casefold()
        if name not in _TYPES:
            near = nearest_name(name, _TYPES)
            hint = f" (did you mean {near.upper()}?)" if near else ""
            raise _Wrong(f"there is no type {name.upper()}{hint}")
        if name in ("array", "map"):
            self._need("<")
            inner = [self._type(of)]
            if name == "map":
                self._need(",")
                if inner[0] != "string":
                    raise _Impossible(
                        f"{of} is a MAP with another key than STRING, the only one in JSON: use "
                        "MAP<STRING, …>"
                    )
                inner.append(self._type(of))
            self._need(">")
            return f"{name}<{','.join(inner)}>" if all(inner) else ""
        if name == "struct":
            self._need("<")
            if self._take(">"):
                return self._taken("struct<>", of)
            fields = self._fields()
            self._need(">")
            if twice := ambiguous((), fields):
                raise _Impossible(
                    f"{of} has two fields {twice}, since Spark ignores case: leave one out"
                )
            texts = [f"{field}:{kind}" for field, kind in fields.items()]
            return f"struct<{','.join(texts)}>" if all(fields.values()) else ""
        numbers = []
        if self._take("("):
            while not self._take(")"):
                numbers.append(self._word("a number or )"))
                self._take(",")
        if name in _NOT_IN_JSON:
            raise _Impossible(
                f"{of} is {name.upper()}, which Spark does not parse from JSON: use STRING"
            )
        which = name
        if name == "interval":  # INTERVAL DAY TO SECOND
            while any(map(self._next_is, _PARTS)):
                self._at += 1
                which = "interval of fields"
        self._taken(which, of)
        if name == "string" and self._take("collate"):
            collation = self._word("a collation")
            if not _COLLATION.fullmatch(collation):
                raise _Wrong(f"there is no collation {collation}")
            self.collated.setdefault(collation.casefold(), of)
            return ""
        if name in ("decimal", "dec", "numeric"):
            numbers += ("10", "0")[len(numbers) :]
            text = f"decimal({','.join(numbers)})"
            if len(numbers) == 2 and all(map(str.isdecimal, numbers)):
                digits, scale = map(int, numbers)
                if digits > _DIGITS or scale > digits:
                    raise _Impossible(
                        f"{of} is {text.upper()}, but the first number is {_DIGITS} at most, and "
                        f"the second not above it: use for example DECIMAL({_DIGITS},2)"
                    )
            return text
        return _SHORT.get(name, "")

    def _taken(self, kind: str, of: str) -> str:
        """The type, if the rows' table takes it."""
        if kind in self._lacking:
            said = kind.partition(" ")[0].upper()
            raise _Impossible(
                f"{of} is {said}, which Delta and Iceberg tables do not take: use STRING"
            )
        return kind

    def _attributes(self, of: str) -> None:
        """COMMENT 'text', and NOT NULL, which is refused."""
        if self._next_is("not"):
            raise _Impossible(
                f"{of} is NOT NULL, but each column of JSON payloads may be null: leave NOT NULL "
                "out"
            )
        if self._take("comment"):
            self._word("the text of COMMENT")

    def _next_is(self, word: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at].casefold() == word

    def _take(self, token: str) -> bool:
        if not self._next_is(token):
            return False
        self._at += 1
        return True

    def _need(self, token: str) -> None:
        if not self._take(token):
            raise _Wrong(f"{token!r} is missing")

    def _word(self, what: str) -> str:
        token = self._tokens[self._at] if self._at < len(self._tokens) else ""
        if not token or token in "<>(),:":
            raise _Wrong(f"{what} is missing" if not token else f"{what} is missing at {token!r}")
        self._at += 1
        return token
