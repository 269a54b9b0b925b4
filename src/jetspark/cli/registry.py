"""`jetspark registry`: runs a schema registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from jetspark.cli.app import command, group
from jetspark.cli.flags import check_replicas
from jetspark.cli.log import print_refusals
from jetspark.cli.server_flags import DEFAULT_SERVER, ServerFlags
from jetspark.registry.documents import BUCKET

if TYPE_CHECKING:
    from jetspark.full_client import Client

registry = group(
    "registry", "jetspark registry serve", "jetspark registry serve --bucket schemas --replicas 3"
)


@command(registry, "jetspark registry serve")
def serve(
    *, bucket: str = BUCKET, replicas: int = 1, connection: ServerFlags = DEFAULT_SERVER
) -> None:
    """Run a schema registry that speaks Synadia's protocol, until Ctrl-C.

    Several may run: they share the requests, and one that is killed loses nothing.

    Args:
        bucket: Name of the bucket with the schemas; it is created if there is none.
        replicas: Replicas of a bucket that is created.
    """
    check_replicas(replicas)

    async def work(nc: Client, begin: Callable[[str], None]) -> None:
        """Serve until a signal; `begin` announces that on the terminal."""
        from jetspark.registry.service import serve_registry

        js = nc.jetstream()
        async with await serve_registry(nc, js, bucket=bucket, replicas=replicas) as service:
            begin(f"Serving the schemas of bucket {bucket} on {nc.current_server}")
            print_refusals(at_once=True)  # from now on the server's refusals are logged at once
            await service.wait_stopped()

    connection.follow(work)
