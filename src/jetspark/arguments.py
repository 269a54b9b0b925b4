"""Checks arguments against annotations: a wrong type raises one sentence that names the argument.

`checked` decorates a class: each public method compares its arguments with its annotations before
it does anything, and gets them in their plain form (`kinds`). Methods that are called for every
message are exempt, by name, in `checked_but`: they check the type only after something failed, so
a valid message costs nothing. Annotations are resolved at the first call, not at import.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import cache, wraps
from pathlib import Path
from types import FunctionType
from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

from jetspark.errors import ConfigError, UnknownArgumentError, shown
from jetspark.kinds import Kind, is_switch, is_whole, kind_of
from jetspark.subjects import nearest_name

CheckedT = TypeVar("CheckedT", bound=Callable[..., Any])

_LONGEST_NAME: Final = 255
_LONGEST_PATH: Final = 4096

MOST: Final = 2**63 - 1
"""The greatest number that the server has a place for, where it is no sequence."""

MOST_SEQUENCE: Final = 2**64 - 1
"""The greatest sequence of a stream."""


def checked(thing: CheckedT) -> CheckedT:
    """A function, or a class whose public methods are checked.

    A wrong kind raises ConfigError (BadTimeError for a time), in the words of the annotation; an
    argument that there is not, UnknownArgumentError.
    """
    return checked_but()(thing)


def checked_but(*names: str, also: Iterable[str] = ()) -> Callable[[CheckedT], CheckedT]:
    """`checked` for a class, but for these methods; `also` those that are not public."""

    def decorate(thing: CheckedT) -> CheckedT:
        if isinstance(thing, FunctionType):
            return _checked(thing)  # type: ignore[return-value]
        for name, value in list(vars(thing).items()):
            wanted = name in also or not (name.startswith("_") or name in names)
            if wanted and isinstance(value, FunctionType) and _has_arguments(value):
                setattr(thing, name, _checked(value))
        return thing

    return decorate


def _has_arguments(function: FunctionType) -> bool:
    """More than `self`."""
    code = function.__code__
    more = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    return code.co_argcount + code.co_kwonlyargcount > 1 or bool(more)


def _checked(function: FunctionType) -> FunctionType:
    if function.__code__.co_flags & inspect.CO_COROUTINE:

        @wraps(function)
        async def call(*args: Any, **kwargs: Any) -> Any:
            plain, by_name = _plain(function, args, kwargs)
            return await function(*plain, **by_name)

        return call  # type: ignore[return-value]

    @wraps(function)
    def call_plain(*args: Any, **kwargs: Any) -> Any:
        plain, by_name = _plain(function, args, kwargs)
        return function(*plain, **by_name)

    return call_plain  # type: ignore[return-value]


def spelt(function: CheckedT) -> CheckedT:
    """For calls whose arguments are checked further down: says which keyword is misspelt.

    It costs a call that is right next to nothing. Raises UnknownArgumentError.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            # Before its first line.
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                _check_names(function, parameters_of(function), kwargs)  # type: ignore[arg-type]
            raise

    return call  # type: ignore[return-value]


class Parameters(NamedTuple):
    """The kinds of a function's parameters: in their order, by their names, and of *args."""

    positional: list[tuple[str, Kind | None]]
    named: dict[str, Kind | None]
    rest: tuple[str, Kind | None]
    more: bool
    """Whether it takes keywords by other names."""


@cache
def parameters_of(function: FunctionType) -> Parameters:
    """What a function's annotations say."""
    kinds = _kinds_of(function, inspect.get_annotations(function))
    positional, named = [], {}
    rest: tuple[str, Kind | None] = "", None
    more = False
    for name, parameter in inspect.signature(function).parameters.items():
        kind = kinds.get(name)
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = name, kind
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            positional.append((name, kind))
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            named[name] = kind
        more = more or parameter.kind is parameter.VAR_KEYWORD
    return Parameters(positional, named, rest, more)


def _check_names(function: FunctionType, parameters: Parameters, kwargs: Mapping[str, Any]) -> None:
    """Raises UnknownArgumentError for a keyword that the function does not have."""
    if parameters.more:
        return
    for name in kwargs:
        if name not in parameters.named:
            near = nearest_name(name, parameters.named.keys() - {"self"})
            raise UnknownArgumentError(function.__qualname__.rpartition(".")[2], name, near)


