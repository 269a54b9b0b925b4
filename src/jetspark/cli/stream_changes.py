"""`jetspark stream add`, `rm` and `purge`.

Only what a first stream, an experiment and a test need; the tool `nats` has the rest.
"""

from __future__ import annotations

import sys
from pathlib import Path  # at run time: cyclopts reads the annotations
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from jetspark.cli import console
from jetspark.cli.stream_session import JsonOption, check_replicas, show_json, with_jetstream
from jetspark.errors import ConfigError
from jetspark.jetstream.documents import StreamConfig
from jetspark.jetstream.documents.configuration import config_to_wire
from jetspark.jetstream.documents.document import to_wire

if TYPE_CHECKING:
    from jetspark.full_client import JetStream
    from jetspark.jetstream.documents import StreamInfo

ForceOption = Annotated[bool, Parameter(name=("--force", "-f"), negative=())]


def add(
    name: str,
    /,
    *,
    subject: Annotated[list[str] | None, Parameter(negative="")] = None,
    server: str | None = None,
    context: str | None = None,
    storage: Literal["file", "memory"] | None = None,
    replicas: int | None = None,
    config: Path | None = None,
    json: JsonOption = False,
) -> None:
    """Create a stream. An existing one with the same configuration is left unchanged.

    Args:
        name: Name of the stream.
        subject: Subject of the stream; may be given again. The stream's name by default.
        server: URL of the server, several with commas; it may contain user and password.
            Default: that of --context, else NATS_URL or NATS_CONTEXT, else nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
        storage: file (the default) or memory.
        replicas: Number of replicas in the cluster.
        config: JSON file with any options of a stream; flags override them.
        json: Print the server's JSON document of the stream.
    """
    check_replicas(replicas)
    subjects = [name] if subject is None and config is None else subject
    given = None if config is None else config_to_wire(StreamConfig, config, {}).get("name")
    if given not in (None, name):
        raise ConfigError(
            f'{config} is of stream "{given}", not "{name}": name that one, or change the file.'
        )

    async def make(js: JetStream) -> StreamInfo:
        return await js.create_stream(
            config, name=name, subjects=subjects, storage=storage, num_replicas=replicas
        )

    made = with_jetstream(server, context, make, stream=name)
    if json:
        show_json(to_wire(made))
        return
    console.say(
        f"Stream {made.name} takes in {', '.join(made.config.subjects or ()) or 'nothing'}."
    )


def rm(
    name: str,
    /,
    *,
    server: str | None = None,
    context: str | None = None,
    force: ForceOption = False,
) -> None:
    """Remove a stream with all its messages and consumers.

    Args:
        name: Name of the stream.
        server: URL of the server, several with commas; it may contain user and password.
            Default: that of --context, else NATS_URL or NATS_CONTEXT, else nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
        force: Do not ask.
    """

    async def look(js: JetStream) -> StreamInfo:
        return await js.stream_info(name)

    found = with_jetstream(server, context, look, stream=name)
    state = found.state
    messages = console.counted(state.messages, "message")
    what = f"stream {name} with {messages} and {console.counted(state.consumer_count, 'consumer')}"
    _confirm(f"Remove {what}?", force)
    with_jetstream(server, context, lambda js: js.delete_stream(name), stream=name)
    console.say(f"Removed {what}.")


def purge(
    name: str,
    /,
    *,
    subject: str | None = None,
    keep: int | None = None,
    before: int | None = None,
    server: str | None = None,
    context: str | None = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Delete a stream's messages, all or some; the stream stays.

    Args:
        name: Name of the stream.
        subject: Only messages under this subject; * matches one token, > one or more at the end.
        keep: All but this many of the last messages.
        before: Only messages before this sequence.
        server: URL of the server, several with commas; it may contain user and password.
            Default: that of --context, else NATS_URL or NATS_CONTEXT, else nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
        force: Do not ask.
        json: Print a JSON document with the number of messages that were deleted.
    """
    if keep is not None and before is not None:
        raise ConfigError("Give either --keep or --before.")
    if keep is not None and keep < 0:
        raise ConfigError("--keep cannot be negative.")
    if before is not None and before < 1:
        raise ConfigError("--before is a sequence; they begin at 1.")
    found = with_jetstream(server, context, lambda js: js.stream_info(name), stream=name)
    which = (
        f"under {subject}"
        if subject
        else f"of its {console.counted(found.state.messages, 'message')}"
    )
    limit = f", all but the last {keep:,}," if keep else f" before {before:,}" if before else ""
    _confirm(f"Delete what stream {name} has {which}{limit}?", force)
    purged = with_jetstream(
        server,
        context,
        lambda js: js.purge_stream(name, filter=subject, keep=keep, seq=before),
        stream=name,
    )
    if json:
        show_json({"purged": purged})
        return
    console.say(f"Deleted {console.counted(purged, 'message')} of stream {name}.")


def _confirm(question: str, force: bool) -> None:
    """Raises ConfigError unless the user confirms."""
    if force:
        return
    if not (sys.stdin and sys.stdin.isatty()):  # None, if whoever started us closed it
        raise ConfigError(f"{question} There is no terminal to ask on: confirm with --force.")
    console.err.print(f"{question} [y/N] ", end="", markup=False, soft_wrap=True)
    if sys.stdin.readline().strip().casefold() not in ("y", "yes"):
        raise ConfigError("Nothing was changed.")
