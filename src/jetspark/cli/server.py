"""`jetspark server`: a nats-server in the foreground."""

from __future__ import annotations

from pathlib import Path  # at run time: cyclopts reads the annotations
from typing import TYPE_CHECKING, NoReturn

from rich.text import Text

from jetspark.cli import console
from jetspark.cli.options import Switch
from jetspark.cli.signals import StopRequested, stop_on_signals
from jetspark.errors import EmbeddedServerError
from jetspark.server import NatsServer, server_version

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_PORT = 4222
_TEMPORARY = "removed at the end; --store DIR keeps data"
_LOG_EVERY = 0.1  # seconds between two reads of the log, with --log


def server(
    *,
    port: int | None = None,
    host: str | None = None,
    store: Path | None = None,
    config: Path | None = None,
    name: str | None = None,
    jetstream: bool | None = None,
    log: Switch = False,
) -> None:
    """Run a nats-server with JetStream on this machine until Ctrl-C.

    Args:
        port: Port for clients; by default that of the configuration file, or 4222. 0: a free one.
        host: Address to listen on; by default that of the configuration file, or 127.0.0.1.
        store: Folder for JetStream's data. Without it the data is removed when the server stops.
        config: Configuration file of nats-server; the options given here override it.
        name: Name of the server.
        jetstream: Enable JetStream or not; by default as in the configuration file, or enabled.
        log: Show the server's log.
    """
    if port is None and config is None:
        port = DEFAULT_PORT
    nats = NatsServer(
        port, host=host, store_dir=store, config=config, name=name, jetstream=jetstream
    )
    version = server_version()
    try:
        with stop_on_signals(), nats:
            facts = [console.field("server", f"nats-server {version}")]
            if config is not None:
                facts.append(console.field("config", str(config)))
            if jetstream is False:
                facts.append(console.field("store", "none", "JetStream is off"))
            elif store is not None:
                facts.append(console.field("store", str(nats.store_dir)))
            elif config is None or jetstream:
                facts.append(console.field("store", str(nats.store_dir), _TEMPORARY))
            _run(nats, facts, _log_printer(nats) if log else None)
    except StopRequested:
        console.say("Stopped.")


def _run(nats: NatsServer, facts: list[Text], show_log: Callable[[], None] | None) -> NoReturn:
    """Wait until the server ends, which is an error; a signal raises StopRequested."""
    try:
        console.say(Text(nats.url, style="bold green"), *facts, console.field("stop", "Ctrl-C"))
        while (code := nats.wait(_LOG_EVERY if show_log else None)) is None:
            if show_log:
                show_log()
    finally:
        nats.stop()
        if show_log:
            show_log()
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    raise EmbeddedServerError(f"nats-server {how}; its log ends with: {nats.last_words}.")


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
