"""Payloads that are JSON objects, nearly: for comparing parsers."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping

Kind = str | Callable[[random.Random, bool], str]
"""A type, or what makes values of it: plain ones, or some that are not."""

FIELDS = {
    "t": "string",
    "y": "tinyint",
    "h": "smallint",
    "i": "int",
    "l": "bigint",
    "d": "double",
    "b": "boolean",
    "naïve": "string",
    "on": "date",
    "at": "timestamp",
}
"""Types of fields, by their names."""

_words: Callable[[str], list[str]] = re.compile(r"\S+").findall

_PLAIN = {
    "string": [
        *_words('"x" "" "a\\nb\\"c\\\\\\/" "\\u00e9\\ud83d\\ude00\\u0000" null'),
        '"é ß 漢 😀"',
    ],
    "tinyint": _words("0 -128 127 7 null"),
    "smallint": _words("0 -32768 32767 null"),
    "int": _words("0 2147483647 -2147483648 12 null"),
    "bigint": _words("0 999999999999999999 -1 1700000000000000000 null"),
    "double": _words(
        "0 1 -1.5 0.1 1e3 -0.0 1E-7 123456789.123456789 5e-324 null "
        "0.1234567890123456789 9007199254740993 1.7976931348623157e308 1e22 1e23 "
        "123456789012345678901234567890 2.2250738585072011e-308 0.30000000000000004"
    ),
    "boolean": _words("true false null"),
    "decimal": _words("0 1.5 -12345678.91 12345678.915 0.1 1e3 99999999.99 100000000 1E-20 null"),
    "binary": _words('"aGVsbG8=" "" "AA==" null'),
    "date": _words('"2026-01-31" "1970-01-01" "0001-01-01" "9999-12-31" "2024-02-29" null'),
    "timestamp": [
        '"1969-12-31 23:59:59.999999Z"',
        *_words(
            '"2026-01-31T12:34:56Z" "2013-06-30T23:59:59.1+05:30" '
            '"1582-10-10T00:00:00.123456789-17:59" "0001-01-01T00:00:00Z" null '
            '"9999-12-31T23:59:59.999999Z" "2000-02-29T00:00:00.000000+00:00"'
        ),
    ],
}
_ODD = _words(
    "-0 01 1. .5 +1 1e 1e400 -1e400 128 -129 255 40000 1.0 1e2 2147483648 "
    "9223372036854775807 9223372036854775808 -9223372036854775808 NaN Infinity "
    '-Infinity "NaN" "12" "true" True nul tru [] {} [1,2] '
    '{"a":{"b":[null,"x",-1.5e3]}} "\\ud800" "\\x" "\\u12" \'x\' "open '
    '"2026-02-29" "2026-13-01" "2026-1-1" "0000-01-01" "10000-01-01" "2026-01-31T" '
    '"2026-01-31T12:00:00" "2026-01-31T24:00:00Z" "2026-01-31T12:60:00Z" 1700000000 '
    '-1 "2026-01-31T12:00:60Z" "2026-01-31T12:00:00.Z" "2026-01-31T12:00:00z" '
    '"2026-01-31T12:00:00+18:30" "2026-01-31T12:00:00+5:30" "now" '
    '"2026-01-31T12:00:00.1234567890Z" "2026\\u002d01-31" "+2026-01-31" '
    '"2026-01-31T1:2:3Z" 0x10 1_000 --1 1.5.5 1e5e5'
)
_ODD += ["", '"tab\t"', "1 2", '" 2026-01-31"', '"2026-01-31T12:00:00 UTC"', "/* x */ 1"]
_ODD += ["1" * 30, "1" * 60, "0." + "3" * 50, "[" * 40 + "]" * 40, '"' + "\\u0041" * 500 + '"']
_SPACES = ("", "", "", " ", "\n", "\t ", "\r\n")
_WRONG = [b"", b" ", *map(str.encode, _words('null 1 "x" [] { } {} {,} [{}] {}{}')), b"\xff"]
_WRONG += [b"\xef\xbb\xbf{}", b'\xef\xbb\xbf{"t": "x"}', b"\x00{}", b"{}\x00", b"\xc2\xa0{}"]
# What is at the limits of a parser: of depth, of the length of a number, of a name.
_HUGE = [
    *("[" * depth + "]" * depth for depth in (300, 999, 1_000, 1_001, 5_000)),
    *('{"a":' * depth + "1" + "}" * depth for depth in (499, 998, 1_000, 1_001)),
    *("1" * digits for digits in (309, 999, 1_000, 1_001)),
    *("0." + "1" * digits for digits in (990, 1_100)),
    "1e" + "9" * 30,
    *('"' + "x" * size + '"' for size in (70_000, 200_000)),
    *('{"' + "n" * size + '": 1}' for size in (50_000, 50_001)),
]


def _object(**fields: Kind) -> Kind:
    def made(rng: random.Random, odd: bool) -> str:
        names = rng.sample(sorted(fields), rng.randint(0, len(fields)))
        if odd and names and rng.random() < 0.2:
            names.append(rng.choice(names))
        members = (_spaced(rng, f'"{one}"', ":", _value(rng, fields[one], odd)) for one in names)
        return _spaced(rng, "{", ",".join(members), "}")

    return made


def _list(of: Kind) -> Kind:
    def made(rng: random.Random, odd: bool) -> str:
        items = [_value(rng, of, odd) for _ in range(rng.randint(0, 4))]
        return _spaced(rng, "[", ",".join(items), "]")

    return made


def _map(of: Kind) -> Kind:
    def made(rng: random.Random, odd: bool) -> str:
        names = (rng.choice(("a", "b", "", "é", "a b")) for _ in range(rng.randint(0, 3)))
        return "{" + ",".join(f"{json.dumps(name)}: {_value(rng, of, odd)}" for name in names) + "}"

    return made


NESTED: dict[str, tuple[str, Kind]] = {
    "s": (
        "struct<a: int, b: string, c: struct<d: double, e: boolean>>",
        _object(a="int", b="string", c=_object(d="double", e="boolean")),
    ),
    "l": ("array<bigint>", _list("bigint")),
    "o": ("array<struct<at: timestamp, on: date>>", _list(_object(at="timestamp", on="date"))),
    "m": ("map<string, double>", _map("double")),
    "g": ("map<string, array<string>>", _map(_list("string"))),
    "p": ("decimal(10, 2)", "decimal"),
    "q": ("decimal(38, 18)", "decimal"),
    "f": ("float", "double"),
    "z": ("binary", "binary"),
    "t": ("string", "string"),
    "n": ("bigint", "bigint"),
}
"""Types in DDL, which are in no kernel, and what makes their values."""
SCHEMAS: list[tuple[Mapping[str, str], Mapping[str, Kind]]] = [
    (FIELDS, FIELDS),
    (
        {name: ddl for name, (ddl, _) in NESTED.items()},
        {name: kind for name, (_, kind) in NESTED.items()},
    ),
]
"""A flat one and a nested one: types in DDL, and what makes their values."""


def payload(rng: random.Random, fields: Mapping[str, Kind] = FIELDS) -> bytes:
    """An object, of which about half are plain."""
    if rng.random() < 0.03:
        return rng.choice(_WRONG)
    odd = rng.random() < 0.4
    names = rng.sample(sorted(fields), rng.randint(0, len(fields)))
    if rng.random() < 0.4:
        names.append(rng.choice(("other", "T", "", "_corrupt_record", "x.y")))
    if odd and names and rng.random() < 0.2:
        names.append(rng.choice(names))
    members = []
    for name in names:
        value = _value(rng, fields.get(name) or rng.choice(sorted(_PLAIN)), odd)
        key = json.dumps(name, ensure_ascii=rng.random() < 0.5)
        if rng.random() < 0.05 and name in fields:
            key = f'"\\u{ord(name[0]):04x}{key[2:]}'
        members.append(_spaced(rng, key, ":", value))
    text = _spaced(rng, "{", _spaced(rng, ",".join(members)), "}")
    data = text.encode("utf-8", "surrogatepass")
    return _spoiled(data, rng) if odd and rng.random() < 0.3 else data


def _value(rng: random.Random, kind: Kind, odd: bool) -> str:
    if odd and rng.random() < 0.3:
        kind = rng.choice(sorted(_PLAIN))
    if odd and rng.random() < 0.3:
        return rng.choice(_HUGE if rng.random() < 0.004 else _ODD)
    if isinstance(kind, str):
        return rng.choice(_PLAIN[kind])
    return kind(rng, odd)


def _spaced(rng: random.Random, *parts: str) -> str:
    return "".join(rng.choice(_SPACES) + part for part in parts) + rng.choice(_SPACES)


def _spoiled(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    at = rng.randint(0, len(out))
    kind = rng.random()
    if kind < 0.4:
        out[at : at + 1] = rng.choice(
            (b'"', b"\\", b",", b"{", b"}", b"\x00", b"\xff", b"\xc3", b"1")
        )
    elif kind < 0.7:
        del out[at : at + rng.randint(1, 3)]
    else:
        out[at:at] = rng.choice(
            (b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xc0\x80", b"x", b",", b"\\u")
        )
    return bytes(out)
