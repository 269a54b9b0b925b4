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

_Dict: TypeAlias = dict[str, Any]
_Seen: TypeAlias = set[tuple[str, str]]

_TYPES: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
_OF_ARRAYS: Final = ("items", "prefixItems", "additionalItems")
_OF_OBJECTS: Final = ("properties", "additionalProperties", "patternProperties")
_OF_THE_WHOLE: Final = (
    *("unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef"),
)
"""Their meaning depends on all that is beside them."""
_CONCERNS: Final = {
    word: types
    for types, words in {
        ("integer", "number"): (
            *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        ),
        ("string",): ("minLength", "maxLength", "pattern"),
        ("array",): (
            *(*_OF_ARRAYS, "minItems", "maxItems", "uniqueItems"),
            *("contains", "minContains", "maxContains"),
        ),
        ("object",): (
            *(*_OF_OBJECTS, "required", "minProperties", "maxProperties", "propertyNames"),
            *("dependencies", "dependentRequired", "dependentSchemas"),
        ),
        tuple(_TYPES): (
            *("$ref", "allOf", "anyOf", "oneOf", "not", "type", "enum", "const"),
            *("if", "then", "else", *_OF_THE_WHOLE),
        ),
    }.items()
    for word in words
}
"""The types of values that a keyword concerns; it lets all others pass."""
_BOUNDS_OF_NUMBERS: Final = {
    1: ("minimum", "exclusiveMinimum"),
    -1: ("maximum", "exclusiveMaximum"),
}
_TOGETHER: Final = (
    frozenset({"if", "then", "else"}),
    frozenset({"contains", "minContains", "maxContains"}),
    frozenset(_OF_ARRAYS),
)
"""Keywords that mean something only together."""
_OLD: Final = ("draft-06", "draft-07")
_DRAFTS: Final = ("", *_OLD, "2019-09", "2020-12")
_CHARS_OF_STEP: Final = 100
_MAX_DEPTH: Final = 10
"""Levels of $ref and allOf that lead to each other."""


def find_disallowed(reader: Any, writer: Any) -> list[str]:
    """Return why the reader's schema may refuse a value of the writer's; empty: it allows all.

    Raises TooComplex.
    """
    if _is_equal(reader, writer):
        return []
    drafts = {_draft(reader), _draft(writer)}
    if len(drafts) > 1 or not drafts <= set(_DRAFTS):
        return ["the drafts of JSON Schema are not the same, or are not known"]
    if any(json.dumps(schema).count('"$id"') > 1 for schema in (reader, writer)):
        return ["it has an $id within, and cannot be judged"]
    return list(_Rules(reader, writer, drafts.pop()).check(reader, writer, "$", set()))


def _draft(schema: Any) -> str:
    named = str(schema.get("$schema", "")) if isinstance(schema, dict) else ""
    return next((draft for draft in _DRAFTS[1:] if draft in named), named)


def _is_equal(left: Any, right: Any) -> bool:
    return _text(left) == _text(right)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)  # Python takes 1 for True


