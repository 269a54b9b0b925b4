"""API calls: subjects, names, envelopes, errors."""

from __future__ import annotations

import inspect
import json
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from tests.conftest import MakeServer, Unique

from jetspark import errors
from jetspark.client.messages import Message
from jetspark.full_client import Client, JetStream, connect
from jetspark.jetstream.api import Paged
from jetspark.kv import Origin
from jetspark.wire import js_api

CALLS = [value for value in vars(js_api).values() if isinstance(value, js_api.Call)]


def test_subjects_of_the_wire_document() -> None:
    names = {"stream": "S", "consumer": "c", "filter": "a.b", "subject": "x.y", "account": "A"}
    subjects = {js_api.subject_of("$JS.API", call, names) for call in CALLS}
    assert {f"$JS.API.{tail}" for tail in WIRE_DOCUMENT} <= subjects
    assert len(subjects) == len(CALLS)


WIRE_DOCUMENT = (
    *("INFO", "STREAM.LIST", "STREAM.NAMES", "STREAM.CREATE.S", "STREAM.UPDATE.S"),
    *("STREAM.INFO.S", "STREAM.DELETE.S", "STREAM.PURGE.S", "STREAM.MSG.DELETE.S"),
    *("STREAM.MSG.GET.S", "STREAM.SNAPSHOT.S", "STREAM.RESTORE.S"),
    *("CONSUMER.CREATE.S", "CONSUMER.DURABLE.CREATE.S.c"),
    *("CONSUMER.LIST.S", "CONSUMER.NAMES.S", "CONSUMER.INFO.S.c", "CONSUMER.DELETE.S.c"),
    *("CONSUMER.MSG.NEXT.S.c", "CONSUMER.CREATE.S.c.a.b", "DIRECT.GET.S", "DIRECT.GET.S.x.y"),
)


async def test_templates_of_old_servers_are_reached(
    js: JetStream, nc: Client, unique: Unique
) -> None:
    name = unique("T")
    config = {"name": "", "subjects": [f"{name}.*"], "storage": "memory", "retention": "limits"}
    document = {"name": name, "config": config, "max_streams": 2}
    assert nc.server_info is not None
    if nc.server_info.at_least(2, 14):
        for call in (f"CREATE.{name}", "NAMES", f"INFO.{name}", f"DELETE.{name}"):
            with pytest.raises(errors.UnsupportedByServerError, match="template"):
                await js.api_request(f"STREAM.TEMPLATE.{call}", document)
        return
    await js.api_request(f"STREAM.TEMPLATE.CREATE.{name}", document)
    await js.publish(f"{name}.a", b"x")
    info = await js.api_request(f"STREAM.TEMPLATE.INFO.{name}")
    assert info["streams"] == [f"{name}_a"]
    assert (await js.api_request("STREAM.TEMPLATE.NAMES"))["streams"] == [name]
    await js.api_request(f"STREAM.TEMPLATE.DELETE.{name}")
    with pytest.raises(errors.APIError, match="template not found"):
        await js.api_request(f"STREAM.TEMPLATE.INFO.{name}")


def test_api_prefix_comes_from_domain_or_api_prefix() -> None:
    assert js_api.api_prefix_of(None, None) == "$JS.API"
    assert js_api.api_prefix_of("hub", None) == "$JS.hub.API"
    assert js_api.api_prefix_of(None, "from.acc.") == "from.acc"
    with pytest.raises(errors.ConfigError, match="either domain"):
        js_api.api_prefix_of("hub", "from.acc")
    with pytest.raises(errors.BadNameError):
        js_api.api_prefix_of("a.b", None)
    with pytest.raises(errors.BadSubjectError):
        js_api.api_prefix_of(None, "a..b")


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a*", ">", "a/b", "a\\b", "a\r\nb"])
def test_names_are_checked_against_adr_6(name: str) -> None:
    for call in (js_api.STREAM_INFO, js_api.CONSUMER_INFO):
        with pytest.raises(errors.BadNameError):
            js_api.subject_of("$JS.API", call, {"stream": name, "consumer": "c"})
    with pytest.raises(errors.BadNameError):
        js_api.subject_of("$JS.API", js_api.CONSUMER_INFO, {"stream": "S", "consumer": name})


@pytest.mark.parametrize(
    ("err_code", "wanted"),
    [
        (10059, errors.StreamNotFoundError),
        (10014, errors.ConsumerNotFoundError),
        (10149, errors.ConsumerDoesNotExistError),
        (10037, errors.MessageNotFoundError),
        (10071, errors.WrongLastSequenceError),
        (10164, errors.StreamWrongLastSequenceConstantError),
        (10076, errors.JetStreamNotEnabledError),
        (10039, errors.JetStreamNotEnabledForAccountError),
        (10058, errors.StreamNameExistError),
        (10148, errors.ConsumerAlreadyExistsError),
        (10025, errors.InvalidJSONError),
        (10999, errors.APIError),
    ],
)
def test_errors_are_typed_by_their_code(err_code: int, wanted: type[errors.APIError]) -> None:
    document = {"code": 400, "err_code": err_code, "description": "why"}
    error = js_api.error_of(document, {})
    assert type(error) is wanted
    assert (error.code, error.err_code, error.description) == (400, err_code, "why")


