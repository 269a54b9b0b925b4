"""Which values an annotation accepts, and the plain form of those values. Pure.

Annotations that cannot be resolved (a TypeVar, a name imported for type checkers only) accept
anything. A bool is not a number, and a str is not a sequence of str. A subclass of str, an Enum
member or a NumPy number is replaced by the plain value that encoders and f-strings expect. A
generator becomes a list where the annotation is a sequence; where it is an iterable, the items are
not checked. `Annotated[int, range]` accepts the numbers of the range, `Annotated[str, SomeEnum]`
the values of the Enum.
"""

from __future__ import annotations

import collections.abc
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum, EnumType
from itertools import repeat
from numbers import Integral, Real
from operator import index
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)

from jetspark.errors import ConfigError, shown
from jetspark.subjects import nearest_name

StreamSequence: TypeAlias = Annotated[int, range(1, 2**64)]
"""The sequence of a message, or a revision of a bucket."""


def _same(value: Any) -> Any:
    return value


class Kind(NamedTuple):
    """What fits, and how a sentence calls it: one of them, and several."""

    one: str
    many: str
    fits: Callable[[Any], bool]
    plain: Callable[[Any], Any] = _same
    """The plain form of what fits; it may show that it does not fit after all."""
    exact: frozenset[type] = frozenset()
    """Classes whose own values (not those of subclasses) fit and are plain: most values."""
    is_time: bool = False
    words: tuple[str, ...] = ()
    """Texts that fit, where others do not."""

    def refuse(self, name: str, value: object, *, secret: bool = False) -> ConfigError:
        """The error that says so; a secret is not shown."""
        if self.is_time:
            return ConfigError(f"{name} is a number of seconds or a timedelta, not {shown(value)}.")
        told = type(value).__name__ if secret else shown(value)
        near = nearest_name(value, self.words) if isinstance(value, str) else None
        hint = f"; did you mean {near!r}?" if near else "."
        return ConfigError(f"{name} is {self.one}, not {told}{hint}")


CheckedType = TypeVar("CheckedType", bound=type)

_CHECKED_WHERE_USED: Final[set[object]] = set()


def checked_where_used(cls: CheckedType) -> CheckedType:
    """For types whose users raise an error of their own for a wrong value."""
    _CHECKED_WHERE_USED.add(cls)
    return cls


def is_switch(value: Any) -> bool:
    """Whether it is True or False, those of NumPy among them (np.bool_, which is no bool)."""
    if isinstance(value, bool):
        return True
    cls = type(value)
    return cls.__module__ == "numpy" and cls.__name__ in ("bool", "bool_")


def is_whole(value: Any) -> bool:
    """Whether it is a whole number, such as an int or one of NumPy's."""
    if isinstance(value, bool):
        return False
    try:
        index(value)
    except TypeError:
        return False
    return True


def is_number(value: Any) -> bool:
    """Whether it is a real number: an int, a float, a Decimal, a Fraction, one of NumPy's."""
    if isinstance(value, Decimal | float):
        return True
    # NumPy calls its timedelta64 an integer.
    return is_whole(value) or (isinstance(value, Real) and not isinstance(value, Integral))


def plain_text(value: str) -> str:
    """Not a subclass: those may say something else when formatted, as members of an Enum do."""
    return value if type(value) is str else str.__str__(value)


def plain_number(value: Any) -> float:
    """An int for a whole number, else a float; infinite when it is too large, NaN for none."""
    if type(value) is float:
        return value
    if is_whole(value):
        return index(value)
    try:
        return float(value)
    except OverflowError:
        return float("inf" if value > 0 else "-inf")
    except ValueError:  # a signaling NaN
        return float("nan")


def plain_value(value: Any) -> Any:
    """The plain form of what JSON has no type for: one level of it. Raises TypeError."""
    if is_switch(value):
        return bool(value)
    if isinstance(value, str):
        return plain_text(value)
    if is_whole(value) or isinstance(value, float | Real):
        return plain_number(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, collections.abc.Iterable) and not isinstance(value, _BYTES):
        return list(value)
    raise TypeError(f"{shown(value)} has no form in JSON")


_BYTES: Final = (bytes, bytearray, memoryview)


def _plain_bytes(value: Any) -> bytes:
    return value if type(value) is bytes else bytes(value)


