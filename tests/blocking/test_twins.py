"""The blocking classes have what the asyncio classes have, with the same signatures, and no more.

What may differ: `async` and awaitables are gone, an async iterator is an iterator. Anything else
stands in the tables below, with its reason.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from types import FunctionType
from typing import Any, TypeVar, get_args, get_origin

import pytest

import jetspark
from jetspark import blocking, full_client
from jetspark.blocking import client as blocking_client
from jetspark.blocking import consumers as blocking_consumers
from jetspark.blocking.twin import blocking_docstring
from jetspark.client import callbacks, subscription
from jetspark.client.messages import MessageView
from jetspark.jetstream import JsMsg, consume
from jetspark.jetstream.fetch import FetchResult

PACKAGES = [
    "",
    *(".dead_letters", ".groups", ".identity", ".jetstream", ".kv", ".objects", ".services"),
    ".system",
]


def twins() -> dict[type, type]:
    """The asyncio classes and their twins, by the names that users import."""
    found: dict[type, type] = {callbacks.EventStream: blocking.EventStream}
    for package in PACKAGES:
        ours = import_module(f"jetspark.blocking{package}")
        theirs = import_module(f"jetspark{package}")
        for name in ours.__all__:
            if inspect.isclass(twin := getattr(ours, name)) and name not in (
                "EventStream",
                "JetStream",
            ):
                found[getattr(theirs, name)] = twin
    return {full_client.JetStream: blocking.JetStream, **found}


TWINS = twins()

# Public in the asyncio class, absent in the blocking one.
WITHOUT_TWIN = {
    **dict.fromkeys(
        (
            *("Client.publishing", "Client.requests", "Client.hooks", "Watcher.report"),
            *("EventStream.push", "StreamWatcher.last_seq", "Service.running"),
            *("Client.adopt", "Client.ask", "Client.ask_many"),
            *("Client.require_open", "JetStream.api", "ReadOnlyBucket.client"),
            *("Lock.lose", "ObjectReader.write_to", "ObjectStore.writer", "AuthCallout.begin"),
            *("Group.running", "EndpointCalls.endpoint_options", "EndpointCalls.decorator"),
            "Service.begin",
        ),
        "for what is built on it",
    ),
    "Client.listen": "its handler runs inside the read loop",
    **dict.fromkeys(
        ("Client.loop", "Client.check_loop", "callback_task"), "the loop is nobody's business"
    ),
    **dict.fromkeys(("abandon", "left_by", "handled", "source"), "for the client"),
    **dict.fromkeys(
        ("StreamWatcher.take_ready", "take_queued", "take_last"), "iterating takes many at once"
    ),
    "__await__": "it says what to do in place of it",
}
# Classes that a user makes: their constructors are compared too.
MADE_BY_USERS = {full_client.Client, full_client.JetStream, FetchResult}
# The class's docstring says something that is different.
OTHER_WORDS = {
    *("AtomicBatch", "EventStream", "FastIngest", "Listing", "ObjectReader", "Paged", "Publisher"),
    *("Replies", "StoredMsgs", "Stream"),
}
RENAMED = {
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aclose": "close",
}
ASYNC = re.compile(r"\b([Aa]wait\w*|[Aa]sync|coroutine\w*|[Cc]ancel(led|ling)?)\b")
KEPT_SPECIAL = {*RENAMED, "__await__", "__repr__"}


def surface(cls: type) -> dict[str, Any]:
    """Public names, inherited ones and instance attributes too, with what stands behind them."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("jetspark."):
            continue
        for name, value in vars(base).items():
            if (not name.startswith("_") or name in {*KEPT_SPECIAL, *RENAMED.values()}) and (
                name != "__repr__" or inspect.isfunction(value)
            ):
                found[name] = value
        for name in set_by_constructor(base):
            found.setdefault(name, None)
    return found


