"""Restoring a stream from a folder (STREAM.RESTORE).

The backup is verified on disk before anything is sent. The archive is sent in chunks, a few at a
time, each acknowledged by the server.

Servers differ when a sender just stops: before 2.12 they forget it after 5 s; later ones may create
the stream from what they received, whole or, from 2.15 on, in part. So when anything fails, or the
call is cancelled, the restore ends the archive with invalid bytes, waits for the answer, and
deletes the stream that the server created, over a new link if this one is silent. A note on the
error says when that was not possible. It deletes only a stream that it created: one with another
shape, or with messages from before the backup or after the restore began, is somebody else's or in
use. It also deletes a restored stream that is shorter than `backup.json` says.

Once everything is sent, nothing is undone: when the call is then cancelled, the connection lost or
the answer missing, the error says so. After a process was killed, the next restore is refused
because the stream exists; the error says how much of the backup that has.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Unpack

import jetspark.errors as errors
from jetspark.backup.folder import BackupProgress, StreamBackup, removed_sentence, verify_backup
from jetspark.backup.save import (
    ANSWER_TIMEOUT,
    SILENCE_TIMEOUT,
    ProgressCallback,
    Transfer,
    long_call,
    report,
    start_timeout,
)
from jetspark.connection.events import ConnectionStatus
from jetspark.documents.configuration import changes_to_wire, merged
from jetspark.documents.document import from_wire
from jetspark.documents.requirements import Requirement, check_feature, check_stream, stream_needs
from jetspark.documents.streams import StreamConfig, StreamInfo, UnnamedStreamOptions
from jetspark.jetstream.api import Api
from jetspark.jetstream.context import JetStreamContext
from jetspark.jetstream.stream import Stream
from jetspark.jetstream.stream_requests import StreamConfigLike, naming_the_other, stream_info
from jetspark.timestamps import Seconds
from jetspark.wire import js_api
from jetspark.wire.status import status_of

if TYPE_CHECKING:
    from jetspark.wire.kernel import MessageFrame

logger = logging.getLogger("jetspark")

CHUNK: Final = 256 * 1024

LAST_STEP_TIMEOUT: Final = 3600.0
"""Seconds for the server to create the stream after all was sent."""

CLEAN_UP_TIMEOUT: Final = 20.0
"""Seconds after a failure to get a new link, and for the server to give up the attempt."""

STALL_TIMEOUT: Final = 5.0
"""Seconds without an answer before cleaning up continues over a new link."""

_WINDOW: Final = 8
# A server before 2.12 that fails with more chunks on their way blocks the connection for ever.
_SMALL_WINDOW: Final = 2
_NO_ARCHIVE: Final = b"no archive"
_RESTORED: Final = js_api.Call(js_api.STREAM_RESTORE.template, js_api.STREAM_CREATE.answer)
_DYNAMIC: Final = "_nats."  # metadata that the server adds to its answers


class RestoreCalls(JetStreamContext):
    """The call of JetStream that restores streams."""

    async def restore_stream(
        self,
        folder: str | os.PathLike[str],
        config: StreamConfigLike | None = None,
        /,
        *,
        progress: ProgressCallback | None = None,
        timeout: Seconds | None = None,
        **options: Unpack[UnnamedStreamOptions],
    ) -> Stream:
        """Restore a stream from a backup, with its messages, sequences, times and consumers.

        `config` and `options` (fields of StreamConfig) override the backup's configuration, and
        None removes a field: replicas, placement, subjects, limits; the name cannot change.
        `progress` is called with a BackupProgress now and then; the restore waits for it, and ends
        with any exception that it raises. `timeout`: seconds for the server to begin
        (default: 60, or the context's timeout if longer). A warning in the log counts the messages
        that the backup lacks (`StreamBackup.removed`).

        When it fails or is interrupted, it deletes the part that the server restored, within 20 s.
        The error has a note (`__notes__`) when that was not possible, or when everything was sent
        already. A killed process leaves that part on servers from 2.15 on.

        Raises ConfigError when the folder is not a backup, BackupError when it is damaged or the
        transfer fails, NameInUseError when the stream exists (its `restored` is true when that has
        all of the backup), UnsupportedByServerError for a backup that needs a newer server,
        APIError when the server refuses.

        Example:
            ```python
            await js.backup_stream("ORDERS", "backups/orders")
            await js.delete_stream("ORDERS")
            stream = await js.restore_stream("backups/orders", max_msgs=1000)
            print(stream.cached_info.state.messages)  # 3
            ```
        """
        timeout_seconds = start_timeout(self.api, timeout, ANSWER_TIMEOUT)
        backup = await asyncio.to_thread(verify_backup, folder)
        name = backup.stream
        if backup.removed:
            logger.warning("%s", removed_sentence(name, backup.state.messages, backup.messages))
        wire, needs = self._config(backup, config, options)
        request = {"config": wire, "state": backup.document["state"]}
        left_over = LeftOver(self.api, backup, wire)
        try:
            answer = await long_call(
                self.api,
                timeout_seconds,
                "the restore",
                js_api.STREAM_RESTORE,
                request,
                name,
                needs,
            )
        except errors.NameInUseError as error:
            raise await left_over.explain_name_in_use(error) from None
        transfer = _Outgoing(self.api, backup, answer["deliver_subject"], left_over)
        try:
            last_answer = await transfer.send(progress)
            try:
                info = from_wire(
                    StreamInfo, js_api.parse_answer(_RESTORED, last_answer, {"stream": name})
                )
            except errors.APIError as error:
                raise await naming_the_other(self.api, error, wire) from None
            if info.state.last_seq < backup.state.last_seq:
                # An old server takes an archive that ends between two files for complete.
                raise errors.BackupError(
                    f"{backup.folder}: the archive ends at sequence {info.state.last_seq}, not "
                    f'at {backup.state.last_seq}; stream "{name}" was not restored.'
                )
        except errors.NameInUseError:
            raise  # not created by this restore
        except BaseException as error:
            await transfer.give_up(error)
            raise
        finally:
            transfer.close()
        return Stream(self.api, info)

    def _config(
        self, backup: StreamBackup, config: StreamConfigLike | None, options: UnnamedStreamOptions
    ) -> tuple[dict[str, Any], list[Requirement]]:
        wire = merged(backup.document["config"], changes_to_wire(StreamConfig, config, options))
        if wire.get("name") != backup.stream:
            raise errors.ConfigError(
                f'This is a backup of stream "{backup.stream}": the name cannot be changed.'
            )
        metadata = wire.pop("metadata", None) or {}
        if own_metadata := {
            key: value for key, value in metadata.items() if not key.startswith(_DYNAMIC)
        }:
            wire["metadata"] = own_metadata
        check_stream(wire, self.server_info)
        needs = stream_needs(wire)
        if backup.is_message_list:
            needs += check_feature("A backup made by 2.15", (2, 15), self.server_info)
        return wire, needs


class LeftOver:
    """The stream of one restore, which begins now; `config` is what was sent to the server."""

    def __init__(self, api: Api, backup: StreamBackup, config: dict[str, Any]) -> None:
        self._api = api
        self._backup = backup
        self._name = backup.stream
        self._config = from_wire(StreamConfig, config)
        self._began = time.monotonic()

    async def delete(self) -> str | None:
        """Delete what this restore left; returns a sentence about a stream that it did not create.

        Raises the errors of every API call.
        """
        with suppress(errors.StreamNotFoundError):
            if not self._is_of_this_restore(await stream_info(self._api, self._name)):
                return f'Stream "{self._name}" exists, and is not (or not only) of this restore.'
            await self._api.call(js_api.STREAM_DELETE, stream=self._name)
        return None

    async def explain_name_in_use(self, error: errors.NameInUseError) -> errors.NameInUseError:
        """The error of a refused restore; says when an earlier restore may be the reason."""
        try:
            info = await stream_info(self._api, self._name)
        except errors.JetsparkError:
            return error
        state, expected, total = info.state, self._backup.state, self._backup.messages
        later = max(0, state.last_seq - expected.last_seq)  # at most those published since
        stored = state.messages - later
        same_start = (state.first_seq, state.first_ts) == (expected.first_seq, expected.first_ts)
        same_end = (state.last_seq, state.last_ts) == (expected.last_seq, expected.last_ts)
        if not total or not self._has_same_shape(info):
            return error
        restored = stored >= total and (same_start or same_end)
        if not restored and (later or same_end or (state.messages and not same_start)):
            return error
        content = (
            f"{stored:,} of the backup's {total:,} messages: unless a restore is running, an "
            "interrupted one may have left it. Then delete it, and restore again."
        )
        if restored:
            missing = state.consumer_count < expected.consumer_count
            advice = "look whether a consumer is missing" if missing else "nothing needs to be done"
            content = f"all {total:,} messages of the backup: {advice}."
            restored = not missing
        sentence = f'Stream "{self._name}" exists already, and has {content}'
        explained = type(error)(error.code, error.err_code, error.description, sentence)
        explained.restored = restored
        return explained

    async def describe_if_complete(self) -> str | None:
        """Describe the stream if it reaches the backup's end. Raises as every API call."""
        state = (await stream_info(self._api, self._name)).state
        if state.last_seq < self._backup.state.last_seq:
            return None
        return f"{state.messages:,} messages up to sequence {state.last_seq:,}"

    def _is_of_this_restore(self, info: StreamInfo) -> bool:
        state, expected = info.state, self._backup.state
        if not self._has_same_shape(info):
            return False
        if not state.messages or state.first_ts is None or state.last_ts is None:
            return not state.messages
        # By the server's clock, which gave the messages their times.
        server_time = info.ts or datetime.now(UTC)
        began = server_time - timedelta(seconds=time.monotonic() - self._began)
        oldest = expected.first_ts or state.first_ts
        return (
            state.first_seq >= expected.first_seq
            and oldest <= state.first_ts <= state.last_ts < began
        )

    def _has_same_shape(self, info: StreamInfo) -> bool:
        def shape(config: StreamConfig) -> tuple[object, ...]:
            subjects = sorted(config.subjects or ())
            mirrors = (config.mirror is not None, len(config.sources or ()))
            return subjects, config.retention, config.storage, config.description or "", mirrors

        return shape(info.config) == shape(self._config)


class _Outgoing(Transfer):
    """Sends the archive to the server."""

    def __init__(self, api: Api, backup: StreamBackup, subject: str, left_over: LeftOver) -> None:
        self._left_over = left_over
        self._backup = backup
        self._stream = backup.stream
        self._subject = subject
        self._on_way = 0
        self._last = False
        self._answer: bytes | None = None
        server = api.server
        new = server is not None and server.at_least(2, 12)
        self._window = _WINDOW if new else _SMALL_WINDOW
        super().__init__(api.client)

    async def send(self, progress: ProgressCallback | None) -> bytes:
        """Send the whole archive; returns the server's last answer."""
        backup = self._backup
        size = min(CHUNK, self._client.max_payload)
        sent = 0
        with backup.archive.open("rb") as file:
            while piece := await asyncio.to_thread(file.read, size):
                await self._wait(lambda: self._on_way < self._window)
                if self._answer is not None:
                    return self._answer  # a refusal; the caller reads it
                await self._publish(piece)
                self._on_way += 1
                sent += len(piece)
                sent_of_archive = min(sent, backup.size)
                await report(progress, BackupProgress(sent_of_archive, backup.size, sent))
        await self._wait(lambda: not self._on_way)
        if self._answer is None:
            self._last = True
            await self._publish(b"")
            await self._wait_for_end()
        assert self._answer is not None  # noqa: S101
        return self._answer

    async def give_up(self, error: BaseException) -> None:
        """After an error, delete a partial stream; after the last step, say what may exist."""
        all_sent = self._last and self._answer is None
        if all_sent and isinstance(error, errors.JetsparkError):
            return  # whose message says so already
        if all_sent:
            error.add_note(
                f'Everything was sent, and the server may still create stream "{self._stream}": '
                f"check later whether it reaches sequence {self._backup.state.last_seq:,}."
            )
            return
        note: str | None = (
            f'Stream "{self._stream}" may be there with a part of its '
            f"{self._backup.messages:,} messages: delete it before you restore again."
        )
        try:
            async with asyncio.timeout(CLEAN_UP_TIMEOUT):
                while not await self._server_has_given_up():
                    await self._client.force_reconnect()
                note = await self._left_over.delete()
        except asyncio.CancelledError as cancelled:
            error = cancelled  # again: the caller sees this one
            raise
        except (errors.JetsparkError, TimeoutError):
            pass
        finally:
            if note is not None:
                error.add_note(note)

    async def _server_has_given_up(self) -> bool:
        """Send invalid bytes and the end. False: the link is silent."""
        while not self._client.is_connected:
            if self._client.status is ConnectionStatus.CLOSED:
                raise errors.ConnectionClosedError
            await self._heard(None)
        if self._answer is not None:
            return True
        for piece in (_NO_ARCHIVE, b""):
            try:
                reply = await self._client.request(self._subject, piece, timeout=STALL_TIMEOUT)
            except errors.NoRespondersError:
                return True
            except errors.RequestTimeoutError:
                return False
            if reply.data:
                return True
        return True

    async def _publish(self, piece: bytes) -> None:
        await self._client.publish(self._subject, piece, reply=self.inbox)

    async def _wait(self, enough: Callable[[], bool]) -> None:
        """Wait for enough room or an answer. Raises the error that ended the transfer."""
        while self._error is None and self._answer is None and not enough():
            if not await self._heard(SILENCE_TIMEOUT):
                raise self._silent(SILENCE_TIMEOUT)
        if self._answer is None and self._error is not None:
            raise self._error

    async def _wait_for_end(self) -> None:
        """Wait for the last answer: the server may take long to create a large stream."""
        silence = 0.0
        while self._error is None and self._answer is None:
            if await self._heard(SILENCE_TIMEOUT):
                continue
            content = None
            with suppress(errors.JetsparkError):
                content = await self._left_over.describe_if_complete()
            silence += SILENCE_TIMEOUT
            if self._answer is None and (content is not None or silence >= LAST_STEP_TIMEOUT):
                raise self._silent(silence, content)
        await self._wait(lambda: True)  # raises the error

    def _silent(self, seconds: float, content: str | None = None) -> errors.BackupError:
        but = f", but the stream exists with {content}: check that its consumers do, too"
        return errors.BackupError(
            f'The server has sent nothing about the restore of stream "{self._stream}" '
            f"for {seconds:g} s{but if content else ''}."
        )

    def _on_frame(self, frame: MessageFrame) -> None:
        if status_of(frame.headers) is not None:
            self._fail(f'The server gave up the restore of stream "{self._stream}".')
        elif frame.payload.startswith(b"{"):
            self._answer = frame.payload
        elif frame.payload:  # -ERR of servers before 2.12
            text = frame.payload.decode("utf-8", "replace")
            self._finish(
                errors.APIError(500, 0, text, f'Stream "{self._stream}" not restored: {text}.')
            )
        else:
            self._on_way -= 1
        self._news.set()

    def _on_disconnect(self) -> None:
        if self._last:
            self._fail(
                f'The connection was lost while the server created stream "{self._stream}": '
                f"check whether it exists and reaches sequence {self._backup.state.last_seq}."
            )
        else:
            self._fail(f'The connection was lost during the restore of stream "{self._stream}".')
