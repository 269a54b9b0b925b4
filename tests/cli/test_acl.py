"""`jetspark acl`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable

import pytest
from tests.cli.conftest import Run
from tests.conftest import MakeServer

from jetspark.acl import Roles
from jetspark.blocking import connect
from jetspark.cli import app
from jetspark.cli.acl import acl
from jetspark.errors import PermissionsError
from jetspark.ranges.reader import read_range
from jetspark.ranges.sequence_range import SequenceRange
from jetspark.spark.source.options import parse_options
from jetspark.spark.source.source_streams import fetch_source_facts
from jetspark.spark.stream_sink.options import parse_sink_options
from jetspark.spark.stream_sink.target import inspect_target, prepare
from jetspark.stream_writes.exactly_once import ExactlyOnceWriter

ROLES = [
    name.replace("_", "-")
    for name, value in vars(Roles).items()
    if not name.startswith("_") and inspect.isfunction(value)
]
_OPTIONS = {
    "publisher": "--subject orders.*",
    "pull-reader": "--stream S --consumer c --may-create --responses",
    "push-reader": "--stream S --consumer c --deliver-subject d --deliver-group g --may-create "
    "--responses",
    "ordered-reader": "--stream S",
    "range-reader": "--stream S",
    "stored-reader": "--stream S",
    "spark-source": "--stream S --stream T --pattern --sole-reader --quarantine BAD",
    "spark-sink": "--stream S --subject s.> --exactly-once --prepare-stream",
    "kv-reader": "--bucket b",
    "kv-writer": "--bucket b --key x --key y.> --origin o",
    "administrator": "--stream S",
    "monitor": "--stream S",
    "backup": "--stream S",
    "restore": "--stream S",
    "events": "--stream S --consumer c --kind nak --kind max_deliver --event-prefix from.A",
    "dead-letters": "--dead-letters D --stream S --subject s.> --remove-originals",
    "service": "--service S --subject s.> --queue-group q --responses",
    "service-client": "--subject s.>",
    "service-monitor": "--service S --service-prefix acc.SRV",
    "schema-registry": "--bucket b --responses",
    "schema-reader": "",
    "schema-writer": "",
    "tracer": "--subject s.>",
    "auth-callout": "--queue-group q --responses",
    "system-monitor": "--account APP",
    "doctor": "",
}
ALL = {role: options.split() for role, options in _OPTIONS.items()}


@pytest.fixture
def acl_of(run: Run) -> Callable[..., str]:
    """What the command prints."""

    def printed(*arguments: str) -> str:
        code, out, err = run("acl", *arguments, server="")
        assert code == app.SUCCEEDED, err
        return out

    return printed


def test_every_role_and_every_option(acl_of: Callable[..., str]) -> None:
    assert list(ALL) == ROLES
    used = {word for options in ALL.values() for word in options if word.startswith("--")}
    known = {f"--{name.replace('_', '-')}" for name in inspect.signature(acl).parameters}
    # These exclude --sole-reader, and have a test of their own.
    used |= {"--interest-consumer", "--progress-consumer", "--trim"}
    assert known - used == {"--roles", "--inbox-prefix", "--domain", "--api-prefix", "--json"}
    for role, options in ALL.items():
        document = json.loads(acl_of(role, *options, "--json"))
        assert document["subscribe"]["allow"]
    lines = acl_of().splitlines()
    assert [line.split()[0] for line in lines] == ROLES
    assert [line for line in lines if not line.endswith(".")] == []


def test_options_are_those_of_the_roles(acl_of: Callable[..., str]) -> None:
    common = ["--inbox-prefix", "_mine", "--domain", "hub"]
    source, roles = ["spark-source", "--stream", "S"], Roles()
    for arguments, expected in (
        (["kv-writer", *ALL["kv-writer"]], roles.kv_writer("b", ["x", "y.>"], origin="o")),
        (
            ["monitor", "--stream", "S", *common],
            Roles(inbox_prefix="_mine", domain="hub").monitor("S"),
        ),
        ([*source, "--interest-consumer", "c"], roles.spark_source(["S"], interest_consumer="c")),
        ([*source, "--progress-consumer", "c"], roles.spark_source(["S"], progress_consumer="c")),
        ([*source, "--trim"], roles.spark_source(["S"], trim=True)),
        ([*source, "--quarantine", "BAD"], roles.spark_source(["S"], quarantine="BAD")),
        (["backup", "--stream", "S", "--stream", "T"], roles.backup("S") | roles.backup("T")),
        (
            ["backup", "kv-reader=b,c", "monitor=T", "--stream", "S"],
            roles.backup("S") | roles.kv_reader("b") | roles.kv_reader("c") | roles.monitor("T"),
        ),
    ):
        assert json.loads(acl_of(*arguments, "--json")) == expected.to_dict()
    found = json.loads(acl_of("events", *ALL["events"], "--json"))
    assert found["subscribe"]["allow"][0].startswith("from.A.ADVISORY.")


def test_a_server_takes_the_printed_block(
    make_server: MakeServer, acl_of: Callable[..., str]
) -> None:
    block = acl_of(
        "publisher", "pull-reader", *ALL["publisher"], *("--stream", "S", "--consumer", "c")
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


def test_a_pipeline_of_three_streams_runs_with_one_printed_block(
    make_server: MakeServer, acl_of: Callable[..., str], needs_server: Callable[[str], None]
) -> None:
    """All that the driver and the tasks ask, by a user who may nothing else."""
    needs_server("2.12")
    block = acl_of(
        "spark-source=ORDERS,RETURNS", "spark-sink=TOTALS", "--subject", "totals.>",
        *("--exactly-once", "--prepare-stream"),
    )  # fmt: skip
    users = f"{{ user: u, password: u, {block} }}, {{ user: admin, password: a }}"
    server = make_server(f"authorization: {{ users: [ {users} ] }}")
    with connect(server.url, user="admin", password="a") as nc:
        js = nc.jetstream()
        for name in ("ORDERS", "RETURNS", "TOTALS"):
            js.create_stream(name=name, subjects=[f"{name.lower()}.>"])
            js.publish(f"{name.lower()}.eu", b"1")
    options = {"servers": server.url, "user": "u", "password": "u"}
    for name in ("ORDERS", "RETURNS"):
        source = parse_options(options | {"stream": name})
        facts = fetch_source_facts(source)[name]
        wanted = SequenceRange(name, 1, 2, facts.created)
        assert sum(len(one) for one in read_range(source.connection, wanted)) == 1
    sink = parse_sink_options(
        options
        | {"stream": "TOTALS", "guarantee": "exactly-once", "transactionId": "t"}
        | {"prepareStream": "true"}
    )
    assert inspect_target(sink).missing
    prepare(sink)
    writer = ExactlyOnceWriter(sink.connection, "TOTALS", "t", timeout=10)
    rows = [(b"totals.eu", None, bytes(100)) for _ in range(1000)]
    writer.commit(0, [writer.ledger.stage(rows)])
    assert writer.stored(0) == 1000
    assert "Permissions Violation" not in server.log
    with connect(server.url, user="u", password="u") as nc:
        nc.publish("orders.eu")
        nc.flush()
        assert isinstance(nc.last_error, PermissionsError)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--stream", "S"], "Name a role; `jetspark acl` alone prints what each is for."),
        (["publish"], "There is no role 'publish'; did you mean 'publisher'?"),
        (["pull-reader", "--stream", "S"], "pull-reader needs --consumer."),
        (["publisher", "--subject", "a", "--bucket", "b"], "publisher takes no --bucket."),
        (["backup=S,"], "'backup=S,': write ROLE=STREAM, several with commas."),
        (["doctor=S"], "doctor takes no stream, bucket or service"),
        (["spark-sink=S", "--subject", "a", "--prepare-stream"], "only for exactly-once"),
        (["backup=S", "--bucket", "b"], "backup=S takes no --bucket."),
        (["spark-source=S", "--stream", "T"], "spark-source=S takes no --stream."),
        (["kv-reader", "--bucket", "a.b"], "Bad bucket name 'a.b'"),
        (["monitor", "--domain", "a", "--api-prefix", "b"], "either domain or api_prefix"),
    ],
)
def test_wrong_arguments_print_one_sentence(arguments: list[str], sentence: str, run: Run) -> None:
    code, _, err = run("acl", *arguments, server="")
    assert (code, sentence in err) == (app.FAILED, True)
