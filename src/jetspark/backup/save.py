"""Backing up a stream into a folder (STREAM.SNAPSHOT).

The server sends the archive in chunks to an inbox and waits for acks when its window (8 MB) is
full. The read loop only queues chunks; a thread writes them. A chunk is acknowledged when it
arrives or, while more than `MAX_UNWRITTEN_BYTES` wait for the disk, when it is written: that
bounds memory, and one slow write does not exceed the server's timeout (2 s before 2.12). Chunk
numbers, the archive and the last message's status are checked, so a folder that exists at the end
is complete; after any failure, cancellation or lost connection there is none. Servers before 2.10
do not report their own failures: their archive must not be shorter than the stream. Messages
published during the backup may be in it or not.

A server of 2.15 walks through the live stream, so messages removed meanwhile may be missing; older
servers lack only those that limits removed. The result and a warning count them. It is an error
when the stream still has so many messages that they cannot all have been removed.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from jetspark.backup.folder import BackupProgress, BackupWriter, StreamBackup, removed_sentence
from jetspark.client.client import seconds_of
from jetspark.client.tasks import move_on_after
from jetspark.documents.configuration import given
from jetspark.documents.requirements import Requirement
from jetspark.errors import BackupError, JetsparkError, PermissionsError, StreamNotFoundError
from jetspark.jetstream.api import Api
from jetspark.jetstream.context import JetStreamContext
from jetspark.jetstream.stream_requests import stream_info
from jetspark.subjects import check_name
from jetspark.timestamps import Seconds
from jetspark.validation import check_whole
from jetspark.wire import js_api
from jetspark.wire.snapshot_chunks import ChunkCounter
from jetspark.wire.status import END_OF_BATCH, status_of

if TYPE_CHECKING:
    from jetspark.client.client import CoreClient
    from jetspark.wire.kernel import MessageFrame

logger = logging.getLogger("jetspark")

ProgressCallback: TypeAlias = Callable[[BackupProgress], Awaitable[None] | None]
"""A function, plain or async, called during a backup or restore."""

MAX_UNWRITTEN_BYTES: Final = 32 << 20
"""Bytes that may wait for the disk before the server has to wait."""

SILENCE_TIMEOUT: Final = 30.0
"""Seconds of silence after which a transfer fails."""

STREAM_CHECK_INTERVAL: Final = 5.0
"""Seconds of silence after which a backup checks that its stream still exists."""

ANSWER_TIMEOUT: Final = 60.0
"""Seconds for the server to start; ten times as many when it verifies all messages first."""


class Transfer:
    """The common part of a backup and a restore: the inbox, the end, waiting for frames."""

    def __init__(self, client: CoreClient) -> None:
        self._client = client
        self._news = asyncio.Event()
        self._error: JetsparkError | None = None
        self._listener = client.listen(
            client.new_inbox(),
            self._on_frame,
            on_disconnect=self._on_disconnect,
            on_reconnect=self._news.set,
            on_end=self._finish,
        )

    @property
    def inbox(self) -> str:
        return self._listener.subject

    def close(self) -> None:
        self._listener.close()

    def _on_frame(self, frame: MessageFrame) -> None:
        raise NotImplementedError

    def _on_disconnect(self) -> None:
        raise NotImplementedError

    def _fail(self, sentence: str) -> None:
        self._finish(BackupError(sentence))

    def _finish(self, error: JetsparkError | None) -> None:
        self._error = self._error or error
        self._news.set()

    async def _heard(self, seconds: float | None) -> bool:
        """Whether anything arrived within so many seconds."""
        async with move_on_after(seconds):
            await self._news.wait()
            self._news.clear()
            return True
        return False


def start_timeout(api: Api, timeout: Seconds | None, default: float) -> float:
    """Seconds for the server to begin: the call's, or at least the default."""
    if timeout is None:
        return max(api.timeout, default)
    return seconds_of(timeout, api.client.options)


async def long_call(
    api: Api,
    seconds: float,
    operation: str,
    call: js_api.Call,
    request: Any,
    stream: str,
    needs: Sequence[Requirement] = (),
) -> dict[str, Any]:
    """Make an API call that may take so many seconds, unless its link is lost.

    `operation`: "the backup". Raises BackupError when the link is lost, and the errors of every API
    call.
    """
    slow, client = copy(api), api.client
    slow.timeout = seconds
    answer = asyncio.ensure_future(slow.call(call, request, needs, stream=stream))

    def give_up() -> None:
        answer.cancel()

    listener = client.listen(client.new_inbox(), lambda frame: None, on_disconnect=give_up)
    try:
        await asyncio.wait([answer])
        if answer.cancelled():
            client.require_open()
            raise BackupError(
                f'The connection was lost before {operation} of stream "{stream}" began.'
            )
        return answer.result()
    finally:
        answer.cancel()
        listener.close()


async def report(progress: ProgressCallback | None, figures: BackupProgress) -> None:
    """Call `progress` and wait for it; its exception ends the transfer."""
    if progress is not None:
        result = progress(figures)
        if inspect.isawaitable(result):
            await result