_PLAIN: Final[Mapping[object, Kind]] = {
    NoneType: Kind("None", "None", lambda value: value is None, exact=frozenset({NoneType})),
    str: Kind("a str", "str", lambda value: isinstance(value, str), plain_text, frozenset({str})),
    bytes: Kind(
        "bytes", "bytes", lambda value: isinstance(value, _BYTES), _plain_bytes, frozenset({bytes})
    ),
    bool: Kind("True or False", "bool", is_switch, bool, frozenset({bool})),
    int: Kind("a whole number", "whole numbers", is_whole, index, frozenset({int})),
    float: Kind("a number", "numbers", is_number, plain_number, frozenset({int, float})),
    datetime: Kind(
        "a datetime with a time zone, such as datetime.now(UTC)",
        "datetimes with a time zone",
        lambda value: isinstance(value, datetime) and value.utcoffset() is not None,
    ),
    timedelta: Kind(
        "a timedelta",
        "timedeltas",
        lambda value: isinstance(value, timedelta),
        exact=frozenset({timedelta}),
    ),
}
_TIME: Final = {_PLAIN[float], _PLAIN[timedelta]}
_NO_LISTS: Final = (str, *_BYTES)
_LISTS: Final = frozenset(
    {collections.abc.Iterable, collections.abc.Sequence, collections.abc.Collection, list}
)


Own: TypeAlias = Callable[[Any], tuple[Kind | None] | None]
"""What some annotations take in the asker's words: None for those that it has no words for."""


def kind_of(annotation: Any, own: Own = lambda annotation: None) -> Kind | None:
    """The kind of a resolved annotation; None when it takes anything."""
    if (said := own(annotation)) is not None:
        return said[0]
    if (plain := _PLAIN.get(NoneType if annotation is None else annotation)) is not None:
        return plain
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return _one_of([kind_of(arg, own) for arg in args])
    if origin is Literal:
        return _words(args)
    if origin is Annotated:
        return _narrowed(kind_of(args[0], own), args[1])
    if origin is tuple:
        return _tuple_of(args, own)
    if origin in _LISTS:
        once = origin is collections.abc.Iterable
        return _list_of(kind_of(args[0], own), once=once, exactly=origin is list)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping_of(kind_of(args[0], own), kind_of(args[1], own))
    if origin is collections.abc.Callable:
        return Kind("a function", "functions", callable)
    if origin is os.PathLike:
        return Kind("a path", "paths", lambda value: isinstance(value, os.PathLike))
    return _instance_of(annotation)


def _narrowed(kind: Kind | None, limits: object) -> Kind | None:
    """`kind` within what else stands in Annotated: a range, or an enumeration of texts."""
    if isinstance(limits, range):
        return whole_in(limits)
    if isinstance(limits, EnumType):
        return _words(values_of(limits))
    return kind


def values_of(words: EnumType) -> tuple[str, ...]:
    """The texts of an enumeration."""
    return tuple(member.value for member in cast("type[Enum]", words))


def whole_in(numbers: range) -> Kind:
    """Whole numbers of a range."""
    bounds = f"from {numbers.start} to {numbers.stop - 1}"
    return Kind(
        f"a whole number {bounds}",
        f"whole numbers {bounds}",
        lambda value: is_whole(value) and index(value) in numbers,
        index,
    )


def _words(words: tuple[str, ...]) -> Kind:
    said = _either(list(map(repr, words)))
    return Kind(
        said,
        said,
        lambda value: isinstance(value, str) and value in words,
        plain_text,
        words=words,
    )


def _one_of(kinds: list[Kind | None]) -> Kind | None:
    said = [kind for kind in kinds if kind is not None]
    if len(said) < len(kinds):
        return None

    def plain(value: Any) -> Any:
        return next(kind for kind in said if kind.fits(value)).plain(value)

    named = [kind for kind in said if kind.one != "None"]
    return Kind(
        _either([kind.one for kind in named]),
        _either([kind.many for kind in named]),
        lambda value: any(kind.fits(value) for kind in said),
        plain,
        frozenset[type]().union(*(kind.exact for kind in said)),
        is_time=set(named) == _TIME,
        words=tuple(word for kind in said for word in kind.words),
    )


