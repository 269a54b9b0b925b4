"""Backup of a stream into a folder, and restore from it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import inspect
import logging
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from jetspark.archives.archive import messages_in
from jetspark.archives.folder import (
    ARCHIVE,
    METADATA,
    Metadata,
    folder_to_read,
    folder_to_write,
    lacking,
    metadata_from,
    opened_file,
)
from jetspark.client.client import seconds_of
from jetspark.documents.document import from_wire
from jetspark.documents.requirements import Requirement
from jetspark.documents.streams import StreamConfig, StreamState
from jetspark.errors import (
    BackupError,
    ConfigError,
    JetsparkError,
    JetStreamError,
    PermissionsError,
    StreamNotFoundError,
)
from jetspark.files import Hold, beginning, remove_left
from jetspark.jetstream.api import Api
from jetspark.jetstream.streams import stream_info
from jetspark.subjects import check_name
from jetspark.timestamps import Seconds
from jetspark.validation import check_whole
from jetspark.wire import js_api
from jetspark.wire.kernel import require_archives
from jetspark.wire.status import END_OF_BATCH, status_of

if TYPE_CHECKING:
    from jetspark.wire.kernel import MessageFrame

# -------------------------------------------------------------------------------------------------
# A backup on disk: a folder with `backup.json` and `stream.tar.s2`, as the `nats` tool makes it.
#
# `backup.json` has the stream's configuration and state from the server, and the size, SHA-256 and
# number of messages of the archive, which the `nats` tool ignores. Contract: a folder with the
# final name is complete: the archive was read again, its checksums verified and its messages
# counted. It is written under a hidden name beside it, synced to disk, `backup.json` last, and
# then renamed; only a killed process leaves the hidden folder behind, until the next backup to the
# same name. All calls block.


_OURS: Final = "archive"  # in backup.json, besides config and state
_READ: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class BackupProgress:
    """The progress of a backup or restore: `done` of `total` bytes, which are equal at the end."""

    done: int
    total: int
    transferred: int
    """Bytes sent over the network, compressed."""


@dataclass(frozen=True, slots=True)
class StreamBackup:
    """A complete backup on disk."""

    folder: Path
    config: StreamConfig
    state: StreamState
    """The stream's state when the server started to send it."""
    size: int
    """Bytes of the archive."""
    content: int
    """Bytes that it unpacks to."""
    is_message_list: bool
    """Whether the archive has the format of server 2.15, which older servers cannot restore."""
    messages: int
    """Messages in the archive, up to the last sequence of `state`."""
    document: dict[str, Any]
    """The content of `backup.json`."""

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self.config.name or ""

    @property
    def removed(self) -> int:
        """Messages of `state` that are not in the archive.

        They were removed from the stream (deleted, purged, or by its limits) while it was sent.
        """
        return max(0, self.state.messages - self.messages)

    @property
    def archive(self) -> Path:
        """The path of the archive."""
        return self.folder / ARCHIVE


