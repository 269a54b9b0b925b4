"""Permissions of roles, on servers that enforce them: enough for the work, and no more.

Each test does a role's work as a user with exactly its block, sees that each line of the block was
needed, and that what is outside is refused. The server's own trace tells what was sent.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pytest
from tests.jetstream.eventually import eventually
from tests.support.driven_query import DrivenQuery

from jetspark.acl import USER_INFO, Permissions, Responses, Roles
from jetspark.connection.options import ConnectOptions, make_options
from jetspark.errors import ConfigError, JetsparkError, PermissionsError
from jetspark.full_client import connect
from jetspark.links.link import BlockingLink
from jetspark.links.link import connect as connect_link
from jetspark.links.stream_api import StreamAPI
from jetspark.ranges.reader import read_range
from jetspark.ranges.sequence_range import SequenceRange
from jetspark.registry.service import serve_registry
from jetspark.spark.source.claims import SOLE_READER
from jetspark.spark.source.offsets import StreamOffset
from jetspark.spark.source.options import SourceOptions
from jetspark.spark.source.progress_consumer import ProgressConsumer
from jetspark.spark.table_sink.dead_letter_sink import DeadLetterSink
from jetspark.stream_writes.exactly_once import ExactlyOnceWriter
from jetspark.stream_writes.ledger import Ledger, ledger_stream, marker_subjects
from jetspark.stream_writes.publish import StreamPublisher
from jetspark.subjects import subject_matches, subjects_overlap
from jetspark.tables import quarantine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.conftest import MakeServer, NeedsServer
    from tests.support.leaf import HubAndLeaf

    from jetspark.dead_letters import DeadLetters
    from jetspark.full_client import Client
    from jetspark.server import NatsServer
    from jetspark.services import Request

# What nobody but an administrator may do to a stream S and others.
DANGEROUS = [
    "s.x",
    "other",
    "$JS.API.INFO",
    "$JS.API.STREAM.LIST",
    "$JS.API.STREAM.NAMES",
    *(f"$JS.API.STREAM.{verb}.S" for verb in ("CREATE", "UPDATE", "DELETE", "PURGE")),
    *(f"$JS.API.STREAM.{verb}.OTHER" for verb in ("INFO", "MSG.GET", "SNAPSHOT", "RESTORE")),
    "$JS.API.STREAM.MSG.DELETE.S",
    "$JS.API.CONSUMER.CREATE.OTHER.c",
    "$JS.API.CONSUMER.MSG.NEXT.OTHER.c",
    "$JS.API.CONSUMER.DELETE.OTHER.c",
    "$JS.API.DIRECT.GET.OTHER",
    "$JS.ACK.OTHER.c.1.1.1.1.1",
    "$JS.ACK.S.other.1.1.1.1.1",
    "$JS.ACK._.hash.OTHER.c.1.1.1.1.1",
    "$KV.other.x",
    "$KV.b.x",
]


class Guarded:
    """A server whose user "u" has these permissions, and that has an administrator, too."""

    def __init__(self, server: NatsServer, permissions: Permissions) -> None:
        self.server = server
        self.permissions = permissions
        self.errors: list[JetsparkError] = []

    def options(self, **more: Any) -> ConnectOptions:
        url = self.server.url.replace("nats://", "nats://u:u@")
        return make_options(url, name="role", **more)

    @asynccontextmanager
    async def user(self, **more: Any) -> AsyncIterator[Client]:
        url = self.server.url.replace("nats://", "nats://u:u@")
        async with connect(url, name="role", error_callback=self.errors.append, **more) as nc:
            yield nc
            await nc.flush()

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[Client]:
        async with connect(self.server.url, user="admin", password="admin") as nc:
            yield nc

    def seen(self, *verbs: str) -> list[str]:
        """Subjects that the user's connections sent with these verbs."""
        log = self.server.log
        ours = set(re.findall(r'cid:(\d+) .*<<- \[CONNECT .*"name": ?"role"', log))
        sent = re.findall(rf"cid:(\d+) .*<<- \[(?:{'|'.join(verbs)}) (\S+)", log)
        return [subject for client, subject in sent if client in ours]

    async def check(self, *, refused: list[str], unseen: str = "$^") -> None:
        """All went well so far, every line was needed, and these subjects are refused.

        `unseen`: pattern of lines that another server or option would have needed.
        """
        assert self.errors == []
        assert "Permissions Violation" not in self.server.log
        published, subscribed = self.seen("PUB", "HPUB"), self.seen("SUB")
        needless = [
            pattern
            for pattern in self.permissions.publish
            if not any(subject_matches(pattern, subject) for subject in published)
            and not re.match(unseen, pattern)
        ]
        needless += [
            pattern
            for pattern in self.permissions.subscribe
            if not any(subjects_overlap(pattern.split()[0], one) for one in subscribed)
        ]
        assert needless == []
        async with self.user() as nc:
            for subject in refused:
                await nc.publish(subject)
            await nc.flush()
        told = {error.subject for error in self.errors if isinstance(error, PermissionsError)}
        assert set(refused) - told == set()


Guard = Callable[..., Guarded]


