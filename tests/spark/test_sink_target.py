"""What `run --check` says of a target is what a run does to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.streams import Admin

from jetspark.errors import ConfigError
from jetspark.spark.stream_sink.options import parse_sink_options
from jetspark.spark.stream_sink.target import inspect_target, prepare

TO_ALL = {"src": ">", "dest": "moved.>"}


@pytest.mark.parametrize(
    "config",
    [{}, {"allow_msg_ttl": True}, {"allow_atomic": True}, {"allow_rollup_hdrs": True}],
)
def test_check_lists_what_prepare_stream_changes_and_changes_nothing(
    config: dict[str, Any], admin: Admin, needs_server: Callable[[str], None]
) -> None:
    needs_server("2.12")
    name = admin.stream(**config)
    exactly = {"guarantee": "exactly-once", "prepareStream": "true", "transactionId": "t"}
    options = parse_sink_options({"servers": admin.url, "stream": name, **exactly})
    streams = set(admin.api.stream_names())
    before = admin.api.config(name)
    change, make = inspect_target(options).missing
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
    assert inspect_target(options).missing == ()


@pytest.fixture
def target(
    admin: Admin, unique: Callable[[str], str], needs_server: Callable[[str], None]
) -> Callable[..., dict[str, str]]:
    """Options of a sink into a new stream that has markers."""
    needs_server("2.12")

    def make(**config: Any) -> dict[str, str]:
        name = unique("TARGET")
        config |= {"allow_atomic": True, "allow_rollup_hdrs": True}
        admin.create(name, name, f"_spark.{name}.mark.>", **config)
        return {"servers": admin.url, "stream": name, "guarantee": "exactly-once"}

    return make


@pytest.mark.parametrize(
    ("config", "options", "says"),
    [
        ({"max_msgs": 50}, {"prepareStream": "true"}, "has max_msgs 50"),
        ({"max_bytes": 4000}, {"prepareStream": "true"}, "has max_bytes 4000"),
        ({"subject_transform": TO_ALL}, {"prepareStream": "true"}, "its subject_transform"),
        ({"max_age": 10**12}, {}, "needs: allow_msg_ttl"),
    ],
)
def test_exactly_once_refuses_a_stream_that_would_not_keep_its_markers(
    target: Callable[..., dict[str, str]],
    config: dict[str, Any],
    options: dict[str, str],
    says: str,
) -> None:
    options = target(**config) | options
    for look in (inspect_target, prepare):
        with pytest.raises(ConfigError, match=says):
            look(parse_sink_options(options))


def test_exactly_once_takes_a_stream_whose_limits_spare_the_markers(
    target: Callable[..., dict[str, str]],
) -> None:
    for config in (
        {"max_msgs": 10_000, "discard": "new"},
        {"max_age": 10**12, "allow_msg_ttl": True},
        {"subject_transform": {"src": "orders.>", "dest": "moved.>"}},
    ):
        prepare(parse_sink_options(target(**config)))
