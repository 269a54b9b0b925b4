"""Every public name of nats-py is one of ours, or the error for it says what is."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any
from unittest.mock import MagicMock

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
from jetspark import ConnectOptions, errors
from jetspark.blocking import consumers as blocking_consumers
from jetspark.blocking import kv as blocking_kv
from jetspark.blocking import objects as blocking_objects
from jetspark.blocking import services as blocking_services
from jetspark.client.messages import MessageView
from jetspark.documents import StoredMsg
from jetspark.jetstream import (
    ConsumerMessages,
    JsMsg,
    Publisher,
    PullConsumer,
    PushConsumer,
    PushMessages,
)
from jetspark.kv import Bucket, Entry, Watcher
from jetspark.nats_py_names import _HERE, told
from jetspark.objects import ObjectReader, ObjectStore, ObjectWatcher
from jetspark.services import Group, Request, Service
from jetspark.wire.reply_subject import Metadata

JS = JetStreamContext
# Of nats-py, and what a program has in its place: the class, and its blocking twin.
PAIRS: list[tuple[type, tuple[type, ...]]] = [
    (TheirClient, (jetspark.Client, jetspark.blocking.Client)),
    (Msg, (jetspark.Message, JsMsg, jetspark.blocking.Message)),
    (Msg.Metadata, (Metadata,)),
    (TheirSubscription, (jetspark.Subscription, jetspark.blocking.Subscription)),
    (JS, (jetspark.JetStream, jetspark.blocking.JetStream)),
    (JS.PushSubscription, (PushMessages, blocking_consumers.PushMessages)),
    (JS.PullSubscription, (PullConsumer, blocking_consumers.PullConsumer)),
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


def lookup(owner: Any, name: str) -> str:
    """What the error says; "" if the name is there."""
    try:
        getattr(owner, name)
    except AttributeError as error:
        return (
            ""
            if any(name in vars(one).get("__annotations__", ()) for one in owner.__mro__)
            else str(error)
        )
    return ""


def test_every_attribute_of_nats_py_is_there_or_its_error_names_ours() -> None:
    silent = {
        f"{cls.__module__}.{cls.__name__}.{name}"
        for cls, name in names_of_classes()
        if (said := lookup(cls, name)) and f"{name!r} is nats-py's name: in jetspark" not in said
    }
    assert silent == set()


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
    for name in _HERE["errors"]:
        assert inspect.isclass(theirs[name])
        with pytest.raises(AttributeError, match=re.escape(told("errors", name))):
            getattr(errors, name)
    with pytest.raises(AttributeError, match=r"'jetspark\.errors' has no attribute 'Nothing'"):
        errors.Nothing  # type: ignore[attr-defined]  # noqa: B018


def test_the_modules_of_nats_py_lead_to_ours() -> None:
    assert vars(nats).keys() > _HERE["jetspark"].keys() - {"Msg"}
    for name in _HERE["jetspark"]:
        with pytest.raises(AttributeError, match=f"'{name}' is nats-py's name"):
            getattr(jetspark, name)


def test_what_the_table_names_is_there() -> None:
    classes = {one.__name__: one for _, ours in PAIRS for one in reversed(ours)}
    classes |= {"ConsumerMessages": ConsumerMessages, "MessageView": MessageView}
    assert {name.partition(".")[0] for name in _HERE} - classes.keys() == {
        *("jetspark", "errors", "connect")
    }
    calls = {
        name for one in (*classes.values(), PushConsumer, Publisher, JsMsg) for name in dir(one)
    }
    calls |= {"connect", *ConnectOptions.__annotations__}
    for table in _HERE.values():
        for here in table.values():
            assert calls >= set(re.findall(r"(\w+)\(", here)), here
            for name in re.findall(r"\b[A-Z]\w*Error\b", here):
                assert hasattr(errors, name), here
    options = {re.split("[=, ]", here)[0] for here in _HERE["connect"].values()}
    assert options <= {"error_callback", "event_callback", "the", *ConnectOptions.__annotations__}


def test_a_program_sees_the_sentence() -> None:
    metadata = Metadata("S", "c", 1, 2, 3, 4, 5)
    with pytest.raises(AttributeError, match=r"Metadata: 'num_delivered' .* it is deliveries"):
        metadata.num_delivered  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="in jetspark it is connect"):
        jetspark.NATS  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("client", [jetspark.Client, jetspark.blocking.Client])
def test_the_callback_of_subscribe_has_another_name(client: Any) -> None:
    unconnected = object.__new__(client)
    with pytest.raises(TypeError, match="'cb' is nats-py's name: in jetspark it is callback"):
        unconnected.subscribe("a", cb=print)
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'calback'"):
        unconnected.subscribe("a", calback=print)
    assert "callback" in inspect.signature(client.subscribe).parameters


CALLS = [(owner, name) for owner in _HERE if "." in owner for name in _HERE[owner]]
# What ours take by `**options`.
OPTIONS = {"publish": {"headers"}, "watch": {"include_history", "ignore_deletes", "meta_only"}}


def arguments(call: Any) -> set[str]:
    """Those that may be given by name."""
    if not inspect.isfunction(call):
        return set()
    found = inspect.signature(call).parameters.values()
    return {one.name for one in found if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}


def test_every_argument_of_nats_py_is_taken_or_its_error_names_ours() -> None:
    silent = {
        (f"{one.__module__}.{one.__name__}.{name}", argument)
        for theirs, ours in PAIRS
        for one in ours
        for name in public_names(theirs) - {"connect"}
        if hasattr(one, name)
        for argument in arguments(getattr(theirs, name, None))
        - arguments(getattr(one, name, None))
        - OPTIONS.get(name, set())
        - {"self"}.union(*(_HERE.get(f"{cls.__name__}.{name}", ()) for cls in one.__mro__))
    }
    assert silent == set()


@pytest.mark.parametrize(("owner", "name"), CALLS)
def test_arguments_of_nats_py_are_refused_with_ours(owner: str, name: str) -> None:
    of, call = owner.split(".")
    theirs, ours = next((one, two) for one, two in PAIRS if two[0].__name__ == of)
    known = {"prefix", *api.KeyValueConfig.__dataclass_fields__}  # of jetstream(**opts) and params
    assert name in known.union(*(arguments(getattr(theirs, one)) for one in dir(theirs)))
    for one in ours:
        assert name not in arguments(getattr(one, call))
        sentence = re.escape(f"{owner}: {told(owner, name)}")
        with pytest.raises(TypeError, match=sentence):
            result = getattr(one, call)(
                MagicMock(spec=one), *["a"] * (of != "Client"), **{name: None}
            )
            asyncio.run(result)


def test_reply_is_the_third_argument_as_there() -> None:
    theirs = list(inspect.signature(TheirClient.publish).parameters)[:4]
    for cls in (jetspark.Client, jetspark.blocking.Client):
        for call in (cls.publish, cls.publish_nowait):
            ours = list(inspect.signature(call).parameters.values())[:4]
            assert [one.name for one in ours] == theirs
            assert ours[-1].kind is ours[-1].POSITIONAL_OR_KEYWORD


@pytest.mark.parametrize(
    ("call", "given", "says"),
    [
        (
            jetspark.Client.subscribe,
            ("a", "queue"),
            "Client.subscribe: give these by name: queue, callback, ",
        ),
        (
            jetspark.blocking.Client.request,
            ("a", b"", 1),
            "Client.request: give these by name: timeout",
        ),
        (PullConsumer.fetch, (1, 5), "PullConsumer.fetch: give these by name: timeout"),
    ],
)
def test_an_argument_without_its_name_is_told(call: Any, given: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        call(None, *given)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        call(None)


def test_such_names_are_not_there_for_programs_that_look() -> None:
    client = object.__new__(jetspark.Client)
    assert not hasattr(client, "jsm")
    assert getattr(client, "jsm", None) is None
    assert "jsm" not in dir(client)
    assert {"publish", "jetstream"} <= set(dir(client))
    metadata = Metadata("S", "c", 1, 2, 3, 4, 5)
    assert pickle.loads(pickle.dumps(metadata)) == copy.copy(metadata) == metadata
    assert not hasattr(jetspark.errors, "TimeoutError")

    class Mine(jetspark.Client):
        jsm = "mine"

    assert Mine.jsm == "mine"


def test_classes_of_messages_look_attributes_up_as_before() -> None:
    for cls in (jetspark.Client, jetspark.blocking.Client, JsMsg, jetspark.JetStream):
        assert not any("__getattr__" in vars(one) for one in cls.__mro__)


def test_a_context_of_tls_is_not_taken_for_true() -> None:
    import ssl

    with pytest.raises(errors.ConfigError, match="give a context as ssl_context"):
        jetspark.connect(tls=ssl.create_default_context())  # type: ignore[arg-type]
