"""A consumer played by a script: what real servers say too rarely to wait for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Self

from tests.support.raw_client import RawClient

from jetspark.client.messages import Message
from jetspark.documents.consumers import ConsumerInfo
from jetspark.documents.document import Timestamp
from jetspark.full_client import Client, JetStream
from jetspark.jetstream import PullConsumer
from jetspark.jetstream.api import Api
from jetspark.wire import frames

_INFO = {
    "type": "io.nats.jetstream.api.v1.consumer_info_response",
    "stream_name": "S",
    "name": "c",
    "created": "2026-01-01T00:00:00Z",
    "config": {"ack_policy": "explicit"},
    "delivered": {"consumer_seq": 0, "stream_seq": 0},
    "ack_floor": {"consumer_seq": 0, "stream_seq": 0},
    "num_pending": 0,
}


class ScriptedConsumer:
    """Answers each pull with the next of `scripts`: integers are messages, texts are statuses.

    `requests` are the pulls that came; `exists` is what the API says of the consumer.
    """

    def __init__(self, nc: Client, url: str, prefix: str, *scripts: list[int | str]) -> None:
        self._nc = nc
        self._url = url
        self._prefix = prefix
        self._scripts = list(scripts)
        self.requests: list[dict[str, Any]] = []
        self.inboxes: list[str] = []
        self.exists = True
        self.on_request: Callable[[], None] = lambda: None
        info = ConsumerInfo(stream_name="S", name="c", created=Timestamp.from_ns(0))
        self.js = JetStream(nc, api_prefix=prefix, timeout=5)
        self.consumer = PullConsumer(Api(nc, api_prefix=prefix, timeout=5), info)

    async def __aenter__(self) -> Self:
        # Blocking, but it only writes a few bytes to the loopback.
        self._raw = RawClient(self._url)
        self._pulls = self._nc.subscribe(
            f"{self._prefix}.CONSUMER.MSG.NEXT.S.c", callback=self._on_pull
        )
        self._infos = self._nc.subscribe(
            f"{self._prefix}.CONSUMER.INFO.S.c", callback=self._on_info
        )
        await self._nc.flush()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._raw.close()

    def say(self, inbox: str, *script: int | str) -> None:
        for one in script:
            if isinstance(one, int):
                reply = f"acked.{one}"  # the server takes no $JS.ACK from clients
                self._raw.send(frames.pub(inbox, b"%d" % one, reply))
            else:
                self._raw.send(frames.hpub(inbox, b"NATS/1.0 %b\r\n\r\n" % one.encode(), b""))

    async def _on_pull(self, msg: Message) -> None:
        self.requests.append(json.loads(msg.data))
        assert msg.reply is not None
        self.inboxes.append(msg.reply)
        script = self._scripts.pop(0) if self._scripts else []
        self.say(msg.reply, *script)
        self.on_request()

    async def _on_info(self, msg: Message) -> None:
        gone = {"code": 404, "err_code": 10014, "description": "consumer not found"}
        answer = _INFO if self.exists else {"type": _INFO["type"], "error": gone}
        await msg.respond(json.dumps(answer).encode())
