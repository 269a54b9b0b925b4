"""No secret is in what Spark shows: plans, progress, errors, logs, event logs, the UI (row S9)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import MakeServer
from tests.spark.secrets_run import S3_SECRET
from tests.support.accounts import new_key
from tests.support.processes import ended

from jetspark.connection.options import make_options
from jetspark.links.link import connect

# Words that Spark itself would mask wherever they stand must not be in them.
PASSWORD = "Xq7-hidden-w0rd"
KEY_PHRASE = "Yq8-hidden-w0rd"
TASK_SECRET = "Zq9-hidden-w0rd"
SEED = new_key()
RUN = "tests.spark.secrets_run"


@pytest.fixture
def url(make_server: MakeServer, needs_server: Callable[[str], None]) -> str:
    """A server with a user of each kind, and a stream S."""
    needs_server("2.12")
    server = make_server(
        f"""
        authorization {{ users: [
            {{ user: me, password: "{PASSWORD}" }}, {{ nkey: {SEED.public} }}
        ] }}
        """
    )
    with connect(make_options(server.url, user="me", password=PASSWORD)) as link:
        config = {"name": "S", "subjects": ["s.>"], "storage": "memory"}
        link.request("$JS.API.STREAM.CREATE.S", json.dumps(config).encode(), 5)
        link.request("s.a", b"x", 5)
    return server.url


@pytest.mark.full
@pytest.mark.spark
def test_no_secret_is_shown_anywhere(url: str, tmp_path: Path) -> None:
    options = {"stream": "S", "servers": url, "tlsKeyPassword": KEY_PHRASE}
    options |= {"user": "me", "password": PASSWORD, "nkeySecret": SEED.seed}
    folder = tmp_path / "run"
    folder.mkdir()
    (tmp_path / "spark-defaults.conf").write_text("spark.of.defaults yes\n")
    arguments = (folder, json.dumps(options), TASK_SECRET)
    done = ended(sys.executable, "-m", RUN, *arguments, SPARK_CONF_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    found = [
        f"{file.relative_to(folder)}: …{context(text, secret)}…"
        for file in [*folder.rglob("*")]
        if file.is_file()
        for text in [file.read_bytes().decode("utf-8", "replace")]
        for secret in (PASSWORD, SEED.seed, KEY_PHRASE, TASK_SECRET, S3_SECRET)
        if secret in text
    ]
    assert found == []
    shown = {file.relative_to(folder).as_posix() for file in folder.rglob("*")}
    assert {"ui.txt", "shown.txt", "spark.log"} <= shown
    assert [file for file in (folder / "events").rglob("*") if file.is_file()]


def context(text: str, secret: str) -> str:
    at = text.index(secret)
    return text[max(0, at - 200) : at + 80]