class _Rules:
    def __init__(self, reader: Any, writer: Any, draft: str) -> None:
        self._reader = reader
        self._writer = writer
        self._effort = Effort()
        self._ref_stands_alone = draft in _OLD
        self._has_prefix = draft in ("", "2020-12")

    def check(self, reader: Any, writer: Any, path: str, seen: _Seen) -> Iterator[str]:
        """`seen`: the pairs that are compared or were; where schemas contain themselves, a pair
        holds if everything else does."""
        if isinstance(reader, bool):
            reader = {} if reader else {"enum": []}
        pair = _text(reader), _text(writer)
        self._effort.spend(1 + (len(pair[0]) + len(pair[1])) // _CHARS_OF_STEP)
        writer = self._flat(writer, self._writer)
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
            if not _types(writer).isdisjoint(_CONCERNS.get(word, ())):
                yield from self._keyword(word, reader, writer, path, seen)

    def _keyword(
        self, word: str, reader: _Dict, writer: _Dict, path: str, seen: _Seen
    ) -> Iterator[str]:
        constraint = reader[word]
        match word:
            case "$ref":
                if (referred := _resolved(self._reader, constraint)) is None:
                    yield f"{path}: {constraint} is not in this document, and cannot be judged"
                else:
                    yield from self.check(referred, writer, path, seen)
            case "allOf":
                for branch in constraint:
                    yield from self.check(branch, writer, path, seen)
            case "anyOf" | "oneOf":
                yield from self._choice(word, constraint, writer, path, seen)
            case "type":
                if missing := _types(writer) - _types({"type": constraint}):
                    yield f"{path}: may be {' or '.join(sorted(missing))}"
            case "enum" | "const":
                allowed = {_text(one) for one in (constraint if word == "enum" else [constraint])}
                values = _values(writer)
                if not allowed:  # the schema false
                    yield f"{path}: the reader's schema does not allow it"
                elif values is None or not values <= allowed:
                    yield f"{path}: may have a value that is not in {word}"
            case "properties":
                for name, one in constraint.items():
                    yield from self.check(one, _property(writer, name), f"{path}.{name}", seen)
            case "additionalProperties":
                yield from self._additional(reader, writer, path, seen)
            case "items" | "prefixItems" | "additionalItems":
                if word == next(one for one in _OF_ARRAYS if one in reader):  # once for all three
                    yield from self._items(reader, writer, path, seen)
            case "required":
                for name in sorted(set(constraint) - set(writer.get("required", ()))):
                    yield f"{path}.{name}: may be missing"
            case _:
                if not (_follows(word, constraint, writer) or self._equal(word, reader, writer)):
                    yield f"{path}: {word} does not follow from the other schema"

    def _choice(
        self, word: str, branches: list[Any], writer: _Dict, path: str, seen: _Seen
    ) -> Iterator[str]:
        for at, branch in enumerate(branches):
            tried = set(seen)
            if any(self.check(branch, writer, path, tried)):
                continue
            seen |= tried
            rest = branches[:at] + branches[at + 1 :]
            if word == "oneOf" and not all(self._disjoint(part, writer) for part in rest):
                yield f"{path}: may fit several of oneOf"
            return
        yield f"{path}: may fit none of {word}"

    def _disjoint(self, reader: Any, writer: Any) -> bool:
        """Whether no value fits both."""
        left, right = self._flat(reader, self._reader), self._flat(writer, self._writer)
        if not _types(left) & _types(right):
            return True
        values, right_values = _values(left), _values(right)
        if values is not None and right_values is not None:
            return not values & right_values
        if _types(left) & _types(right) != {"object"}:
            return False
        names = set(left.get("required", ())) & set(right.get("required", ()))
        return any(self._disjoint(_property(left, name), _property(right, name)) for name in names)

    def _additional(self, reader: _Dict, writer: _Dict, path: str, seen: _Seen) -> Iterator[str]:
        schema, properties = reader["additionalProperties"], reader.get("properties", {})
        if "patternProperties" in reader or "patternProperties" in writer:
            if not all(self._equal(word, reader, writer) for word in _OF_OBJECTS):
                yield f"{path}: patternProperties and additionalProperties cannot be judged"
            return
        for name, part in writer.get("properties", {}).items():
            if name not in properties:
                yield from self.check(schema, part, f"{path}.{name}", seen)
        further = writer.get("additionalProperties", True)
        yield from self.check(schema, further, f"{path}.*", seen)

    def _items(self, reader: _Dict, writer: _Dict, path: str, seen: _Seen) -> Iterator[str]:
        (elements, rest), (written, written_rest) = self._elements(reader), self._elements(writer)
        for at in range(max(len(elements), len(written))):
            element = elements[at] if at < len(elements) else rest
            item = written[at] if at < len(written) else written_rest
            yield from self.check(element, item, f"{path}[{at}]", seen)
        yield from self.check(rest, written_rest, f"{path}[]", seen)

    def _elements(self, schema: _Dict) -> tuple[list[Any], Any]:
        """The schemas of the first elements, and of all further ones."""
        items = schema.get("items", True)
        if self._has_prefix:
            return schema.get("prefixItems", []), items
        if isinstance(items, list):
            return items, schema.get("additionalItems", True)
        return [], items

    def _equal(self, word: str, reader: _Dict, writer: _Dict) -> bool:
        if word in _OF_THE_WHOLE:
            return False
        words = next((group for group in _TOGETHER if word in group), {word})
        read, written = ({key: schema.get(key) for key in words} for schema in (reader, writer))
        return _is_equal(read, written) and '"$' not in _text(read)

    def _flat(self, schema: Any, root: Any, depth: int = 0) -> _Dict:
        """Return a schema without $ref and allOf that allows no less."""
        self._effort.spend()
        if isinstance(schema, bool):
            return {} if schema else {"enum": []}
        own = {name: value for name, value in schema.items() if name not in ("$ref", "allOf")}
        parts = list(schema.get("allOf", ()))
        if "$ref" in schema:
            if self._ref_stands_alone:
                own, parts = {}, []
            parts += [one for one in [_resolved(root, schema["$ref"])] if one is not None]
        for part in parts if depth < _MAX_DEPTH else ():
            own = _both(own, self._flat(part, root, depth + 1))
        return own


# -- parts of schemas ------------------------------------------------------------------------------


def _resolved(root: Any, reference: str) -> Any:
    """The schema of a reference; None for one that is not in the document."""
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


def _types(schema: _Dict) -> set[str]:
    """Types that the values of a schema may have; "number": one with a fraction."""
    named = schema.get("type", list(_TYPES))
    types = {named} if isinstance(named, str) else set(named)
    if "number" in types:
        types.add("integer")
    values = _values(schema)
    return types if values is None else types & {_type(json.loads(value)) for value in values}


def _type(value: Any) -> str:
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer"}
    return names.get(type(value), "null")


def _values(schema: _Dict) -> set[str] | None:
    """The texts of its values, if it lists them."""
    lists = [schema["enum"]] if "enum" in schema else []
    lists += [[schema["const"]]] if "const" in schema else []
    sets = [{_text(value) for value in values} for values in lists]
    return set.intersection(*sets) if sets else None


def _property(schema: _Dict, name: str) -> Any:
    """The schema of a property; it allows no less."""
    if name in (properties := schema.get("properties", {})):
        return properties[name]
    return True if "patternProperties" in schema else schema.get("additionalProperties", True)


def _follows(word: str, bound: Any, writer: _Dict) -> bool:
    """Whether a bound of the reader's follows from those of the writer's."""
    written = writer.get(word)
    if word == "uniqueItems":
        return bound is False or written is True
    if not _is_number(bound):
        return False
    if word == "multipleOf":
        return _is_number(written) and written % bound == 0
    sign = 1 if word.casefold().removeprefix("exclusive").startswith("min") else -1
    names = _BOUNDS_OF_NUMBERS[sign] if word.endswith("imum") else (word,)
    bounds = [_bound(name, sign, writer[name]) for name in names if _is_number(writer.get(name))]
    none = 0 if sign == 1 and names == (word,) else -math.inf
    return max(bounds, default=(none, False)) >= _bound(word, sign, bound)


def _bound(word: str, sign: int, value: float) -> tuple[float, bool]:
    return sign * value, word.startswith("exclusive")


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _both(left: _Dict, right: _Dict) -> _Dict:
    """A schema that allows no less than what both allow."""
    merged = dict(left)
    for word, value in right.items():
        group = next((group for group in _TOGETHER if word in group), {word})
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
