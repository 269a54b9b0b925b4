"""The blocking classes have what the asyncio classes have, with the same signatures, and no more.

What may differ: `async` and awaitables are gone, an async iterator is an iterator. Anything else
stands in the tables below with its reason; other words in a docstring, in the table of
`scripts/delegations.py`.
"""

from __future__ import annotations

import inspect
import re
import shutil
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import pytest
from scripts import delegations

import jetspark
from jetspark import (
    blocking,
    dead_letters,
    full_client,
    groups,
    identity,
    kv,
    objects,
    services,
    system,
)
from jetspark.blocking import dead_letters as blocking_dead_letters
from jetspark.blocking import events as blocking_events
from jetspark.blocking import groups as blocking_groups
from jetspark.blocking import identity as blocking_identity
from jetspark.blocking import jetstream as blocking_jetstream
from jetspark.blocking import kv as blocking_kv
from jetspark.blocking import objects as blocking_objects
from jetspark.blocking import services as blocking_services
from jetspark.blocking import subscription as blocking_subscription
from jetspark.blocking import system as blocking_system
from jetspark.blocking.jetstream import backup as blocking_backup
from jetspark.client import callbacks, requests, subscription
from jetspark.client.messages import MessageView
from jetspark.full_client import JetStream
from jetspark.jetstream import (
    backup,
    batches,
    consume,
    consumers,
    events,
    fetch,
    message,
    ordered,
    paging,
    publisher,
    stored,
)

TWINS: dict[type, type] = {
    full_client.Client: blocking.Client,
    jetspark.Message: blocking.Message,
    subscription.Subscription: blocking.Subscription,
    callbacks.EventStream: blocking.EventStream,
    requests.Replies: blocking.Replies,
    JetStream: blocking_jetstream.JetStream,
    consumers.Consumer: blocking_jetstream.Consumer,
    consumers.PullConsumer: blocking_jetstream.PullConsumer,
    consumers.PushConsumer: blocking_jetstream.PushConsumer,
    consume.ConsumerMessages: blocking_jetstream.ConsumerMessages,
    message.JsMsg: blocking_jetstream.JsMsg,
    fetch.FetchResult: blocking_jetstream.FetchResult,
    events.Events: blocking_jetstream.Events,
    paging.Paged: blocking_jetstream.Paged,
    publisher.Publisher: blocking_jetstream.Publisher,
    batches.AtomicBatch: blocking_jetstream.AtomicBatch,
    batches.FastIngest: blocking_jetstream.FastIngest,
    stored.StoredMsgs: blocking_jetstream.StoredMsgs,
    consumers.PushMessages: blocking_jetstream.PushMessages,
    ordered.OrderedMessages: blocking_jetstream.OrderedMessages,
    kv.ReadOnlyBucket: blocking_kv.ReadOnlyBucket,
    kv.Bucket: blocking_kv.Bucket,
    kv.Lock: blocking_kv.Lock,
    kv.Election: blocking_kv.Election,
    kv.Listing: blocking_kv.Listing,
    kv.Watcher: blocking_kv.Watcher,
    kv.LiveBucket: blocking_kv.LiveBucket,
    objects.ObjectStore: blocking_objects.ObjectStore,
    objects.ObjectReader: blocking_objects.ObjectReader,
    objects.ObjectWatcher: blocking_objects.ObjectWatcher,
    groups.ElasticGroup: blocking_groups.ElasticGroup,
    groups.StaticGroup: blocking_groups.StaticGroup,
    groups.GroupMember: blocking_groups.GroupMember,
    groups.GroupMsg: blocking_groups.GroupMsg,
    dead_letters.DeadLetters: blocking_dead_letters.DeadLetters,
    dead_letters.DeadLetterWorker: blocking_dead_letters.DeadLetterWorker,
    identity.AuthCallout: blocking_identity.AuthCallout,
    system.System: blocking_system.System,
    services.Service: blocking_services.Service,
    services.Group: blocking_services.Group,
    services.Request: blocking_services.Request,
    services.Services: blocking_services.Services,
}

