"""What `run --check` says of a target is what a run does to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.streams import Admin

from jetspark.spark.sink_options import parse_sink_options
from jetspark.spark.sink_target import look_at, prepare

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