@pytest.fixture
def guard(make_server: MakeServer) -> Guard:
    def make(permissions: Permissions, *, more: str = "") -> Guarded:
        block = permissions.to_config()
        users = f"{{ user: admin, password: admin }}, {{ user: u, password: u, {block} }}"
        conf = f"trace: true\n{more}\nauthorization: {{ users: [ {users} ] }}\n"
        return Guarded(make_server(conf), permissions)

    return make


async def filled(guarded: Guarded, messages: int = 3, **config: Any) -> Guarded:
    """With S, which has messages on s.0, s.1 …; and another stream."""
    async with guarded.admin() as nc:
        js = nc.jetstream()
        await js.create_stream(name="S", **{"subjects": ["s.*"], "storage": "memory"} | config)
        await js.create_stream(name="OTHER", subjects=["other"], storage="memory")
        for number in range(messages):
            await js.publish(f"s.{number}", b"%d" % number)
    return guarded


def without(subjects: list[str], *some: str) -> list[str]:
    """`subjects` but those under some patterns."""
    return [one for one in subjects if not any(subject_matches(pattern, one) for pattern in some)]


# -- writing and reading ---------------------------------------------------------------------------


async def test_role_publisher_has_all_permissions_it_needs_and_no_more(guard: Guard) -> None:
    guarded = await filled(guard(Roles().publisher(["s.x", "s.y"])))
    async with guarded.user() as nc:
        js = nc.jetstream()
        assert (await js.publish("s.x", b"1", msg_id="1")).seq == 4
        async with js.publisher() as publisher:
            await publisher.publish("s.y", b"2")
    await guarded.check(refused=[*without(DANGEROUS, "s.x"), "s.z"])


ACK_V1, ACK_V2 = r"\$JS\.ACK\.S\.", r"\$JS\.ACK\.\*"
V2 = "feature_flags { js_ack_fc_v2: true }"


@pytest.mark.parametrize(
    ("responses", "flags", "unseen"),
    [(None, "", ACK_V2), (None, V2, ACK_V1), (Responses(max=2), "", "$^")],
    ids=["v1", "v2", "responses"],
)
async def test_role_pull_reader_has_all_permissions_it_needs_and_no_more(
    guard: Guard, responses: Responses | None, flags: str, unseen: str, needs_server: NeedsServer
) -> None:
    if flags:
        needs_server("2.14")
    guarded = await filled(guard(Roles().pull_reader("S", "c", responses=responses), more=flags))
    async with guarded.admin() as nc:
        await nc.jetstream().stream("S").create_consumer(durable_name="c")
    async with guarded.user() as nc:
        consumer = await nc.jetstream().stream("S").consumer("c")
        first, second, third = await consumer.fetch(3, timeout=5)
        assert bool(first.metadata.account_hash) == bool(flags)
        await first.in_progress()
        await first.ack_sync(timeout=30)
        await second.nak()
        await third.term()
        (again,) = await consumer.fetch(1, timeout=5)
        await again.ack_sync(timeout=30)
        info = await consumer.info()
        assert (info.num_ack_pending, info.num_pending) == (0, 0)
    await guarded.check(refused=[*DANGEROUS, "$JS.API.CONSUMER.DELETE.S.c"], unseen=unseen)


async def test_answers_end_with_their_number(guard: Guard) -> None:
    guarded = await filled(guard(Roles().pull_reader("S", "c", responses=Responses(max=1))), 1)
    async with guarded.admin() as nc:
        await nc.jetstream().stream("S").create_consumer(durable_name="c")
    async with guarded.user() as nc:
        consumer = await nc.jetstream().stream("S").consumer("c")
        (message,) = await consumer.fetch(1, timeout=5)
        await message.in_progress()
        assert guarded.errors == []
        await message.ack()
        await nc.flush()
        assert [type(error) for error in guarded.errors] == [PermissionsError]


async def test_role_pull_reader_may_create_its_consumer_on_request(guard: Guard) -> None:
    guarded = await filled(guard(Roles().pull_reader("S", "c", may_create=True)))
    async with guarded.user() as nc:
        js = nc.jetstream()
        for subject in ("s.1", "s.*"):  # one is in the request's subject, the other is not
            consumer = await js.stream("S").create_consumer(name="c", filter_subject=subject)
            await consumer.info()
            message = await consumer.next()
            await message.ack()
            await nc.flush()
            async with guarded.admin() as admin:
                await admin.jetstream().stream("S").delete_consumer("c")
    await guarded.check(refused=[*DANGEROUS, "$JS.API.CONSUMER.CREATE.S.other"], unseen=ACK_V2)


@pytest.mark.parametrize("group", [None, "g"])
async def test_role_push_reader_has_what_it_needs_and_no_more(
    guard: Guard, group: str | None
) -> None:
    guarded = await filled(guard(Roles().push_reader("S", "c", "to.here", deliver_group=group)))
    async with guarded.user() as nc, nc.subscribe("to.here", queue=group) as messages:
        await nc.flush()
        async with guarded.admin() as admin:
            await (
                admin.jetstream()
                .stream("S")
                .create_push_consumer(
                    durable_name="c", deliver_subject="to.here", deliver_group=group
                )
            )
        consumer = await nc.jetstream().stream("S").push_consumer("c")
        for _ in range(3):
            await (await messages.next(30)).respond(b"+ACK")

        async def acknowledged() -> bool:
            return (await consumer.info()).ack_floor.stream_seq == 3

        await eventually(acknowledged)
    refused = [*DANGEROUS, "$JS.FC.OTHER.c.x", "$JS.API.CONSUMER.DELETE.S.c"]
    await guarded.check(refused=refused, unseen=rf"{ACK_V2}|\$JS\.FC")
    if group is not None:
        async with guarded.user() as nc:
            with pytest.raises(PermissionsError):
                await nc.subscribe("to.here").next(30)


