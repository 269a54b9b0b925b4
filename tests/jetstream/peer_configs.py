"""Configurations that every client must read and write alike: by name, with the server it needs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from jetspark.documents.consumers import ConsumerConfig
from jetspark.documents.streams import (
    ConsumerLimits,
    External,
    Republish,
    Source,
    StreamConfig,
    SubjectTransform,
)

A_TIME = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
LATER = A_TIME.replace(year=2036)

STREAMS = {
    "plain": "2.9",
    "everything": "2.14",
    "counter": "2.12",
    "schedules": "2.12",
    "async work queue": "2.12",
    "interest": "2.9",
    "rollups and closed": "2.9",
    "sources": "2.10",
    "a source of a domain": "2.9",
    "mirror": "2.9",
    "mirror of another account": "2.10",
}
"""Name to the oldest server."""


def stream_config(case: str, name: str) -> StreamConfig:
    ours = StreamConfig(name=name, subjects=[f"{name}.>"], storage="memory")
    copy = StreamConfig(name=name, storage="memory")
    match case:
        case "everything":
            return ours.replace(
                description="everything",
                retention="limits",
                max_consumers=7,
                max_msgs=1000,
                max_bytes=1_000_000,
                max_age=timedelta(hours=1, microseconds=1),
                max_msgs_per_subject=3,
                max_msg_size=10_000,
                discard="new",
                discard_new_per_subject=True,
                storage="file",
                num_replicas=1,
                duplicate_window=timedelta(seconds=30),
                compression="s2",
                first_seq=100,
                subject_transform=SubjectTransform(src=f"{name}.a", dest=f"{name}.b"),
                republish=Republish(src=f"{name}.>", dest=f"re.{name}.>", headers_only=True),
                allow_direct=True,
                deny_delete=True,
                deny_purge=True,
                consumer_limits=ConsumerLimits(
                    inactive_threshold=timedelta(minutes=1), max_ack_pending=50
                ),
                allow_msg_ttl=True,
                allow_atomic=True,
                allow_batched=True,
                metadata={"k": "v"},
            )
        case "counter":
            return ours.replace(allow_msg_counter=True, allow_direct=True)
        case "schedules":
            return ours.replace(
                allow_msg_schedules=True,
                allow_rollup_hdrs=True,
                subject_delete_marker_ttl=timedelta(seconds=5),
            )
        case "async work queue":
            return ours.replace(retention="workqueue", storage="file", persist_mode="async")
        case "interest":
            return ours.replace(retention="interest", no_ack=True)
        case "rollups and closed":
            return ours.replace(
                allow_rollup_hdrs=True,
                deny_delete=True,
                republish=Republish(src=">", dest=f"re.{name}.>"),
            )
        case "sources":
            return copy.replace(
                sources=[
                    Source(
                        name="ORIGIN",
                        opt_start_time=A_TIME,
                        subject_transforms=[SubjectTransform(src="o.*", dest="p.{{wildcard(1)}}")],
                    ),
                    Source(name="SECOND", opt_start_seq=5, filter_subject="o.x"),
                ]
            )
        case "a source of a domain":
            return copy.replace(sources=[Source(name="O", external=External.of_domain("hub"))])
        case "mirror":
            return copy.replace(mirror=Source(name="ORIGIN"), mirror_direct=True)
        case "mirror of another account":
            external = External(api="hub.api", deliver=f"deliver.{name}")
            mirror = Source(name="O", opt_start_seq=9, filter_subject="o.>", external=external)
            return copy.replace(mirror=mirror)
    return ours


CONSUMERS = {
    "plain": "2.9",
    "everything of a pull consumer": "2.10",
    "limits of pulls": "2.9",
    "ack all, from a time, paused": "2.11",
    "push to a group": "2.9",
    "push with flow control": "2.9",
    "from the last": "2.9",
    "overflow": "2.11",
    "pinned": "2.11",
    "prioritized": "2.12",
}
"""Name to the oldest server."""


def consumer_config(case: str, stream: str) -> dict[str, Any]:
    """Options of create_consumer and create_push_consumer; the name is "c"."""
    ours: dict[str, Any] = {"durable_name": "c"}
    match case:
        case "everything of a pull consumer":
            return ours | {
                "description": "everything",
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": 7,
                "ack_policy": "explicit",
                "max_deliver": 5,
                "backoff": [timedelta(seconds=1), timedelta(seconds=3, microseconds=5)],
                "ack_wait": timedelta(seconds=1),
                "filter_subjects": [f"{stream}.a", f"{stream}.b.>"],
                "replay_policy": "original",
                "sample_freq": "30",
                "max_waiting": 9,
                "max_ack_pending": 11,
                "headers_only": True,
                "inactive_threshold": timedelta(minutes=2),
                "num_replicas": 1,
                "mem_storage": True,
                "metadata": {"k": "v"},
            }
        case "limits of pulls":
            return ours | {
                "max_batch": 10,
                "max_expires": timedelta(seconds=30),
                "max_bytes": 100_000,
                "name": "c",
            }
        case "ack all, from a time, paused":
            return ours | {
                "deliver_policy": "by_start_time",
                "opt_start_time": A_TIME,
                "ack_policy": "all",
                "filter_subject": f"{stream}.a",
                "pause_until": LATER,
            }
        case "push to a group":
            return ours | {
                "deliver_policy": "last_per_subject",
                "ack_policy": "none",
                "filter_subject": f"{stream}.>",
                "deliver_subject": "somewhere",
                "deliver_group": "group",
                "rate_limit_bps": 1_000_000,
            }
        case "push with flow control":
            return ours | {
                "deliver_subject": "somewhere",
                "flow_control": True,
                "idle_heartbeat": timedelta(seconds=5),
            }
        case "from the last":
            return ours | {"deliver_policy": "last", "ack_policy": "none"}
        case "overflow":
            return ours | {"priority_groups": ["g"], "priority_policy": "overflow"}
        case "pinned":
            return ours | {
                "priority_groups": ["g"],
                "priority_policy": "pinned_client",
                "priority_timeout": timedelta(seconds=20),
            }
        case "prioritized":
            return ours | {"priority_groups": ["g"], "priority_policy": "prioritized"}
    return ours


def differs(made: StreamConfig | ConsumerConfig, wanted: dict[str, Any]) -> set[str]:
    """The options that the server has not taken as they were given."""
    return {
        name
        for name, value in wanted.items()
        if value is not None
        and getattr(made, name) != value
        and not (name == "metadata" and value.items() <= (made.metadata or {}).items())  # it adds
    }