def _either(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _all(items: Any, kind: Kind | None) -> bool:
    return kind is None or _all_plain(items, kind) or all(map(kind.fits, items))


def _all_plain(items: Any, kind: Kind | None) -> bool:
    """Whether classes alone say that they fit and are plain, as most are."""
    return kind is not None and kind.exact.issuperset(map(type, items))


def _each_plain(items: Any, kinds: Iterable[Kind | None]) -> tuple[list[Any], bool]:
    """The plain forms, and whether they are other ones."""
    pairs = [
        (one, one if kind is None else kind.plain(one))
        for one, kind in zip(items, kinds, strict=False)
    ]
    return [plain for _, plain in pairs], any(one is not plain for one, plain in pairs)


def _list_of(item: Kind | None, *, once: bool, exactly: bool = False) -> Kind:
    """`once`: it may be read only once; `exactly`: the plain form is a list."""

    def fits(value: Any) -> bool:
        if isinstance(value, _NO_LISTS) or not isinstance(value, collections.abc.Iterable):
            return False
        if exactly and isinstance(value, Mapping):
            return False
        try:
            iter(value)
        except TypeError:  # an array without a dimension
            return False
        return not isinstance(value, collections.abc.Collection) or _all(value, item)

    def plain(value: Any) -> Any:
        if not isinstance(value, collections.abc.Collection):
            if once:
                return value
            value = list(value)
        elif exactly and type(value) is not list:
            value = list(value)
        if item is None or item.plain is _same or _all_plain(value, item):
            return value
        if not _all(value, item):
            return value
        items, others = _each_plain(value, repeat(item))
        return items if others else value

    words = "a list" if item is None else f"a list of {item.many}"
    return Kind(words, words.replace("a list", "lists"), fits, plain)


def _tuple_of(args: tuple[Any, ...], own: Own) -> Kind:
    if args[1:] == (...,):
        item = kind_of(args[0], own)
        words = "a tuple" if item is None else f"a tuple of {item.many}"
        return Kind(
            words,
            words.replace("a tuple", "tuples"),
            lambda value: isinstance(value, tuple) and _all(value, item),
            lambda value: _plain_tuple(value, repeat(item)),
        )
    kinds = [kind_of(arg, own) for arg in args]

    def fits(value: Any) -> bool:
        return (
            isinstance(value, tuple)
            and len(value) == len(kinds)
            and all(kind is None or kind.fits(one) for kind, one in zip(kinds, value, strict=True))
        )

    def plain(value: Any) -> Any:
        return _plain_tuple(value, kinds)

    return Kind(f"a tuple of {len(kinds)}", f"tuples of {len(kinds)}", fits, plain)


def _plain_tuple(value: Any, kinds: Iterable[Kind | None]) -> Any:
    items, others = _each_plain(value, kinds)
    return tuple(items) if others else value


def _mapping_of(key: Kind | None, item: Kind | None) -> Kind:
    def fits(value: Any) -> bool:
        return isinstance(value, Mapping) and _all(value, key) and _all(value.values(), item)

    def plain(value: Any) -> Any:
        if _all_plain(value, key) and _all_plain(value.values(), item):
            return value
        names, other_names = _each_plain(value, repeat(key))
        items, other_items = _each_plain(value.values(), repeat(item))
        return dict(zip(names, items, strict=True)) if other_names or other_items else value

    words = "" if key is None else f" of {key.many} to {'anything' if item is None else item.many}"
    return Kind(f"a mapping{words}", f"mappings{words}", fits, plain)


def _instance_of(annotation: Any) -> Kind | None:
    if not isinstance(annotation, type) or annotation in _CHECKED_WHERE_USED:
        return None
    if annotation in (Any, object):
        return None
    name = annotation.__name__
    one = f"an {name}" if name[0] in "AEIOU" else f"a {name}"
    if not getattr(annotation, "_is_protocol", False):
        return Kind(
            one, name, lambda value: isinstance(value, annotation), exact=frozenset({annotation})
        )
    members = [
        member
        for base in annotation.__mro__
        if getattr(base, "_is_protocol", False)
        for member in vars(base)
        if not member.startswith("_")
    ]

    def fits(value: Any) -> bool:
        # The class instead of one of it is a common mistake.
        return not isinstance(value, type) and all(hasattr(value, member) for member in members)

    return Kind(one, name, fits)