class BackupWriter:
    """Writes one backup.

    Raises ConfigError for a folder in use, and without the C kernel; BackupError when the disk
    fails.

    `write` and `complete` may run in other threads than `discard`, which waits for them.
    """

    def __init__(self, folder: str | os.PathLike[str], stream: str) -> None:
        require_archives()
        self._stream = stream
        self.folder = folder_to_write(folder)
        if self.folder.is_symlink():  # it stays, and what it leads to is renamed
            self.folder = self.folder.resolve()
        if self.folder.exists() and not _is_empty_folder(self.folder):
            raise self._in_use
        self.scan = ArchiveScan()
        self._hidden = f".{beginning(self.folder.name)}."
        self._place = self.folder.with_name(f"{self._hidden}{secrets.token_hex(4)}.part")
        self._lock = threading.Lock()
        with self._disk():
            self._place.mkdir(parents=True, mode=0o700)
            self._hold = Hold(self._place)
            try:
                self._file = (self._place / ARCHIVE).open("xb")
            except OSError:
                self._remove()
                raise

    @property
    def _in_use(self) -> ConfigError:
        return ConfigError(f"{self.folder} exists already: name a new folder for the backup.")

    def remove_left(self) -> None:
        """Remove what killed processes have left of backups to this folder."""
        hidden = re.compile(rf"{re.escape(self._hidden)}[0-9a-f]{{8}}\.part")
        with contextlib.suppress(OSError):
            remove_left(self.folder.parent, hidden)

    def write(self, pieces: Iterable[bytes]) -> None:
        """The next bytes of the archive; dropped after `discard`."""
        with self._lock, self._disk(), self._arriving():
            if not self._file.closed:
                for piece in pieces:
                    self.scan.feed(piece)
                    self._file.write(piece)

    def finish(self, document: dict[str, Any]) -> int:
        """The archive is complete: read it again; how many messages of the state it has."""
        with self._arriving():
            self.scan.finish()
        metadata, _ = metadata_from(msgspec.json.encode(document))
        with self._lock, self._disk():
            _sync_and_close(self._file)
            with (self._place / ARCHIVE).open("rb") as file, self._arriving():
                return messages_in(file, metadata)

    def complete(self, document: dict[str, Any], messages: int) -> StreamBackup:
        """Write `backup.json`, and rename the folder. After `finish`."""
        ours = {"bytes": self.scan.size, "sha256": self.scan.sha256, "messages": messages}
        document = document | {_OURS: ours}
        text = msgspec.json.format(msgspec.json.encode(document), indent=2)
        with self._lock, self._disk():
            with (self._place / METADATA).open("xb") as file:
                file.write(text)
                _sync_and_close(file)
            self._hold.release()
            _sync_folder(self._place)
            with contextlib.suppress(FileNotFoundError):
                self.folder.rmdir()  # an empty one; not every system renames over it
            self._place = self._place.rename(self.folder)
            _sync_folder(self.folder.parent)
        return _backup(self.folder, document, self.scan, messages)

    def discard(self) -> None:
        """Leave nothing behind, also when it was complete already."""
        with self._lock:
            with contextlib.suppress(OSError):  # it writes what it still has, to a full disk
                self._file.close()
            self._remove()

    def _remove(self) -> None:
        shutil.rmtree(self._place, ignore_errors=True)
        self._hold.release()

    @contextlib.contextmanager
    def _arriving(self) -> Iterator[None]:
        try:
            yield
        except BackupError as error:
            why = str(error).removeprefix("The archive is damaged: ").rstrip(".")
            raise BackupError(
                f'What came of stream "{self._stream}" is no archive to restore from ({why}): '
                "back it up again, and if that is the same, check the disk of the server."
            ) from None

    @contextlib.contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # another backup was quicker
                raise self._in_use from error
            raise BackupError(
                f"Cannot write the backup {self.folder}: {error.strerror or error}."
            ) from error


def verify_backup(folder: str | os.PathLike[str]) -> StreamBackup:
    """Verify that a backup on disk is complete and unchanged, by reading all of it.

    The archive must be that of `backup.json`: its SHA-256, which a backup by the `nats` tool does
    not have, the stream's name or state, and the end of its messages. These are counted: see
    `StreamBackup.removed`. Raises ConfigError when the folder is not a backup, BackupError when it
    is damaged.
    """
    folder = folder_to_read(folder)
    metadata, document = _read_metadata(folder)
    scan = ArchiveScan()
    try:
        with opened_file(folder, ARCHIVE) as file:
            metadata.check_size(file.seek(0, os.SEEK_END))  # the same reason as from `open_backup`
            file.seek(0)
            while piece := file.read(_READ):
                scan.feed(piece)
            scan.finish()
            if metadata.archive is not None and metadata.archive.sha256 != scan.sha256:
                raise BackupError("The archive is damaged: its SHA-256 does not match.")
            messages = messages_in(file, metadata)
    except OSError as error:
        raise BackupError(f"Cannot read {folder / ARCHIVE}: {error.strerror or error}.") from error
    except BackupError as error:
        raise BackupError(f"{folder}: {error}") from None
    said = None if metadata.archive is None else metadata.archive.messages
    if said not in (None, messages):
        raise BackupError(f"{folder}: The archive has {messages} messages and not {said}.")
    return _backup(folder, document, scan, messages)


