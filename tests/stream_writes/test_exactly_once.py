"""Writing exactly once: crashes at every step, races, torn chunks, lost ledgers."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.conftest import MakeServer
from tests.support.cluster import Cluster
from tests.support.ranges import read, whole
from tests.support.streams import Admin
from tests.support.together import together

from jetspark.connection.options import ConnectOptions, make_options
from jetspark.errors import AuthorizationError, BrokenSocketError, LedgerError, RequestTimeoutError
from jetspark.links import link_pool
from jetspark.links.link import BlockingLink, connect
from jetspark.links.link_pool import pool
from jetspark.server import NatsServer
from jetspark.stream_writes import batch_copier
from jetspark.stream_writes._atomic_batch import encode_batch
from jetspark.stream_writes.batch_copier import BatchCopier
from jetspark.stream_writes.encoded_messages import EncodedMessage
from jetspark.stream_writes.exactly_once import ExactlyOnceWriter
from jetspark.stream_writes.ledger import Ledger, TaskRows, ledger_stream

pytestmark = pytest.mark.usefixtures("needs_atomic")


class Crash(BaseException):
    """The driver is gone; nothing of ours may catch it."""


class Target:
    """A stream, a writer's name, and what batches should have brought."""

    def __init__(self, url: str, stream: str, *, replicas: int = 1, **config: Any) -> None:
        self.url = url.partition(",")[0]
        self.stream = stream
        self.options = make_options(url)
        self.expected: list[bytes] = []
        with Admin(self.url) as admin:
            admin.create(
                stream,
                f"{stream}.>",
                f"_spark.{stream}.mark.>",
                num_replicas=replicas,
                **{"allow_atomic": True, "allow_rollup_hdrs": True} | config,
            )
        self.ledger().make_stream(replicas)

    def ledger(self) -> Ledger:
        return Ledger(self.options, self.stream, "q", timeout=30)

    def writer(self, timeout: float = 30) -> ExactlyOnceWriter:
        return ExactlyOnceWriter(self.options, self.stream, "q", timeout=timeout)

    def rows(self, batch: int, count: int) -> list[EncodedMessage]:
        subject = f"{self.stream}.rows".encode()
        return [(subject, None, b"%d-%d" % (batch, number)) for number in range(count)]

    def pieces(self, batch: int, count: int, parts: int) -> list[TaskRows]:
        """Staged as so many tasks would."""
        rows = self.rows(batch, count)
        return [self.ledger().stage(rows[part::parts]) for part in range(parts)]

    def commit(self, batch: int, count: int, parts: int = 3, lanes: int = 2) -> None:
        self.writer().commit(batch, self.pieces(batch, count, parts), lanes=lanes)

    def write(self, batch: int, count: int, parts: int = 3, lanes: int = 2) -> None:
        """Commit what is expected."""
        self.commit(batch, count, parts, lanes)
        self.expect(batch, count)

    def expect(self, batch: int, count: int) -> None:
        self.expected += [payload for _, _, payload in self.rows(batch, count)]

    def payloads(self) -> list[bytes]:
        with Admin(self.url) as admin:
            facts = admin.facts(self.stream)
        rows = read(self.url, whole(facts, subjects=(f"{self.stream}.rows",)))
        payloads: list[bytes] = rows["data"].to_pylist()
        return payloads

    def check(self) -> None:
        found = Counter(self.payloads())
        wanted = Counter(self.expected)
        assert found - wanted == Counter(), "repeated or unexpected"
        assert wanted - found == Counter(), "missing"


@pytest.fixture
def needs_atomic(needs_server: Callable[[str], None]) -> None:
    needs_server("2.12")


@pytest.fixture
def target(shared_server: NatsServer, unique: Callable[[str], str]) -> Target:
    return Target(shared_server.url, unique("T"))


@contextmanager
def crashing(owner: type, name: str, calls: int = 0) -> Iterator[None]:
    """The driver crashes in the block: the given call returns so many times, and then no more."""
    original = getattr(owner, name)
    left = calls

    def counted(*args: Any, **options: Any) -> Any:
        nonlocal left
        if left == 0:
            raise Crash
        left -= 1
        return original(*args, **options)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Crash):
        patch.setattr(owner, name, counted)
        yield


