# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: backups."""

from __future__ import annotations

import os
from functools import partial
from typing import Unpack

from jetspark.blocking.jetstream.backup import ProgressCallback, transfer
from jetspark.blocking.loop_thread import LoopThread
from jetspark.documents.streams import StreamInfo, UnnamedStreamOptions
from jetspark.full_client import JetStream as AsyncJetStream
from jetspark.jetstream.backup import StreamBackup
from jetspark.jetstream.streams import StreamConfigLike
from jetspark.timestamps import Seconds


class GeneratedBackupCalls:
    """The calls of `BackupCalls` that hand on to its asyncio twin."""

    _thread: LoopThread
    _inner: AsyncJetStream

    def backup_stream(
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
        on). `progress` is called in the caller's thread with a BackupProgress now and then; the
        backup waits for it, and an exception of it ends the backup. `timeout`: seconds for the
        server to begin, which takes long for a large stream (default: 60, with `check` 600, or the
        context's timeout if that is longer).

        Messages that are removed from the stream meanwhile may be missing: `StreamBackup.removed`
        says how many, and so does a warning in the log.

        Raises ConfigError for a folder in use, StreamNotFoundError, BackupError when the transfer
        or the disk fails, APIError when the server refuses (streams in memory before 2.15), and as
        every API call (see `JetStream`). Then nothing is left behind.
        """
        return transfer(
            self._thread,
            partial(
                self._inner.backup_stream,
                name,
                folder,
                consumers=consumers,
                check=check,
                chunk_size=chunk_size,
                window_size=window_size,
                timeout=timeout,
            ),
            progress,
        )

    def restore_stream(
        self,
        folder: str | os.PathLike[str],
        config: StreamConfigLike | None = None,
        /,
        *,
        progress: ProgressCallback | None = None,
        timeout: Seconds | None = None,
        **options: Unpack[UnnamedStreamOptions],
    ) -> StreamInfo:
        """Restore a stream from a backup, with its messages, sequences, times and consumers.

        `config` and `options` (fields of StreamConfig) override the backup's configuration:
        replicas, placement, subjects, limits; the name cannot change. `progress` is called in the
        caller's thread with a BackupProgress now and then; the restore waits for it, and an
        exception of it ends the restore. `timeout`: seconds for the server to begin (default: 60,
        or the context's timeout if that is longer). Messages that the backup lacks
        (`StreamBackup.removed`) are told in a warning in the log.

        When it fails or is interrupted, the part that the server has restored is deleted, within
        20 s; the error has a note (`__notes__`) when that was not possible, or when all was sent
        already. A process that is killed leaves that part on servers from 2.15 on.

        Raises ConfigError when the folder is not a backup, BackupError when it is damaged or the
        transfer fails, NameInUseError when the stream exists, UnsupportedByServerError for a
        backup that needs a newer server, APIError when the server refuses, and as every API call
        (see `JetStream`).
        """
        return transfer(
            self._thread,
            partial(self._inner.restore_stream, folder, config, timeout=timeout, **options),
            progress,
        )
