"""What `run --check` says of a target is what a run does to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.streams import Admin

from jetspark.errors import ConfigError
from jetspark.spark.sink_options import look_at, parse_sink_options, prepare

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.server import NatsServer


@pytest.mark.parametrize(
    "config",
    [{}, {"allow_msg_ttl": True}, {"allow_atomic": True}, {"allow_rollup_hdrs": True}],
    ids=["plain", "with times to live", "with batches", "with rollups"],
)
def test_check_lists_what_prepare_stream_changes_and_changes_nothing(
    config: dict[str, Any],
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    needs_server: Callable[[str], None],
) -> None:
    needs_server("2.12")
    name = unique("TARGET")
    admin.create(name, name, **config)
    options = parse_sink_options(
        {
            "servers": shared_server.url, "stream": name, "guarantee": "exactly-once",
            "prepareStream": "true", "transactionId": "t",
        }
    )  # fmt: skip
    streams = set(admin.api.stream_names())
    before = admin.api.config(name)
    change, make = look_at(options).missing
    assert (admin.api.config(name), set(admin.api.stream_names())) == (before, streams)
    prepare(options)
    after = admin.api.config(name)
    changed = {field for field in after if after[field] != before.get(field)}
    changed.discard("metadata")  # the server notes there what the stream needs of servers
    (mark,) = set(after["subjects"]) - set(before["subjects"])
    named = change.removeprefix(f"change stream {name}: ").split(", ")
    assert set(named) == changed - {"subjects"} | {f"the subject {mark}"}
    (ledger,) = set(admin.api.stream_names()) - streams
    assert make.startswith(f"make stream {ledger}, ")
    assert look_at(options).missing == ()


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"max_msgs": 50}, "has max_msgs 50"),
        ({"max_bytes": 4000}, "has max_bytes 4000"),
        ({"subject_transform": {"src": ">", "dest": "moved.>"}}, "its subject_transform"),
        ({"max_age": 10**12, "prepare": False}, "needs: allow_msg_ttl"),
    ],
    ids=["max_msgs", "max_bytes", "a transform of all subjects", "max_age"],
)
def test_exactly_once_refuses_a_stream_that_would_not_keep_its_markers(
    config: dict[str, Any],
    says: str,
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    needs_server: Callable[[str], None],
) -> None:
    needs_server("2.12")
    name = unique("TARGET")
    prepare_stream = config.pop("prepare", True)
    markers = f"_spark.{name}.mark.>"
    admin.create(name, name, markers, allow_atomic=True, allow_rollup_hdrs=True, **config)
    options = {"servers": shared_server.url, "stream": name, "guarantee": "exactly-once"}
    if prepare_stream:
        options["prepareStream"] = "true"
    for look in (look_at, prepare):
        with pytest.raises(ConfigError, match=says):
            look(parse_sink_options(options))


@pytest.mark.parametrize(
    "config",
    [
        {"max_msgs": 10_000, "discard": "new"},
        {"max_age": 10**12, "allow_msg_ttl": True},
        {"subject_transform": {"src": "orders.>", "dest": "moved.>"}},
    ],
    ids=["discard new", "max_age with times to live", "a transform of other subjects"],
)
def test_exactly_once_takes_a_stream_whose_limits_spare_the_markers(
    config: dict[str, Any],
    shared_server: NatsServer,
    admin: Admin,
    unique: Callable[[str], str],
    needs_server: Callable[[str], None],
) -> None:
    needs_server("2.12")
    name = unique("TARGET")
    markers = f"_spark.{name}.mark.>"
    admin.create(name, name, markers, allow_atomic=True, allow_rollup_hdrs=True, **config)
    options = {"servers": shared_server.url, "stream": name, "guarantee": "exactly-once"}
    prepare(parse_sink_options(options))
