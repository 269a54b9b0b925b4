"""JSON Schema: whether a reader's schema allows every value that a writer's allows. Pure.

Each keyword of the reader's schema must follow from the writer's; what the writer's demands beside
that only makes its values fewer, so parts of it may be left out. Drafts 6 and later, the same in
both. Annotations do not count, and format is one of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, Final, TypeAlias, TypeGuard

from jetspark.registry.effort import Effort

_Schema: TypeAlias = dict[str, Any]
_Pairs: TypeAlias = set[tuple[str, str]]
"""Pairs of a reader's and a writer's schema, as texts."""

_TYPES: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
_ARRAY_KEYWORDS: Final = ("items", "prefixItems", "additionalItems")
_OBJECT_KEYWORDS: Final = ("properties", "additionalProperties", "patternProperties")
_CONTEXT_KEYWORDS: Final = (
    *("unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef"),
)
"""Keywords whose meaning depends on all that is beside them."""
_TYPES_BY_KEYWORD: Final = {
    word: types
    for types, words in {
        ("integer", "number"): (
            *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        ),
        ("string",): ("minLength", "maxLength", "pattern"),
        ("array",): (
            *(*_ARRAY_KEYWORDS, "minItems", "maxItems", "uniqueItems"),
            *("contains", "minContains", "maxContains"),
        ),
        ("object",): (
            *(*_OBJECT_KEYWORDS, "required", "minProperties", "maxProperties", "propertyNames"),
            *("dependencies", "dependentRequired", "dependentSchemas"),
        ),
        tuple(_TYPES): (
            *("$ref", "allOf", "anyOf", "oneOf", "not", "type", "enum", "const"),
            *("if", "then", "else", *_CONTEXT_KEYWORDS),
        ),
    }.items()
    for word in words
}
"""The types of values that a keyword concerns; it lets all others pass."""
_NUMBER_BOUNDS: Final = {
    1: ("minimum", "exclusiveMinimum"),
    -1: ("maximum", "exclusiveMaximum"),
}
_KEYWORD_GROUPS: Final = (
    frozenset({"if", "then", "else"}),
    frozenset({"contains", "minContains", "maxContains"}),
    frozenset(_ARRAY_KEYWORDS),
)
"""Keywords that have a meaning only together."""
_OLD_DRAFTS: Final = ("draft-06", "draft-07")
_DRAFTS: Final = ("", *_OLD_DRAFTS, "2019-09", "2020-12")
_CHARS_PER_STEP: Final = 100
_MAX_DEPTH: Final = 10
"""Levels of $ref and allOf that lead to each other."""


def find_disallowed(reader: Any, writer: Any) -> list[str]:
    """Return why the reader's schema may refuse a value of the writer's; empty: it allows all.

    Raises TooComplex.
    """
    if _text(reader) == _text(writer):
        return []
    drafts = {_draft(reader), _draft(writer)}
    if len(drafts) > 1 or not drafts <= set(_DRAFTS):
        return ["the drafts of JSON Schema are not the same, or are not known"]
    if any(json.dumps(schema).count('"$id"') > 1 for schema in (reader, writer)):
        return ["it has an $id within, and cannot be judged"]
    return list(_Comparison(reader, writer, drafts.pop()).check(reader, writer, "$", set()))


def _draft(schema: Any) -> str:
    """Return the draft that a schema names; "" if it names none."""
    named = str(schema.get("$schema", "")) if isinstance(schema, dict) else ""
    return next((draft for draft in _DRAFTS[1:] if draft in named), named)


def _text(value: Any) -> str:
    """Return the JSON of a value. Equal texts are equal values; in Python, 1 equals True."""
    return json.dumps(value, sort_keys=True)


class _Comparison:
    """Compares schemas in two documents, those of a reader and a writer, of one draft.

    Its methods yield a sentence for each value that the writer's schema allows and the reader's may
    not. `path`: of the value.
    """

    def __init__(self, reader: Any, writer: Any, draft: str) -> None:
        self._reader = reader
        self._writer = writer
        self._effort = Effort()
        self._ref_stands_alone = draft in _OLD_DRAFTS
        self._has_prefix = draft in ("", "2020-12")

    def check(self, reader: Any, writer: Any, path: str, seen: _Pairs) -> Iterator[str]:
        """Compare two schemas. `seen`: pairs that are being compared or were; where schemas contain
        themselves, a pair holds if everything else does."""
        if isinstance(reader, bool):
            reader = {} if reader else {"enum": []}
        pair = _text(reader), _text(writer)
        self._effort.spend(1 + (len(pair[0]) + len(pair[1])) // _CHARS_PER_STEP)
        writer = self._flatten(writer, self._writer)
        if pair in seen or not _types(writer):
            return
        seen.add(pair)
        for word in ("anyOf", "oneOf"):
            if word in writer:
                rest = {name: value for name, value in writer.items() if name != word}
                for branch in writer[word]:
                    yield from self.check(reader, {"allOf": [rest, branch]}, path, seen)
                return
        for word in reader:
            if not _types(writer).isdisjoint(_TYPES_BY_KEYWORD.get(word, ())):
                yield from self._check_keyword(word, reader, writer, path, seen)

    def _check_keyword(
        self, word: str, reader: _Schema, writer: _Schema, path: str, seen: _Pairs
    ) -> Iterator[str]:
        """Check a keyword of the reader's schema."""
        constraint = reader[word]
        match word:
            case "$ref":
                if (referred := _resolve(self._reader, constraint)) is None:
                    yield f"{path}: {constraint} is not in this document, and cannot be judged"
                else:
                    yield from self.check(referred, writer, path, seen)
            case "allOf":
                for branch in constraint:
                    yield from self.check(branch, writer, path, seen)
            case "anyOf" | "oneOf":
                yield from self._check_choice(word, constraint, writer, path, seen)
            case "type":
                if missing := _types(writer) - _types({"type": constraint}):
                    yield f"{path}: may be {' or '.join(sorted(missing))}"
            case "enum" | "const":
                allowed = {
                    _text(value) for value in (constraint if word == "enum" else [constraint])
                }
                values = _values(writer)
                if not allowed:  # the schema false
                    yield f"{path}: the reader's schema does not allow it"
                elif values is None or not values <= allowed:
                    yield f"{path}: may have a value that is not in {word}"
            case "properties":
                for name, schema in constraint.items():
                    yield from self.check(schema, _property(writer, name), f"{path}.{name}", seen)
            case "additionalProperties":
                yield from self._check_additional(reader, writer, path, seen)
            case "items" | "prefixItems" | "additionalItems":
                if word == next(
                    name for name in _ARRAY_KEYWORDS if name in reader
                ):  # once for all three
                    yield from self._check_items(reader, writer, path, seen)
            case "required":
                for name in sorted(set(constraint) - set(writer.get("required", ()))):
                    yield f"{path}.{name}: may be missing"
            case _:
                if not (
                    _is_implied(word, constraint, writer) or self._is_same(word, reader, writer)
                ):
                    yield f"{path}: {word} does not follow from the other schema"

    def _check_choice(
        self, word: str, branches: list[Any], writer: _Schema, path: str, seen: _Pairs
    ) -> Iterator[str]:
        """Check anyOf or oneOf: one branch takes all values; of oneOf, the others take none."""
        for at, branch in enumerate(branches):
            tried = set(seen)
            if any(self.check(branch, writer, path, tried)):
                continue
            seen |= tried
            rest = branches[:at] + branches[at + 1 :]
            if word == "oneOf" and not all(self._are_disjoint(part, writer) for part in rest):
                yield f"{path}: may fit several of oneOf"
            return
        yield f"{path}: may fit none of {word}"

    def _are_disjoint(self, reader: Any, writer: Any) -> bool:
        """Return whether surely no value fits both."""
        left, right = self._flatten(reader, self._reader), self._flatten(writer, self._writer)
        if not _types(left) & _types(right):
            return True
        values, right_values = _values(left), _values(right)
        if values is not None and right_values is not None:
            return not values & right_values
        if _types(left) & _types(right) != {"object"}:
            return False
        names = set(left.get("required", ())) & set(right.get("required", ()))
        return any(
            self._are_disjoint(_property(left, name), _property(right, name)) for name in names
        )

    def _check_additional(
        self, reader: _Schema, writer: _Schema, path: str, seen: _Pairs
    ) -> Iterator[str]:
        """Check properties that the reader's schema does not name."""
        schema, properties = reader["additionalProperties"], reader.get("properties", {})
        if "patternProperties" in reader or "patternProperties" in writer:
            if not all(self._is_same(word, reader, writer) for word in _OBJECT_KEYWORDS):
                yield f"{path}: patternProperties and additionalProperties cannot be judged"
            return
        for name, part in writer.get("properties", {}).items():
            if name not in properties:
                yield from self.check(schema, part, f"{path}.{name}", seen)
        further = writer.get("additionalProperties", True)
        yield from self.check(schema, further, f"{path}.*", seen)

    def _check_items(
        self, reader: _Schema, writer: _Schema, path: str, seen: _Pairs
    ) -> Iterator[str]:
        """Check the elements of arrays, by their places."""
        (elements, rest), (written, written_rest) = self._elements(reader), self._elements(writer)
        for at in range(max(len(elements), len(written))):
            element = elements[at] if at < len(elements) else rest
            item = written[at] if at < len(written) else written_rest
            yield from self.check(element, item, f"{path}[{at}]", seen)
        yield from self.check(rest, written_rest, f"{path}[]", seen)

    def _elements(self, schema: _Schema) -> tuple[list[Any], Any]:
        """Return the schemas of the first elements, and the one of all further elements."""
        items = schema.get("items", True)
        if self._has_prefix:
            return schema.get("prefixItems", []), items
        if isinstance(items, list):
            return items, schema.get("additionalItems", True)
        return [], items

    def _is_same(self, word: str, reader: _Schema, writer: _Schema) -> bool:
        """Return whether a keyword, and those that go with it, have equal values in both."""
        if word in _CONTEXT_KEYWORDS:
            return False
        words = next((group for group in _KEYWORD_GROUPS if word in group), {word})
        read, written = ({key: schema.get(key) for key in words} for schema in (reader, writer))
        return _text(read) == _text(written) and '"$' not in _text(read)

    def _flatten(self, schema: Any, root: Any, depth: int = 0) -> _Schema:
        """Return a schema without $ref and allOf that allows no less."""
        self._effort.spend()
        if isinstance(schema, bool):
            return {} if schema else {"enum": []}
        own = {name: value for name, value in schema.items() if name not in ("$ref", "allOf")}
        parts = list(schema.get("allOf", ()))
        if "$ref" in schema:
            if self._ref_stands_alone:
                own, parts = {}, []
            referred = _resolve(root, schema["$ref"])
            parts += [] if referred is None else [referred]
        for part in parts if depth < _MAX_DEPTH else ():
            own = _merge(own, self._flatten(part, root, depth + 1))
        return own


