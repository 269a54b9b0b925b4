"""Shared by atomic batches and fast ingest: the checks of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetspark.errors import ConfigError
from jetspark.jetstream.publishing.headers import TimeToLive, publish_headers

if TYPE_CHECKING:
    from jetspark.client.listener import Listener
    from jetspark.client.publishing import Publishing
    from jetspark.jetstream.api import Api
    from jetspark.wire.documents import ServerInfo
    from jetspark.wire.headers import Headers, HeadersLike


class BatchSending:
    """`publishing`: how messages are sent. `timeout`: seconds; ConfigError when it cannot work."""

    def __init__(self, api: Api, publishing: Publishing, timeout: float) -> None:
        if not timeout > 0:
            raise ConfigError("timeout must be more than 0 seconds.")
        self.client = api.client
        self.publishing = publishing
        self.outbox = publishing.outbox
        self.timeout = timeout
        self._api = api
        self._listener: Listener | None = None

    @property
    def server(self) -> ServerInfo | None:
        """The server that answers; None when that is not known."""
        return self._api.server

    def headers(
        self,
        headers: HeadersLike | None,
        msg_id: str | None,
        ttl: TimeToLive | None,
        expect_last_seq: int | None,
        expect_last_subject_seq: int | None,
        expect_last_subject_seq_of: str | None,
    ) -> Headers | None:
        """The headers of a message with these options of `add`. Raises as `publish_headers`."""
        if (
            headers is None
            and msg_id is None
            and ttl is None
            and expect_last_seq is None
            and expect_last_subject_seq is None
            and expect_last_subject_seq_of is None
        ):
            return None  # most messages: a call less
        return publish_headers(
            self.server,
            headers,
            msg_id=msg_id,
            ttl=ttl,
            expect_last_seq=expect_last_seq,
            expect_last_subject_seq=expect_last_subject_seq,
            expect_last_subject_seq_of=expect_last_subject_seq_of,
        )

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