# Public in the asyncio class, absent in the blocking one.
WITHOUT_TWIN: dict[tuple[type, str], str] = {
    (full_client.Client, "ask"): "for what is built on the client",
    (full_client.Client, "ask_many"): "for what is built on the client",
    (full_client.Client, "adopt"): "for what is made by the client",
    (full_client.Client, "loop"): "the loop is nobody's business",
    (full_client.Client, "listen"): "its handler runs inside the read loop",
    (full_client.Client, "publishing"): "for what is built on the client",
    (full_client.Client, "requests"): "for what is built on the client",
    (full_client.Client, "hooks"): "for what is built on the client",
    (full_client.Client, "require_open"): "for what is built on the client",
    (full_client.Client, "check_loop"): "the loop is nobody's business",
    (JetStream, "api"): "for what is built on JetStream",
    (subscription.Subscription, "callback_task"): "the loop is nobody's business",
    (consume.ConsumerMessages, "callback_task"): "the loop is nobody's business",
    (ordered.OrderedMessages, "callback_task"): "the loop is nobody's business",
    (consumers.PushMessages, "callback_task"): "the loop is nobody's business",
    (events.Events, "callback_task"): "the loop is nobody's business",
    (kv.Watcher, "callback_task"): "the loop is nobody's business",
    (subscription.Subscription, "take_queued"): "gives frames, not messages",
    (consume.ConsumerMessages, "take_queued"): "gives frames, not messages",
    (consume.ConsumerMessages, "abandon"): "of the client's close",
    (consume.ConsumerMessages, "left_by"): "of the client's drain",
    (consume.ConsumerMessages, "handled"): "of the client's barrier",
    (ordered.OrderedMessages, "take_queued"): "gives frames, not messages",
    (consumers.PushMessages, "take_queued"): "gives frames, not messages",
    (ordered.OrderedMessages, "abandon"): "of the client's close",
    (ordered.OrderedMessages, "left_by"): "of the client's drain",
    (ordered.OrderedMessages, "handled"): "of the client's barrier",
    (events.Events, "abandon"): "of the client's close",
    (events.Events, "left_by"): "of the client's drain",
    (events.Events, "handled"): "of the client's barrier",
    (objects.ObjectWatcher, "take_ready"): "iterating takes many at once",
    (subscription.Subscription, "abandon"): "of the client's close",
    (subscription.Subscription, "left_by"): "of the client's drain",
    (subscription.Subscription, "handled"): "of the client's barrier",
    (kv.Watcher, "take_ready"): "iterating takes many at once",
    (kv.Watcher, "report"): "the client reports",
    (kv.Bucket, "client"): "the asyncio client",
    (kv.ReadOnlyBucket, "client"): "the asyncio client",
    (kv.Lock, "lose"): "for what renews it",
    (kv.Watcher, "last_seq"): "for what is built on it",
    (objects.ObjectWatcher, "last_seq"): "for what is built on it",
    (objects.ObjectStore, "writer"): "put writes all",
    (callbacks.EventStream, "push"): "of the client",
    (identity.AuthCallout, "begin"): "for both clients",
    (requests.Replies, "__await__"): "list(replies) is the same",
    **{
        (cls, name): "for both clients"
        for cls in (services.Service, services.Group)
        for name in ("owner", "endpoint_options", "decorator")
    },
    **{
        (services.Service, name): "for what is built on it"
        for name in ("add", "add_nowait", "begin", "running")
    },
}
# Public in the blocking class only.
EXTRA: dict[tuple[type, str], str] = {}
# Classes that a user makes: their constructors are compared too.
MADE_BY_USERS = {full_client.Client, JetStream, fetch.FetchResult}
# The first line of the class's docstring says something that is different.
OTHER_WORDS = {
    "AtomicBatch",
    "Client",  # no event loop
    "EventStream",
    "FastIngest",
    "Listing",
    "ObjectReader",
    "Paged",
    "Publisher",
    "Replies",
    "StoredMsgs",
}
RENAMED = {
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aclose": "close",
}
KEPT_SPECIAL = {*RENAMED, "__await__", "__repr__"}