@pytest.mark.parametrize("flags", ["", V2])
async def test_push_flow_control(guard: Guard, flags: str, needs_server: NeedsServer) -> None:
    if flags:
        needs_server("2.14")
    guarded = await filled(guard(Roles().push_reader("S", "c", "to.here"), more=flags))
    async with guarded.admin() as admin:
        for _ in range(32):  # the server asks for an answer after a megabyte
            await admin.publish("s.x", bytes(65536))
        async with guarded.user() as nc, nc.subscribe("to.here") as messages:
            await nc.flush()
            await (
                admin.jetstream()
                .stream("S")
                .create_push_consumer(
                    durable_name="c",
                    deliver_subject="to.here",
                    flow_control=True,
                    idle_heartbeat=timedelta(seconds=1),
                )
            )
            while not (message := await messages.next(30)).flow_control:
                pass
            await message.respond()
    assert guarded.errors == []
    forms = [one for one in guarded.permissions.publish if one.startswith("$JS.FC")]
    answered = [any(subject_matches(form, one) for one in guarded.seen("PUB")) for form in forms]
    assert answered == [not flags, bool(flags)]


async def test_role_ordered_reader_has_all_permissions_it_needs_and_no_more(guard: Guard) -> None:
    guarded = await filled(guard(Roles().ordered_reader("S")))
    async with guarded.user() as nc:
        js = nc.jetstream()
        for subjects, count in ((None, 3), (["s.1"], 1), (["s.*"], 3)):
            async with js.stream("S").ordered(subjects=subjects) as messages:
                assert [(await anext(messages)).data for _ in range(count)]
                assert (await messages.info()).stream_name == "S"
    await guarded.check(refused=[*DANGEROUS, "$JS.API.STREAM.MSG.GET.S"])


async def test_role_range_reader_has_all_permissions_it_needs_and_no_more(guard: Guard) -> None:
    guarded = await filled(guard(Roles().range_reader("S")))
    assert read_all(guarded) == 3
    assert read_all(guarded, "s.1") == 1
    await guarded.check(refused=[*DANGEROUS, "$JS.API.DIRECT.GET.S"])


def link_of(guarded: Guarded) -> closing[BlockingLink]:
    return closing(connect_link(guarded.options()))


def read_all(guarded: Guarded, *subjects: str, **how: Any) -> int:
    """Rows of S, as a Spark query over all of it reads them."""
    with link_of(guarded) as link:
        facts = StreamAPI(link).stream("S")
        start = StreamAPI(link).sequence_at("S", 0)
        assert start == facts.first_seq
    wanted = SequenceRange("S", start, facts.last_seq + 1, facts.created, subjects, **how)
    return sum(batch.num_rows for batch in read_range(guarded.options(), wanted))


async def test_role_stored_reader_has_all_permissions_it_needs_and_no_more(
    guard: Guard, needs_server: NeedsServer
) -> None:
    guarded = await filled(guard(Roles().stored_reader("S")), allow_direct=True)
    async with guarded.user() as nc:
        js = nc.jetstream()
        for direct in (None, True, False):
            assert (await js.stream("S").get(1, direct=direct)).data == b"0"
            assert (await js.stream("S").get(last_by_subject="s.2", direct=direct)).seq == 3
    await guarded.check(refused=[*DANGEROUS, "$JS.API.CONSUMER.CREATE.S.c"])


# -- Spark -----------------------------------------------------------------------------------------


async def test_role_spark_source_has_all_permissions_it_needs_and_no_more(guard: Guard) -> None:
    guarded = await filled(guard(Roles().spark_source(["S"], pattern=True)))
    assert read_all(guarded) == 3
    assert read_all(guarded, "s.1") == 1
    with link_of(guarded) as link:
        assert StreamAPI(link).stream_names() == ["OTHER", "S"]
    await guarded.check(refused=without(DANGEROUS, "$JS.API.STREAM.NAMES"))


async def test_spark_with_a_backfill(guard: Guard, needs_server: NeedsServer) -> None:
    needs_server("2.15")
    guarded = await filled(guard(Roles().spark_source(["S"]) | Roles().backup("S")))
    assert read_all(guarded, snapshot=True) == 3


def driven(guarded: Guarded, **options: str) -> DrivenQuery:
    """A query by this user."""
    query = DrivenQuery(guarded.server.url, "S", **options)
    query.connection = guarded.options()
    return query


async def test_spark_as_sole_reader(guard: Guard, needs_server: NeedsServer) -> None:
    needs_server("2.11")
    guarded = await filled(
        guard(Roles().spark_source(["S"], sole_reader=True)),
        retention="workqueue",
        allow_direct=True,
    )
    query = driven(guarded, soleReader="true")
    query.run(batches=3, limit=1)
    assert query.sequences == [1, 2, 3]
    with link_of(guarded) as link:
        assert StreamAPI(link).stream("S").messages == 1
    refused = without(DANGEROUS, "$JS.API.STREAM.PURGE.S")
    others = ("$JS.API.CONSUMER.CREATE.S.c", f"$JS.API.CONSUMER.DELETE.S.{SOLE_READER}")
    await guarded.check(refused=[*refused, *others])


