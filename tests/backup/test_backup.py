"""Backing up and restoring streams on real servers."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import MakeServer, MakeStream, NeedsServer, Unique
from tests.jetstream.conftest import has_consumers, holds
from tests.jetstream.eventually import eventually
from tests.support import archives
from tests.support.cluster import Cluster
from tests.support.frame_proxy import FrameProxy
from tests.support.processes import finish, first_document, python
from tests.support.raw_client import RawClient
from tests.support.s2 import decompress, entries

from jetspark import blocking, errors
from jetspark.backup import BackupProgress, restore, save, verify_backup
from jetspark.backup.folder import BackupWriter
from jetspark.client.messages import Message
from jetspark.documents.streams import PubAck, StoredMsg
from jetspark.full_client import Client, JetStream, connect
from jetspark.jetstream.api import Api
from jetspark.ranges.backup import open_backup
from jetspark.server import NatsServer
from jetspark.wire import frames
from jetspark.wire.documents import ServerInfo

ALL = 300
FILES = ["backup.json", "stream.tar.s2"]


@pytest.fixture
async def elsewhere(make_server: MakeServer) -> AsyncIterator[JetStream]:
    """JetStream on another server than `js`."""
    async with connect(make_server().url) as nc:
        yield JetStream(nc)


@pytest.fixture
async def filled(js: JetStream, unique: Unique) -> str:
    """A stream on disk with headers, gaps and a consumer that has acknowledged some."""
    name = unique("B")
    await fill(js, name)
    return name


async def fill(js: JetStream, name: str, count: int = ALL, **options: Any) -> None:
    await js.create_stream(name=name, subjects=[f"{name}.*"], description="old", **options)
    async with js.publisher() as publisher:
        for number in range(1, count + 1):
            headers = {"N": str(number), "A": "ö"} if number % 3 else None
            await publisher.publish(f"{name}.{number % 7}", b"%d " % number * 40, headers=headers)
    await js.stream(name).delete_msg(5)
    worker = await js.stream(name).create_consumer(durable_name="worker")
    for message in (await worker.fetch(20, timeout=5))[:9]:
        await message.ack_sync()


async def fill_large(js: JetStream, name: str, count: int = 40) -> None:
    """A stream of 100 KB messages, more than one window of chunks."""
    await js.create_stream(name=name, subjects=[name])
    for _ in range(count):
        await js.publish(name, os.urandom(100_000))


@pytest.fixture
async def large(js: JetStream, unique: Unique) -> str:
    name = unique("L")
    await fill_large(js, name)
    return name


async def content(js: JetStream, name: str) -> list[StoredMsg]:
    """Every message, as the leader has it."""
    last = (await js.stream(name).info()).state.last_seq
    found: list[StoredMsg] = []
    while not found or found[-1].seq < last:
        after = found[-1].seq if found else 0
        found.append(await js.stream(name).get(after + 1, next_by_subject=">"))
    return found


def hidden_in(folder: Path) -> list[Path]:
    return list(folder.glob(".*"))


def nothing_in(folder: Path) -> bool:
    return list(folder.iterdir()) == []


async def restore_again(js: JetStream, folder: Path) -> None:
    """After a deletion: for a moment servers may refuse the same name, or stumble over its files.

    (2.15: "expected sequence does not match store", also after an ordinary delete.)
    """

    async def done() -> bool:
        try:
            await js.restore_stream(folder)
        except errors.APIError:
            return False
        return True

    await eventually(done)


async def gone(js: JetStream, name: str) -> bool:
    try:
        await js.stream(name).info()
    except errors.StreamNotFoundError:
        return True
    except errors.RequestTimeoutError:  # a cluster's leader may be changing
        pass
    return False


# -- the way there and back --------------------------------------------------------------------


async def test_messages_and_consumers_come_back_as_they_were(
    js: JetStream, elsewhere: JetStream, filled: str, tmp_path: Path
) -> None:
    there: list[BackupProgress] = []
    back: list[BackupProgress] = []
    made = await js.backup_stream(filled, tmp_path / "b", chunk_size=1024, progress=there.append)
    info = await elsewhere.restore_stream(tmp_path / "b", progress=back.append)
    assert await content(elsewhere, filled) == await content(js, filled)
    before = await js.stream(filled).info()
    assert info.cached_info.state.replace(consumer_count=0) == before.state.replace(
        consumer_count=0
    )
    assert info.cached_info.config.replace(metadata=None) == before.config.replace(metadata=None)
    if not made.is_message_list:  # the format of 2.15 does not hold it
        assert (await elsewhere.stream(filled).info()).created == before.created
    ours = (await js.stream(filled).consumer("worker")).cached_info
    theirs = (await elsewhere.stream(filled).consumer("worker")).cached_info
    assert theirs.ack_floor.stream_seq == ours.ack_floor.stream_seq > 5
    assert theirs.config.replace(metadata=None) == ours.config.replace(metadata=None)
    assert (made.stream, made.state.messages) == (filled, ALL - 1)
    assert made.content == len(decompress(made.archive.read_bytes()))
    for steps, total in ((there, before.state.bytes), (back, made.size)):
        assert steps
        assert all(step.total == total for step in steps)
        assert [step.done for step in steps] == sorted(step.done for step in steps)
        assert (steps[-1].done, steps[-1].transferred) == (total, made.size)


async def test_progress_may_be_a_coroutine_function_which_is_waited_for(
    js: JetStream, elsewhere: JetStream, filled: str, tmp_path: Path
) -> None:
    inside = 0

    async def progress(step: BackupProgress) -> None:
        nonlocal inside
        inside += 1
        await js.client.flush()
        assert inside == 1
        inside -= 1

    await js.backup_stream(filled, tmp_path / "b", progress=progress)
    await elsewhere.restore_stream(tmp_path / "b", progress=progress)
    assert inside == 0


async def test_the_folder_is_what_the_nats_tool_writes(
    js: JetStream, elsewhere: JetStream, filled: str, tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "b"
    await js.backup_stream(filled, folder)
    assert sorted(one.name for one in folder.iterdir()) == FILES
    document = json.loads((folder / "backup.json").read_text())
    assert document["config"]["name"] == filled
    assert document["state"]["messages"] == ALL - 1
    parts = list(entries((folder / "stream.tar.s2").read_bytes()))
    everything = b"".join(part.data for part in parts)
    for message in await content(js, filled):
        assert message.data in everything
    assert any("worker" in part.name for part in parts)
    strip(folder)
    await elsewhere.restore_stream(folder)
    assert await content(elsewhere, filled) == await content(js, filled)
    await js.backup_stream(filled, tmp_path / "c", consumers=False, check=True)
    await elsewhere.delete_stream(filled)
    await restore_again(elsewhere, tmp_path / "c")
    assert await elsewhere.stream(filled).consumer_names().all() == []


def strip(folder: Path) -> None:
    """Take out of backup.json what the nats tool does not write."""
    document = json.loads((folder / "backup.json").read_text())
    del document["archive"]
    (folder / "backup.json").write_text(json.dumps(document))


async def test_streams_in_memory_from_2_15_on(
    js: JetStream, nc: Client, stream: str, elsewhere: JetStream, tmp_path: Path
) -> None:
    await js.publish(f"{stream}.a", b"x")
    if nc.server_info is None or not nc.server_info.at_least(2, 15):
        with pytest.raises(errors.APIError, match="snapshot failed"):
            await js.backup_stream(stream, tmp_path / "b")
        assert nothing_in(tmp_path)
        return
    await js.backup_stream(stream, tmp_path / "b")
    await elsewhere.restore_stream(tmp_path / "b")
    assert await content(elsewhere, stream) == await content(js, stream)


async def test_the_configuration_may_be_changed_on_the_way_but_not_the_name(
    js: JetStream, elsewhere: JetStream, filled: str, tmp_path: Path
) -> None:
    folder = tmp_path / "b"
    await js.backup_stream(filled, folder)
    with pytest.raises(errors.ConfigError, match="the name"):
        await elsewhere.restore_stream(folder, name="OTHER")  # type: ignore[call-arg]
    info = await elsewhere.restore_stream(folder, {"description": "new"}, max_msgs=ALL * 2)
    assert (info.cached_info.config.description, info.cached_info.config.max_msgs) == (
        "new",
        ALL * 2,
    )
    await elsewhere.delete_stream(filled)
    await elsewhere.create_stream(name=f"{filled}_X", subjects=info.cached_info.config.subjects)
    with pytest.raises(errors.APIError, match=f'overlaps .*"{filled}_X"'):
        await elsewhere.restore_stream(folder)


async def test_what_is_over_when_it_is_restored_keeps_its_sequences(
    js: JetStream, elsewhere: JetStream, make_stream: MakeStream, tmp_path: Path
) -> None:
    name = await make_stream(storage="file", max_age=0.5)
    await js.backup_stream(name, tmp_path / "empty")
    assert (await elsewhere.restore_stream(tmp_path / "empty")).cached_info.state.messages == 0
    await elsewhere.delete_stream(name)
    for _ in range(5):
        await js.publish(f"{name}.a", b"x")
    await js.stream(name).delete_msg(5)
    await js.backup_stream(name, tmp_path / "b")
    await holds(js, name, 0)
    await restore_again(elsewhere, tmp_path / "b")
    assert (await elsewhere.publish(f"{name}.a", b"x")).seq == 6


async def test_restored_work_queue_has_the_unacknowledged_messages(
    js: JetStream, elsewhere: JetStream, make_stream: MakeStream, tmp_path: Path
) -> None:
    name = await make_stream(storage="file", retention="workqueue")
    worker = await js.stream(name).create_consumer(durable_name="worker")
    for number in range(6):
        await js.publish(f"{name}.a", b"%d" % number)
    for message in await worker.fetch(4, timeout=5):
        await message.ack_sync()
    await js.backup_stream(name, tmp_path / "b")
    info = await elsewhere.restore_stream(tmp_path / "b")
    assert (info.cached_info.state.messages, info.cached_info.state.last_seq) == (2, 6)
    bound = await elsewhere.stream(name).consumer("worker")
    assert [message.data for message in await bound.fetch(2, timeout=5)] == [b"4", b"5"]


async def test_backup_of_a_stream_that_is_written_to_is_restored(
    js: JetStream, elsewhere: JetStream, make_stream: MakeStream, tmp_path: Path
) -> None:
    name = await make_stream(storage="file")
    payload = os.urandom(50_000)
    for _ in range(100):
        await js.publish(f"{name}.a", payload)
    stop = asyncio.Event()

    async def write() -> None:
        while not stop.is_set():
            await js.publish(f"{name}.a", payload)

    writing = asyncio.create_task(write())
    made = await js.backup_stream(name, tmp_path / "b", chunk_size=16_000)
    stop.set()
    await writing
    info = await elsewhere.restore_stream(tmp_path / "b")
    assert info.cached_info.state.last_seq >= made.state.last_seq >= 100
    assert (await elsewhere.stream(name).get(made.state.last_seq)).data == payload


async def test_restore_to_a_full_server_creates_no_stream(
    js: JetStream, large: str, make_server: MakeServer, tmp_path: Path, needs_server: NeedsServer
) -> None:
    needs_server("2.10")  # older ones look only at what is stored already
    await js.backup_stream(large, tmp_path / "b")
    small = make_server("jetstream { max_file_store: 1MB, max_memory_store: 1MB }")
    async with connect(small.url) as nc:
        there = JetStream(nc)
        with pytest.raises(errors.APIError, match=r"insufficient|exceeded|resources"):
            await there.restore_stream(tmp_path / "b")
        assert await gone(there, large)
        await there.create_stream(name=large, subjects=[large])  # the connection still works


async def test_with_three_replicas(nats_cluster: Cluster, unique: Unique, tmp_path: Path) -> None:
    name = unique("R3")
    async with connect(nats_cluster.urls) as nc:
        js = JetStream(nc)
        await fill(js, name, num_replicas=3)
        before = await content(js, name)
        await js.backup_stream(name, tmp_path / "b")
        await js.delete_stream(name)
        with pytest.raises(KeyError):
            await js.restore_stream(tmp_path / "b", progress=raising)
        await eventually(lambda: gone(js, name))
        await restore_again(js, tmp_path / "b")
        await has_consumers(js, name, "worker")
        assert await content(js, name) == before
        await js.delete_stream(name)


async def test_backup_and_restore_work_over_domains(
    on_leaf: Client, unique: Unique, tmp_path: Path
) -> None:
    name = unique("D")
    hub, leaf = JetStream(on_leaf, domain="hub"), JetStream(on_leaf)
    await fill(hub, name)
    await hub.backup_stream(name, tmp_path / "b")
    before = await content(hub, name)
    await hub.delete_stream(name)
    for js in (leaf, hub):
        await restore_again(js, tmp_path / "b")
        assert await content(js, name) == before
        await js.delete_stream(name)


# -- what cannot work --------------------------------------------------------------------------


async def test_mistakes_are_found_before_anything_is_sent(
    js: JetStream, nc: Client, filled: str, tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "file").touch()
    await js.backup_stream(filled, tmp_path / "b")
    before = nc.stats.out_msgs
    for target in ("full", "file", "b"):
        with pytest.raises(errors.ConfigError, match="exists already"):
            await js.backup_stream(filled, tmp_path / target)
    with pytest.raises(errors.BadNameError):
        await js.backup_stream("a.b", tmp_path / "c")
    for folder in ("no", "full", "file"):
        with pytest.raises(errors.ConfigError, match="not a backup"):
            await js.restore_stream(tmp_path / folder)
    (tmp_path / "b" / "backup.json").write_text("{")
    with pytest.raises(errors.BackupError, match="damaged"):
        await js.restore_stream(tmp_path / "b")
    os.truncate(tmp_path / "b" / "backup.json", 20 << 30)  # it costs who makes it nothing
    with pytest.raises(errors.BackupError, match="larger than 64 MiB"):
        await js.restore_stream(tmp_path / "b")
    (tmp_path / "b" / "backup.json").write_text('{"config": {"name": "S"}}')
    with pytest.raises(errors.BackupError, match="missing required field `state`"):
        await js.restore_stream(tmp_path / "b")
    assert nc.stats.out_msgs == before
    with pytest.raises(errors.StreamNotFoundError, match="NO_SUCH"):
        await js.backup_stream("NO_SUCH", tmp_path / "c")
    assert not (tmp_path / "c").exists()
    assert not hidden_in(tmp_path)


async def test_an_empty_folder_is_taken(js: JetStream, filled: str, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "link").symlink_to("b")
    await js.backup_stream(filled, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert verify_backup(tmp_path / "b").stream == filled
    assert not hidden_in(tmp_path)


async def test_restore_of_a_changed_archive_is_refused_before_sending(
    js: JetStream, nc: Client, filled: str, tmp_path: Path
) -> None:
    await js.backup_stream(filled, tmp_path / "b")
    archive = tmp_path / "b" / "stream.tar.s2"
    whole = archive.read_bytes()
    before = nc.stats.out_msgs
    for damaged in (whole[:-1], whole[:-9] + b"123456789", b"", b"x" * 500, whole + b"\xfe"):
        archive.write_bytes(damaged)
        with pytest.raises(errors.BackupError):
            await js.restore_stream(tmp_path / "b")
    archive.unlink()
    os.mkfifo(archive)
    with pytest.raises(errors.ConfigError, match=r"no file stream\.tar\.s2"):
        await js.restore_stream(tmp_path / "b")
    assert nc.stats.out_msgs == before


async def test_a_damaged_archive_without_digest_makes_no_stream(
    js: JetStream, elsewhere: JetStream, unique: Unique, tmp_path: Path
) -> None:
    name = unique("B")
    await fill(js, name, 3000)
    await js.backup_stream(name, tmp_path / "b")
    strip(tmp_path / "b")
    archive = tmp_path / "b" / "stream.tar.s2"
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2] + b"damage" + whole[len(whole) // 2 + 6 :])
    with pytest.raises((errors.APIError, errors.BackupError)):
        await elsewhere.restore_stream(tmp_path / "b")
    assert await gone(elsewhere, name)
    archive.write_bytes(whole)
    await restore_again(elsewhere, tmp_path / "b")


async def test_an_archive_that_is_shorter_than_the_stream_makes_no_stream(
    js: JetStream, elsewhere: JetStream, filled: str, tmp_path: Path
) -> None:
    await js.backup_stream(filled, tmp_path / "b")
    document = json.loads((tmp_path / "b" / "backup.json").read_text())
    document["state"]["last_seq"] = ALL + 1
    (tmp_path / "b" / "backup.json").write_text(json.dumps(document))
    with pytest.raises(errors.BackupError, match=f"last_seq is {ALL}"):
        await elsewhere.restore_stream(tmp_path / "b")
    assert await gone(elsewhere, filled)


async def test_an_older_server_cannot_restore_the_format_of_2_15(
    js: JetStream,
    filled: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    needs_server: NeedsServer,
) -> None:
    needs_server("2.15")
    await js.backup_stream(filled, tmp_path / "b")
    await js.delete_stream(filled)
    monkeypatch.setattr(Api, "server", ServerInfo(version="2.14.6"))
    with pytest.raises(errors.UnsupportedByServerError, match=r"needs nats-server >= 2\.15"):
        await js.restore_stream(tmp_path / "b")


@pytest.mark.full
@pytest.mark.parametrize(
    # What a small chunk leaves in the file's buffer fails again when the file is closed.
    ("limit", "chunk"),
    [(200_000, 128 << 10), (200_000, 1_000), (0, 1_000)],
)
async def test_a_full_disk_leaves_nothing(
    shared_server: NatsServer, js: JetStream, unique: Unique, tmp_path: Path, limit: int, chunk: int
) -> None:
    name = unique("FULL")
    await fill_large(js, name, 8)
    code = (
        "import resource, sys; from jetspark import blocking\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "with blocking.connect(sys.argv[1]) as nc:\n"
        f"    nc.jetstream().backup_stream(sys.argv[2], sys.argv[3], chunk_size={chunk})\n"
    )
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", code, shared_server.url, name, str(tmp_path / "b")],
        capture_output=True,
        text=True,
        timeout=30,
    )
    last = done.stderr.splitlines()[-1]
    assert last.endswith(f"BackupError: Cannot write the backup {tmp_path / 'b'}: File too large.")
    assert nothing_in(tmp_path)


def test_a_full_disk_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pathlib.Path.open", refused)
    with pytest.raises(errors.BackupError, match="No space left"):
        BackupWriter(tmp_path / "b", "S")
    assert nothing_in(tmp_path)


# -- the end in the middle ---------------------------------------------------------------------


def raising(_: BackupProgress) -> None:
    raise KeyError("enough")


async def test_what_progress_raises_ends_it_and_leaves_nothing(
    js: JetStream, elsewhere: JetStream, filled: str, tmp_path: Path
) -> None:
    with pytest.raises(KeyError):
        await js.backup_stream(filled, tmp_path / "b", progress=raising)
    assert nothing_in(tmp_path)
    await js.backup_stream(filled, tmp_path / "b")
    with pytest.raises(KeyError):
        await elsewhere.restore_stream(tmp_path / "b", progress=raising)
    assert await gone(elsewhere, filled)
    await restore_again(elsewhere, tmp_path / "b")


async def test_a_cancelled_backup_leaves_nothing(js: JetStream, large: str, tmp_path: Path) -> None:
    began = asyncio.Event()
    running = asyncio.create_task(
        js.backup_stream(large, tmp_path / "b", chunk_size=1024, progress=lambda _: began.set())
    )
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert nothing_in(tmp_path)


async def test_a_backup_that_is_cancelled_when_it_has_its_name_leaves_nothing(
    js: JetStream, filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed, cancelled = threading.Event(), threading.Event()

    def sync(folder: Path) -> None:
        if folder == tmp_path:
            renamed.set()
            assert cancelled.wait(30)

    monkeypatch.setattr("jetspark.backup.folder._sync_folder", sync)
    running = asyncio.create_task(js.backup_stream(filled, tmp_path / "b"))
    assert await asyncio.to_thread(renamed.wait, 30)
    assert (tmp_path / "b").exists()
    running.cancel()
    cancelled.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert nothing_in(tmp_path)


HOLDER = """
import json, sys
from jetspark.backup.folder import BackupWriter
writer = BackupWriter(sys.argv[1], "S")
writer.write([b"\\xff\\x06\\0\\0S2sTwO"])
print(json.dumps({}), flush=True)
sys.stdin.read()
"""


async def test_what_a_killed_backup_has_left_is_removed_by_the_next_one_to_that_name(
    js: JetStream, filled: str, tmp_path: Path
) -> None:
    target = tmp_path / "b"
    with python(HOLDER, str(target)) as killed:
        first_document(killed)
        (left,) = hidden_in(tmp_path)
    with python(HOLDER, str(target)) as living:
        first_document(living)
        await js.backup_stream(filled, tmp_path / "another")
        assert left.exists()
        await js.backup_stream(filled, target)
        assert not left.exists()
        (held,) = hidden_in(tmp_path)
        assert (held / "stream.tar.s2").exists()
        finish(living)
    assert await asyncio.to_thread(os.listdir, target) in (FILES, FILES[::-1])
    assert verify_backup(target).stream == filled


async def test_of_two_backups_to_one_folder_the_later_one_says_that_it_exists(
    js: JetStream, filled: str, tmp_path: Path
) -> None:
    target = tmp_path / ("b" * 255)

    async def another(step: BackupProgress) -> None:
        if step.done == step.total and not target.exists():
            await js.backup_stream(filled, target)

    with pytest.raises(errors.ConfigError, match="exists already"):
        await js.backup_stream(filled, target, progress=another)
    assert verify_backup(target).stream == filled
    assert os.listdir(tmp_path) == [target.name]


async def test_an_archive_that_was_damaged_on_its_way_is_told_with_what_to_do(
    js: JetStream, filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = BackupWriter.write

    def flip(self: BackupWriter, pieces: list[bytes]) -> None:
        first, *rest = pieces
        at = len(first) // 2
        write(self, [first[:at] + bytes([first[at] ^ 1]) + first[at + 1 :], *rest])

    monkeypatch.setattr(BackupWriter, "write", flip)
    with pytest.raises(errors.BackupError, match="back it up again"):
        await js.backup_stream(filled, tmp_path / "b")
    assert nothing_in(tmp_path)


@pytest.mark.parametrize("kill", [True, False])
async def test_backup_raises_and_leaves_nothing_when_the_server_ends(
    make_server: MakeServer, tmp_path: Path, kill: bool
) -> None:
    server = make_server()
    async with connect(server.url) as nc:
        js = JetStream(nc)
        await fill_large(js, "S", 120)  # more than the window of old servers
        ends = iter([server.kill if kill else server.stop])

        def end_server(_: BackupProgress) -> None:
            next(ends, lambda: None)()

        with pytest.raises(errors.BackupError, match="lost during the backup"):
            await js.backup_stream(
                "S", tmp_path / "b", chunk_size=1024, window_size=4096, progress=end_server
            )
    assert nothing_in(tmp_path)


Transfer = tuple[bytes, Callable[..., Awaitable[object]]]


@pytest.fixture(params=["SNAPSHOT", "RESTORE"])
async def transfer(
    request: pytest.FixtureRequest, js: JetStream, filled: str, tmp_path: Path
) -> Transfer:
    """The call of the API, and what makes it: a backup, or a restore of one that is there."""
    if request.param == "SNAPSHOT":
        return b"SNAPSHOT", lambda js, **how: js.backup_stream(filled, tmp_path / "c", **how)
    await js.backup_stream(filled, tmp_path / "b")
    return b"RESTORE", lambda js, **how: js.restore_stream(tmp_path / "b", **how)


class CutBeforeAnswer(FrameProxy):
    """It ends the connection when a client sends what has this in it."""

    def __init__(self, target: int, call: bytes) -> None:
        super().__init__(target)
        self.call = call

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (data := await reader.read(65536)) and self.call not in data:
            writer.write(data)


async def test_link_lost_before_the_answer_ends_a_backup_and_a_restore_at_once(
    transfer: Transfer, tmp_path: Path, shared_server: NatsServer
) -> None:
    call, begin = transfer
    async with (
        CutBeforeAnswer(shared_server.port, b"$JS.API.STREAM." + call) as proxy,
        connect(proxy.url, reconnect_wait=0.05) as nc,
        asyncio.timeout(30),
    ):
        with pytest.raises(errors.BackupError, match="lost before"):
            await begin(JetStream(nc))
    assert not (tmp_path / "c").exists()
    assert not hidden_in(tmp_path)


async def test_a_lost_answer_is_a_timeout(transfer: Transfer, shared_server: NatsServer) -> None:
    call, begin = transfer
    told = rf"{call.decode()}.* within 0\.5 s"
    async with FrameProxy(shared_server.port) as proxy, connect(proxy.url) as nc:
        with pytest.raises(errors.ConfigError, match="timeout"):
            await begin(JetStream(nc), timeout=0)
        proxy.arm(1, wanted=lambda frame: b"io.nats.jetstream.api" in frame)
        async with asyncio.timeout(30):
            with pytest.raises(errors.RequestTimeoutError, match=told):
                await begin(JetStream(nc), timeout=timedelta(seconds=0.5))


@pytest.mark.parametrize("killed", [True, False])
async def test_a_link_lost_during_a_restore_leaves_no_part_of_the_stream(
    js: JetStream, large: str, nats_server: NatsServer, tmp_path: Path, killed: bool
) -> None:
    await js.backup_stream(large, tmp_path / "b")
    async with connect(nats_server.url, reconnect_wait=0.05, reconnect_jitter=0.0) as nc:
        there = JetStream(nc)
        moves: list[asyncio.Task[None]] = []
        losses = iter([True])

        def lose(_: BackupProgress) -> None:
            if next(losses, False) and killed:
                nats_server.kill()
                nats_server.start()
            elif not (killed or moves):
                moves.append(asyncio.create_task(nc.force_reconnect()))

        with pytest.raises(errors.BackupError, match="lost during the restore"):
            await there.restore_stream(tmp_path / "b", progress=lose)
        await asyncio.gather(*moves)
        await eventually(lambda: nc.is_connected)
        assert await gone(there, large)
        await restore_again(there, tmp_path / "b")
        assert (await there.stream(large).info()).state.messages == 40


class Deaf(FrameProxy):
    """Its first connection takes so many bytes of the client, and then forwards no more."""

    def __init__(self, target: int, hears: int) -> None:
        super().__init__(target)
        self.hears = hears
        self.connections = 0

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        first = self.connections == 1
        while data := await reader.read(65536):
            if first:
                self.hears -= len(data)
            if not first or self.hears > 0:
                writer.write(data)


async def test_a_link_that_falls_silent_during_a_restore_leaves_no_part_of_the_stream(
    js: JetStream,
    large: str,
    make_server: MakeServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restore, "SILENCE_TIMEOUT", 0.5)
    monkeypatch.setattr(restore, "STALL_TIMEOUT", 0.5)
    await js.backup_stream(large, tmp_path / "b")
    server = make_server()
    async with Deaf(server.port, 1_500_000) as proxy, connect(proxy.url) as nc:
        with pytest.raises(errors.BackupError, match="nothing about the restore") as failed:
            await JetStream(nc).restore_stream(tmp_path / "b")
        assert not hasattr(failed.value, "__notes__")
        assert proxy.connections == 2
        assert await gone(JetStream(nc), large)


async def test_a_restore_whose_last_answer_is_lost_says_that_the_stream_is_there(
    js: JetStream,
    filled: str,
    tmp_path: Path,
    nats_server: NatsServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restore, "SILENCE_TIMEOUT", 0.5)
    await js.backup_stream(filled, tmp_path / "b")
    async with FrameProxy(nats_server.port) as proxy, connect(proxy.url) as nc:
        proxy.arm(1, wanted=lambda frame: b"stream_create_response" in frame)
        with pytest.raises(errors.BackupError, match="299 messages up to sequence 300"):
            await JetStream(nc).restore_stream(tmp_path / "b")
        assert (await JetStream(nc).stream(filled).info()).state.messages == ALL - 1


async def test_a_restore_into_a_stream_that_exists_says_what_it_has_of_the_backup(
    js: JetStream, elsewhere: JetStream, filled: str, tmp_path: Path
) -> None:
    folder = tmp_path / "b"
    await js.backup_stream(filled, folder)
    await elsewhere.restore_stream(folder)

    async def said() -> str:
        with pytest.raises(errors.NameInUseError) as refused:
            await elsewhere.restore_stream(folder)
        text = str(refused.value)
        assert refused.value.restored is text.endswith("nothing needs to be done.")
        return text.removeprefix(f'Stream "{filled}" exists already')

    whole = ", and has all 299 messages of the backup: nothing needs to be done."
    assert await said() == whole
    await elsewhere.publish(f"{filled}.0", b"since")
    assert await said() == whole
    await elsewhere.stream(filled).delete_consumer("worker")
    assert await said() == (
        ", and has all 299 messages of the backup: look whether a consumer is missing."
    )
    await elsewhere.delete_stream(filled)
    await restore_again(elsewhere, folder)
    await elsewhere.stream(filled).purge(seq=11)
    assert await said() == ": delete it before it is restored."
    await elsewhere.delete_stream(filled)
    await elsewhere.create_stream(name=filled, subjects=[f"{filled}.*"], description="old")
    assert "has 0 of the backup's 299 messages: unless a restore is running" in await said()
    await elsewhere.publish(f"{filled}.0", b"another stream")
    assert await said() == ": delete it before it is restored."
    await elsewhere.delete_stream(filled)
    await restore_again(elsewhere, folder)
    for _ in range(5):
        await elsewhere.publish(f"{filled}.0", b"since")
    await elsewhere.stream(filled).purge()
    assert await said() == ": delete it before it is restored."


async def test_a_restore_that_is_cancelled_while_the_server_creates_the_stream_says_so(
    js: JetStream, filled: str, tmp_path: Path
) -> None:
    await js.backup_stream(filled, tmp_path / "b")
    scripted = ScriptedRestore(js, b"")
    task = asyncio.create_task(scripted.js.restore_stream(tmp_path / "b"))
    await eventually(lambda: b"" in scripted.chunks)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await task
    assert cancelled.value.__notes__ == [
        f'Everything was sent, and the server may still create stream "{filled}": check later '
        "whether it reaches sequence 300."
    ]


async def test_a_partial_stream_that_others_publish_to_is_kept_and_named(
    js: JetStream,
    elsewhere: JetStream,
    filled: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    needs_server: NeedsServer,
) -> None:
    needs_server("2.15")  # older ones have no stream before the end
    monkeypatch.setattr(restore, "CHUNK", 2048)
    await js.backup_stream(filled, tmp_path / "b")

    acks: list[PubAck] = []

    async def publish_and_raise(step: BackupProgress) -> None:
        if step.done == step.total:
            await eventually(there)
            acks.append(await elsewhere.publish(f"{filled}.0", b"of somebody else"))
            raise KeyError("enough")

    async def there() -> bool:
        return not await gone(elsewhere, filled)

    with pytest.raises(KeyError) as failed:
        await elsewhere.restore_stream(tmp_path / "b", progress=publish_and_raise)
    assert failed.value.__notes__ == [
        f'Stream "{filled}" exists, and is not (or not only) of this restore.'
    ]
    assert (await elsewhere.stream(filled).get(acks[0].seq)).data == b"of somebody else"


async def test_a_restore_after_one_that_was_killed_says_what_is_there(
    js: JetStream, large: str, make_server: MakeServer, tmp_path: Path, needs_server: NeedsServer
) -> None:
    needs_server("2.15")
    name, server = large, make_server()
    await js.backup_stream(name, tmp_path / "b")
    code = (
        "import sys; from jetspark import blocking\n"
        "def wait(step):\n"
        "    if step.done * 2 > step.total: print(flush=True); sys.stdin.read()\n"
        "with blocking.connect(sys.argv[1]) as nc:\n"
        "    nc.jetstream().restore_stream(sys.argv[2], progress=wait)\n"
    )
    command = [sys.executable, "-c", code, server.url, str(tmp_path / "b")]
    async with connect(server.url) as nc:
        there = JetStream(nc)

        async def begun() -> bool:  # the server still stores what came
            return not await gone(there, name)

        pipe = asyncio.subprocess.PIPE
        restore = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        assert restore.stdout is not None
        await restore.stdout.readline()
        await eventually(begun)
        restore.kill()
        await restore.wait()
        with pytest.raises(errors.NameInUseError, match=r"[123]?\d of the backup's 40"):
            await there.restore_stream(tmp_path / "b")
        await there.delete_stream(name)
        await there.create_stream(name=name, subjects=[name, f"{name}.more"])
        with pytest.raises(errors.NameInUseError, match="exists already") as refused:
            await there.restore_stream(tmp_path / "b")
        assert "interrupted" not in str(refused.value)
    server.kill()  # an orderly end waits for what the restore still sends


async def test_a_slow_disk_makes_the_server_wait_and_memory_is_bounded(
    js: JetStream, large: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead, window, chunk = 64 << 10, 128 << 10, 16 << 10
    monkeypatch.setattr(save, "MAX_UNWRITTEN_BYTES", ahead)
    most = 0
    write = BackupWriter.write

    def slowly(self: BackupWriter, pieces: list[bytes]) -> None:
        nonlocal most
        most = max(most, sum(map(len, pieces)))
        time.sleep(0.01)
        write(self, pieces)

    monkeypatch.setattr(BackupWriter, "write", slowly)
    made = await js.backup_stream(large, tmp_path / "b", chunk_size=chunk, window_size=window)
    assert made.size > 4_000_000
    server = js.client.server_info
    # Before 2.12 the window is 8 MB, whatever is asked for.
    assert most <= ahead + window + chunk or (server and not server.at_least(2, 12))


# -- what real servers say too rarely ----------------------------------------------------------


MAGIC = b"\xff\x06\x00\x00S2sTwO"
PADDING = b"\xfe\x08\x00\x00paddings"


async def scripted(js: JetStream, *script: tuple[bytes, str | None]) -> JetStream:
    """A context whose snapshots of S are what the script says: (payload, reply subject).

    A payload that begins like headers is sent as such.
    """
    nc, prefix = js.client, js.client.new_inbox()

    async def answer(msg: Message) -> None:
        state = {"messages": 1, "bytes": 9, "first_seq": 1, "last_seq": 1}
        await _respond(msg, "snapshot", config={"name": "S"}, state=state)
        inbox = json.loads(msg.data)["deliver_subject"]
        with RawClient(nc.current_server or "") as raw:
            for payload, reply in script:
                if payload.startswith(b"NATS/1.0"):
                    raw.send(frames.hpub(inbox, payload, b""))
                else:
                    raw.publish(inbox, payload, reply or "")
            raw.ping()

    nc.subscribe(f"{prefix}.STREAM.SNAPSHOT.S", callback=answer)
    await nc.flush()
    return JetStream(nc, api_prefix=prefix)


END = (b"", None)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ([(MAGIC, "a.10.1"), (PADDING, "a.12.3"), END], "did not arrive"),
        ([(MAGIC, "a.11.1"), END], "did not arrive"),
        ([(MAGIC + PADDING[:-1], None), END], "archive"),
        ([END], "archive"),
        ([(b"no archive", None), END], "archive"),
        ([(MAGIC + PADDING, None), (b"NATS/1.0 500 disk broken\r\n\r\n", None)], "500 disk broken"),
        ([(MAGIC, None), (b"NATS/1.0 408 No Flow Response\r\n\r\n", None)], "408 No Flow Response"),
    ],
)
async def test_a_backup_of_which_something_is_missing_raises_and_leaves_nothing(
    js: JetStream, tmp_path: Path, script: list[tuple[bytes, str | None]], said: str
) -> None:
    there = await scripted(js, *script)
    with pytest.raises(errors.BackupError, match=said):
        await there.backup_stream("S", tmp_path / "b")
    assert nothing_in(tmp_path)


async def test_a_backup_of_a_stream_that_is_made_again_meanwhile_says_so(
    js: JetStream, large: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(save, "STREAM_CHECK_INTERVAL", 0.2)  # an error of the server, or silence
    done = asyncio.Event()

    async def delete(_: BackupProgress) -> None:
        if not done.is_set():
            done.set()
            await js.delete_stream(large)
            await js.create_stream(name=large, subjects=[large])

    with pytest.raises(errors.BackupError, match="was deleted while"):
        await js.backup_stream(large, tmp_path / "b", window_size=200_000, progress=delete)
    assert nothing_in(tmp_path)


async def test_a_backup_that_falls_silent_looks_whether_the_stream_is_there(
    js: JetStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = await scripted(js, (MAGIC, None))
    with monkeypatch.context() as impatient, pytest.raises(errors.BackupError, match="has sent no"):
        impatient.setattr(save, "SILENCE_TIMEOUT", 0.05)
        await there.backup_stream("S", tmp_path / "b")
    monkeypatch.setattr(save, "STREAM_CHECK_INTERVAL", 0.05)
    not_found = {"code": 404, "err_code": 10059, "description": "stream not found"}

    async def inform(msg: Message) -> None:
        await _respond(msg, "info", error=not_found)

    js.client.subscribe(f"{there.api_prefix}.STREAM.INFO.S", callback=inform)
    with pytest.raises(errors.BackupError, match='"S" was deleted while'):
        await there.backup_stream("S", tmp_path / "b")
    assert nothing_in(tmp_path)


class ScriptedRestore:
    """Takes a restore: answers no chunk at all, or each one with `answer`."""

    def __init__(
        self, js: JetStream, answer: dict[str, Any] | bytes | None = None, **differs: object
    ) -> None:
        nc, prefix = js.client, js.client.new_inbox()
        self.prefix, self.answer, self.differs = prefix, answer, differs
        self.js = JetStream(nc, api_prefix=prefix)
        self.config: dict[str, Any] = {}
        self.chunks: list[bytes] = []
        self.deleted = False
        nc.subscribe(f"{prefix}.STREAM.RESTORE.*", callback=self._accept)
        nc.subscribe(f"{prefix}.STREAM.INFO.*", callback=self._inform)
        nc.subscribe(f"{prefix}.STREAM.DELETE.*", callback=self._delete)
        nc.subscribe(f"{prefix}.chunks", callback=self._take)

    async def _accept(self, msg: Message) -> None:
        self.config = json.loads(msg.data)["config"]
        await _respond(msg, "restore", deliver_subject=f"{self.prefix}.chunks")

    async def _take(self, msg: Message) -> None:
        self.chunks.append(msg.data)
        if isinstance(self.answer, dict):
            await _respond(msg, "create", **self.answer)
        elif self.answer is not None and msg.data:
            await msg.respond(self.answer)

    async def _inform(self, msg: Message) -> None:
        """The stream that was to be restored, and without messages."""
        state = {"messages": 0, "bytes": 0, "first_seq": 0, "last_seq": 0}
        config, created = self.config | self.differs, "2026-01-01T00:00:00Z"
        await _respond(msg, "info", config=config, created=created, state=state)

    async def _delete(self, msg: Message) -> None:
        self.deleted = True
        await _respond(msg, "delete", success=True)


async def _respond(msg: Message, kind: str, **answer: object) -> None:
    answer["type"] = f"io.nats.jetstream.api.v1.stream_{kind}_response"
    await msg.respond(json.dumps(answer).encode())


@pytest.mark.parametrize(("version", "window"), [("2.11.9", 2), ("2.12.0", 8)])
async def test_a_few_chunks_are_on_their_way_and_to_old_servers_two(
    js: JetStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, window: int
) -> None:
    content = archives.tar_of([("meta.inf", b'{"name": "S"}'), ("x", bytes(3000))])
    archives.write_backup(tmp_path / "b", content, 0, 0, 0)
    monkeypatch.setattr(restore, "CHUNK", 100)
    monkeypatch.setattr(restore, "SILENCE_TIMEOUT", 0.2)
    monkeypatch.setattr(restore, "CLEAN_UP_TIMEOUT", 0.1)
    monkeypatch.setattr(Api, "server", ServerInfo(version=version))
    scripted = ScriptedRestore(js)
    with pytest.raises(errors.BackupError, match="nothing about the restore") as failed:
        await scripted.js.restore_stream(tmp_path / "b")
    assert [len(chunk) for chunk in scripted.chunks[:-1]] == [100] * window
    assert scripted.chunks[-1] == b"no archive"
    assert failed.value.__notes__ == [
        'Stream "S" may be there with a part of its 0 messages: delete it before you restore again.'
    ]


@pytest.mark.parametrize(
    ("err_code", "differs", "deleted"),
    [
        (10130, {}, False),
        (10062, {}, True),
        (10062, {"subjects": ["other"]}, False),
        (10062, {"mirror": {"name": "M"}}, False),
    ],
)
async def test_a_failed_restore_keeps_a_stream_that_another_client_created(
    js: JetStream, filled: str, tmp_path: Path, err_code: int, differs: Any, deleted: bool
) -> None:
    await js.backup_stream(filled, tmp_path / "b")
    error = {"code": 400, "err_code": err_code, "description": "no"}
    scripted = ScriptedRestore(js, {"error": error}, **differs)
    with pytest.raises(errors.APIError) as failed:
        await scripted.js.restore_stream(tmp_path / "b")
    assert scripted.deleted is deleted
    assert bool(getattr(failed.value, "__notes__", ())) is bool(differs)


async def test_after_a_failure_the_server_waits_for_nothing_more(
    elsewhere: JetStream, js: JetStream, filled: str, tmp_path: Path
) -> None:
    await js.backup_stream(filled, tmp_path / "b")
    nc = elsewhere.client
    seen: set[str] = set()
    nc.subscribe("$JS.SNAPSHOT.RESTORE.>", callback=lambda msg: seen.add(msg.subject))
    with pytest.raises(KeyError):
        await elsewhere.restore_stream(tmp_path / "b", progress=raising)
    await nc.flush()
    (subject,) = seen
    async with connect(nc.current_server) as other:
        # Our own subscription listens, too, and says nothing.
        with pytest.raises(errors.RequestTimeoutError):
            await other.request(subject, b"x", timeout=0.1)


# -- without async -----------------------------------------------------------------------------


def test_the_blocking_client_calls_progress_in_the_callers_thread(
    shared_server: NatsServer, make_server: MakeServer, unique: Unique, tmp_path: Path
) -> None:
    name = unique("BL")
    with blocking.connect(shared_server.url) as nc, blocking.connect(make_server().url) as other:
        js = nc.jetstream()
        js.create_stream(name=name, subjects=[name])
        for _ in range(5):
            js.publish(name, os.urandom(100_000))
        seen: list[tuple[BackupProgress, int]] = []
        made = js.backup_stream(
            name, tmp_path / "b", progress=lambda step: seen.append((step, threading.get_ident()))
        )
        assert {thread for _, thread in seen} == {threading.get_ident()}
        assert seen[-1][0].done == seen[-1][0].total == made.state.bytes

        def hesitating(step: BackupProgress) -> None:
            time.sleep(0.3)  # a transfer that did not wait would be complete
            raising(step)

        with pytest.raises(KeyError):
            js.backup_stream(name, tmp_path / "c", progress=hesitating)
        assert [one.name for one in tmp_path.iterdir()] == ["b"]
        with pytest.raises(KeyError):
            other.jetstream().restore_stream(tmp_path / "b", progress=hesitating)
        with pytest.raises(errors.StreamNotFoundError):
            other.jetstream().stream(name).info()
        with blocking.connect(make_server().url) as third:
            info = third.jetstream().restore_stream(tmp_path / "b")
        assert info.cached_info.state.messages == 5


async def test_a_cut_archive_has_one_reason(js: JetStream, filled: str, tmp_path: Path) -> None:
    folder = tmp_path / "b"
    await js.backup_stream(filled, folder)
    archive = (folder / "stream.tar.s2").read_bytes()
    (folder / "stream.tar.s2").write_bytes(archive[: len(archive) // 2])
    with pytest.raises(errors.BackupError) as verified:
        verify_backup(folder)
    with pytest.raises(errors.BackupError) as opened:
        open_backup(folder)
    assert str(verified.value) == str(opened.value)
    assert f"has {len(archive) // 2} bytes; backup.json says {len(archive)}" in str(opened.value)