def _read_metadata(folder: Path) -> tuple[Metadata, dict[str, Any]]:
    try:
        with opened_file(folder, METADATA) as file:
            return metadata_from(file.read())
    except OSError as error:
        raise BackupError(f"Cannot read {folder / METADATA}: {error.strerror or error}.") from error
    except BackupError as error:
        raise BackupError(f"{folder}: {error}") from None


def _backup(
    folder: Path, document: dict[str, Any], scan: ArchiveScan, messages: int
) -> StreamBackup:
    try:
        config = from_wire(StreamConfig, document["config"])
        state = from_wire(StreamState, document["state"])
    except JetStreamError as error:
        raise BackupError(f"{folder}: {METADATA} is damaged: {error}") from None
    return StreamBackup(
        folder=folder,
        config=config,
        state=state,
        size=scan.size,
        content=scan.content,
        is_message_list=scan.is_message_list,
        messages=messages,
        document=document,
    )


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _sync_and_close(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
    file.close()


def _sync_folder(folder: Path) -> None:
    # Windows cannot open folders, and does not need it.
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# -------------------------------------------------------------------------------------------------
# Scanning a stream's archive without unpacking it: complete frames, unpacked size, digest.
#
# An archive is what the server sends for a snapshot: an S2 stream (framed like Snappy's) of a tar
# of the stream's files or, from server 2.15 on, of a list of messages. Contract: pure and
# incremental, in pieces of any size; costs no more than the SHA-256. The frames have the length of
# their content, so progress can be shown in bytes of the stream, and their own length, so an
# archive that was cut off or is something else is noticed at once. The checksums of the content
# are verified by the server when it restores.


_HEAD: Final = 4  # a byte for the kind of frame, three for its length
_BODY: Final = 24  # bytes of a frame that are looked at
_IDENTIFIERS: Final = (b"S2sTwO", b"sNaPpY")
_COMPRESSED, _PLAIN, _IDENTIFIER = 0x00, 0x01, 0xFF
_SKIPPABLE: Final = 0x80
_CRC: Final = 4
_MESSAGE_LIST: Final = b"NATSARC1"


class ArchiveScan:
    """Feed it an archive piece by piece, then `finish`. Raises BackupError for anything else."""

    def __init__(self) -> None:
        self.size = 0
        """Bytes fed so far."""
        self.content = 0
        """Bytes they unpack to."""
        self.is_message_list = False
        """Whether it is the format of server 2.15, known after the first block."""
        self._digest = hashlib.sha256()
        self._head = b""
        self._wanted = _HEAD
        self._skip = 0
        self._identified = False

    @property
    def sha256(self) -> str:
        """Of all bytes so far, in hexadecimal."""
        return self._digest.hexdigest()

    def feed(self, piece: bytes) -> None:
        """The next bytes."""
        self._digest.update(piece)
        self.size += len(piece)
        at = 0
        while at < len(piece):
            if self._skip:
                step = min(self._skip, len(piece) - at)
                self._skip -= step
                at += step
                continue
            step = self._wanted - len(self._head)
            self._head += piece[at : at + step]
            at += step
            if len(self._head) == self._wanted:
                self._look()

    def finish(self) -> None:
        """The archive has ended. Raises BackupError when it is not complete."""
        if not self._identified or self._head or self._skip:
            raise BackupError("The archive is not complete: it ends in the middle of a block.")

    def _look(self) -> None:
        """At a frame's head, or its head and the start of its body."""
        length = int.from_bytes(self._head[1:_HEAD], "little")
        seen = min(length, _BODY)
        if self._wanted == _HEAD and seen:
            self._wanted += seen
            return
        self._frame(self._head[0], length, self._head[_HEAD:])
        self._head = b""
        self._wanted = _HEAD
        self._skip = length - seen

    def _frame(self, kind: int, length: int, body: bytes) -> None:
        if kind == _IDENTIFIER and body in _IDENTIFIERS:
            self._identified = True
        elif not self._identified or (kind > _PLAIN and kind < _SKIPPABLE):
            raise BackupError("The archive is damaged, or is not the archive of a stream.")
        elif kind in (_COMPRESSED, _PLAIN):
            if not self.content:
                self.is_message_list = _MESSAGE_LIST in body
            self.content += length - _CRC if kind == _PLAIN else _uvarint(body[_CRC:])


def _uvarint(data: bytes) -> int:
    value = 0
    for index, byte in enumerate(data):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value
    raise BackupError("The archive is damaged: a block without a length.")


# -------------------------------------------------------------------------------------------------
# Backing up a stream into a folder (STREAM.SNAPSHOT).
#
# Contract: the server sends the archive in chunks to an inbox and waits for acks when its window
# (8 MB) is full. The read loop only queues chunks; a thread writes them. A chunk is acknowledged
# when it arrives or, while more than `AHEAD` bytes wait for the disk, when it is written: memory
# is bounded, and one slow write does not exceed the server's timeout (2 s before 2.12). Chunk
# numbers, the archive's frames and the status of the last message are checked, so a folder that
# exists at the end is complete; when anything fails, the call is cancelled or the connection is
# lost, it does not exist. Servers before 2.10 do not report their own failures: there the archive
# must not be shorter than the stream. Messages published during the backup may be in it or not.
#
# A server of 2.15 walks through the live stream, so messages that are removed meanwhile may be
# missing; from older ones, those that limits removed. They are counted, and told in the result and
# in a warning. When the stream still has so many that they cannot all have been removed, it is an
# error.


logger = logging.getLogger("jetspark")

ProgressCallback: TypeAlias = Callable[[BackupProgress], Awaitable[None] | None]

AHEAD: Final = 32 << 20
"""Bytes that may wait for the disk before the server has to wait."""

SILENCE: Final = 30.0
"""Seconds of silence of the server after which a transfer fails."""

LOOK_AFTER: Final = 5.0
"""Seconds of silence after which a backup looks whether its stream is still there."""

ANSWER_WITHIN: Final = 60.0
"""Seconds for the server to start, and ten times as many when it verifies all messages first."""


def to_begin(api: Api, timeout: Seconds | None, default: float) -> float:
    """Seconds for the server to begin: the call's, or the default if the context's are fewer."""
    if timeout is None:
        return max(api.timeout, default)
    return seconds_of(timeout, api.client.options)


async def long_call(
    api: Api,
    seconds: float,
    what: str,
    call: js_api.Call,
    request: Any,
    stream: str,
    needs: Sequence[Requirement] = (),
) -> dict[str, Any]:
    """An API call with a timeout of so many seconds.

    It does not wait for an answer that was lost with its link. Raises BackupError then, and as
    every API call. `what`: "the backup".
    """
    slow = copy(api)
    slow.timeout = seconds
    client = api.client
    lost = asyncio.Event()
    listener = client.listen(client.new_inbox(), lambda frame: None, on_disconnect=lost.set)
    answer = asyncio.ensure_future(slow.call(call, request, needs, stream=stream))
    losing = asyncio.ensure_future(lost.wait())
    try:
        await asyncio.wait({answer, losing}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            client.require_open()
            raise BackupError(f'The connection was lost before {what} of stream "{stream}" began.')
        return await answer
    finally:
        losing.cancel()
        answer.cancel()
        listener.close()


async def report(progress: ProgressCallback | None, figures: BackupProgress) -> None:
    """Call `progress` and wait for it; an exception that it raises ends the transfer."""
    if progress is not None:
        result = progress(figures)
        if inspect.isawaitable(result):
            await result


class BackupCalls:
    """The call of JetStream that backs up streams."""

    _api: Api

    async def backup_stream(
        self,
        name: str,
        folder: str | os.PathLike[str],
        *,
        consumers: bool = True,
        check: bool = False,
        chunk_size: int | None = None,
        window_size: int | None = None,
        progress: ProgressCallback | None = None,
        timeout: Seconds | None = None,
    ) -> StreamBackup:
        """Back up a stream with its messages into a folder, as `nats stream backup` does.

        `folder` must not exist, or be empty; it appears when the backup is complete. `consumers`:
        include them, with their state. `check`: the server first verifies every message's checksum
        (servers before 2.15; newer ones always do). `chunk_size`, `window_size`: bytes of a chunk
        and of all unacknowledged chunks (server's defaults: 128 KiB, 8 MiB; the window from 2.12
        on). `progress`, a function or coroutine function, is called with a BackupProgress now and
        then; the backup waits for it, and an exception of it ends the backup. `timeout`: seconds
        for the server to begin, which takes long for a large stream (default: 60, with `check` 600,
        or the context's timeout if that is longer).

        Messages that are removed from the stream meanwhile may be missing: `StreamBackup.removed`
        says how many, and so does a warning in the log.

        Raises ConfigError for a folder in use, StreamNotFoundError, BackupError when the transfer
        or the disk fails, APIError when the server refuses (streams in memory before 2.15), and as
        every API call (see `JetStream`). Then nothing is left behind.
        """
        check_name("stream", name)
        sizes = {"chunk_size": chunk_size, "window_size": window_size}
        sizes = {
            option: check_whole(option, size) for option, size in sizes.items() if size is not None
        }
        within = to_begin(self._api, timeout, ANSWER_WITHIN * (10 if check else 1))
        writer = BackupWriter(folder, name)  # not in a thread, so that it can be discarded at once
        try:
            await asyncio.to_thread(writer.remove_left)
            incoming = _Incoming(self._api, name)
            try:
                request: dict[str, Any] = {
                    "deliver_subject": incoming.inbox,
                    "no_consumers": not consumers,
                    "jsck": check,
                    **sizes,
                }
                answer = await long_call(
                    self._api, within, "the backup", js_api.STREAM_SNAPSHOT, request, name
                )
                document = {"config": answer["config"], "state": answer["state"]}
                size = int(answer["state"]["bytes"])
                await _receive(incoming, writer, size, progress)
            finally:
                incoming.close()
            self._check_length(name, writer, document)
            await report(progress, BackupProgress(size, size, writer.scan.size))
            messages = await asyncio.to_thread(writer.finish, document)
            await self._check_removed(name, document["state"], messages)
            backup = await asyncio.to_thread(writer.complete, document, messages)
        except BaseException:
            writer.discard()
            raise
        if backup.removed:
            logger.warning("%s", lacking(name, backup.state.messages, messages))
        return backup

    def _check_length(self, name: str, writer: BackupWriter, document: dict[str, Any]) -> None:
        # Before 2.10 blocks are sent uncompressed, and a failure in the middle is silent.
        server = self._api.server
        if server is None or server.at_least(2, 10):
            return
        if writer.scan.content < document["state"]["bytes"]:
            raise BackupError(f'The server sent only part of stream "{name}".')

    async def _check_removed(self, name: str, before: dict[str, Any], messages: int) -> None:
        """Raises BackupError for messages that are missing and cannot have been removed."""
        missing = before["messages"] - messages
        if missing <= 0:
            return
        try:
            now = (await stream_info(self._api, name)).state
        except (StreamNotFoundError, PermissionsError):
            return  # the role `backup` need not look at streams
        stored = now.messages - max(0, now.last_seq - before["last_seq"])
        if missing > before["messages"] - stored:
            raise BackupError(
                f"The server sent {messages:,} of {before['messages']:,} messages of stream "
                f'"{name}", which still has {stored:,} of them or more.'
            )


async def _receive(
    incoming: _Incoming, writer: BackupWriter, size: int, progress: ProgressCallback | None
) -> None:
    while pieces := await incoming.take():
        await asyncio.to_thread(writer.write, pieces)
        incoming.written(pieces)
        scan = writer.scan
        # The archive has more than the messages: indexes, consumers, empty space.
        await report(progress, BackupProgress(min(scan.content, size), size, scan.size))


class _Incoming:
    """Chunks between the read loop and the disk."""

    def __init__(self, api: Api, stream: str) -> None:
        self._api = api
        self._client = api.client
        self._stream = stream
        self._began = time.monotonic()
        self._pieces: list[bytes] = []
        self._waiting = 0
        self._unanswered: list[str] = []
        self._received = 0
        self._over = False
        self._gave_up = False
        self._error: JetsparkError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._listener = self._client.listen(
            self._client.new_inbox(),
            self._on_frame,
            on_disconnect=self._on_disconnect,
            on_end=self._finish,
        )

    @property
    def inbox(self) -> str:
        return self._listener.subject

    def close(self) -> None:
        self._over = True
        self._listener.close()

    async def take(self) -> list[bytes]:
        """All chunks received; empty at the end. Raises BackupError, ConnectionClosedError."""
        began = time.monotonic()
        while not self._pieces and not self._over:
            if time.monotonic() - began >= SILENCE:
                raise BackupError(
                    f'The server has sent nothing of stream "{self._stream}" for {SILENCE:g} s.'
                )
            self._waiter = self._client.loop.create_future()
            try:
                async with asyncio.timeout(min(LOOK_AFTER, SILENCE)):
                    await self._waiter
            except TimeoutError:
                await self._check_there()
        if self._error is not None:
            if self._gave_up:
                await self._check_there()
            raise self._error
        pieces, self._pieces = self._pieces, []
        return pieces

    async def _check_there(self) -> None:
        """Raise BackupError for a stream that is gone: servers only stop sending it."""
        gone = "deleted while it was backed up: there is no backup of it"
        try:
            info = await stream_info(self._api, self._stream)
            # By the server's clock, which gave the stream its time.
            now = info.ts or datetime.now(UTC)
            if info.created < now - timedelta(seconds=time.monotonic() - self._began):
                return
            gone = "deleted and created again while it was backed up: back up the new one"
        except StreamNotFoundError:
            pass
        except JetsparkError:
            return  # the role `backup` need not look at streams
        raise BackupError(f'Stream "{self._stream}" was {gone}.')

    def written(self, pieces: list[bytes]) -> None:
        """These chunks are on disk."""
        self._waiting -= sum(map(len, pieces))
        if self._waiting < AHEAD:
            unanswered, self._unanswered = self._unanswered, []
            for reply in unanswered:
                self._answer(reply)

    def _on_frame(self, frame: MessageFrame) -> None:
        if self._over:
            return
        piece, reply = frame.payload, frame.reply
        if not piece:
            status = status_of(frame.headers)
            if status is None or status.code == END_OF_BATCH:
                self._finish(None)
            else:
                what = f"{status.code} {status.description}".rstrip()
                self._gave_up = True
                self._fail(f'The server ended the backup of stream "{self._stream}": {what}.')
            return
        self._pieces.append(piece)
        self._waiting += len(piece)
        if reply is not None:
            self._count(reply.decode(), len(piece))
        self._wake()

    def _count(self, reply: str, size: int) -> None:
        """The reply subject ends in the chunk's size and number, unless an import has mapped it."""
        *_, said_size, number = reply.split(".")
        self._received += 1
        plain = number.isdigit() and said_size.isdigit()
        if plain and (int(said_size), int(number)) != (size, self._received):
            self._fail(f'A part of the backup of stream "{self._stream}" did not arrive.')
            return
        if self._waiting < AHEAD:
            self._answer(reply)
        else:
            self._unanswered.append(reply)

    def _answer(self, reply: str) -> None:
        try:
            self._client.publish_nowait(reply)
        except JetsparkError as error:
            self._finish(error)

    def _on_disconnect(self) -> None:
        self._fail(f'The connection was lost during the backup of stream "{self._stream}".')

    def _fail(self, sentence: str) -> None:
        self._finish(BackupError(sentence))

    def _finish(self, error: JetsparkError | None) -> None:
        if not self._over:
            self._over = True
            self._error = error
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
