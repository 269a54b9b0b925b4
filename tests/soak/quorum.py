"""Events of a cluster that has lost its majority: `python -m tests.soak.quorum`, a minute.

Two of three servers are killed. The last one tells that a stream and a consumer stand still; then
it is told to go on alone (nats-server 2.15), tells that, and becomes the leader. Prints each event.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

from tests.support.cluster import Cluster

from jetspark.documents.document import to_wire
from jetspark.documents.events import Event, EventKind
from jetspark.full_client import Client, connect

SYSTEM = """
accounts {
  SYS: { users: [ { user: sys, password: sys } ] }
  A: { jetstream: enabled, users: [ { user: a, password: a } ] }
}
system_account: SYS
no_auth_user: a
"""
LOST = (EventKind.STREAM_QUORUM_LOST, EventKind.CONSUMER_QUORUM_LOST)
RESCUED = (EventKind.META_RESCUE, EventKind.DOMAIN_LEADER_ELECTED)


async def run(within: float = 90.0) -> list[Event]:
    """The events, one of each kind. Raises TimeoutError when one does not come in time."""
    with tempfile.TemporaryDirectory(prefix="quorum-") as folder:
        config = Path(folder) / "cluster.conf"
        config.write_text(SYSTEM, "utf-8")
        with Cluster(3, name="Q", extra=("--config", str(config))) as cluster:
            url = cluster.urls[0]
            async with (
                connect(url, user="sys", password="sys") as system,
                connect(url) as nc,
                asyncio.timeout(within),
            ):
                js = nc.jetstream()
                await js.create_stream(name="S", subjects=["s"], num_replicas=3)
                await js.create_consumer("S", durable_name="c")
                lost = [js.events(kinds=[kind], stream="S") for kind in LOST]
                rescued = [system.jetstream().events(kinds=[kind]) for kind in RESCUED]
                for server in cluster.servers[1:]:
                    server.kill()
                found = [await events.next() for events in lost]
                await _rescue(system)
                return [*found, *[await events.next() for events in rescued]]


async def _rescue(system: Client) -> None:
    """Lower the quorum, once the server has noticed that there is no leader."""
    request = json.dumps({"quorum_needed": 1}).encode()
    while "error" in json.loads((await system.request("$JS.API.META.RESCUE", request)).data):  # noqa: ASYNC110
        await asyncio.sleep(0.5)  # nothing tells when it is so far


def main() -> None:
    for event in asyncio.run(run()):
        assert event.extra == {}, event
        print(json.dumps(to_wire(event)))


if __name__ == "__main__":
    main()