# -- parts of schemas ------------------------------------------------------------------------------


def _resolve(root: Any, reference: str) -> Any:
    """Return the schema of a reference; None for one that is not in the document."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    target = root
    for token in reference.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(target, list) and name.isdecimal() and int(name) < len(target):
            target = target[int(name)]
        elif isinstance(target, dict) and name in target:
            target = target[name]
        else:
            return None
    return target if isinstance(target, dict | bool) else None


def _types(schema: _Schema) -> set[str]:
    """Return the types that values of a schema may have; "number": one with a fraction."""
    named = schema.get("type", list(_TYPES))
    types = {named} if isinstance(named, str) else set(named)
    if "number" in types:
        types.add("integer")
    values = _values(schema)
    return (
        types if values is None else types & {_type_of_value(json.loads(value)) for value in values}
    )


def _type_of_value(value: Any) -> str:
    """Return JSON Schema's type of a value; 1.0 is an integer."""
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer"}
    return names.get(type(value), "null")


def _values(schema: _Schema) -> set[str] | None:
    """Return the texts of a schema's values, if it lists them (enum, const); else None."""
    lists = [schema["enum"]] if "enum" in schema else []
    lists += [[schema["const"]]] if "const" in schema else []
    sets = [{_text(value) for value in values} for values in lists]
    return set.intersection(*sets) if sets else None