STEPS = [
    pytest.param(Ledger, "decide", 0, id="before the decision"),
    pytest.param(BatchCopier, "copy", 0, id="after the decision"),
    pytest.param(BatchCopier, "_exchange_chunks", 1, id="after one chunk of each lane"),
    pytest.param(BatchCopier, "_send", 3, id="with a chunk under way"),
    pytest.param(BatchCopier, "_receive_acks", 1, id="between two acks"),
    pytest.param(Ledger, "purge_staged", 0, id="after the last chunk"),
]


@pytest.mark.parametrize(("owner", "name", "calls"), STEPS)
def test_commit_after_a_driver_crash_at_any_step_writes_each_row_once(
    target: Target, owner: type, name: str, calls: int
) -> None:
    target.write(0, 10)
    with crashing(owner, name, calls):
        target.commit(1, 4500, parts=3, lanes=2)
    # The next run has other partitions, in another order, and other lanes.
    target.write(1, 4500, parts=4, lanes=3)
    target.write(2, 5, parts=1)
    target.check()


def test_large_pieces_are_staged_in_many_messages_and_keep_their_order(target: Target) -> None:
    subject = f"{target.stream}.rows".encode()
    rows: list[EncodedMessage] = [(subject, None, b"%d " % n + b"." * 1024) for n in range(3000)]
    piece = target.ledger().stage(rows)
    assert (piece.rows, len(piece.packs)) == (3000, 5)
    target.writer().commit(0, [piece])
    assert target.payloads() == [payload for _, _, payload in rows]


def test_a_batch_that_was_written_is_not_written_again_and_empty_ones_count(target: Target) -> None:
    target.commit(0, 0)
    for parts in (1, 2, 5):
        target.commit(1, 1500, parts=parts)
    target.commit(2, 0)
    target.expect(1, 1500)
    target.write(3, 1)
    target.check()


def test_nothing_staged_is_left_behind(target: Target) -> None:
    lost = target.pieces(0, 3000, 2)  # of an attempt that came to nothing
    assert any(isinstance(pack, int) for piece in lost for pack in piece.packs)
    target.commit(0, 3000)
    with Admin(target.url) as admin:
        assert admin.facts(ledger_stream(target.stream)).messages == 1


def test_two_drivers_at_once(target: Target) -> None:
    """The slower one copies what the faster one decided, or finds it done."""
    target.expect(0, 3000)
    together(lambda parts: target.commit(0, 3000, parts=parts), (1, 2, 3))
    target.check()


def test_commit_of_an_older_batch_by_another_run_is_refused(target: Target) -> None:
    for batch in range(3):
        target.commit(batch, 10)
    with pytest.raises(LedgerError, match="another run has continued elsewhere"):
        target.commit(1, 10)