async def test_spark_that_trims(guard: Guard, needs_server: NeedsServer) -> None:
    needs_server("2.11")
    guarded = await filled(guard(Roles().spark_source(["S"], trim=True)))
    assert read_all(guarded, "s.1") == 1
    query = driven(guarded, trim="true", keep="1")
    with mock.patch("jetspark.spark.source.stream_reader.TRIM_INTERVAL", 0.0):
        query.run(batches=3, limit=1)
    assert query.sequences == [1, 2, 3]
    with link_of(guarded) as link:
        assert StreamAPI(link).stream("S").messages == 1
    needed = ("$JS.API.STREAM.PURGE.S", "$JS.API.STREAM.LIST")
    await guarded.check(refused=[*without(DANGEROUS, *needed)])


async def test_spark_with_a_progress_consumer(guard: Guard, needs_server: NeedsServer) -> None:
    needs_server("2.14")
    guarded = await filled(guard(Roles().spark_source(["S"], progress_consumer="c")))
    assert read_all(guarded) == 3
    assert read_all(guarded, "s.1") == 1
    options = SourceOptions(connection=guarded.options(), streams=("S",))
    for _ in range(2):  # two runs of a query
        shown = ProgressConsumer(options, "c")
        for sequence in (2, 3):
            shown.show({"S": StreamOffset("", sequence, 1)})
    async with guarded.admin() as nc:
        assert ((await nc.jetstream().stream("S").consumer("c")).cached_info).num_pending == 1
    await guarded.check(refused=[*DANGEROUS, "$JS.API.CONSUMER.RESET.S.other"])


async def test_spark_with_an_interest_consumer(guard: Guard, needs_server: NeedsServer) -> None:
    needs_server("2.14")
    guarded = await filled(
        guard(Roles().spark_source(["S"], interest_consumer="c")),
        retention="interest",
        allow_direct=True,
    )
    query = driven(guarded, interestConsumer="c")
    query.run()
    async with guarded.admin() as nc:
        for number in range(3):
            await nc.jetstream().publish(f"s.{number}")
    query.run(batches=3, limit=1)
    assert len(query.sequences) == 3
    with link_of(guarded) as link:
        assert StreamAPI(link).stream("S").messages == 1
    await guarded.check(refused=[*DANGEROUS, "$JS.API.CONSUMER.RESET.S.other"])


BAD_RECORD = pa.RecordBatch.from_pylist(
    [
        {"stream": "S", "subject": "s.0", "seq": 1, "timestamp": datetime(2026, 1, 31, tzinfo=UTC),
         "headers": [], "data": b"0", "column": None, "reason": "It does not fit."}
    ],
    quarantine.SCHEMA,
)  # fmt: skip


async def test_letters_of_a_quarantine_are_replayed_by_role_dead_letters(guard: Guard) -> None:
    guarded = await filled(guard(Roles().dead_letters("BAD", "S", subjects="s.>")))
    admin = make_options(guarded.server.url, user="admin", password="admin")
    DeadLetterSink("BAD", admin).store("query", [BAD_RECORD])
    async with guarded.user() as nc:
        dead = await nc.jetstream().dead_letters("BAD")
        assert len(await dead.letters().all()) == 1
        assert await dead.replay() == (1, 0, 0, 0)
    assert "Permissions Violation" not in guarded.server.log


async def test_spark_with_a_quarantine_in_a_stream(guard: Guard) -> None:
    guarded = await filled(guard(Roles().spark_source(["S"], quarantine="BAD")))
    assert read_all(guarded) == 3
    assert read_all(guarded, "s.1") == 1
    letters = DeadLetterSink("BAD", guarded.options())
    letters.check()
    for _ in range(2):  # the second one proves that the letter is there
        letters.store("query", [BAD_RECORD])
    async with guarded.admin() as nc:
        dead = await nc.jetstream().dead_letters("BAD")
        assert [one.data for one in await dead.letters().all()] == [b"0"]
    others = ["_dead.BAD.OTHER.query.1", "_dead.OTHER.S.query.1", "$JS.API.STREAM.UPDATE.BAD"]
    await guarded.check(refused=[*DANGEROUS, *others, "$JS.API.STREAM.DELETE.BAD"])


async def test_role_spark_sink_has_all_permissions_it_needs_and_no_more(guard: Guard) -> None:
    guarded = await filled(guard(Roles().spark_sink("S", ["s.*"])))
    with link_of(guarded) as link:
        assert StreamAPI(link).config("S")["name"] == "S"
    with StreamPublisher(guarded.options(), "S") as publisher:
        publisher.send([(b"s.4", None, b"row")])
    await guarded.check(refused=[*without(DANGEROUS, "s.x"), "_spark.S.ledger.q"])


