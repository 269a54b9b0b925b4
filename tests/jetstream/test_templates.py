"""Stream templates, where servers still have them."""

from __future__ import annotations

import pytest
from tests.conftest import Unique

from jetspark import blocking
from jetspark.errors import APIError, BadNameError, ConfigError, UnsupportedByServerError
from jetspark.full_client import Client, JetStream
from jetspark.jetstream.api import Api
from jetspark.server import NatsServer
from jetspark.wire.documents import ServerInfo


def has_templates(nc: Client | blocking.Client) -> bool:
    return nc.server_info is not None and not nc.server_info.at_least(2, 14)


async def test_a_template_creates_a_stream_for_each_new_subject(
    js: JetStream, nc: Client, unique: Unique
) -> None:
    name = unique("T")
    if not has_templates(nc):
        pytest.skip("this server has no templates")
    made = await js.create_template(
        name, subjects=[f"{name}.*"], storage="memory", max_msgs=7, max_streams=2
    )
    assert (made.config.name, made.config.max_streams, made.streams) == (name, 2, [])
    assert made.config.config.max_msgs == 7
    assert made.extra == made.config.extra == {}
    for token in "ab":
        await js.publish(f"{name}.{token}", b"x")
    info = await js.template_info(name)
    assert sorted(info.streams) == [f"{name}_a", f"{name}_b"]
    owned = (await js.stream_info(f"{name}_a")).config
    assert (owned.template_owner, owned.max_msgs) == (name, 7)
    assert await js.template_names().all() == [name]
    with pytest.raises(APIError, match="template"):
        await js.create_template(name, subjects=["other"], max_streams=1)
    await js.delete_template(name)
    assert await js.template_names().all() == []
    assert not any(one.startswith(name) for one in await js.stream_names().all())
    with pytest.raises(APIError, match="template not found"):
        await js.template_info(name)


def test_blocking_templates_are_refused_or_made(shared_server: NatsServer, unique: Unique) -> None:
    name = unique("T")
    with blocking.connect(shared_server.url) as nc:
        js = nc.jetstream()
        if not has_templates(nc):
            with pytest.raises(UnsupportedByServerError):
                js.template_names()
            return
        made = js.create_template(name, {"subjects": [f"{name}.*"]}, max_streams=1)
        assert made == js.template_info(name)
        assert list(js.template_names()) == [name]
        js.delete_template(name)


async def test_templates_on_newer_servers_are_refused_before_sending(
    js: JetStream, nc: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    if has_templates(nc):
        monkeypatch.setattr(Api, "server", ServerInfo(version="2.14.0"))
    before = nc.stats.out_msgs
    sentence = r"A stream template needs nats-server < 2\.14; this server is 2\."
    for call in (
        js.create_template("T", subjects=["t.*"], max_streams=1),
        js.template_info("T"),
        js.delete_template("T"),
    ):
        with pytest.raises(UnsupportedByServerError, match=sentence):
            await call
    with pytest.raises(UnsupportedByServerError):
        js.template_names()
    assert nc.stats.out_msgs == before


async def test_wrong_template_options_are_refused_before_anything_is_sent(
    js: JetStream, nc: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Api, "server", ServerInfo(version="2.9.25"))
    before = nc.stats.out_msgs
    with pytest.raises(BadNameError, match="Bad template name"):
        await js.template_info("a.b")
    with pytest.raises(ConfigError, match="max_streams"):
        await js.create_template("T", subjects=["t.*"], max_streams=0)
    with pytest.raises(ConfigError, match="Bad subject"):
        await js.create_template("T", subjects=["t..*"], max_streams=1)
    with pytest.raises(UnsupportedByServerError, match="compression"):
        await js.create_template("T", subjects=["t.*"], compression="s2", max_streams=1)
    assert nc.stats.out_msgs == before
