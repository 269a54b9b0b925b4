"""A durable consumer that marks a query's position, and from which no message is read.

It is moved by CONSUMER.RESET (nats-server 2.14), or deleted and recreated on older servers, which
refuse acks of messages that were never delivered. Its description distinguishes it from another
consumer of the same name, which is not touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jetspark.bulk.stream_api import StreamAPI
from jetspark.errors import ConfigError
from jetspark.wire import js_api


class StandingConsumer:
    """The consumer of a name in one stream. Every method raises as `StreamAPI.call`."""

    def __init__(
        self, api: StreamAPI, stream: str, name: str, *, option: str, description: str
    ) -> None:
        """`option`: the user's option that gave the name."""
        self._api = api
        self._names = {"stream": stream, "consumer": name}
        self._option = option
        self._description = description

    def position(self) -> int | None:
        """The sequence that it would deliver next; None if there is no such consumer.

        Raises ConfigError for a consumer of this name that was not created for this purpose.
        """
        info = self._api.consumer(self._names["stream"], self._names["consumer"])
        if info is None:
            return None
        if info["config"].get("description") != self._description:
            raise ConfigError(
                f"The consumer {self._names['consumer']!r} of stream {self._names['stream']!r} has "
                f"another purpose: give another name in the option {self._option!r}."
            )
        return int(info["delivered"]["stream_seq"]) + 1

    def make(self, sequence: int | None = None, subjects: Sequence[str] = ()) -> None:
        """Create it, to deliver from a sequence on; None: from the beginning of the stream."""
        config: dict[str, Any] = {
            "name": self._names["consumer"],
            "durable_name": self._names["consumer"],
            "description": self._description,
            "ack_policy": "explicit",
            "deliver_policy": "all",
            "replay_policy": "instant",
        }
        if sequence is not None:
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": sequence}
        self._api.create_consumer(self._names["stream"], config, subjects)

    def reset(self, sequence: int) -> None:
        """Move it to a sequence. Call `position` before: without a consumer this times out."""
        self._api.call(js_api.CONSUMER_RESET, {"seq": sequence}, **self._names)

    def delete(self) -> None:
        """Delete it, if it exists."""
        self._api.delete_reader(self._names["stream"], self._names["consumer"])
