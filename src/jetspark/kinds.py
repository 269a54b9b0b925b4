"""Which values an annotation takes: what arguments are checked by. Pure.

Contract: the annotations are the contract. What is not understood (a TypeVar, a name that only type
checkers import) takes anything. Values are asked, not converted: bool is no number, text no list of
texts, and what can be read only once (a generator) is not looked into.
"""

from __future__ import annotations

import collections.abc
import os
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from operator import index
from types import NoneType, UnionType
from typing import Any, Final, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from jetspark.errors import BadTimeError, ConfigError


class Kind(NamedTuple):
    """What fits, and how a sentence calls it: one of them, and several."""

    one: str
    many: str
    fits: Callable[[Any], bool]
    is_time: bool = False

    def refuse(self, name: str, value: object, *, secret: bool = False) -> ConfigError:
        """The error that says so; a secret is not shown."""
        if self.is_time:
            return BadTimeError(value, name)
        shown = type(value).__name__ if secret else f"{value!r:.80}"
        return ConfigError(f"{name} is {self.one}, not {shown}.")


CheckedType = TypeVar("CheckedType", bound=type)

_CHECKED_WHERE_USED: Final[set[object]] = set()


def checked_where_used(cls: CheckedType) -> CheckedType:
    """For types whose users say by an error of their own what is wrong with a value."""
    _CHECKED_WHERE_USED.add(cls)
    return cls


def is_whole(value: Any) -> bool:
    """Whether it is a whole number, such as an int or one of NumPy's."""
    if isinstance(value, bool):
        return False
    try:
        index(value)
    except TypeError:
        return False
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_PLAIN: Final[Mapping[object, Kind]] = {
    NoneType: Kind("None", "None", lambda value: value is None),
    str: Kind("a str", "str", lambda value: isinstance(value, str)),
    bytes: Kind("bytes", "bytes", lambda value: isinstance(value, bytes)),
    bool: Kind("True or False", "bool", lambda value: isinstance(value, bool)),
    int: Kind("a whole number", "whole numbers", is_whole),
    float: Kind("a number", "numbers", _is_number),
    datetime: Kind("a datetime", "datetimes", lambda value: isinstance(value, datetime)),
    timedelta: Kind("a timedelta", "timedeltas", lambda value: isinstance(value, timedelta)),
}
_TIME: Final = {_PLAIN[float], _PLAIN[timedelta]}
_NO_LISTS: Final = (str, bytes, bytearray, memoryview)
_LISTS: Final = frozenset(
    {collections.abc.Iterable, collections.abc.Sequence, collections.abc.Collection, list}
)


def kind_of(annotation: Any) -> Kind | None:
    """The kind of a resolved annotation; None when it takes anything."""
    if (plain := _PLAIN.get(NoneType if annotation is None else annotation)) is not None:
        return plain
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return _one_of([kind_of(arg) for arg in args])
    if origin is Literal:
        words = " or ".join(map(repr, args))
        return Kind(words, words, lambda value: isinstance(value, str) and value in args)
    if origin is tuple:
        return _tuple_of(args)
    if origin in _LISTS:
        return _list_of(kind_of(args[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping_of(kind_of(args[0]), kind_of(args[1]))
    if origin is collections.abc.Callable:
        return Kind("a function", "functions", callable)
    if origin is os.PathLike:
        return Kind("a path", "paths", lambda value: isinstance(value, os.PathLike))
    return _instance_of(annotation)


def _one_of(kinds: list[Kind | None]) -> Kind | None:
    said = [kind for kind in kinds if kind is not None]
    if len(said) < len(kinds):
        return None
    fits = [kind.fits for kind in said]
    named = [kind for kind in said if kind.one != "None"]
    return Kind(
        _either([kind.one for kind in named]),
        _either([kind.many for kind in named]),
        lambda value: any(one(value) for one in fits),
        is_time=set(named) == _TIME,
    )


def _either(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _all(items: Any, kind: Kind | None) -> bool:
    return kind is None or all(map(kind.fits, items))


def _list_of(item: Kind | None) -> Kind:
    def fits(value: Any) -> bool:
        if isinstance(value, _NO_LISTS) or not isinstance(value, collections.abc.Iterable):
            return False
        return not isinstance(value, collections.abc.Collection) or _all(value, item)

    words = "a list" if item is None else f"a list of {item.many}"
    return Kind(words, words.replace("a list", "lists"), fits)


def _tuple_of(args: tuple[Any, ...]) -> Kind:
    if args[1:] == (...,):
        item = kind_of(args[0])
        words = "a tuple" if item is None else f"a tuple of {item.many}"
        return Kind(
            words,
            words.replace("a tuple", "tuples"),
            lambda value: isinstance(value, tuple) and _all(value, item),
        )
    kinds = [kind_of(arg) for arg in args]

    def fits(value: Any) -> bool:
        return (
            isinstance(value, tuple)
            and len(value) == len(kinds)
            and all(kind is None or kind.fits(one) for kind, one in zip(kinds, value, strict=True))
        )

    return Kind(f"a tuple of {len(kinds)}", f"tuples of {len(kinds)}", fits)


def _mapping_of(key: Kind | None, item: Kind | None) -> Kind:
    def fits(value: Any) -> bool:
        return isinstance(value, Mapping) and _all(value, key) and _all(value.values(), item)

    words = "" if key is None else f" of {key.many} to {'anything' if item is None else item.many}"
    return Kind(f"a mapping{words}", f"mappings{words}", fits)


def _instance_of(annotation: Any) -> Kind | None:
    if not isinstance(annotation, type) or annotation in _CHECKED_WHERE_USED:
        return None
    if annotation in (Any, object):
        return None
    name = annotation.__name__
    one = f"an {name}" if name[0] in "AEIOU" else f"a {name}"
    if not getattr(annotation, "_is_protocol", False):
        return Kind(one, name, lambda value: isinstance(value, annotation))
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