def _property(schema: _Schema, name: str) -> Any:
    """Return a schema that allows no less than what a property may have."""
    if name in (properties := schema.get("properties", {})):
        return properties[name]
    return True if "patternProperties" in schema else schema.get("additionalProperties", True)


def _is_implied(word: str, bound: Any, writer: _Schema) -> bool:
    """Return whether a bound of the reader's schema follows from those of the writer's."""
    written = writer.get(word)
    if word == "uniqueItems":
        return bound is False or written is True
    if not _is_number(bound):
        return False
    if word == "multipleOf":
        return _is_number(written) and written % bound == 0
    sign = 1 if word.casefold().removeprefix("exclusive").startswith("min") else -1
    names = _NUMBER_BOUNDS[sign] if word.endswith("imum") else (word,)
    bounds = [_bound(name, sign, writer[name]) for name in names if _is_number(writer.get(name))]
    none = 0 if sign == 1 and names == (word,) else -math.inf
    return max(bounds, default=(none, False)) >= _bound(word, sign, bound)


def _bound(word: str, sign: int, value: float) -> tuple[float, bool]:
    """Return a bound in a form in which a stricter one is greater. `sign`: 1 for a lower bound, -1
    for an upper one."""
    return sign * value, word.startswith("exclusive")


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _merge(left: _Schema, right: _Schema) -> _Schema:
    """Return a schema that allows no less than what both allow."""
    merged = dict(left)
    for word, value in right.items():
        group = next((group for group in _KEYWORD_GROUPS if word in group), {word})
        if not group & left.keys():
            merged[word] = value
        elif word == "required":
            merged[word] = [*left[word], *value]
        elif word == "properties":
            merged[word] = {
                name: {"allOf": [schema[name] for schema in (left[word], value) if name in schema]}
                for name in {**left[word], **value}
            }
    return merged