def _plain(
    function: FunctionType, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Checked, in plain form. How many there are is the function's matter."""
    parameters = parameters_of(function)
    positional, named, (rest, rest_kind), _ = parameters
    if not kwargs.keys() <= named.keys():
        _check_names(function, parameters, kwargs)
    plain = [
        value if kind is None or value.__class__ in kind.exact else checked_value(name, kind, value)
        for (name, kind), value in zip(positional, args, strict=False)
    ]
    for value in args[len(positional) :]:
        plain.append(value if rest_kind is None else checked_value(rest, rest_kind, value))
    by_name = {
        name: value if (kind := named.get(name)) is None else checked_value(name, kind, value)
        for name, value in kwargs.items()
    }
    return plain, by_name


def checked_value(name: str, kind: Kind, value: Any, *, secret: bool = False) -> Any:
    """The plain form. What had to be read to look into it (a generator) is looked at then."""
    if value.__class__ in kind.exact:
        return value
    if kind.fits(value):
        plain = kind.plain(value)
        if plain is value or kind.fits(plain):
            return plain
        value = plain
    raise kind.refuse(name, value, secret=secret)


def check_fields(instance: Any) -> None:
    """The fields of a dataclass become plain. Raises ConfigError for one of a wrong kind."""
    for name, kind, secret in _fields_of(instance.__class__):
        value = getattr(instance, name)
        if (plain := checked_value(name, kind, value, secret=secret)) is not value:
            object.__setattr__(instance, name, plain)


@cache
def _fields_of(cls: type[Any]) -> list[tuple[str, Kind, bool]]:
    kinds = _kinds_of(cls, {field.name: field.type for field in fields(cls)})
    return [
        (field.name, kind, not field.repr)
        for field in fields(cls)
        if (kind := kinds[field.name]) is not None
    ]


def _kinds_of(owner: Any, annotations: Mapping[str, Any]) -> dict[str, Kind | None]:
    return {name: _kind_said(owner, annotation) for name, annotation in annotations.items()}


def _kind_said(owner: Any, annotation: Any) -> Kind | None:
    """Each for itself: one that only type checkers can read leaves the others as they are."""
    holder = type("Holder", (), {"__annotations__": {"it": annotation}})
    names = vars(sys.modules[owner.__module__])
    try:
        return kind_of(get_type_hints(holder, names, names, include_extras=True)["it"])
    except (NameError, AttributeError):
        return None


def path_of(name: str, value: str | os.PathLike[str]) -> Path:
    """The path. Raises ConfigError for a text that no file can have as its name."""
    try:
        raw = os.fsencode(value)
    except UnicodeEncodeError:
        raw = b"\0"
    if b"\0" in raw:
        raise ConfigError(f"{name} is not a valid file path: {shown(value)}.")
    if len(raw) >= _LONGEST_PATH or max(map(len, raw.split(b"/"))) > _LONGEST_NAME:
        raise ConfigError(
            f"{name} is too long: {shown(value)} (a name has {_LONGEST_NAME} bytes at most)."
        )
    return Path(value)


# -- for calls that are made for each message, and values that a kind does not say -----------------


def check_flag(name: str, value: object) -> bool:
    """Which it is. Raises ConfigError unless it is True or False: "no" would count as true."""
    if value is True or value is False:
        return value
    if not is_switch(value):
        raise ConfigError(f"{name} is True or False, not {shown(value)}.")
    return bool(value)


def check_whole(name: str, value: object, least: int = 1, most: int = MOST) -> None:
    """Raises ConfigError unless it is a whole number from `least` to `most`."""
    if not is_whole(value):
        raise ConfigError(f"{name} is a whole number, not {shown(value)}.")
    number = value.__index__()  # type: ignore[attr-defined]
    if number < least:
        what = "cannot be negative" if least == 0 else f"must be at least {least}"
        raise ConfigError(f"{name} {what}.")
    if number > most:
        raise ConfigError(f"{name} must be at most {most}, not {shown(number)}.")