def test_the_error_for_a_missing_stream_names_it() -> None:
    document = {"code": 404, "err_code": 10059, "description": "stream not found"}
    assert str(js_api.error_of(document, {"stream": "ORDRES"})) == 'Stream "ORDRES" not found.'


@pytest.mark.parametrize(
    "answer",
    [b"", b"nonsense", b"[]", b"{}", b'{"type":"io.nats.jetstream.api.v1.stream_info_response"}'],
)
def test_an_answer_of_another_type_is_an_error(answer: bytes) -> None:
    with pytest.raises(errors.JetStreamError):
        js_api.parse_answer(js_api.STREAM_DELETE, answer, {"stream": "S"})


async def test_calls_go_to_the_prefix_and_keep_the_timeout(nc: Client, unique: Unique) -> None:
    prefix = unique("imported")
    js = JetStream(nc, api_prefix=prefix, timeout=1)

    async def answer(msg: Message) -> None:
        if msg.subject == f"{prefix}.INFO":
            kind = "io.nats.jetstream.api.v1.account_info_response"
            await msg.respond(json.dumps({"type": kind, "streams": 7, "new": 1}).encode())

    async with nc.subscribe(f"{prefix}.>", callback=answer):
        account = await js.account_info()
        assert account.streams == 7
        assert account.extra == {"new": 1}
        with pytest.raises(errors.RequestTimeoutError):
            await js.stream("S").info()
    with pytest.raises(errors.JetStreamNotEnabledError, match=prefix):
        await js.account_info()


async def test_contexts_share_a_client(make_server: MakeServer) -> None:
    server = make_server('jetstream { domain: "hub" }')
    async with connect(server.url) as nc:
        for js in (JetStream(nc), JetStream(nc, domain="hub"), JetStream(nc, timeout=1)):
            assert (await js.account_info()).domain == "hub"
        with pytest.raises(errors.JetStreamNotEnabledError, match="'elsewhere'"):
            await JetStream(nc, domain="elsewhere").account_info()


async def test_a_server_without_jetstream_raises_not_enabled(make_server: MakeServer) -> None:
    async with connect(make_server(jetstream=False).url) as nc:
        with pytest.raises(errors.JetStreamNotEnabledError, match="this server"):
            await JetStream(nc).account_info()


async def test_server_info_is_none_where_another_server_answers(nc: Client) -> None:
    assert nc.jetstream().server_info == nc.server_info is not None
    assert nc.jetstream(domain="hub").server_info is None
    assert nc.jetstream(api_prefix="imported").server_info is None


@pytest.mark.parametrize("options", [{"timeout": 0}, {"timeout": -1}, {"domain": ""}])
async def test_impossible_context_options_are_refused(nc: Client, options: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError):
        JetStream(nc, **options)


BAD_NAMES = ("", "a.b", "a b", "a*", ">", "a/b", "a\r\nb")
OTHER_ARGUMENTS: dict[str, Any] = {
    "seq": 1,
    "until": datetime(2036, 1, 1, tzinfo=UTC),
    "subjects": "a",
    "folder": "folder",
    "max_streams": 1,
    "max_members": 4,
    "origin": Origin("good"),
    "origins": [Origin("good")],
}
NAMED = [
    pytest.param(name, parameter, id=f"{name} {parameter}")
    for name, method in inspect.getmembers(JetStream, inspect.isfunction)
    for parameter in inspect.signature(method).parameters
    if not name.startswith("_") and parameter in ("stream", "name", "consumer")
]


@pytest.mark.full
@pytest.mark.parametrize(("method", "parameter"), NAMED)
async def test_no_bad_name_is_sent(nc: Client, method: str, parameter: str) -> None:
    # Of a domain's server the version is not known, so that no call is refused for that.
    call = getattr(JetStream(nc, domain="hub"), method)
    arguments = {
        name: OTHER_ARGUMENTS.get(name, "good")
        for name, one in inspect.signature(call).parameters.items()
        if one.default is inspect.Parameter.empty and one.kind is not one.VAR_KEYWORD
    }
    if method == "get_msg":
        arguments["seq"] = 1
    positional = [
        name
        for name, one in inspect.signature(call).parameters.items()
        if one.kind is one.POSITIONAL_ONLY and name in arguments
    ]
    await nc.flush()
    sent = nc.stats.out_msgs
    for bad in BAD_NAMES:
        given = arguments | {parameter: bad}
        first = [given.pop(name) for name in positional]
        with pytest.raises((errors.BadNameError, errors.BadSubjectError)):
            made = call(*first, **given)
            if inspect.isawaitable(made):
                await made
            elif hasattr(made, "__aiter__"):
                async for _ in made:
                    break
    assert nc.stats.out_msgs == sent


# -- lists of a server that counts wrong -------------------------------------------------------


class Repeating:
    """Answers each request for a page with the same one."""

    def __init__(self) -> None:
        self.asked = 0

    async def call(self, *_: Any, **__: Any) -> dict[str, Any]:
        self.asked += 1
        assert self.asked < 10
        return {"streams": ["A", "B"], "total": 10**30}


async def test_the_same_page_again_ends_a_list() -> None:
    server = Repeating()
    names = Paged(cast("Any", server), js_api.STREAM_NAMES, "streams", str, {})
    assert [name async for name in names] == ["A", "B"]
    assert server.asked == 2