@cache
def set_by_constructor(base: type) -> list[str]:
    """Attributes that are public too."""
    init = vars(base).get("__init__")
    if not inspect.isfunction(init) or is_dataclass(base):
        return []
    return re.findall(r"^ +self\.([a-z]\w*)(?::| =)", inspect.getsource(init), re.M)


def without_twin(cls: type, name: str) -> bool:
    return not WITHOUT_TWIN.keys().isdisjoint(
        {name, *(f"{base.__name__}.{name}" for base in cls.__mro__)}
    )


def blocked(text: str) -> str:
    """The text of an asyncio annotation as the blocking client has it."""
    text = re.sub(r"Async(Iterator|Generator)\[", r"\1[", text)
    text = re.sub(r"\berrors\.", "", text)  # of a file that imports the module
    return text.replace("asyncio.Future[", "Future[")


def bound_variables(cls: type) -> dict[str, str]:
    """What the type variables of its generic bases stand for, bases of bases included."""
    found: dict[str, str] = {}
    for base in vars(cls).get("__orig_bases__", cls.__bases__):
        found |= bound_variables(get_origin(base) or base)
        variables = getattr(get_origin(base), "__parameters__", ())
        for variable, argument in zip(variables, get_args(base), strict=False):
            text = argument.__name__ if isinstance(argument, type | TypeVar) else str(argument)
            text = re.sub(r"[\w.]+\.(?=\w)|~", "", text)
            found[variable.__name__] = re.sub(r"Optional\[(\w+)\]", r"\1 | None", text)
    return found


def signature(function: Any, cls: type) -> tuple[object, ...]:
    variables = bound_variables(cls)

    def text(annotation: object) -> str:
        words = blocked(str(annotation))
        for _ in variables:  # one may stand for another one
            words = re.sub(r"\w+", lambda word: variables.get(word[0], word[0]), words)
        return words

    if isinstance(function, property):
        function = function.fget
    shape = inspect.signature(function)
    parameters = [
        (p.name, p.kind, p.default, text(p.annotation)) for p in shape.parameters.values()
    ]
    return (*parameters, text(shape.return_annotation))


def test_every_public_name_has_its_twin() -> None:
    missing = {
        f"{one.__name__}.{name}"
        for one, twin in TWINS.items()
        for ours in [surface(twin)]
        for name in surface(one)
        if RENAMED.get(name, name) not in ours and not without_twin(one, name)
    }
    assert missing == set(), f"add them to jetspark.blocking: {missing}"


def test_twins_have_nothing_else() -> None:
    for one, twin in TWINS.items():
        known = {RENAMED.get(name, name) for name in surface(one)}
        if hasattr(one, "__aiter__"):
            known |= {"__iter__", "__next__"}
        assert surface(twin).keys() - known - {"__repr__"} == set(), one


@cache
def compared() -> list[tuple[type, Any, Any, str]]:
    """Each class of asyncio with a function or property of it, its twin, and what to call it."""
    cases: list[tuple[type, Any, Any, str]] = []
    for one, twin in TWINS.items():
        ours = surface(twin)
        for name, value in surface(one).items():
            other = ours.get(RENAMED.get(name, name))
            both = {type(value), type(other)}
            if not name.startswith("__") and both in ({FunctionType}, {property}):
                cases.append((one, value, other, f"{one.__name__}.{name}"))
        if one in MADE_BY_USERS:
            made, other = (inspect.getattr_static(cls, "__init__") for cls in (one, twin))
            cases.append((one, made, other, f"{one.__name__}.__init__"))
    return cases


def type_that_is_read(twin: type, prop: property) -> str | None:
    """The type in `name = Read[type]()`."""
    name = inspect.getclosurevars(prop.fget).nonlocals.get("name")  # type: ignore[arg-type]
    for base in twin.__mro__ if name else ():
        if base.__module__.startswith("jetspark.") and (
            said := re.search(rf"^ +{name} = Read\[(.*)\]\(\)$", source(base), re.M)
        ):
            return said[1]
    return None


source = cache(inspect.getsource)