async def test_spark_sink_exactly_once(guard: Guard, needs_server: NeedsServer) -> None:
    needs_server("2.12")
    subjects = ["s.*", marker_subjects("S")]
    guarded = await filled(
        guard(Roles().spark_sink("S", ["s.*"], exactly_once=True)),
        0,
        subjects=subjects,
        allow_atomic=True,
        allow_rollup_hdrs=True,
    )
    options = guarded.options()
    with link_of(guarded) as link:
        assert StreamAPI(link).config("S")["name"] == "S"
    ledger = Ledger(options, "S", "q", timeout=10)
    ledger.make_stream(1)
    rows = [(b"s.rows", None, b"%d" % number + bytes(100)) for number in range(1000)]
    pieces = [ledger.stage(rows[:500]), ledger.stage(rows[500:])]
    ExactlyOnceWriter(options, "S", "q", timeout=10).commit(0, pieces, lanes=2)
    async with guarded.admin() as nc:
        info = await nc.jetstream().stream("S").info(subjects_filter="s.*")
        assert info.state.subjects == {"s.rows": 1000}
        assert (await nc.jetstream().stream(ledger_stream("S")).info()).state.messages > 0
    refused = without(DANGEROUS, "s.x")
    await guarded.check(refused=[*refused, f"$JS.API.STREAM.DELETE.{ledger_stream('S')}"])


def test_spark_source_and_sink_run_with_the_permissions_of_their_roles(
    spark: SparkSession, guard: Guard, needs_server: NeedsServer
) -> None:
    needs_server("2.12")
    roles = Roles(inbox_prefix="_INBOX_spark")
    sink = roles.spark_sink("S", ["s.*"], exactly_once=True)
    guarded = guard(sink | roles.spark_source(["S"]))
    subjects = ["s.*", marker_subjects("S")]
    asyncio.run(filled(guarded, 0, subjects=subjects, allow_atomic=True, allow_rollup_hdrs=True))
    where = {"servers": guarded.server.url, "user": "u", "password": "u", "stream": "S"}
    where["inboxPrefix"] = "_INBOX_spark"
    rows = spark.range(0, 10, 1, 1).selectExpr("'s.x' subject", "cast(id as string) data")
    once = {"guarantee": "exactly-once", "transactionId": "t"}
    rows.write.format("jetstream").options(**where, **once).mode("append").save()
    back = spark.read.format("jetstream").options(**where, subjects="s.*").load()
    assert back.count() == 10
    assert "Permissions Violation" not in guarded.server.log


# -- Key-Value -------------------------------------------------------------------------------------


@pytest.mark.parametrize("direct", [True, False])
async def test_role_kv_reader_has_all_permissions_it_needs_and_no_more(
    guard: Guard, direct: bool, needs_server: NeedsServer
) -> None:
    if direct:
        needs_server("2.11")
    guarded = await filled(guard(Roles().kv_reader("b")))
    async with guarded.admin() as nc:
        js = nc.jetstream()
        bucket = await js.create_bucket("b", history=3)
        await js.stream("KV_b").update(allow_direct=direct)
        await bucket.put("k", b"1")
    async with guarded.user() as nc:
        js = nc.jetstream()
        if direct:
            reader = (await js.bucket("b")).read_only()
            assert (await reader.get_many(["k"]))["k"].value == b"1"
        bucket = await js.bucket("b")
        assert (await bucket.get("k")).value == b"1"
        assert (await bucket.get("k", 1, leader=True)).value == b"1"
        assert await bucket.keys().all() == ["k"]
        assert len([entry async for entry in bucket.history("k")]) == 1
        async with bucket.watch() as entries:
            assert [entry and entry.key for entry in (await anext(entries), await anext(entries))]
        async with bucket.live() as values:
            assert values["k"] == b"1"
    refused = [*DANGEROUS, "$JS.API.STREAM.PURGE.KV_b", "$JS.API.STREAM.DELETE.KV_b"]
    # One form of gets, and what is asked when a consumer's leader is gone.
    unseen = r"\$JS\.API\.(DIRECT\.GET\.KV_b(\.>)?|CONSUMER\.INFO\.KV_b\.\*)$"
    await guarded.check(refused=refused, unseen=unseen)
    gets = [one for one in guarded.seen("PUB") if ".DIRECT.GET.KV_b" in one]
    assert bool(gets) == direct


async def test_role_kv_writer_has_all_permissions_it_needs_and_no_more(guard: Guard) -> None:
    guarded = await filled(guard(Roles().kv_writer("b", ["mine.>"])))
    async with guarded.admin() as nc:
        await nc.jetstream().create_bucket("b", history=3)
    async with guarded.user() as nc:
        bucket = await nc.jetstream().bucket("b")
        revision = await bucket.put("mine.k", b"1")
        revision = await bucket.update("mine.k", b"2", revision)
        await bucket.delete("mine.k")
        await bucket.create("mine.k", b"3")
        await bucket.purge("mine.k")
    reading = r"\$JS\.API\.(CONSUMER|DIRECT)\."
    refused = [*DANGEROUS, "$KV.b.theirs", "$JS.API.STREAM.PURGE.KV_b"]
    await guarded.check(refused=refused, unseen=reading)


async def test_kv_writer_behind_a_prefix() -> None:
    found = Roles(domain="hub").kv_writer("b")
    assert found.publish[0] == "$JS.hub.API.STREAM.INFO.KV_b"
    assert found.publish[-1] == "$JS.hub.API.$KV.b.>"
    assert Roles().kv_writer("copy", origin="b").publish[-1] == "$KV.b.>"


# -- running ---------------------------------------------------------------------------------------