PAIRS = [pytest.param(one, TWINS[one], id=one.__name__) for one in TWINS]


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
        # Attributes set in a constructor are public too.
        init = vars(base).get("__init__")
        if inspect.isfunction(init) and not is_dataclass(base):
            for name in re.findall(r"^ +self\.([a-z]\w*)(?::| =)", inspect.getsource(init), re.M):
                found.setdefault(name, None)
    return found


def sentence(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n")[0].strip()


def blocked(text: str) -> str:
    """The text of an asyncio annotation as the blocking client has it."""
    text = re.sub(r"Async(Iterator|Generator)\[", r"\1[", text)
    return text.replace("asyncio.Future[", "Future[")


def bound_variables(cls: type) -> dict[str, str]:
    """What the type variables of its generic bases stand for."""
    found: dict[str, str] = {}
    for base in vars(cls).get("__orig_bases__", ()):
        variables = getattr(get_origin(base), "__parameters__", ())
        for variable, argument in zip(variables, get_args(base), strict=False):
            text = argument.__name__ if isinstance(argument, type | TypeVar) else str(argument)
            found[variable.__name__] = re.sub(r"[\w.]+\.(?=\w)", "", text)
    return found


def signature(function: Any, variables: dict[str, str] | None = None) -> tuple[object, ...]:
    def text(annotation: object) -> str:
        words = blocked(str(annotation))
        return re.sub(r"\w+", lambda word: (variables or {}).get(word[0], word[0]), words)

    if isinstance(function, property):
        function = function.fget
    shape = inspect.signature(function)
    parameters = [
        (p.name, p.kind, p.default, text(p.annotation)) for p in shape.parameters.values()
    ]
    return (*parameters, text(shape.return_annotation))


@pytest.mark.parametrize(("one", "twin"), PAIRS)
def test_every_public_name_has_its_twin(one: type, twin: type) -> None:
    missing = {
        name
        for name in surface(one)
        if (one, name) not in WITHOUT_TWIN and RENAMED.get(name, name) not in surface(twin)
    }
    assert missing == set(), f"add them to jetspark.blocking: {missing}"


@pytest.mark.parametrize(("one", "twin"), PAIRS)
def test_twins_have_nothing_else(one: type, twin: type) -> None:
    known = {RENAMED.get(name, name) for name in surface(one)}
    if hasattr(one, "__aiter__"):
        known |= {"__iter__", "__next__"}
    own = {name for name in surface(twin) if (twin, name) not in EXTRA}
    assert own - known - {"__repr__"} == set()


def is_property(value: object) -> bool:
    return isinstance(value, property)


def compared() -> list[Any]:
    cases = []
    for one, twin in TWINS.items():
        ours = surface(twin)
        for name, value in surface(one).items():
            if name == "__aexit__":
                continue  # its arguments are Python's
            other = ours.get(RENAMED.get(name, name))
            if any(
                all(map(is_one, (value, other))) for is_one in (inspect.isfunction, is_property)
            ):
                cases.append(pytest.param(value, other, id=f"{one.__name__}.{name}"))
        if one in MADE_BY_USERS:
            made = (vars(one).get("__init__") or one.__init__, twin.__init__)  # type: ignore[misc]
            cases.append(pytest.param(*made, id=f"{one.__name__}.__init__"))
    cases.append(pytest.param(full_client.connect, blocking.connect, id="connect"))
    return cases


@pytest.mark.parametrize(("one", "twin"), compared())
def test_signatures_are_equal(one: Any, twin: Any, request: pytest.FixtureRequest) -> None:
    name, _, _ = request.node.callspec.id.partition(".")
    variables = next((bound_variables(TWINS[cls]) for cls in TWINS if cls.__name__ == name), {})
    theirs_are = next((bound_variables(cls) for cls in TWINS if cls.__name__ == name), {})
    ours, theirs = signature(twin, variables), signature(one, theirs_are)
    if one is full_client.connect:
        ours, theirs = ours[:-1], theirs[:-1]  # a context manager that can be awaited
    assert ours == theirs
    assert not inspect.iscoroutinefunction(twin)
    assert not inspect.isasyncgenfunction(twin)


@pytest.mark.parametrize(("one", "twin"), compared())
def test_docstrings_are_equal_but_for_the_words_of_the_table(one: Any, twin: Any) -> None:
    function: Any = one.fget if isinstance(one, property) else one
    said = delegations.worded(function.__qualname__, inspect.getdoc(one) or "")
    assert (inspect.getdoc(twin) or "").split() == said.split()


def test_generated_delegations_are_what_the_script_writes() -> None:
    assert delegations.differing() == [], "run `python scripts/delegations.py`"


def test_a_file_that_the_script_would_not_write_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(delegations.FOLDER, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(delegations, "FOLDER", tmp_path)
    client = tmp_path / "client.py"
    client.write_text(
        client.read_text("utf-8").replace("Seconds of one round trip", "", 1), "utf-8"
    )
    (tmp_path / "kv" / "live.py").unlink()
    (tmp_path / "more.py").write_text("", "utf-8")
    assert delegations.differing() == ["client.py", "kv/live.py", "more.py"]


@pytest.mark.parametrize(("one", "twin"), PAIRS)
def test_classes_say_the_same(one: type, twin: type) -> None:
    if one.__name__ in OTHER_WORDS:
        assert sentence(twin)
    else:
        assert sentence(twin) == sentence(one)


@pytest.mark.parametrize("twin", TWINS.values(), ids=lambda twin: twin.__name__)
def test_what_the_generated_class_leaves_to_the_one_by_hand_is_there(twin: type) -> None:
    left = {
        name
        for name in dir(twin)
        for value in [inspect.getattr_static(twin, name)]
        for function in [value.fget if isinstance(value, property) else value]
        if inspect.isfunction(function) and function.__code__.co_names == ("NotImplementedError",)
    }
    assert left == set()


def test_callbacks_take_the_same_and_return_nothing_to_await() -> None:
    for ours, theirs in (
        (blocking_events.EventCallback, callbacks.EventCallback),
        (blocking_events.ErrorCallback, callbacks.ErrorCallback),
        (blocking_subscription.MessageCallback, subscription.MessageCallback),
        (blocking_backup.ProgressCallback, backup.ProgressCallback),
    ):
        (taken,), returned = get_args(ours)
        (other,), _ = get_args(theirs)
        assert TWINS.get(other, other) == taken
        assert returned is None


def test_messages_are_read_by_the_same_code() -> None:
    for one in (jetspark.Message, blocking.Message, message.JsMsg, blocking_jetstream.JsMsg):
        assert issubclass(one, MessageView)


def test_a_new_public_method_without_twin_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def brand_new(self: object) -> None:
        """Something."""

    monkeypatch.setattr(JetStream, "brand_new", brand_new, raising=False)
    with pytest.raises(AssertionError, match="brand_new"):
        test_every_public_name_has_its_twin(JetStream, blocking_jetstream.JetStream)


def test_every_public_class_of_the_asyncio_client_is_in_the_table() -> None:
    """What a user gets in hand and can await something of."""
    unlisted = set()
    for name in dir(jetspark):
        cls = getattr(jetspark, name)
        if (
            inspect.isclass(cls)
            and cls.__module__.startswith(
                ("jetspark.client", "jetspark.jetstream", "jetspark.full_client")
            )
            and any(
                inspect.iscoroutinefunction(value) or key == "__aiter__"
                for key, value in surface(cls).items()
            )
        ):
            unlisted |= {cls} - set(TWINS)
    assert unlisted == set()