def test_run_overtaken_while_copying_is_refused(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read the decision, sleeps, and wakes when a later batch has begun."""
    writer = target.writer()
    original = BatchCopier._locate_progress

    def sleeps(copier: BatchCopier, *args: Any) -> None:
        monkeypatch.setattr(BatchCopier, "_locate_progress", original)
        target.commit(0, 2500)
        target.commit(1, 2500)
        original(copier, *args)

    with crashing(BatchCopier, "copy"):
        target.commit(0, 2500)
    monkeypatch.setattr(BatchCopier, "_locate_progress", sleeps)
    with pytest.raises(LedgerError, match="another run"):
        writer.commit(0, [])
    target.expect(0, 2500)
    target.expect(1, 2500)
    target.check()


def test_partly_stored_chunk_is_completed_by_the_next_commit(target: Target) -> None:
    """As a single server leaves it that died while it applied the batch."""
    with crashing(Ledger, "purge_staged"):
        target.commit(0, 10, parts=1, lanes=1)
    with Admin(target.url) as admin:
        last = admin.facts(target.stream).last_seq
        # marker, ten rows, end mark: the end mark and four rows were never stored
        admin.delete_messages(target.stream, *range(last - 4, last + 1))
    target.write(0, 10, parts=2, lanes=1)
    target.check()
    assert target.payloads() == [payload for _, _, payload in target.rows(0, 10)]
    target.write(1, 1)
    target.check()


def test_deleted_ledger_stops_the_writer_until_it_adopts(target: Target) -> None:
    target.commit(0, 1)
    target.commit(1, 1)
    with Admin(target.url) as admin:
        admin.call(f"STREAM.DELETE.{ledger_stream(target.stream)}")
    target.ledger().make_stream(1)
    with pytest.raises(LedgerError, match=r"the last batch in the ledger .* is none"):
        target.commit(2, 1)
    target.writer().commit(2, target.pieces(2, 1, 1), adopt=True)
    target.commit(3, 1)


def test_repeated_first_batch_without_its_ledger_is_refused(target: Target) -> None:
    """What of it is stored is not known any more."""
    target.write(0, 10)
    with Admin(target.url) as admin:
        admin.purge(ledger_stream(target.stream))
    with pytest.raises(LedgerError, match="has no record of them"):
        target.commit(0, 10)
    target.check()


def test_batch_committed_by_a_concurrent_run_is_written_once(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run of the query commits between its look at the ledger and at the markers."""
    original = ExactlyOnceWriter._check_predecessor
    target.commit(0, 10)

    def overtaken(writer: ExactlyOnceWriter, *args: Any, is_transaction: bool) -> None:
        monkeypatch.setattr(ExactlyOnceWriter, "_check_predecessor", original)
        target.commit(1, 10)
        original(writer, *args, is_transaction=is_transaction)

    monkeypatch.setattr(ExactlyOnceWriter, "_check_predecessor", overtaken)
    target.commit(1, 10, parts=1)
    target.expect(0, 10)
    target.expect(1, 10)
    target.check()


@pytest.mark.parametrize("how", [{}, {"filter": "_spark.>"}])
def test_purged_target_stops_the_writer(target: Target, how: dict[str, Any]) -> None:
    target.commit(0, 1)
    with Admin(target.url) as admin:
        admin.purge(target.stream, **how)
    with pytest.raises(LedgerError, match="no longer has the last marker"):
        target.commit(1, 1)


@pytest.mark.parametrize(
    "other",
    [lambda rows: rows[:-1], lambda rows: [*rows[:-1], (rows[0][0], None, b"another")]],
    ids=["fewer rows", "one other row"],
)
def test_a_transaction_with_other_rows_is_refused_and_the_first_one_finished(
    target: Target, other: Callable[[Any], Any]
) -> None:
    def commit(rows: list[EncodedMessage], parts: int) -> None:
        pieces = [target.ledger().stage(rows[part::parts], digest=True) for part in range(parts)]
        target.writer().commit(0, pieces, lanes=2)

    rows = target.rows(0, 2000)
    with crashing(BatchCopier, "_exchange_chunks", 1):
        commit(rows, 3)
    with pytest.raises(LedgerError, match="has the 2,000 rows of an earlier write"):
        commit(other(rows), 2)
    commit(rows[::-1], 2)
    target.expect(0, 2000)
    target.check()


def test_markers_may_outlive_the_rows(
    shared_server: NatsServer, unique: Callable[[str], str]
) -> None:
    target = Target(shared_server.url, unique("T"), allow_msg_ttl=True, max_age=400_000_000)
    for batch in range(2):
        writer = ExactlyOnceWriter(
            target.options, target.stream, "q", keep_markers=True, timeout=10
        )
        writer.commit(batch, target.pieces(batch, 3, 1))
        with Admin(target.url) as admin:
            rows = f"{target.stream}.rows"
            while admin.api.message(target.stream, seq=1, next_by_subj=rows) is not None:
                time.sleep(0.1)


def test_server_kills_while_copying_lose_and_repeat_no_row(make_server: MakeServer) -> None:
    server = make_server()
    target = Target(server.url, "T")
    dice = random.Random(1)
    for batch in range(3):
        pieces = target.pieces(batch, 6000, 3)
        target.expect(batch, 6000)
        timer = threading.Timer(dice.uniform(0.0, 0.08), server.kill)
        timer.start()
        commit = threading.Thread(target=target.writer().commit, args=(batch, pieces))
        commit.start()
        timer.join()
        server.restart()
        commit.join()
    target.check()


def test_lost_batch_reply_is_asked_for_again(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = iter(["nobody.listens"])

    def encode(batch_id: str, messages: Any, reply: str) -> bytes:
        return encode_batch(batch_id, messages, next(replies, reply))

    monkeypatch.setattr(batch_copier, "encode_batch", encode)
    target.writer(timeout=4).commit(0, target.pieces(0, 3000, 3))
    target.expect(0, 3000)
    target.check()


@pytest.mark.parametrize("lost", [1, 2])
def test_a_link_that_breaks_between_two_chunks_leaves_no_row_out(
    target: Target, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """The rows of a chunk were taken, and it was not sent."""
    links = iter(range(1, 100))

    def breaking(options: ConnectOptions) -> BlockingLink:
        link = connect(options)
        if next(links) == lost:
            monkeypatch.setattr(link, "subscribe", broken)
        return link

    def broken(_: str) -> None:
        raise BrokenSocketError("gone")

    replies = iter(["before", "nobody.listens"])

    def encode(batch_id: str, messages: Any, reply: str) -> bytes:
        one = next(replies, reply)
        return encode_batch(batch_id, messages, reply if one == "before" else one)

    monkeypatch.setattr(batch_copier, "encode_batch", encode)
    monkeypatch.setattr(batch_copier, "connect", breaking)
    target.writer(timeout=4).commit(0, target.pieces(0, 5000, 3), lanes=2)
    target.expect(0, 5000)
    target.check()


def test_a_full_storage_is_reported_and_the_batch_copied_when_there_is_space(
    make_server: MakeServer,
) -> None:
    target = Target(make_server("jetstream { max_file_store: 2MB }").url, "T")
    pieces = target.pieces(0, 4000, 2)
    target.expect(0, 4000)
    with crashing(BatchCopier, "copy"):
        target.writer().commit(0, pieces)
    filler = b"." * 100_000
    with Admin(target.url) as admin:
        admin.create("FULL", "full")
        while b'"error"' not in admin.link.request("full", filler, 10).payload:
            pass
    with pytest.raises(RequestTimeoutError, match=r"accepted no rows .* insufficient"):
        target.writer(timeout=2).commit(0, pieces)
    with Admin(target.url) as admin:
        admin.purge("FULL")
    target.commit(0, 4000)
    target.check()


def test_dead_idle_link_is_replaced(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a router that forgets its connections leaves them; an idle one is taken first."""
    ledger = Ledger(target.options, target.stream, "q", timeout=4)
    assert ledger.last_decision() is None
    ((link, _),) = pool.idle[target.options]
    monkeypatch.setattr(link, "send", lambda *_: None)
    assert ledger.last_decision() is None
    assert link.closed


@pytest.mark.parametrize("where", [batch_copier, link_pool])
def test_refused_login_is_raised_without_a_retry(
    target: Target, monkeypatch: pytest.MonkeyPatch, where: Any
) -> None:
    pieces = target.pieces(0, 10, 1)
    pool.close()
    attempts: list[ConnectOptions] = []

    def refused(options: ConnectOptions) -> BlockingLink:
        attempts.append(options)
        raise AuthorizationError("no")

    monkeypatch.setattr(where, "connect", refused)
    with pytest.raises(AuthorizationError):
        target.writer().commit(0, pieces)
    assert len(attempts) == 1


def test_leaders_that_change_while_copying(
    nats_cluster: Cluster, unique: Callable[[str], str]
) -> None:
    target = Target(",".join(nats_cluster.urls), unique("T"), replicas=3)
    stop = threading.Event()

    def unseat() -> None:
        """One leader after the other, of the target and of the ledger."""
        with Admin(target.url) as admin:
            for _ in range(5):  # then they are left alone, or a slow machine would never be done
                if stop.wait(0.3):
                    return
                for stream in (target.stream, ledger_stream(target.stream)):
                    admin.link.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}", b"", 10)

    thread = threading.Thread(target=unseat)
    thread.start()
    try:
        for batch in range(2):
            target.commit(batch, 4000, parts=3, lanes=2)
            target.expect(batch, 4000)
    finally:
        stop.set()
        thread.join()
    with Admin(target.url) as admin:
        info = admin.call(f"STREAM.INFO.{target.stream}", {"subjects_filter": f"{target.stream}.>"})
    assert info["state"]["subjects"] == {f"{target.stream}.rows": 8_000}
    target.check()


# -- a checkpoint that was lost ------------------------------------------------------------------


def new_writer(target: Target, writer: str, name: str | None = "copy") -> ExactlyOnceWriter:
    """As a query does whose checkpoint gave it this id."""
    return ExactlyOnceWriter(target.options, target.stream, writer, name=name, timeout=30)


def everything(target: Target, writer: str) -> list[TaskRows]:
    """The first batch of a query that reads from the start."""
    return [Ledger(target.options, target.stream, writer).stage(target.rows(0, 50))]


def test_a_new_writer_of_a_name_that_has_written_is_refused_until_it_adopts(target: Target) -> None:
    new_writer(target, "q1").commit(0, everything(target, "q1"))
    target.expect(0, 50)
    lost = new_writer(target, "q2")
    with pytest.raises(LedgerError, match=r"copy wrote with another checkpoint, up to its batch 0"):
        lost.check_name()
    with pytest.raises(LedgerError, match="set adopt_ledger to true"):
        lost.commit(0, everything(target, "q2"))
    target.check()
    # The one whose checkpoint is there goes on.
    new_writer(target, "q1").check_name()
    new_writer(target, "q1").commit(1, [])
    lost.commit(0, everything(target, "q2"), adopt=True)
    target.expect(0, 50)
    lost.commit(1, [])
    target.check()
    with pytest.raises(LedgerError, match="up to its batch 1"):
        new_writer(target, "q3").commit(0, everything(target, "q3"))


def test_another_name_and_no_name_write_beside_it(target: Target) -> None:
    for writer, name in (("q1", "copy"), ("q2", "other"), ("q3", None)):
        new_writer(target, writer, name).check_name()
        new_writer(target, writer, name).commit(0, everything(target, writer))
        target.expect(0, 50)
    target.check()


def test_a_ledger_without_names_gets_one_with_the_next_batch(target: Target) -> None:
    new_writer(target, "q1", None).commit(0, everything(target, "q1"))
    new_writer(target, "q1").commit(1, [])
    with pytest.raises(LedgerError, match="up to its batch 1"):
        new_writer(target, "q2").check_name()


def test_a_new_name_of_a_writer_that_goes_on_is_noted_before_its_next_batch(target: Target) -> None:
    new_writer(target, "q1", "fresh").register_name()
    new_writer(target, "q2", "fresh").check_name()  # whoever has written nothing has no name
    new_writer(target, "q1", "before").commit(0, everything(target, "q1"))
    new_writer(target, "q1", "copy").register_name()
    with Admin(target.url) as admin:
        noted = admin.facts(ledger_stream(target.stream)).last_seq
        new_writer(target, "q1", "copy").register_name()
        assert admin.facts(ledger_stream(target.stream)).last_seq == noted
    with pytest.raises(LedgerError, match="up to its batch 0"):
        new_writer(target, "q2", "copy").check_name()
    new_writer(target, "q1", "copy").commit(1, [])
    target.expect(0, 50)


def test_a_name_is_looked_up_once_until_it_changes(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    named = Ledger.find_name

    def counted(ledger: Ledger, name: str) -> tuple[int, str] | None:
        asked.append(name)
        return named(ledger, name)

    monkeypatch.setattr(Ledger, "find_name", counted)
    new_writer(target, "q1", None).commit(0, everything(target, "q1"))
    for batch, name in enumerate(["copy", "copy", "copy", "other", "other"], 1):
        new_writer(target, "q1", name).commit(batch, [])
    assert asked == ["copy", "other"]
    new_writer(target, "q2", "fresh").commit(0, [])
    new_writer(target, "q2", "fresh").commit(1, [])
    assert asked == ["copy", "other", "fresh"]


@pytest.mark.parametrize("owner", [Ledger, BatchCopier], ids=["decided", "copied"])
def test_a_name_is_free_when_its_writer_died_before_it_decided(target: Target, owner: type) -> None:
    with crashing(owner, "decide" if owner is Ledger else "copy"):
        new_writer(target, "q1").commit(0, everything(target, "q1"))
    if owner is Ledger:
        new_writer(target, "q2").commit(0, everything(target, "q2"))
    else:
        # Decided is as good as written: whoever has the checkpoint copies it.
        with pytest.raises(LedgerError, match="another checkpoint"):
            new_writer(target, "q2").commit(0, everything(target, "q2"))
        new_writer(target, "q1").commit(0, [])
    target.expect(0, 50)
    target.check()
