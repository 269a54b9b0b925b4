"""One stream: its information, configuration, messages and consumers.

Contract: a handle is cheap, needs no closing, and holds nothing of the server but `cached_info`.
Any number of handles may name the same stream.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Self, Unpack

import jetspark.errors as errors
from jetspark.documents.configuration import given
from jetspark.documents.requirements import check_feature
from jetspark.documents.streams import StreamInfo, UnnamedStreamOptions
from jetspark.jetstream.consumers import ConsumerCalls
from jetspark.jetstream.counters import CounterCalls
from jetspark.jetstream.ordered import OrderedCalls
from jetspark.jetstream.schedules import ScheduleCalls
from jetspark.jetstream.stream_requests import (
    StreamConfigLike,
    change_peer,
    checked_config,
    step_down,
    to_stream_info,
    update_config,
)
from jetspark.subjects import check_subscribe_subject
from jetspark.validation import check_sequence, check_whole
from jetspark.wire import js_api
from jetspark.wire.js_api import SubjectPages


class Stream(ConsumerCalls, OrderedCalls, CounterCalls, ScheduleCalls):
    """A stream, as `JetStream.create_stream` and `JetStream.stream` return it.

    Await it to ask the server for its `info`; the result is the handle itself. Its calls raise
    StreamNotFoundError, and the errors of every API call (see `JetStream`).

    Example:
        ```python
        stream = await js.stream("ORDERS")
        await stream.update(max_msgs=1000)
        print((await stream.get(1)).data)  # b'1 apple'
        consumer = await stream.create_consumer(name="worker")
        ```
    """

    def __await__(self) -> Generator[Any, None, Self]:
        return self._checked().__await__()

    async def _checked(self) -> Self:
        await self.info()
        return self

    async def info(
        self, *, deleted_details: bool = False, subjects_filter: str | None = None
    ) -> StreamInfo:
        """Configuration and state of the stream as it is now.

        `deleted_details`: list the deleted sequences. `subjects_filter`: count the messages of each
        matching subject (">" for all), in as many pages as that takes. Raises BadSubjectError.
        """
        if subjects_filter is not None:
            check_subscribe_subject(subjects_filter)
        request = given(deleted_details=deleted_details or None, subjects_filter=subjects_filter)
        answer = await self._api.call(js_api.STREAM_INFO, request or None, stream=self.name)
        pages = SubjectPages()
        page = answer
        while subjects_filter is not None and not pages.add(page):
            page = await self._api.call(
                js_api.STREAM_INFO, {**request, "offset": pages.offset}, stream=self.name
            )
        if pages.counts:
            answer["state"]["subjects"] = pages.counts
        self._info = to_stream_info(answer)
        return self._info

    async def update(
        self, config: StreamConfigLike | None = None, /, **options: Unpack[UnnamedStreamOptions]
    ) -> StreamInfo:
        """Change the stream. Options that are not given keep their values; None removes one.

        It reads the current configuration first, so one of two concurrent updates may undo the
        other. Raises ConfigError, also for the name of another stream, UnsupportedByServerError.

        Example:
            ```python
            info = await js.stream("ORDERS").update(max_age=3600)
            print(info.config.max_age)  # 1:00:00
            ```
        """
        wire = checked_config(self._api, config, options)
        if wire.get("name", self.name) != self.name:
            raise errors.ConfigError(f'A stream cannot be renamed: this is "{self.name}".')
        self._info = await update_config(self._api, self.name, wire)
        return self._info

    async def purge(
        self, *, filter: str | None = None, keep: int | None = None, seq: int | None = None
    ) -> int:
        """Delete all messages or some; returns how many.

        `filter`: only those of matching subjects. `keep`: keep so many of the last ones. `seq`:
        only those before this sequence. Raises ConfigError for both `keep` and `seq`, and for less
        than 1, BadSubjectError.

        Example:
            ```python
            print(await js.stream("ORDERS").purge(filter="orders.eu"))  # 2
            ```
        """
        if keep is not None and seq is not None:
            raise errors.ConfigError("Give either keep or seq, not both.")
        if filter is not None:
            check_subscribe_subject(filter)
        # To the server, 0 is "not given": purge everything.
        if keep is not None:
            check_whole("keep", keep)
        if seq is not None:
            check_sequence("seq", seq)
        if seq == 1:  # nothing is before 1, but servers before 2.14 would purge everything
            await self.info()
            return 0
        body = given(filter=filter, keep=keep, seq=seq)
        answer = await self._api.call(js_api.STREAM_PURGE, body, stream=self.name)
        purged: int = answer.get("purged", 0)
        return purged

    async def step_down_leader(self, *, preferred: str | None = None) -> None:
        """Make the stream's leader step down; `preferred` names the next one (server 2.11).

        Raises APIError on a server that is not clustered, UnsupportedByServerError.
        """
        await step_down(self._api, js_api.STREAM_LEADER_STEPDOWN, preferred, stream=self.name)

    async def evacuate_peer(self, peer: str) -> None:
        """Move the replica of the server named `peer` to another server (server 2.15).

        The replicas of consumers move with it. Returns when the move is ordered; `cluster` of
        `info` shows how far it is. Raises ClusterPeerNotMemberError for a server without a replica,
        PeerRemapError when no other server can take it, ClusterRequiredError on a server that is
        not clustered, UnsupportedByServerError.
        """
        await change_peer(self._api, js_api.STREAM_PEER_EVACUATE, peer, stream=self.name)

    async def remove_peer(self, peer: str) -> None:
        """Drop the replica of the server named `peer`, and make one on another server.

        For a server that is lost: the new replica is copied from the others, so that the messages
        of a stream with a single replica are lost. Raises the errors of `evacuate_peer`.
        """
        await change_peer(self._api, js_api.STREAM_PEER_REMOVE, peer, stream=self.name)

    async def cancel_move(self) -> StreamInfo:
        """Undo an update of replicas, placement or retention that is in progress (server 2.15).

        The stream gets its earlier configuration and servers again. An evacuation cannot be undone.
        Raises StreamReconfigureNotInProgressError when nothing is in progress,
        ClusterRequiredError on a server that is not clustered, UnsupportedByServerError.
        """
        needs = check_feature("cancel_move", (2, 15), self._api.server)
        answer = await self._api.call(js_api.STREAM_CANCEL_MOVE, None, needs, stream=self.name)
        self._info = to_stream_info(answer)
        return self._info

    def __repr__(self) -> str:
        return f"Stream({self.name!r})"
