"""`jetspark acl`."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any

import pytest

from jetspark.blocking import connect
from jetspark.cli import app
from jetspark.cli.acl import acl
from jetspark.errors import PermissionsError
from jetspark.jetstream.acl import Roles

if TYPE_CHECKING:
    from tests.conftest import MakeServer

ROLES = [
    name.replace("_", "-")
    for name, value in vars(Roles).items()
    if not name.startswith("_") and inspect.isfunction(value)
]
ALL = {
    "publisher": ["--subject", "orders.*"],
    "pull-reader": ["--stream", "S", "--consumer", "c", "--may-create", "--responses"],
    "push-reader": [
        *("--stream", "S", "--consumer", "c", "--deliver-subject", "d", "--deliver-group", "g"),
        *("--may-create", "--responses"),
    ],
    "ordered-reader": ["--stream", "S"],
    "range-reader": ["--stream", "S"],
    "stored-reader": ["--stream", "S"],
    "spark-source": ["--stream", "S", "--stream", "T", "--pattern", "--sole-reader"],
    "spark-sink": ["--stream", "S", "--subject", "s.>", "--exactly-once"],
    "kv-reader": ["--bucket", "b"],
    "kv-writer": ["--bucket", "b", "--key", "x", "--key", "y.>", "--origin", "o"],
    "administrator": ["--stream", "S"],
    "monitor": ["--stream", "S"],
    "backup": ["--stream", "S"],
    "restore": ["--stream", "S"],
    "events": [
        *("--stream", "S", "--consumer", "c", "--kind", "nak", "--kind", "max_deliver"),
        *("--event-prefix", "from.A"),
    ],
}


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert app.run(["acl", *arguments]) == app.DONE
    return capsys.readouterr().out


def test_every_role_and_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(ALL) == ROLES
    used = {word for options in ALL.values() for word in options if word.startswith("--")}
    known = {f"--{name.replace('_', '-')}" for name in inspect.signature(acl).parameters}
    # These exclude --sole-reader, and have a test of their own.
    used |= {"--interest-consumer", "--progress-consumer"}
    assert known - used == {"--roles", "--inbox-prefix", "--domain", "--api-prefix", "--json"}
    for role, options in ALL.items():
        document = json.loads(printed(capsys, role, *options, "--json"))
        assert document["subscribe"]["allow"]
    names = [line.split()[0] for line in printed(capsys).splitlines()]
    assert names == ROLES


def test_options_are_those_of_the_roles(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, "kv-writer", *ALL["kv-writer"], "--json"))
    expected = Roles().kv_writer("b", ["x", "y.>"], origin="o")
    assert found == expected.to_dict()
    found = json.loads(printed(capsys, "events", *ALL["events"], "--json"))
    assert found["subscribe"]["allow"][0].startswith("from.A.ADVISORY.")
    common = ["--inbox-prefix", "_mine", "--domain", "hub", "--json"]
    found = json.loads(printed(capsys, "monitor", "--stream", "S", *common))
    assert found == Roles(inbox_prefix="_mine", domain="hub").monitor("S").to_dict()


def test_the_consumers_of_spark(capsys: pytest.CaptureFixture[str]) -> None:
    source = ["spark-source", "--stream", "S", "--json"]
    for option in ("interest_consumer", "progress_consumer"):
        found = json.loads(printed(capsys, *source, f"--{option.replace('_', '-')}", "c"))
        expected: Any = {option: "c"}
        assert found == Roles().spark_source(["S"], **expected).to_dict()


def test_a_server_takes_the_printed_block(
    make_server: MakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    block = printed(
        capsys, "publisher", "pull-reader", *ALL["publisher"], *("--stream", "S", "--consumer", "c")
    )
    server = make_server(f"authorization: {{ users: [ {{ user: u, password: u, {block} }} ] }}")
    with connect(server.url, user="u", password="u") as nc:
        nc.publish("orders.1")
        nc.publish("$JS.ACK.S.c.1.1.1.1.1")
        nc.flush()
        assert nc.last_error is None
        nc.publish("other")
        nc.flush()
        assert isinstance(nc.last_error, PermissionsError)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["publish"], "There is no role 'publish'; did you mean 'publisher'?"),
        (["pull-reader", "--stream", "S"], "pull-reader needs --consumer."),
        (["publisher", "--subject", "a", "--bucket", "b"], "publisher takes no --bucket."),
        (["backup", "--stream", "S", "--stream", "T"], "backup takes one --stream."),
        (["kv-reader", "--bucket", "a.b"], "a.b"),
        (["monitor", "--domain", "a", "--api-prefix", "b"], "either domain or api_prefix"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(["acl", *arguments]) == app.FAILED
    assert sentence in capsys.readouterr().err.replace("\n", " ")