async def test_role_administrator_has_all_permissions_it_needs_and_no_more(
    guard: Guard, needs_server: NeedsServer
) -> None:
    guarded = await filled(guard(Roles().administrator("S")))
    async with guarded.user() as nc:
        js = nc.jetstream()
        await js.create_stream(name="S", subjects=["s.*"], storage="memory")
        await js.stream("S").update(description="mine")
        await js.stream("S").get(1, direct=False)
        await js.stream("S").delete_msg(1)
        await js.stream("S").create_consumer()
        await js.stream("S").create_consumer(durable_name="c")
        await js.stream("S").create_consumer(durable_name="d", filter_subject="s.1")
        assert {"c", "d"} < set(await js.stream("S").consumer_names().all())
        assert len(await js.stream("S").consumers().all()) == 3
        await js.stream("S").consumer("c")
        await js.stream("S").delete_consumer("d")
        await js.stream("S").purge()
        await js.delete_stream("S")
    refused = without(DANGEROUS, "$JS.API.STREAM.*.S", "$JS.API.STREAM.MSG.*.S")
    newer = r".*(DURABLE|PAUSE|RESET|UNPIN|STEPDOWN|PEER|CANCEL_MOVE)"
    await guarded.check(
        refused=[*refused, "$JS.API.STREAM.SNAPSHOT.S", "$JS.API.CONSUMER.MSG.NEXT.S.c"],
        unseen=newer,
    )
    # These need a newer server or a cluster to do something; that they get through is enough.
    async with guarded.user() as nc:
        guarded.errors.clear()
        for line in guarded.permissions.publish:
            if re.match(newer, line):
                await nc.publish(line.replace("*", "c").replace(">", "x"))
    assert guarded.errors == []


@pytest.mark.parametrize("stream", [None, "S"])
async def test_role_monitor_has_what_it_needs_and_no_more(guard: Guard, stream: str | None) -> None:
    guarded = await filled(guard(Roles().monitor(stream)))
    async with guarded.admin() as nc:
        await nc.jetstream().stream("S").create_consumer(durable_name="c")
    async with guarded.user() as nc:
        js = nc.jetstream()
        await js.stream("S").info()
        await js.stream("S").consumer("c")
        assert await js.stream("S").consumer_names().all() == ["c"]
        assert len(await js.stream("S").consumers().all()) == 1
        if stream is None:
            await js.account_info()
            assert await js.stream_names().all() == ["OTHER", "S"]
            assert len(await js.streams().all()) == 2
    seen = () if stream is not None else ("INFO", "STREAM.LIST", "STREAM.NAMES", "STREAM.INFO.*")
    await guarded.check(refused=without(DANGEROUS, *(f"$JS.API.{one}" for one in seen)))


@pytest.mark.parametrize("queue_group", [None, "q"])
async def test_role_service_has_all_permissions_it_needs_and_no_more(
    guard: Guard, queue_group: str | None
) -> None:
    guarded = guard(Roles().service("totals", ["totals.*"], queue_group=queue_group))

    async def answer(request: Request) -> None:
        await request.respond(b"1")
        await request.respond(b"2")

    async with guarded.user() as nc, await nc.add_service("totals", "1.0.0") as service:
        await service.add_endpoint("sum", answer, subject="totals.sum")
        async with guarded.admin() as admin:
            services = admin.services()
            assert len(await services.ping().all()) == 1
            assert len(await services.info("totals").all()) == 1
            assert len(await services.stats("totals", service.id).all()) == 1
            replies = await admin.request_many("totals.sum", max_msgs=2).all()
            assert [reply.data for reply in replies] == [b"1", b"2"]
        await guarded.check(refused=["totals.sum", "_INBOX.x", "$SRV.PING", "other"])
        guarded.errors.clear()
        with pytest.raises(PermissionsError):
            await service.add_endpoint("other", answer)
        if queue_group is not None:
            with pytest.raises(PermissionsError):
                await service.add_endpoint("all", answer, subject="totals.all", queue_group="")
        with pytest.raises(PermissionsError):
            await nc.add_service("others", "1.0.0")


@pytest.mark.full
async def test_roles_around_a_schema_registry_have_all_permissions_they_need_and_no_more(
    guard: Guard,
) -> None:
    roles = Roles()
    definition: dict[str, Any] = {"definition": "true", "format": "jsonschema"}
    serving = guard(roles.schema_registry("b"))
    async with serving.user() as nc, await serve_registry(nc, nc.jetstream(), bucket="b"):
        async with serving.admin() as admin:
            registry = admin.schema_registry(timeout=20)
            await registry.add("a", **definition)
            assert len(await registry.schemas().all()) == 1
            await admin.services().ping().all()
        refused = [*DANGEROUS, "$SR.v1.GET.a", "$KV.b.x", "$JS.API.STREAM.DELETE.KV_b"]
        # What is asked when a consumer's leader is gone.
        await serving.check(refused=refused, unseen=r"\$JS\.API\.CONSUMER\.INFO\.KV_b\.\*$")
    writing = guard(roles.schema_writer())
    async with writing.admin() as admin, await serve_registry(admin, admin.jetstream()):
        async with writing.user() as nc:
            registry = nc.schema_registry(timeout=20)
            await registry.add("a", **definition)
            await registry.update("a", format="jsonschema", description="All")
            assert len(await registry.schemas().all()) == 2
            await registry.remove("a", format="jsonschema", version=1, revision=1)
            assert (await registry.get("a")).revision == 2
        await writing.check(refused=[*DANGEROUS, "$SR.v1.VALIDATE.a"])
    reading = guard(roles.schema_reader())
    async with reading.admin() as admin, await serve_registry(admin, admin.jetstream()):
        await admin.schema_registry(timeout=20).add("a", **definition)
        async with reading.user() as nc:
            registry = nc.schema_registry(timeout=20)
            assert await registry.schemas().all() == [await registry.get("a")]
        await reading.check(refused=[*DANGEROUS, "$SR.v1.ADD.a", "$SR.v1.REMOVE.avro.1.1.a"])


