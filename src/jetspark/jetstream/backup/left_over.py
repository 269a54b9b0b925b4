"""What a restore that was interrupted has left on the server.

Server 2.15 creates the stream at the first bytes of the archive and keeps it with the messages that
came, whatever happens then; 2.12 to 2.14 may create it when the sender stops. Contract: only a
stream that this restore has made is deleted. One that has another shape, messages from before the
backup or messages from after the restore began is somebody else's, or somebody uses it.
"""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from jetspark.errors import JetsparkError, NameInUseError, StreamNotFoundError
from jetspark.jetstream.api import Api
from jetspark.jetstream.backup.folder import StreamBackup
from jetspark.jetstream.documents import StreamConfig, StreamInfo
from jetspark.jetstream.documents.document import from_wire
from jetspark.jetstream.streams.info import stream_info
from jetspark.wire import js_api

_DONE = "nothing needs to be done."


class LeftOver:
    """The stream of one restore, which begins now; `config` is what the server was sent."""

    def __init__(self, api: Api, backup: StreamBackup, config: dict[str, Any]) -> None:
        self._api = api
        self._backup = backup
        self._name = backup.stream
        self._config = from_wire(StreamConfig, config)
        self._began = time.monotonic()

    async def delete(self) -> str | None:
        """Delete what this restore has left; a sentence about a stream that it has not made.

        Raises as every API call.
        """
        with contextlib.suppress(StreamNotFoundError):
            if not self._is_ours(await stream_info(self._api, self._name)):
                return (
                    f'There is a stream "{self._name}" that this restore has not made, '
                    "or not alone."
                )
            await self._api.call(js_api.STREAM_DELETE, stream=self._name)
        return None

    async def explained(self, error: NameInUseError) -> NameInUseError:
        """The error of a restore that was refused, when an earlier one may be the reason."""
        try:
            info = await stream_info(self._api, self._name)
        except JetsparkError:
            return error
        if (what := self._has_of_backup(info)) is None:
            return error
        told = NameInUseError(
            error.code,
            error.err_code,
            error.description,
            f'Stream "{self._name}" exists already, and has {what}',
        )
        told.restored = what.endswith(_DONE)
        return told

    def _has_of_backup(self, info: StreamInfo) -> str | None:
        """What the stream has of the backup; None for a stream of somebody else."""
        there, whole, total = info.state, self._backup.state, self._backup.messages
        if not total or not self._has_same_shape(info):
            return None
        same_start = (there.first_seq, there.first_ts) == (whole.first_seq, whole.first_ts)
        same_end = (there.last_seq, there.last_ts) == (whole.last_seq, whole.last_ts)
        later = max(0, there.last_seq - whole.last_seq)  # published since, at most
        has = there.messages - later
        if (same_start or same_end) and has >= total:
            if there.consumer_count < whole.consumer_count:
                return (
                    f"all {total:,} messages of the backup, but {there.consumer_count:,} of the "
                    f"{whole.consumer_count:,} consumers that there were: look whether one is "
                    "missing."
                )
            return f"all {total:,} messages of the backup: {_DONE}"
        if same_end:  # what is left of a restore has no end
            return f"{has:,} of the backup's {total:,} messages: the others were removed from it."
        if later or (there.messages and not same_start):
            return None
        return (
            f"{has:,} of the backup's {total:,} messages: if no restore into it is running, it "
            "may be left of one that was interrupted; delete it then, and restore again."
        )

    async def whole(self) -> str | None:
        """What the stream has, if it reaches the end of the backup.

        Raises as every API call.
        """
        state = (await stream_info(self._api, self._name)).state
        if state.last_seq < self._backup.state.last_seq:
            return None
        return f"{state.messages:,} messages up to sequence {state.last_seq:,}"

    @property
    def may_come(self) -> str:
        """The sentence for when all was sent, and the stream is not there, or not found out."""
        return (
            f'All was sent, and the server may still create stream "{self._name}": look in a '
            f"while whether it reaches sequence {self._backup.state.last_seq:,}."
        )

    @property
    def suspicion(self) -> str:
        """The sentence for when nothing could be done, or found out."""
        return (
            f'Stream "{self._name}" may be there with a part of its '
            f"{self._backup.messages:,} messages: delete it before you restore again."
        )

    def _is_ours(self, info: StreamInfo) -> bool:
        state, whole = info.state, self._backup.state
        if not self._has_same_shape(info):
            return False
        if not state.messages or state.first_ts is None or state.last_ts is None:
            return not state.messages
        # By the server's clock, which gave the messages their times.
        now = info.ts or datetime.now(UTC)
        began = now - timedelta(seconds=time.monotonic() - self._began)
        oldest = whole.first_ts or state.first_ts
        return (
            state.first_seq >= whole.first_seq and oldest <= state.first_ts <= state.last_ts < began
        )

    def _has_same_shape(self, info: StreamInfo) -> bool:
        def shape(config: StreamConfig) -> tuple[object, ...]:
            subjects = sorted(config.subjects or ())
            mirrors = (config.mirror is not None, len(config.sources or ()))
            return subjects, config.retention, config.storage, config.description or "", mirrors

        return shape(info.config) == shape(self._config)
