"""Every public name of nats-py is one of ours, or in docs/from-nats-py.md; classes are plain."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import nats
import nats.errors
import nats.js.api as api
import nats.js.errors
import pytest
from nats.aio.client import Client as TheirClient
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as TheirSubscription
from nats.js import JetStreamContext
from nats.js.kv import KeyValue
from nats.js.object_store import ObjectStore as TheirStore
from nats.micro.request import Request as TheirRequest
from nats.micro.service import Group as TheirGroup
from nats.micro.service import Service as TheirService

import jetspark
import jetspark.blocking
from jetspark import ConnectOptions, errors, jetstream
from jetspark.blocking import consumers as blocking_consumers
from jetspark.blocking import kv as blocking_kv
from jetspark.blocking import objects as blocking_objects
from jetspark.blocking import services as blocking_services
from jetspark.documents import StoredMsg
from jetspark.kv import Bucket, Entry, Watcher
from jetspark.nats_py_names import _REPLACEMENTS, migration_hint
from jetspark.objects import ObjectReader, ObjectStore, ObjectWatcher
from jetspark.services import Group, Request, Service
from jetspark.wire.reply_subject import Metadata

JS = JetStreamContext
# Of nats-py, and what a program has in its place: the class, and its blocking twin.
PAIRS: list[tuple[type, tuple[type, ...]]] = [
    (TheirClient, (jetspark.Client, jetspark.blocking.Client)),
    (Msg, (jetspark.Message, jetstream.JsMsg, jetspark.blocking.Message)),
    (Msg.Metadata, (Metadata,)),
    (TheirSubscription, (jetspark.Subscription, jetspark.blocking.Subscription)),
    (JS, (jetspark.JetStream, jetspark.blocking.JetStream)),
    (JS.PushSubscription, (jetstream.PushMessages, blocking_consumers.PushMessages)),
    (JS.PullSubscription, (jetstream.PullConsumer, blocking_consumers.PullConsumer)),
    (KeyValue, (Bucket, blocking_kv.Bucket)),
    (KeyValue.Entry, (Entry,)),
    (KeyValue.KeyWatcher, (Watcher, blocking_kv.Watcher)),
    (TheirStore, (ObjectStore, blocking_objects.ObjectStore)),
    (TheirStore.ObjectResult, (ObjectReader,)),
    (TheirStore.ObjectWatcher, (ObjectWatcher,)),
    (api.RawStreamMsg, (StoredMsg,)),
    (TheirService, (Service, blocking_services.Service)),
    (TheirGroup, (Group, blocking_services.Group)),
    (TheirRequest, (Request, blocking_services.Request)),
]
# What acknowledgements are on an ordinary message, and methods of dataclasses.
ELSEWHERE = {
    **dict.fromkeys(("as_dict", "evolve", "from_response"), "msgspec and Document.replace"),
    "SequencePair": "stream_seq and consumer_seq of the metadata",
    **dict.fromkeys(
        ("ack", "ack_sync", "nak", "term", "in_progress", "is_acked"), "only of JsMsg, and here"
    ),
}


def public_names(cls: type) -> set[str]:
    """Attributes, and fields of dataclasses and tuples without a default."""
    annotated = (name for one in cls.__mro__ for name in getattr(one, "__annotations__", ()))
    return {name for name in {*dir(cls), *annotated} if not name.startswith("_")}


def names_of_classes() -> Iterator[tuple[type, str]]:
    for theirs, ours in PAIRS:
        for name in sorted(public_names(theirs)):
            for one in ours:
                if name not in ELSEWHERE:
                    yield one, name


GUIDE = (Path(__file__).parents[1] / "docs" / "from-nats-py.md").read_text(encoding="utf-8")
PROSE = re.sub(r"```.*?```", "", GUIDE, flags=re.DOTALL)
IN_CODE = {word for code in re.findall(r"`([^`]+)`", PROSE) for word in re.findall(r"\w+", code)}
"""Names that the guide writes as code."""


def test_every_attribute_of_nats_py_is_there_or_in_the_guide() -> None:
    missing = {
        f"{cls.__module__}.{cls.__name__}.{name}"
        for cls, name in names_of_classes()
        if name not in public_names(cls) | IN_CODE
    }
    assert sorted(missing) == []


def test_every_option_of_nats_py_is_there_or_its_error_names_ours() -> None:
    options = list(inspect.signature(TheirClient.connect).parameters)[1:]
    ours = {field.name for field in fields(ConnectOptions)}
    assert {"servers", "name", "max_reconnect_attempts"} < ours
    for connect in (jetspark.connect, jetspark.blocking.connect):
        for name in set(options) - ours:
            with pytest.raises(errors.ConfigError, match=f"'{name}' is nats-py's name"):
                connect("nats://127.0.0.1:1", **{name: None})  # type: ignore[arg-type]


def test_errors_that_programs_catch_are_there_or_their_error_names_ours() -> None:
    theirs = {**vars(nats.errors), **vars(nats.js.errors)}
    for name in _REPLACEMENTS["errors"]:
        assert inspect.isclass(theirs[name])
        with pytest.raises(AttributeError, match=re.escape(migration_hint("errors", name))):
            getattr(errors, name)
    with pytest.raises(AttributeError, match=r"'jetspark\.errors' has no attribute 'Nothing'"):
        errors.Nothing  # type: ignore[attr-defined]  # noqa: B018


def test_the_modules_of_nats_py_lead_to_ours() -> None:
    assert vars(nats).keys() > _REPLACEMENTS["jetspark"].keys() - {"Msg"}
    for name in _REPLACEMENTS["jetspark"]:
        with pytest.raises(AttributeError, match=f"'{name}' is nats-py's name"):
            getattr(jetspark, name)


def test_what_the_table_names_is_there() -> None:
    options = {re.split("[=, ]", here)[0] for here in _REPLACEMENTS["connect"].values()}
    assert options <= {"error_callback", "event_callback", "the", *ConnectOptions.__annotations__}
    for here in _REPLACEMENTS["errors"].values():
        for name in re.findall(r"\b[A-Z]\w*Error\b", here):
            assert hasattr(errors, name), here


# What ours take by `**options`.
OPTIONS = {"publish": {"headers"}, "watch": {"include_history", "ignore_deletes", "meta_only"}}


def arguments(call: Any) -> set[str]:
    """Those that may be given by name."""
    if not inspect.isfunction(call):
        return set()
    found = inspect.signature(call).parameters.values()
    return {one.name for one in found if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}


def test_every_argument_of_nats_py_is_taken_or_in_the_guide() -> None:
    silent = {
        (f"{one.__module__}.{one.__name__}.{name}", argument)
        for theirs, ours in PAIRS
        for one in ours
        for name in public_names(theirs) - {"connect"}
        if hasattr(one, name)
        for argument in arguments(getattr(theirs, name, None))
        - arguments(getattr(one, name, None))
        - OPTIONS.get(name, set())
        - {"self"}
        - IN_CODE
    }
    assert sorted(silent) == []


def test_reply_is_the_third_argument_as_there() -> None:
    theirs = list(inspect.signature(TheirClient.publish).parameters)[:4]
    for cls in (jetspark.Client, jetspark.blocking.Client):
        for call in (cls.publish, cls.publish_nowait):
            ours = list(inspect.signature(call).parameters.values())[:4]
            assert [one.name for one in ours] == theirs
            assert ours[-1].kind is ours[-1].POSITIONAL_OR_KEYWORD


def public_classes() -> list[type]:
    """The public classes of the package and of its feature modules, asyncio and blocking."""
    modules = [jetspark, jetspark.blocking, jetspark.errors]
    modules += [getattr(jetspark, name) for name in FEATURES]
    every = [getattr(module, name) for module in modules for name in dir(module)]
    every += [one for module in vars(jetspark.blocking).values() if inspect.ismodule(module)
              for one in vars(module).values()]  # fmt: skip
    every += [one for _, ours in PAIRS for one in ours]
    ours = {one for one in every if inspect.isclass(one) and one.__module__.startswith("jetspark")}
    return sorted(ours, key=lambda one: (one.__module__, one.__name__))


FEATURES = (
    *("jetstream", "kv", "objects", "services", "documents", "groups", "dead_letters"),
    *("identity", "system"),
)


def test_tools_that_look_at_classes_see_what_they_are() -> None:
    """Frameworks and mocks decide by the kind of a method whether they await it."""
    assert inspect.iscoroutinefunction(jetspark.JetStream.publish)
    for cls in public_classes():
        for name in dir(cls):
            if name not in ("__abstractmethods__", "__annotations__"):  # types raise for these
                member = getattr(cls, name)
                code = getattr(
                    inspect.unwrap(member) if callable(member) else None, "__code__", None
                )
                if code and code.co_flags & inspect.CO_COROUTINE and not blocking(cls):
                    assert inspect.iscoroutinefunction(member), f"{cls.__name__}.{name}"


def blocking(cls: type) -> bool:
    return cls.__module__.startswith("jetspark.blocking")


def test_a_mock_of_a_class_is_awaited_like_the_class() -> None:
    async def program() -> None:
        js = create_autospec(jetspark.JetStream, instance=True)
        await js.publish("a", b"")
        bucket = create_autospec(Bucket, instance=True)
        await bucket.get("a")
        client = create_autospec(jetspark.Client, instance=True)
        await client.request("a")
        js.publish.assert_awaited_once_with("a", b"")

    asyncio.run(program())


def test_messages_are_copied_and_pickled() -> None:
    metadata = Metadata("S", "c", 1, 2, 3, 4, 5)
    assert pickle.loads(pickle.dumps(metadata)) == copy.copy(metadata) == metadata


def test_a_context_of_tls_is_not_taken_for_true() -> None:
    import ssl

    with pytest.raises(errors.ConfigError, match="give a context as ssl_context"):
        jetspark.connect(tls=ssl.create_default_context())  # type: ignore[arg-type]
