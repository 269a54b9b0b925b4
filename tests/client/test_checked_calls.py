"""Every public call refuses, in a sentence of ours, what its annotations do not take.

The walk is over the code: a new call is checked, or stands in a table here with its reason.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from scripts import delegations

from jetspark import ConnectOptions, blocking
from jetspark.arguments import parameters_of
from jetspark.blocking.jetstream.consumers import PullConsumer, PushConsumer
from jetspark.blocking.kv.bucket import Bucket
from jetspark.blocking.objects.store import ObjectStore
from jetspark.connection.options import make_options
from jetspark.documents.permissions import Responses
from jetspark.errors import ConfigError, JetsparkError, UnknownArgumentError
from jetspark.full_client import connect
from jetspark.jetstream import verify_backup
from jetspark.jetstream.acl import Roles
from jetspark.kinds import Kind
from jetspark.kv import KeyChain, Origin, ValueChain, ZlibCodec
from jetspark.server import NatsServer

if TYPE_CHECKING:
    from jetspark.kinds import Kind

MADE_FOR_EACH_MESSAGE = {
    *("PublishCalls.publish", "PublishCalls.publish_msg", "PublishCalls.publish_nowait"),
    *("PublishCalls.publish_replying", "RequestCalls.request", "RequestCalls.request_msg"),
    *("Subscription.next", "ConsumerMessages.next", "PushMessages.next", "Watching.next"),
    *("Events.next", "PullConsumer.next", "CounterCalls.increment", "StoredCalls.get_msg"),
    *("Message.respond", "JsMsg.ack_sync", "Publisher.send", "Publisher.submit"),
    *("AtomicBatch.add", "FastIngest.add", "LiveBucket.entry"),
    *("ReadOnlyBucket.get", "ReadOnlyBucket.get_value"),
    *("Bucket.put", "Bucket.create", "Bucket.update", "Bucket.delete"),
    *("Request.respond", "Request.respond_json", "Request.respond_error"),
    *("Request.respond_nowait", "RequestView.json"),
    *("Services.request", "Services.request_json"),
}
"""Checked where it fails: `test_a_call_for_each_message…` has what they refuse."""

NOT_FOR_USERS = {
    *("FrameReader.left_by", "Subscription.left_by"),
    *("Subscription.take_queued", "ConsumerMessages.take_queued", "PushMessages.take_queued"),
    *("OrderedMessages.take_queued", "Watching.take_ready", "EventStream.push"),
    *("Service.add", "Service.add_nowait", "Client.adopt"),
}

CHECKED_WHERE_USED = {
    "payload": "any bytes-like object: BadPayloadError",
    "headers": "BadHeaderError names the header",
    "data": "ConfigError says what a source of bytes is",
}


def functions() -> Iterator[Any]:
    """Each public call of the asyncio client, as `Class.name` and function."""
    seen = set()
    twins = [twin for twins in delegations.MODULES.values() for twin in twins]
    for where in (path for twin in twins for path in (twin.one, *twin.also)):
        module, _, name = where.partition(":")
        for cls in getattr(importlib.import_module(module), name).__mro__:
            for method, value in vars(cls).items():
                if not inspect.isfunction(value) or method.startswith("_"):
                    continue
                label = f"{cls.__name__}.{method}"
                more = list(inspect.signature(value).parameters)[1:]
                if more and cls.__module__.startswith("jetspark.") and label not in seen:
                    seen.add(label)
                    yield pytest.param(label, value, id=label)
    for cls in (KeyChain, ValueChain, ZlibCodec, Roles, NatsServer):
        yield pytest.param(cls.__name__, cls.__init__, id=cls.__name__)
    for function in (connect, make_options, verify_backup):
        yield pytest.param(function.__name__, function, id=function.__name__)


def good(kind: Kind | None) -> Any:
    """A value that fits."""
    values: tuple[Any, ...] = ("x", 1, True, [], {}, lambda: None, Origin("b"))
    return next((value for value in values if kind is None or kind.fits(value)), None)


def run(call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    result = call(*args, **kwargs)
    if inspect.iscoroutine(result):
        try:
            result.send(None)
        finally:
            result.close()


@pytest.mark.parametrize(("label", "call"), list(functions()))
def test_a_call_refuses_what_its_annotations_do_not_take(label: str, call: Any) -> None:
    if label in MADE_FOR_EACH_MESSAGE | NOT_FOR_USERS:
        assert not hasattr(call, "__wrapped__"), "it pays for a check with each message"
        return
    assert hasattr(call, "__wrapped__"), f"{label} is not checked"
    positional, named, rest, _ = parameters_of(call.__wrapped__)
    for index, (name, _) in enumerate(positional):
        if name not in ("self", *CHECKED_WHERE_USED):
            before = [good(kind) for _, kind in positional[:index]]
            with pytest.raises(ConfigError, match=rf"^{name} is .*, not <object object"):
                run(call, *before, object())
    for name in named.keys() - dict(positional).keys() - CHECKED_WHERE_USED.keys():
        # What else is missing is looked at afterwards, by Python.
        with pytest.raises(ConfigError, match=rf"^{name} is .*, not <object object"):
            run(call, None, **{name: object()})
    if rest[0]:
        with pytest.raises(ConfigError, match=f"^{rest[0]} is "):
            run(call, None, object())


@pytest.mark.parametrize(("label", "call"), list(functions()))
def test_a_call_says_which_keyword_is_misspelt(label: str, call: Any) -> None:
    if label in MADE_FOR_EACH_MESSAGE | NOT_FOR_USERS:
        return  # Python says it, from 3.13 on with a suggestion
    names = parameters_of(call.__wrapped__)
    if names.more:
        return  # `check_names`
    wanted = max(names.named.keys() - {"self"}, key=len, default="")
    slip = wanted.replace("_", "") + "x" if wanted else "unknown"
    with pytest.raises(UnknownArgumentError, match=rf"has no argument '{slip}'") as raised:
        run(call, **{slip: 1})
    assert raised.value.near or len(wanted) < 3


def test_the_tables_name_calls_that_there_are() -> None:
    labels = {param.values[0] for param in functions()}
    assert labels >= MADE_FOR_EACH_MESSAGE | NOT_FOR_USERS


def test_signature_and_docstring_of_a_checked_call_are_its_own() -> None:
    call = connect
    inner = call.__wrapped__  # type: ignore[attr-defined]
    assert inspect.signature(call) == inspect.signature(inner)
    assert call.__doc__ == inner.__doc__
    assert inspect.iscoroutinefunction(blocking.Client.close) is False


@pytest.mark.parametrize("cls", [ConnectOptions, Origin, Responses])
def test_options_refuse_what_their_annotations_do_not_take(cls: Any) -> None:
    required: dict[str, Any] = {"bucket": "b"} if cls is Origin else {}
    for name in inspect.signature(cls).parameters:
        with pytest.raises(ConfigError, match=f"^{name} is ") as raised:
            cls(**(required | {name: object()}))
        if name in ("password", "token", "creds", "nkey_seed", "jwt", "servers"):
            assert "0x" not in str(raised.value)  # a secret is not shown


# -- the blocking client -----------------------------------------------------------------------


def test_calls_of_the_blocking_client_refuse_them_too(
    shared_server: NatsServer, unique: Callable[[str], str]
) -> None:
    """All required arguments are wrong, and one after the other of the rest."""
    name = unique("S")
    with blocking.connect(shared_server.url) as nc:
        js = nc.jetstream()
        js.create_stream(name=name, subjects=[name], storage="memory", allow_atomic=True)
        things: list[Any] = [nc, js, js.create_bucket(unique("b"))]
        things += [js.create_object_store(unique("o")), js.create_consumer(name)]
        things += [js.create_push_consumer(name, deliver_subject=unique("d")), nc.subscribe(name)]
        for thing in things:
            for method in sorted(set(dir(thing)) - {"report"}):
                call = inspect.getattr_static(type(thing), method, None)
                if not method.startswith("_") and inspect.isfunction(call):
                    _refuses(getattr(thing, method))
        with js.publisher() as publisher, js.atomic_batch() as batch:
            for call in (publisher.send, publisher.submit, batch.add):
                _refuses(call)


def test_calls_of_the_blocking_client_say_which_keyword_is_misspelt() -> None:
    classes: list[Any] = [blocking.Client, blocking.JetStream]
    classes += [Bucket, ObjectStore, PullConsumer, PushConsumer]
    for_each_message = {label.partition(".")[2] for label in MADE_FOR_EACH_MESSAGE}
    calls = [
        call
        for cls in classes
        for method in set(dir(cls)) - for_each_message - {"report"}
        if inspect.isfunction(call := inspect.getattr_static(cls, method))
        and not method.startswith("_")
        and len(inspect.signature(call).parameters) > 1
    ]
    assert len(calls) > 80
    for call in calls:
        if not parameters_of(inspect.unwrap(call)).more:
            with pytest.raises(UnknownArgumentError, match="has no argument 'wrong_name'"):
                pytest.fail(f"{call.__qualname__}: {call(None, wrong_name=1)}")


def _refuses(call: Any) -> None:
    parameters = inspect.signature(call).parameters.values()
    named = [each for each in parameters if each.kind is not each.VAR_KEYWORD]
    required = [each.name for each in named if each.default is each.empty]
    for probed in named:
        wrong = {each: object() for each in (*required, probed.name)}
        args = [wrong.pop(each.name) for each in named if _leads(each) and each.name in wrong]
        with pytest.raises(JetsparkError) as raised:
            call(*args, **wrong)
        assert str(raised.value), call


def _leads(parameter: inspect.Parameter) -> bool:
    return parameter.kind is parameter.POSITIONAL_ONLY