async def test_role_service_client_has_all_permissions_it_needs_and_no_more(guard: Guard) -> None:
    guarded = guard(Roles().service_client("totals.*"))
    async with guarded.admin() as admin, await admin.add_service("totals", "1.0.0") as service:
        handler = service.endpoint("sum", subject="totals.sum")
        handler(lambda request: request.respond_nowait(b"6"))
        await admin.flush()
        async with guarded.user() as nc:
            assert (await nc.services().request("totals.sum")).data == b"6"
        await guarded.check(refused=["$SRV.PING", "$SRV.STATS.totals", "totals.a.b", "other"])


async def test_role_tracer_has_all_permissions_it_needs_and_no_more(
    guard: Guard, needs_server: NeedsServer
) -> None:
    needs_server("2.11")
    guarded = guard(Roles().tracer("orders.*"))
    async with guarded.admin() as admin:
        sub = admin.subscribe("orders.>")
        await admin.flush()
        async with guarded.user() as nc:
            trace = await nc.trace("orders.eu", deliver=True)
            assert not trace.no_interest
        assert (await sub.next(20)).subject == "orders.eu"
        # The server publishes to the inbox on its behalf.
        await guarded.check(refused=["orders.a.b", "other"], unseen="_INBOX")


async def test_role_doctor_has_all_permissions_it_needs_and_no_more(
    guard: Guard, needs_server: NeedsServer
) -> None:
    needs_server("2.10")
    guarded = guard(Roles().doctor())
    async with guarded.user() as nc:
        assert b'"account":"$G"' in (await nc.request(USER_INFO)).data
    await guarded.check(refused=["$SYS.REQ.SERVER.PING", "$JS.API.INFO", "other"])


@pytest.mark.parametrize("name", [None, "totals"])
async def test_role_service_monitor_has_all_permissions_it_needs_and_no_more(
    guard: Guard, name: str | None
) -> None:
    guarded = guard(Roles().service_monitor(name))
    async with guarded.admin() as admin, await admin.add_service("totals", "1.0.0") as service:
        async with guarded.user() as nc:
            services = nc.services()
            for call in (services.ping, services.info, services.stats):
                if name is None:
                    assert len(await call().all()) == 1
                assert len(await call("totals").all()) == 1
                assert len(await call("totals", service.id).all()) == 1
        refused = ["totals.sum", "$SRV.OTHER"]
        await guarded.check(refused=refused if name is None else [*refused, "$SRV.PING"])


async def test_roles_backup_and_restore_have_all_permissions_they_need_and_no_more(
    guard: Guard, tmp_path: Path
) -> None:
    guarded = await filled(guard(Roles().backup("S") | Roles().restore("S")), storage="file")
    async with guarded.admin() as nc:
        await nc.jetstream().publish("s.3", random.randbytes(8192))  # several chunks
    async with guarded.user() as nc:
        js = nc.jetstream()
        await js.backup_stream("S", tmp_path / "S.backup", chunk_size=1024)
        async with guarded.admin() as admin:
            await admin.jetstream().delete_stream("S")
        info = await js.restore_stream(tmp_path / "S.backup")
        assert info.cached_info.state.messages == 4
    # Looking and deleting is for a restore that fails.
    await guarded.check(
        refused=[*without(DANGEROUS, "$JS.API.STREAM.DELETE.S"), "$JS.SNAPSHOT.ACK.OTHER.x.1.1"],
        unseen=r"\$JS\.API\.STREAM\.(DELETE|INFO)\.S",
    )


async def test_role_events_has_all_permissions_it_needs_and_no_more(guard: Guard) -> None:
    chosen: dict[str, Any] = {"kinds": ["stream_action"], "stream": "S"}
    guarded = guard(Roles().events(**chosen))
    async with guarded.user() as nc, nc.jetstream().events(**chosen) as events:
        await nc.flush()
        await filled(guarded)
        assert (await events.next(30)).kind == "stream_action"
    await guarded.check(refused=[*DANGEROUS, "_INBOX.x"])
    async with guarded.user() as nc:
        with pytest.raises(PermissionsError):
            await nc.jetstream().events(kinds=["stream_action"], stream="OTHER").next(30)


