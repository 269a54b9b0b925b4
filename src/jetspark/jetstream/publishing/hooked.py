"""The core of publishers that tell hooks of their messages, each once, in its sender's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetspark.jetstream.publishing.windowed import WindowedPublishing

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.client.publishing import Publishing
    from jetspark.jetstream.api import Api
    from jetspark.jetstream.publishing.headers import TimeToLive
    from jetspark.jetstream.publishing.options import PublisherOptions
    from jetspark.jetstream.publishing.window import Told
    from jetspark.wire.headers import HeadersLike


class HookedWindowed(WindowedPublishing):
    """One that is sent again is not told again, and has the same headers."""

    def publish(
        self,
        subject: str,
        payload: bytes,
        headers: HeadersLike | None,
        msg_id: str | None,
        ttl: TimeToLive | None,
        told: Told | None,
    ) -> int:
        plain, hooked = super().publish, self._publishing.hooked
        assert hooked is not None  # noqa: S101
        return hooked.send(
            subject,
            payload,
            None,
            headers,
            lambda sent: plain(subject, payload, sent, msg_id, ttl, told),
        )


def windowed_publishing(
    api: Api, options: PublisherOptions, publishing: Publishing, changed: Callable[[], None]
) -> WindowedPublishing:
    """The core for this way of sending."""
    kind = WindowedPublishing if publishing.hooked is None else HookedWindowed
    return kind(api, options, publishing, changed)
