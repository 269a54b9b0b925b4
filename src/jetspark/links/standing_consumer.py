"""A durable consumer that marks a query's position in a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jetspark.errors as errors
from jetspark.links.stream_api import StreamAPI
from jetspark.wire import js_api


class StandingConsumer:
    """A durable consumer that marks a query's position for the server, and delivers nothing.

    Monitoring can see there how far the query is. CONSUMER.RESET moves it (nats-server 2.14); an
    older server refuses acks of undelivered messages, so there it is deleted and recreated. Its
    description distinguishes it from another consumer of the same name, which stays untouched.
    Every method raises the errors of `StreamAPI.call`.
    """

    def __init__(
        self, api: StreamAPI, stream: str, name: str, *, option: str, description: str
    ) -> None:
        """`option`: the user's option that gave the name; `description`: the consumer's mark."""
        self._api, self._stream, self._name = api, stream, name
        self._option, self._description = option, description

    def position(self) -> int | None:
        """The sequence that the consumer would deliver next; None if there is no consumer.

        Raises ConfigError for a consumer of this name that was not created for this purpose.
        """
        info = self._api.consumer(self._stream, self._name)
        if info is None:
            return None
        if info["config"].get("description") != self._description:
            raise errors.ConfigError(
                f"The consumer {self._name!r} of stream {self._stream!r} has another purpose: give "
                f"another name in {errors.named(self._option)}."
            )
        return int(info["delivered"]["stream_seq"]) + 1

    def create(self, sequence: int | None = None, subjects: Sequence[str] = ()) -> None:
        """Create the consumer, to deliver from `sequence` on; None: from the beginning."""
        config: dict[str, Any] = {
            "name": self._name,
            "durable_name": self._name,
            "description": self._description,
            "ack_policy": "explicit",
            "deliver_policy": "all",
            "replay_policy": "instant",
        }
        if sequence is not None:
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": sequence}
        self._api.create_consumer(self._stream, config, subjects)

    def reset(self, sequence: int) -> None:
        """Move the consumer to a sequence. Without a consumer this times out: ask `position`."""
        names = {"stream": self._stream, "consumer": self._name}
        self._api.call(js_api.CONSUMER_RESET, {"seq": sequence}, **names)

    def delete(self) -> None:
        """Delete the consumer, if it exists."""
        self._api.delete_reader(self._stream, self._name)
