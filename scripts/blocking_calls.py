"""What the site's reference knows of blocking classes only at run time: see `blocking.twin`.

An extension of griffe, which reads the code without running it (mkdocs.yml names it).
"""

from __future__ import annotations

import inspect
from importlib import import_module
from types import FunctionType
from typing import Any

import griffe

_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: griffe.ParameterKind.positional_only,
    inspect.Parameter.POSITIONAL_OR_KEYWORD: griffe.ParameterKind.positional_or_keyword,
    inspect.Parameter.VAR_POSITIONAL: griffe.ParameterKind.var_positional,
    inspect.Parameter.KEYWORD_ONLY: griffe.ParameterKind.keyword_only,
    inspect.Parameter.VAR_KEYWORD: griffe.ParameterKind.var_keyword,
}


class BlockingCalls(griffe.Extension):
    """Calls of one line become functions; all get the docstrings of the asyncio classes."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        if not cls.path.startswith("jetspark.blocking."):
            return
        twin = getattr(import_module(cls.module.path), cls.name)
        if twin.__doc__:
            cls.docstring = griffe.Docstring(twin.__doc__, parent=cls)
        running = vars(twin)
        for name, member in list(cls.members.items()):
            value = running.get(name)
            if name.startswith("_") or not isinstance(value, FunctionType | property):
                continue
            if isinstance(value, FunctionType) and member.is_attribute:
                cls.set_member(name, member := _function(name, value))
            elif isinstance(value, property) and isinstance(member, griffe.Attribute):
                member.labels, member.value = {"property"}, None
            if value.__doc__:
                member.docstring = griffe.Docstring(value.__doc__, parent=member)


def _function(name: str, value: FunctionType) -> griffe.Function:
    shape = inspect.signature(value)
    parameters = [
        griffe.Parameter(
            one.name,
            annotation=None if one.annotation is one.empty else str(one.annotation),
            kind=_KINDS[one.kind],
            default=None if one.default is one.empty else repr(one.default),
        )
        for one in shape.parameters.values()
    ]
    returns = str(shape.return_annotation)
    return griffe.Function(name, parameters=griffe.Parameters(*parameters), returns=returns)