def test_signatures_are_equal() -> None:
    assert len(compared()) > 400
    for one, value, other, call in compared():
        if isinstance(other, property) and (read := type_that_is_read(TWINS[one], other)):
            assert read == blocked(inspect.signature(value.fget).return_annotation), call
        else:
            assert signature(other, TWINS[one]) == signature(value, one), call
            assert not inspect.iscoroutinefunction(other), call
            assert not inspect.isasyncgenfunction(other), call


def test_connect_has_the_same_options() -> None:
    ours, theirs = (inspect.signature(one) for one in (blocking.connect, jetspark.connect))
    assert [str(one) for one in ours.parameters.values()] == [
        str(one) for one in theirs.parameters.values()
    ]


def test_help_says_what_the_asyncio_client_says() -> None:
    for _, value, other, call in compared():
        doc = inspect.getdoc(other) or ""
        function: Any = other.fget if isinstance(other, property) else other
        own = inspect.unwrap(function).__module__.startswith("jetspark.blocking")
        if (hasattr(function, "__wrapped__") and not own) or function.__name__ == "<lambda>":
            assert doc.split() == (blocking_docstring(None, value.__doc__) or "").split(), call
        else:
            assert doc or not inspect.getdoc(value), call  # its own, where it has one
        assert not ASYNC.search(doc), call


def test_classes_say_the_same() -> None:
    for one, twin in TWINS.items():
        ours, theirs = inspect.getdoc(twin), blocking_docstring(None, one.__doc__)
        assert ours, one
        if one.__name__ not in OTHER_WORDS:
            assert ours == theirs, one


def test_a_result_is_the_twin_of_the_asyncio_result() -> None:
    for _, value, other, call in compared():
        closed = inspect.getclosurevars(other).nonlocals if inspect.isfunction(other) else {}
        if inspect.isclass(own := closed.get("own")):
            said = inspect.signature(value).return_annotation
            assert re.sub(r"\[.*", "", said) == own.__name__, call


def test_no_class_leaves_a_method_to_its_subclasses() -> None:
    left = {
        f"{twin.__name__}.{name}"
        for twin in TWINS.values()
        for name in dir(twin)
        for value in [inspect.getattr_static(twin, name)]
        for function in [value.fget if isinstance(value, property) else value]
        if inspect.isfunction(function) and function.__code__.co_names == ("NotImplementedError",)
    }
    assert left == set()


def test_callbacks_take_the_same_and_return_nothing_to_await() -> None:
    for ours, theirs in (
        (blocking_client.EventCallback, callbacks.EventCallback),
        (blocking_client.ErrorCallback, callbacks.ErrorCallback),
        (blocking_client.MessageCallback, subscription.MessageCallback),
        (blocking_consumers.JsMsgCallback, consume.JsMsgCallback),
    ):
        (taken,), returned = get_args(ours)
        (other,), _ = get_args(theirs)
        assert TWINS.get(other, other) == taken
        assert returned is None


def test_messages_are_read_by_the_same_code() -> None:
    for one in (jetspark.Message, blocking.Message, JsMsg, TWINS[JsMsg]):
        assert issubclass(one, MessageView)


def test_a_new_public_method_without_twin_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def brand_new(self: object) -> None:
        """Something."""

    monkeypatch.setattr(full_client.JetStream, "brand_new", brand_new, raising=False)
    with pytest.raises(AssertionError, match="brand_new"):
        test_every_public_name_has_its_twin()


def test_every_class_that_can_await_something_has_a_twin() -> None:
    without = {
        cls.__name__
        for package in PACKAGES
        for module in [import_module(f"jetspark{package}")]
        for cls in map(module.__getattribute__, dir(module))
        if inspect.isclass(cls)
        and cls.__module__.startswith("jetspark.")
        and not any(cls in one.__mro__ for one in TWINS)
        and any(
            inspect.iscoroutinefunction(value) or name == "__aiter__"
            for name, value in surface(cls).items()
        )
    }
    assert without == set()
