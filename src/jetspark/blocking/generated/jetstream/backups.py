# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: backups."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from jetspark.blocking.jetstream.backup import ProgressCallback, transfer
from jetspark.blocking.loop_thread import LoopThread
from jetspark.full_client import JetStream as AsyncJetStream
from jetspark.jetstream.backup.folder import StreamBackup
from jetspark.jetstream.documents import StreamInfo
from jetspark.jetstream.streams.calls import StreamConfigLike


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
    ) -> StreamBackup:
        """Save a stream with all it holds in a folder, as `nats stream backup` does.

        `folder` must not exist yet, or be empty; it appears when the backup is complete.
        `consumers`: save them too, with their positions. `check`: the server first verifies every
        message's checksum (servers before 2.15; newer ones always do). `chunk_size`, `window_size`:
        bytes of a message and of all that are on their way (server's defaults: 128 KiB, 8 MiB; the
        window from 2.12 on). `progress` is called in the caller's thread with a BackupProgress now
        and then; the backup waits for it, and what it raises ends the backup.

        Raises ConfigError for a folder in use, StreamNotFoundError, BackupError when the transfer
        or the disk fails, APIError when the server refuses (streams in memory before 2.15).
        Nothing is left behind then.
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
        **options: Any,
    ) -> StreamInfo:
        """Make a stream again from a backup, with its messages, sequences, times and consumers.

        `config` and `options` (fields of StreamConfig) win over the configuration in the backup:
        replicas, placement, subjects, limits; the name cannot change. `progress` is called in the
        caller's thread with a BackupProgress now and then; the restore waits for it, and what it
        raises ends the restore.

        Raises ConfigError for a folder that is no backup, BackupError for a damaged one and when
        the transfer fails, NameInUseError when the stream exists, APIError when the server
        refuses, UnsupportedByServerError for a backup that needs a newer server.
        """
        return transfer(
            self._thread, partial(self._inner.restore_stream, folder, config, **options), progress
        )
