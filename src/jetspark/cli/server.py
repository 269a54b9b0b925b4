"""`jetspark server`: a nats-server in the foreground."""

from __future__ import annotations

from pathlib import Path  # at run time: cyclopts reads the annotations
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.text import Text

from jetspark.cli import console
from jetspark.cli.signals import StopRequested, stop_on_signals
from jetspark.errors import EmbeddedServerError
from jetspark.server import NatsServer, server_version

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_PORT = 4222
_TEMPORARY = "removed at the end; --store DIR keeps data"
_LOG_EVERY = 0.1  # seconds between two looks at the log, with --log


def server(
    *,
    port: int | None = None,
    host: str | None = None,
    store: Path | None = None,
    config: Path | None = None,
    name: str | None = None,
    jetstream: bool | None = None,
    log: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Run a nats-server with JetStream on this machine until Ctrl-C.

    Args:
        port: Port for clients; 4222 or what the configuration file says. 0 takes a free one.
        host: Address to listen on; 127.0.0.1 or what the configuration file says.
        store: Folder for JetStream's data. Without it the data is gone when the server stops.
        config: Configuration file of nats-server; the options given here win over it.
        name: Name of the server.
        jetstream: Switch JetStream on or off; on or what the configuration file says.
        log: Show the server's log.
    """
    if port is None and config is None:
        port = DEFAULT_PORT
    nats = NatsServer(
        port, host=host, store_dir=store, config=config, name=name, jetstream=jetstream
    )
    try:
        with stop_on_signals(), nats:
            console.say(Text(nats.url, style="bold green"))
            console.say(console.field("server", f"nats-server {server_version()}"))
            if config is not None:
                console.say(console.field("config", str(config)))
            if jetstream is False:
                console.say(console.field("store", "none", "JetStream is off"))
            elif store is not None:
                console.say(console.field("store", str(nats.store_dir)))
            elif config is None or jetstream:
                console.say(console.field("store", str(nats.store_dir), _TEMPORARY))
            console.say(console.field("stop", "Ctrl-C"))
            _watch(nats, show_log=log)
    except StopRequested:
        console.say("Stopped.")


def _watch(nats: NatsServer, *, show_log: bool) -> None:
    """Waits for the server's end, which is an error; StopRequested leaves through here."""
    show_new = _log_printer(nats) if show_log else _nothing
    try:
        while (code := nats.wait(_LOG_EVERY if show_log else None)) is None:
            show_new()
    finally:
        nats.stop()
        show_new()
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    raise EmbeddedServerError(f"nats-server {how}; its last words: {nats.last_words}.")


def _log_printer(nats: NatsServer) -> Callable[[], None]:
    shown = 0

    def show_new() -> None:
        nonlocal shown
        text = nats.log
        complete = text.rfind("\n") + 1
        if complete > shown:
            console.say(text[shown : complete - 1])
            shown = complete

    return show_new


def _nothing() -> None:
    """There is no log to show."""
