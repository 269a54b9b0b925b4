"""`jetspark server`: a nats-server in the foreground."""

from __future__ import annotations

from pathlib import Path  # needed at run time, since cyclopts reads the annotations
from typing import NoReturn

from rich.text import Text

from jetspark.cli import console
from jetspark.cli.flags import Switch
from jetspark.cli.listings import show_facts
from jetspark.cli.signals import StopRequested, stop_on_signals
from jetspark.errors import ConfigError, EmbeddedServerError
from jetspark.server import NatsServer, server_version

DEFAULT_PORT = 4222
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
        port: Port for clients; by default the configuration file's, or 4222. 0: a free port.
        host: Address to listen on; by default that of the configuration file, or 127.0.0.1.
        store: Folder for JetStream's data. Without it the data is removed when the server stops.
        config: Configuration file of nats-server; options given here override the file.
        name: Name of the server.
        jetstream: Enable JetStream or not; by default as in the configuration file, or enabled.
        log: Show the server's log.
    """
    if port is None and config is None:
        port = DEFAULT_PORT
    if store is not None and store.exists() and not store.is_dir():
        raise ConfigError(f"--store {store} is a file: name a folder.")
    nats = NatsServer(
        port, host=host, store_dir=store, config=config, name=name, jetstream=jetstream
    )
    facts: dict[str, object] = {
        "server": f"nats-server {server_version()}",
        "config": config and str(config),
    }
    try:
        with stop_on_signals(), nats:
            if jetstream is False:
                facts["store"] = "none (JetStream is off)"
            elif store is not None:
                facts["store"] = str(nats.store_dir)
            elif config is None or jetstream:  # otherwise only the file says whether there is one
                facts["store"] = f"{nats.store_dir} (removed at the end; --store DIR keeps data)"
            _run(nats, facts | {"stop": "Ctrl-C"}, show_log=log)
    except StopRequested:
        console.say("Stopped.")


def _run(nats: NatsServer, facts: dict[str, object], *, show_log: bool) -> NoReturn:
    """Print facts about a running nats-server, and wait for a signal, which raises StopRequested.

    Raises EmbeddedServerError if the server ends of its own accord. `show_log`: print its log, too.
    """
    printed = 0

    def show_new_lines() -> None:
        """Print the complete lines that the log has gained since the last call."""
        nonlocal printed
        text = nats.log if show_log else ""
        if (complete := text.rfind("\n") + 1) > printed:
            console.say(text[printed : complete - 1])
            printed = complete

    try:
        show_facts(facts, title=Text(nats.url, style="bold green"))
        # Without --log nothing is to be done until the server ends.
        while (code := nats.wait(_LOG_EVERY if show_log else None)) is None:
            show_new_lines()
    finally:
        nats.stop()
        show_new_lines()
    cause = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    raise EmbeddedServerError(f"nats-server {cause}; its log ends with: {nats.last_words}.")