@pytest.mark.parametrize("remove_originals", [False, True])
async def test_role_dead_letters_has_all_permissions_it_needs_and_no_more(
    guard: Guard, remove_originals: bool
) -> None:
    replayed_to = None if remove_originals else "again.>"
    guarded = guard(
        Roles().dead_letters("DEAD", "S", subjects=replayed_to, remove_originals=remove_originals)
    )
    async with guarded.admin() as admin:
        js = admin.jetstream()
        await js.create_stream(name="S", subjects=["s.*", "again.*"])
        consumer = await js.stream("S").create_consumer(durable_name="c")
        dead = await js.create_or_update_dead_letters("DEAD", "S")
        for _ in range(2):
            await js.publish("s.x")
            await (await consumer.next(5)).term()
        await eventually_waiting(dead, 2)
        await js.stream("S").delete_msg(1)
        async with guarded.user() as nc:
            theirs = await nc.jetstream().dead_letters("DEAD")
            assert await theirs.move(remove_originals=remove_originals) == 2
            assert await theirs.waiting() == 0
            assert [one.missing for one in await theirs.letters().all()] == ["gone", None]
            if replayed_to is not None:
                assert await theirs.replay(to="again.x") == (1, 1, 0, 0)
    refused = ["_dead.OTHER.S.c.x", "$JS.API.STREAM.DELETE.DEAD", *DANGEROUS]
    if remove_originals:
        refused.remove("$JS.API.STREAM.MSG.DELETE.S")
    newer_acks = r"\$JS\.ACK\.\*"
    await guarded.check(refused=refused, unseen=newer_acks)


async def eventually_waiting(dead: DeadLetters, count: int) -> None:
    async def so_many() -> bool:
        return await dead.waiting() == count

    await eventually(so_many)


# -- one connection of several roles ---------------------------------------------------------------


async def test_role_with_an_inbox_prefix_allows_only_that_inbox(guard: Guard) -> None:
    roles = Roles(inbox_prefix="_INBOX_u")
    guarded = await filled(guard(roles.publisher(["s.*"]) | roles.pull_reader("S", "c")))
    async with guarded.admin() as nc:
        await nc.jetstream().stream("S").create_consumer(durable_name="c")
    async with guarded.user(inbox_prefix="_INBOX_u") as nc:
        js = nc.jetstream()
        await js.publish("s.x")
        assert len(await (await js.stream("S").consumer("c")).fetch(4, timeout=5)) == 4
        assert guarded.errors == []
        with pytest.raises(PermissionsError):
            await nc.subscribe("_INBOX.>").next(30)


async def test_role_with_a_domain_has_its_context_s_subjects(hub_and_leaf: HubAndLeaf) -> None:
    """The subjects are those that a context with this domain sends."""
    roles = Roles(domain="leaf")
    async with connect(hub_and_leaf.hub.url) as nc:
        js = nc.jetstream(domain="leaf")
        assert f"{js.api_prefix}.STREAM.INFO.S" in roles.administrator("S").publish
    assert Roles(api_prefix="from.hub").monitor("S").publish[0] == "from.hub.STREAM.INFO.S"


async def test_without_the_permission_a_call_is_refused(guard: Guard) -> None:
    guarded = await filled(guard(Roles().monitor("S")))
    async with guarded.user() as nc:
        with pytest.raises(PermissionsError) as caught:
            await nc.jetstream().delete_stream("S")
        assert caught.value.subject == "$JS.API.STREAM.DELETE.S"


# -- as text -------------------------------------------------------------------------------------


def test_joining_keeps_each_line_once() -> None:
    one = Permissions(("a", "b"), ("i",), Responses(max=5, expires=7))
    other = Permissions(("b", "c"), ("i",), Responses(max=2, expires=timedelta(hours=1)))
    assert one | other == Permissions(
        ("a", "b", "c"), ("i",), Responses(max=5, expires=timedelta(hours=1))
    )
    assert (one | Permissions()).responses == one.responses
    assert (Permissions() | other).responses == other.responses


def test_both_forms_say_the_same() -> None:
    found = Permissions(("a.>", 'b"c'), (), Responses())
    assert (
        json.loads(found.to_json())
        == found.to_dict()
        == {
            "publish": {"allow": ["a.>", 'b"c']},
            "subscribe": {"deny": [">"]},
            "allow_responses": {"max": 10, "expires": "600s"},
        }
    )
    assert found.to_config() == f"permissions: {found.to_json()}"


async def test_only_answering_is_possible(guard: Guard) -> None:
    guarded = guard(Permissions((), ("ask",), Responses()))
    async with guarded.admin() as admin, guarded.user() as nc:
        nc.subscribe("ask", callback=lambda message: message.respond(b"answer"))
        await nc.flush()
        assert (await admin.request("ask", timeout=5)).data == b"answer"
    await guarded.check(refused=DANGEROUS)


def test_roles_refuse_wrong_arguments() -> None:
    roles = Roles()
    for wrong in (
        lambda: Roles(inbox_prefix="a.*"),
        lambda: Roles(domain="hub", api_prefix="x"),
        lambda: roles.publisher([]),
        lambda: roles.publisher(["a b"]),
        lambda: roles.pull_reader("S", "a.b"),
        lambda: roles.pull_reader("*", "c"),
        lambda: roles.push_reader("S", "c", "to here"),
        lambda: roles.push_reader("S", "c", "here", deliver_group="a b"),
        lambda: roles.spark_source([]),
        lambda: roles.kv_writer("b", []),
        lambda: roles.kv_reader("b.c"),
        lambda: roles.schema_registry("b.c"),
        lambda: roles.monitor("*"),
        lambda: roles.events(["max_delivery"]),
        lambda: Responses(max=0),
        lambda: Responses(expires=timedelta(0)),
    ):
        with pytest.raises(ConfigError):
            wrong()
