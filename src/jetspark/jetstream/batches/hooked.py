"""The cores of batches that tell hooks of the messages that are added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetspark.jetstream.batches.ingesting import Ingesting
from jetspark.jetstream.batches.staging import Staging

if TYPE_CHECKING:
    from jetspark.jetstream.batches.atomic_window import BatchMessage
    from jetspark.wire.headers import Headers, HeadersLike


class HookedStaging(Staging):
    """Of an atomic batch."""

    def message(
        self, subject: str, payload: bytes, headers: HeadersLike | None, *args: Any, **options: Any
    ) -> BatchMessage:
        plain, hooked = super().message, self.publishing.hooked
        assert hooked is not None  # noqa: S101
        return hooked.send(
            subject,
            payload,
            None,
            headers,
            lambda sent: plain(subject, payload, sent, *args, **options),
        )


class HookedIngesting(Ingesting):
    """Of fast ingest."""

    def add(self, subject: str, payload: bytes, headers: Headers | None) -> int:
        plain, hooked = super().add, self.publishing.hooked
        assert hooked is not None  # noqa: S101
        return hooked.send(
            subject,
            payload,
            None,
            headers,
            lambda sent: plain(subject, payload, sent),
        )
