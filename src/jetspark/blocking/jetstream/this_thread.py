"""JetStream's publish in the caller's thread."""

from __future__ import annotations

import time

from jetspark.blocking.caller_side import CallerSide
from jetspark.documents.streams import PubAck
from jetspark.errors import NoRespondersError
from jetspark.full_client import JetStream as AsyncJetStream
from jetspark.jetstream.publisher import PublishTries, parse_pub_ack
from jetspark.payloads import Payload, payload_bytes
from jetspark.timestamps import Seconds, in_seconds
from jetspark.wire.headers import Headers


class ThisThreadCalls:
    """Part of JetStream."""

    _caller: CallerSide
    _inner: AsyncJetStream

    def _publish(
        self, subject: str, payload: Payload, headers: Headers | None, timeout: Seconds | None
    ) -> PubAck:
        """Publish and wait for the ack; retry while there is no responder (ADR-22)."""
        tries = PublishTries(
            subject, self._inner.timeout if timeout is None else in_seconds(timeout)
        )
        payload = payload_bytes(payload)  # once: every attempt sends the same bytes
        while True:
            try:
                with tries:
                    return parse_pub_ack(
                        self._caller.ask(subject, payload, tries.left, headers).payload
                    )
            except NoRespondersError:
                pause = tries.pause()
            time.sleep(pause)
