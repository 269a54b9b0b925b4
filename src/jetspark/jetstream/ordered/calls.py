"""The call that makes an ordered consumer (ADR-17); `ordered.ordered` says what it promises."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from jetspark.arguments import checked
from jetspark.errors import ConfigError
from jetspark.jetstream.api import Api
from jetspark.jetstream.documents.configuration import config_to_wire
from jetspark.jetstream.documents.consumers import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    ReplayPolicy,
)
from jetspark.jetstream.ordered.ordered import OrderedMessages
from jetspark.jetstream.pulling.consume import JsMsgCallback
from jetspark.jetstream.pulling.consume_options import EXPIRES, make_consume_options
from jetspark.jetstream.requirements import check_consumer
from jetspark.kinds import StreamSequence
from jetspark.subjects import check_name, check_subscribe_subject
from jetspark.timestamps import Seconds, as_timedelta

HEARTBEAT = 5.0
INACTIVE_THRESHOLD = timedelta(minutes=5)


@checked
class OrderedCalls:
    """The call of JetStream that makes an ordered consumer."""

    _api: Api

    def ordered(
        self,
        stream: str,
        *,
        subjects: str | Sequence[str] | None = None,
        deliver_policy: str | None = None,
        start_seq: StreamSequence | None = None,
        start_time: datetime | None = None,
        headers_only: bool = False,
        replay_policy: str = ReplayPolicy.INSTANT,
        name_prefix: str | None = None,
        callback: JsMsgCallback | None = None,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        expires: Seconds = EXPIRES,
        heartbeat: Seconds = HEARTBEAT,
        inactive_threshold: Seconds = INACTIVE_THRESHOLD,
    ) -> OrderedMessages:
        """A stream in order, without a gap and without acks: iterate it, or give a callback.

        `subjects`: only matching ones; several need server 2.10. `deliver_policy`: a
        DeliverPolicy, default "all"; or `start_seq` or `start_time` instead. `headers_only`:
        without payloads; their sizes are in the header Nats-Msg-Size. `replay_policy`: "original"
        keeps the pace of publishing. `name_prefix`: the consumers are called after it, an
        underscore and a random number, for those who look at the stream's consumers.

        It buffers: up to `max_messages` messages (default: 500, and up to 8,000 for a quick
        reader), or `max_bytes` bytes, are received or requested ahead. `expires`: seconds that a
        pull request may wait at the server. `heartbeat`: seconds between the server's heartbeats;
        when none comes for twice as long, the consumer is recreated. `inactive_threshold`: how long
        the server keeps the consumer of a reader that is gone.

        Nothing is sent before the first message is wanted, except with a callback. Raises
        ConfigError, BadNameError, BadSubjectError, UnsupportedByServerError; how it ends: see
        `jetspark.jetstream.ordered.ordered`.
        """
        check_name("stream", stream)
        if name_prefix is not None:
            check_name("consumer", name_prefix)
        config = _config(
            subjects=subjects,
            deliver_policy=deliver_policy,
            start_seq=start_seq,
            start_time=start_time,
            headers_only=headers_only or None,
            replay_policy=replay_policy,
            inactive_threshold=as_timedelta(inactive_threshold),
        )
        check_consumer(config, self._api.server)
        limits = make_consume_options(
            ConsumerConfig(),
            max_messages=max_messages,
            max_bytes=max_bytes,
            expires=expires,
            heartbeat=heartbeat,
        )
        return OrderedMessages(self._api, stream, config, limits, callback, name_prefix)


def _config(
    *,
    subjects: str | Sequence[str] | None,
    deliver_policy: str | None,
    start_seq: StreamSequence | None,
    start_time: datetime | None,
    **options: Any,
) -> dict[str, Any]:
    """The configuration of the first consumer, as a wire document. Raises ConfigError."""
    if [deliver_policy, start_seq, start_time].count(None) < 2:
        raise ConfigError("Give one of deliver_policy, start_seq and start_time.")
    if start_seq is not None:
        deliver_policy = DeliverPolicy.BY_START_SEQUENCE
    elif start_time is not None:
        deliver_policy = DeliverPolicy.BY_START_TIME
    elif deliver_policy in (DeliverPolicy.BY_START_SEQUENCE, DeliverPolicy.BY_START_TIME):
        raise ConfigError("Give start_seq or start_time instead of this deliver_policy.")
    filters = [subjects] if isinstance(subjects, str) else list(subjects or ())
    if subjects is not None and not filters:
        raise ConfigError("subjects is empty: leave it out to read all of them.")
    for subject in filters:
        check_subscribe_subject(subject)
    if not filters and deliver_policy == DeliverPolicy.LAST_PER_SUBJECT:
        filters = [">"]  # required by this policy
    if len(filters) == 1:
        options["filter_subject"] = filters[0]
    elif filters:
        options["filter_subjects"] = filters
    return config_to_wire(
        ConsumerConfig,
        None,
        {
            **options,
            "deliver_policy": deliver_policy or DeliverPolicy.ALL,
            "opt_start_seq": start_seq,
            "opt_start_time": start_time,
            "ack_policy": AckPolicy.NONE,
            "max_deliver": 1,
            "mem_storage": True,
            "num_replicas": 1,
        },
    )
