"""JSON Schema: what these rules allow, a validator allows; and they allow what people change."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jetspark.registry.effort import TooComplex
from jetspark.registry.json_rules import find_disallowed

STRING, NUMBER, INTEGER = ({"type": name} for name in ("string", "number", "integer"))


def obj(required: str = "", **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


def opened(schema: dict[str, Any], more: Any = True) -> dict[str, Any]:
    return {**schema, "additionalProperties": more}


def ref(name: str, **definitions: Any) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}", "$defs": definitions}


TREE = {"n": obj(value=INTEGER, next={"$ref": "#/$defs/n"})}
WIDE_TREE = {"n": obj(value=NUMBER, next={"$ref": "#/$defs/n"})}
CASH = obj("kind", kind={"const": "cash"})
CARD = obj("kind", kind={"const": "card"}, number=STRING)


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (obj(a=STRING, b=INTEGER), obj(a=STRING)),
        (obj(a=NUMBER), obj("a", a=INTEGER)),
        (obj(a={"type": ["string", "null"]}), obj(a=STRING)),
        (obj(a={"anyOf": [STRING, {"type": "null"}]}), obj(a=STRING)),
        ({"enum": ["a", "b", "c"]}, {"enum": ["a", "b"]}),
        ({"enum": ["a", "b"]}, {"const": "b"}),
        ({"type": "array", "items": NUMBER}, {"type": "array", "items": INTEGER, "minItems": 1}),
        ({"minimum": 0}, {"type": "integer", "exclusiveMinimum": 0}),
        ({"exclusiveMaximum": 10}, {"maximum": 9}),
        ({"type": "string", "maxLength": 9}, {"type": "string", "maxLength": 3, "pattern": "^a"}),
        ({"type": "number", "multipleOf": 2}, {"type": "integer", "multipleOf": 4}),
        (opened(obj(a=STRING)), obj(a=STRING, b=INTEGER)),
        (opened(obj(a=STRING), INTEGER), obj(a=STRING, b=INTEGER)),
        (ref("n", **WIDE_TREE), ref("n", **TREE)),
        ({"oneOf": [CASH, CARD, STRING]}, {"oneOf": [CASH, CARD]}),
        (obj(a=STRING), {"allOf": [obj(a=STRING), {"minProperties": 1}], "maxProperties": 2}),
        (True, STRING),
        (STRING, False),
        ({**obj(a=STRING), "title": "new", "$id": "b"}, {**obj(a=STRING), "$id": "a"}),
        ({"prefixItems": [STRING], "items": NUMBER}, {"prefixItems": [STRING], "items": INTEGER}),
        ({"prefixItems": [STRING], "items": NUMBER}, {"prefixItems": [STRING, INTEGER, INTEGER]}
         | {"items": False}),
    ],
)  # fmt: skip
def test_a_reader_that_allows_more_is_compatible(reader: Any, writer: Any) -> None:
    assert find_disallowed(reader, writer) == []


@pytest.mark.parametrize(
    ("reader", "writer", "why"),
    [
        (obj(a=INTEGER), obj(a=NUMBER), "$.a: may be number"),
        (obj("a", a=STRING), obj(a=STRING), "$.a: may be missing"),
        (obj(a=STRING), obj(a=STRING, b=STRING), "$.b: the reader's schema does not allow it"),
        (obj(a=STRING), opened(obj(a=STRING)), "$.*: the reader's schema does not allow it"),
        (opened(obj(a=STRING, b=STRING)), opened(obj(a=STRING)), "$.b: may be"),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, "$: may have a value that is not in enum"),
        ({"const": 1}, {"const": True}, "$: may have a value that is not in const"),
        ({"minimum": 1}, {"type": "integer", "minimum": 0}, "$: minimum does not follow"),
        ({"exclusiveMinimum": 0}, {"minimum": 0}, "$: exclusiveMinimum does not follow"),
        ({"pattern": "^a"}, STRING, "$: pattern does not follow"),
        (ref("n", **TREE), ref("n", **WIDE_TREE), "$.value: may be number"),
        ({"oneOf": [CASH, opened(CASH)]}, CASH, "$: may fit several of oneOf"),
        ({"oneOf": [True, True]}, STRING, "$: may fit several of oneOf"),
        ({"anyOf": [STRING, INTEGER]}, NUMBER, "$: may fit none of anyOf"),
        ({"not": STRING}, INTEGER, "$: not does not follow"),
        ({"$ref": "https://elsewhere/x"}, INTEGER, "$: https://elsewhere/x is not in"),
        ({"unevaluatedProperties": False, **obj(a=STRING)}, obj(a=STRING), "$: unevaluated"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, STRING, "the drafts of"),
        ({"a": {"$id": "x"}, "$id": "y"}, STRING, "it has an $id within"),
    ],
)
def test_a_reader_that_allows_less_is_not(reader: Any, writer: Any, why: str) -> None:
    assert any(found.startswith(why) for found in find_disallowed(reader, writer)), find_disallowed(
        reader, writer
    )


def test_definitions_that_all_name_each_other_are_compared_soon() -> None:
    names = [f"d{at}" for at in range(30)]
    links: dict[str, Any] = {name: {"$ref": f"#/$defs/{name}"} for name in names}
    one = ref("d0", **{name: opened(obj(v=INTEGER, **links)) for name in names})
    other = ref("d0", **{name: opened(obj(v=NUMBER, **links)) for name in names})
    assert find_disallowed(other, one) == []
    assert find_disallowed(one, other)


# -- a validator as the judge ----------------------------------------------------------------------

SCALARS: list[Any] = [None, True, False, 0, 1, 2, 3.5, -1, "", "a", "ab", "abc"]
LISTS: list[Any] = [[], *([one] for one in SCALARS), [1, "a"], ["a", 1], [1, 1], ["a", "b", "a"]]
VALUES: list[Any] = [
    *SCALARS,
    *LISTS,
    {},
    *({"a": one} for one in (*SCALARS, [], [1], {})),
    *({"b": one} for one in SCALARS),
    *({"a": one, "b": other} for one, other in itertools.product(SCALARS[::3], repeat=2)),
    *({"a": {"a": one}} for one in SCALARS),
    {"c": 1, "a": "a"},
]
SMALL = st.integers(0, 3)
KEYWORDS: dict[str, Any] = {
    "minimum": SMALL,
    "exclusiveMinimum": SMALL,
    "maximum": SMALL,
    "exclusiveMaximum": SMALL,
    "multipleOf": st.integers(1, 3),
    "minLength": SMALL,
    "maxLength": SMALL,
    "pattern": st.sampled_from(["^a", "b$"]),
    "minItems": SMALL,
    "maxItems": SMALL,
    "uniqueItems": st.booleans(),
    "required": st.lists(st.sampled_from("ab"), unique=True),
    "minProperties": SMALL,
    "maxProperties": SMALL,
    "enum": st.lists(st.sampled_from(SCALARS), min_size=1, max_size=4),
    "const": st.sampled_from(SCALARS),
    "type": st.sampled_from(["object", "string", "integer", "number", ["string", "null"]]),
    "$ref": st.sampled_from(["#/$defs/x", "#", "#/$defs/none"]),
}
DEEPER = ("additionalProperties", "items", "additionalItems", "not", "contains", "propertyNames")


def schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    listed = st.lists(inner, min_size=1, max_size=2)
    named = st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    words = {
        **KEYWORDS,
        **dict.fromkeys(DEEPER, inner),
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), listed),
        "properties": named,
        "patternProperties": st.dictionaries(st.just("^b"), inner, max_size=1),
    }
    return st.lists(st.sampled_from(sorted(words)), max_size=4, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries({word: words[word] for word in chosen})
    )


SCHEMAS = st.recursive(st.booleans() | schemas(st.booleans()), schemas, max_leaves=6)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    """Two schemas, the second one often like the first, but for a part of it."""
    one = draw(SCHEMAS)
    return one, draw(SCHEMAS) if draw(st.integers(0, 3)) == 0 else draw(changed(one))


@st.composite
def changed(draw: st.DrawFn, schema: Any) -> Any:
    if not isinstance(schema, dict) or not schema or draw(st.integers(0, 4)) == 0:
        return draw(SCHEMAS)
    word = draw(st.sampled_from(sorted(schema)))
    value = schema[word]
    if word in DEEPER:
        return {**schema, word: draw(changed(value))}
    if word in ("properties", "patternProperties") and value:
        name = draw(st.sampled_from(sorted(value)))
        return {**schema, word: {**value, name: draw(changed(value[name]))}}
    if word in ("allOf", "anyOf", "oneOf", "prefixItems"):
        return {**schema, word: [*value[:-1], draw(changed(value[-1]))]}
    if draw(st.booleans()):
        return {one: other for one, other in schema.items() if one != word}
    return {**schema, word: draw(KEYWORDS[word])} if word in KEYWORDS else schema


def whole(schema: Any, definition: Any, draft: str) -> Any:
    """Both have a definition of their own; draft 7 has no $defs of its own, but takes them."""
    named = {} if draft == "" else {"$schema": draft}
    return {**schema, "$defs": {"x": definition}, **named} if isinstance(schema, dict) else schema


@given(pairs(), pairs(), st.sampled_from(["", "http://json-schema.org/draft-07/schema#"]))
def test_a_value_that_the_writer_allows_is_allowed_by_a_compatible_reader(
    schemas: tuple[Any, Any], definitions: tuple[Any, Any], draft: str
) -> None:
    # Takes seconds to import, which not every process of the tests should spend.
    from jsonschema.validators import Draft7Validator, Draft202012Validator

    reader, writer = map(whole, schemas, definitions, [draft] * 2)
    try:
        assume(not find_disallowed(reader, writer))
    except (RecursionError, TooComplex):  # `incompatibilities` says that it is too deep or complex
        assume(False)
    make = Draft7Validator if draft else Draft202012Validator
    by_writer, by_reader = make(writer), make(reader)
    for value in VALUES:
        try:
            if by_writer.is_valid(value):
                assert by_reader.is_valid(value), value
        except Exception as error:  # a reference to nothing, or without an end
            assume(isinstance(error, AssertionError))
            raise