class BackupCalls(JetStreamContext):
    """The call of JetStream that backs up streams."""

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
        on). `progress` is called with a BackupProgress now and
        then; the backup waits for it, and ends with any exception that it raises. `timeout`:
        seconds for the server to begin, which takes long for a large stream (default: 60, with
        `check` 600, or the context's timeout if longer).

        Messages removed from the stream meanwhile may be missing: `StreamBackup.removed` and a
        warning in the log say how many.

        Raises ConfigError for a folder in use, StreamNotFoundError, BackupError when the transfer
        or the disk fails, APIError when the server refuses (streams in memory before 2.15). Then
        nothing is left behind.

        Example:
            ```python
            backup = await js.backup_stream("ORDERS", "backups/orders")
            print(backup.messages, backup.removed)  # 3 0
            ```
        """
        check_name("stream", name)
        sizes = given(chunk_size=chunk_size, window_size=window_size)
        sizes = {option: check_whole(option, size) for option, size in sizes.items()}
        timeout_seconds = start_timeout(self.api, timeout, ANSWER_TIMEOUT * (10 if check else 1))
        writer = BackupWriter(folder, name)  # in this thread, so that it can be discarded at once
        try:
            await asyncio.to_thread(writer.remove_leftovers)
            incoming = _Incoming(self.api, name)
            try:
                request: dict[str, Any] = {
                    "deliver_subject": incoming.inbox,
                    "no_consumers": not consumers,
                    "jsck": check,
                    **sizes,
                }
                answer = await long_call(
                    self.api, timeout_seconds, "the backup", js_api.STREAM_SNAPSHOT, request, name
                )
                document = {"config": answer["config"], "state": answer["state"]}
                size = int(answer["state"]["bytes"])
                await _receive(incoming, writer, size, progress)
            finally:
                incoming.close()
            # Servers before 2.10 send blocks uncompressed, and stop silently when they fail.
            server = self.server_info
            if server is not None and not server.at_least(2, 10) and writer.scan.content < size:
                raise BackupError(f'The server sent only part of stream "{name}".')
            await report(progress, BackupProgress(size, size, writer.scan.size))
            messages = await asyncio.to_thread(writer.finish, document)
            await self._check_removed(name, document["state"], messages)
            backup = await asyncio.to_thread(writer.complete, document, messages)
        except BaseException:
            writer.discard()
            raise
        if backup.removed:
            logger.warning("%s", removed_sentence(name, backup.state.messages, messages))
        return backup

    async def _check_removed(self, name: str, before: dict[str, Any], messages: int) -> None:
        """Raise BackupError for missing messages that cannot have been removed."""
        missing = before["messages"] - messages
        if missing <= 0:
            return
        try:
            state = (await stream_info(self.api, name)).state
        except (StreamNotFoundError, PermissionsError):
            return  # the role `backup` may not read the stream's information
        stored = state.messages - max(0, state.last_seq - before["last_seq"])
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


class _Incoming(Transfer):
    """Chunks between the read loop and the disk."""

    def __init__(self, api: Api, stream: str) -> None:
        self._api = api
        self._stream = stream
        self._began = time.monotonic()
        self._pieces: list[bytes] = []
        self._waiting = 0
        self._unanswered: list[str] = []
        self._chunks = ChunkCounter()
        self._over = False
        self._gave_up = False
        super().__init__(api.client)

    async def take(self) -> list[bytes]:
        """All chunks received; empty at the end. Raises BackupError, ConnectionClosedError."""
        began = time.monotonic()
        while not self._pieces and not self._over:
            if time.monotonic() - began >= SILENCE_TIMEOUT:
                raise BackupError(
                    f'The server has sent nothing of stream "{self._stream}" for '
                    f"{SILENCE_TIMEOUT:g} s."
                )
            if not await self._heard(min(STREAM_CHECK_INTERVAL, SILENCE_TIMEOUT)):
                await self._check_stream_exists()
        if self._error is not None:
            if self._gave_up:
                await self._check_stream_exists()
            raise self._error
        pieces, self._pieces = self._pieces, []
        return pieces

    async def _check_stream_exists(self) -> None:
        """Raise BackupError if the stream is gone: servers then just stop sending."""
        try:
            info = await stream_info(self._api, self._stream)
            # Compare by the server's clock, which gave the stream its time.
            server_time = info.ts or datetime.now(UTC)
            if info.created < server_time - timedelta(seconds=time.monotonic() - self._began):
                return  # not a newer stream of that name
        except StreamNotFoundError:
            pass
        except JetsparkError:
            return  # the role `backup` may not read the stream's information
        raise BackupError(f'Stream "{self._stream}" was deleted while it was backed up.')

    def written(self, pieces: list[bytes]) -> None:
        """The disk has these chunks."""
        self._waiting -= sum(map(len, pieces))
        if self._waiting < MAX_UNWRITTEN_BYTES:
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
                reason = f"{status.code} {status.description}".rstrip()
                self._gave_up = True
                self._fail(f'The server ended the backup of stream "{self._stream}": {reason}.')
            return
        self._pieces.append(piece)
        self._waiting += len(piece)
        if reply is not None:
            self._acknowledge(reply.decode(), len(piece))
        self._news.set()

    def _acknowledge(self, reply: str, size: int) -> None:
        """Acknowledge a chunk, at once or when the disk has it; fail if one before it is lost."""
        if not self._chunks.is_next(reply, size):
            self._fail(f'A part of the backup of stream "{self._stream}" did not arrive.')
        elif self._waiting < MAX_UNWRITTEN_BYTES:
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

    def _finish(self, error: JetsparkError | None) -> None:
        if not self._over:
            self._over = True
            super()._finish(error)
