"""Servers named by a context of the `nats` command, or by the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.conftest import MakeServer
from tests.support.accounts import Operator, creds_text, new_key

import jetspark


@pytest.fixture
def context(make_server: MakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a context that leads to a server that wants a JWT."""
    operator, user = Operator(), new_key()
    server = make_server(operator.config())
    (tmp_path / "me.creds").write_text(creds_text(operator.user(user), user.seed))
    folder = tmp_path / "nats" / "context"
    folder.mkdir(parents=True)
    document = {"url": server.url, "creds": "$SECRETS/me.creds", "inbox_prefix": "_MINE"}
    (folder / "prod.json").write_text(json.dumps(document))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("SECRETS", str(tmp_path))
    return "prod"


async def test_a_context_leads_to_its_server(context: str) -> None:
    async with jetspark.connect(context=context) as nc:
        assert nc.new_inbox().startswith("_MINE.")
        await nc.flush()
    async with jetspark.Client(jetspark.ConnectOptions.from_context(context, name="n")) as nc:
        assert nc.options.name == "n"


async def test_environment_leads_to_server(context: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_CONTEXT", context)
    async with jetspark.connect() as nc:
        url = nc.current_server
        await nc.flush()
    monkeypatch.setenv("NATS_CONTEXT", "is not looked at")
    with pytest.raises(jetspark.AuthorizationError):
        await jetspark.connect(url)
