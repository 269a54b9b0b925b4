"""Finds, starts, watches and stops a real nats-server.

For tests, notebooks and one-machine set-ups::

    from jetspark.server import NatsServer

    with NatsServer() as server:
        print(server.url)            # nats://127.0.0.1:<a free port>

The binary comes from the extra `jetspark[server]`, or from the machine (see `find_server`).
Importing this package starts and searches nothing.
"""

from jetspark.server.binary import find_server, server_version
from jetspark.server.nats_server import NatsServer, free_port

__all__ = ["NatsServer", "find_server", "free_port", "server_version"]
