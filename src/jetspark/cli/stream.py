"""`jetspark stream`: shows, creates, purges and removes streams, backs them up and restores them.

Changes of a stream's configuration are left to the administrator's tool `nats`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from jetspark.archives.folder import folder_to_read, folder_to_write
from jetspark.cli import console
from jetspark.cli.app import COMMANDS, examples
from jetspark.cli.stream_session import (
    JsonOption,
    check_replicas,
    limit,
    moment,
    show_facts,
    show_json,
    show_table,
    size,
    span,
    with_jetstream,
)
from jetspark.documents.configuration import config_to_wire
from jetspark.documents.document import to_wire
from jetspark.documents.streams import StreamConfig
from jetspark.errors import ConfigError, NameInUseError
from jetspark.jetstream import verify_backup

if TYPE_CHECKING:
    from jetspark.documents.streams import StreamInfo
    from jetspark.full_client import JetStream
    from jetspark.jetstream import BackupProgress, StreamBackup
    from jetspark.jetstream.backup import ProgressCallback

# -------------------------------------------------------------------------------------------------
# `jetspark stream add`, `rm` and `purge`.
#
# Only what a first stream, an experiment and a test need; the tool `nats` has the rest.


# at run time: cyclopts reads the annotations


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


# -------------------------------------------------------------------------------------------------
# `jetspark stream backup`, `restore` and `verify`.


# at run time: cyclopts reads the annotations


_Flag = Parameter(negative=())


def backup(
    name: str,
    folder: str,
    /,
    *,
    server: str | None = None,
    context: str | None = None,
    consumers: bool = True,
    check: Annotated[bool, _Flag] = False,
    json: JsonOption = False,
) -> None:
    """Back up a stream to a folder, with its messages, configuration and consumers.

    The folder has the format of `nats stream backup`, and appears only when it is complete.

    Args:
        name: Name of the stream.
        folder: New folder for the backup.
        server: URL of the server, several with commas; it may contain user and password.
            Default: that of --context, else NATS_URL or NATS_CONTEXT, else nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
        consumers: Include the consumers, with their positions.
        check: Let the server verify all messages first (servers of 2.15 and newer always do).
        json: Print what was saved as one JSON document.
    """

    place = folder_to_write(folder)

    async def save(js: JetStream) -> StreamBackup:
        with _bar(f"saving {name}") as progress:
            return await js.backup_stream(
                name, place, consumers=consumers, check=check, progress=progress
            )

    _tell(with_jetstream(server, context, save, stream=name), "Saved", json)


def restore(
    folder: str,
    /,
    *,
    server: str | None = None,
    context: str | None = None,
    config: Path | None = None,
    replicas: int | None = None,
    json: JsonOption = False,
) -> None:
    """Restore a stream from a backup.

    Messages keep their sequences and times, consumers their positions. The stream must not exist.

    Args:
        folder: A backup of this command or of `nats stream backup`.
        server: URL of the server, several with commas; it may contain user and password.
            Default: that of --context, else NATS_URL or NATS_CONTEXT, else nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
        config: JSON file with options of the stream that replace those in the backup.
        replicas: Number of replicas instead of the one in the backup.
        json: Print the server's JSON document of the stream.
    """
    place = folder_to_read(folder)
    check_replicas(replicas)

    async def bring_back(js: JetStream) -> tuple[StreamInfo, str]:
        with _bar(f"restoring {place}") as progress:
            try:
                made = await js.restore_stream(
                    place, config, progress=progress, num_replicas=replicas
                )
            except NameInUseError as error:
                if not error.restored:
                    raise
                return await js.stream_info(verify_backup(place).stream), str(error)
        return made, ""

    made, done = with_jetstream(server, context, bring_back)
    if json:
        show_json(to_wire(made))
        return
    console.say(
        done
        or f"Restored stream {made.name}: {console.counted(made.state.messages, 'message')} "
        f"({size(made.state.bytes)}), sequences {made.state.first_seq:,} to "
        f"{made.state.last_seq:,}."
    )


def verify(folder: str, /, *, json: JsonOption = False) -> None:
    """Check that a backup is complete and unchanged, without a server.

    Its messages are counted. Those that were removed from the stream while it was backed up are
    told, and no error.

    Args:
        folder: A backup of this command or of `nats stream backup`.
        json: Print its contents as one JSON document.
    """
    _tell(verify_backup(folder), "Complete", json)


def _tell(made: StreamBackup, what: str, as_json: bool) -> None:
    state = made.state
    if as_json:
        document = {
            "stream": made.stream,
            "folder": str(made.folder),
            "archive_bytes": made.size,
            "messages": made.messages,
            "removed": made.removed,
            "config": made.document["config"],
            "state": made.document["state"],
        }
        show_json(document)
        return
    figures = f"{console.counted(made.messages, 'message')} ({size(state.bytes)})"
    if made.removed:
        what += ", without what was removed meanwhile"
        figures = (
            f"{made.messages:,} of {console.counted(state.messages, 'message')} "
            f"({made.removed:,} were removed from the stream while it was backed up)"
        )
    console.say(
        f"{what}: stream {made.stream}, {figures}, "
        f"sequences {state.first_seq:,} to {state.last_seq:,}; "
        f"{size(made.size)} in {made.folder}."
    )


@contextmanager
def _bar(what: str) -> Iterator[ProgressCallback]:
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
        console=console.err,
        transient=True,
        disable=not console.is_live(),
    ) as display:
        task = display.add_task(what, total=None)

        def show(step: BackupProgress) -> None:
            display.update(task, completed=step.done, total=step.total)

        yield show


stream = App(
    name="stream",
    help=COMMANDS["stream"].line,
    help_epilogue=examples(
        "jetspark stream ls",
        'jetspark stream add ORDERS --subject "orders.>"',
        "jetspark stream backup ORDERS backups/orders",
    ),
)


@stream.command(
    sort_key=0, help_epilogue=examples("jetspark stream ls", "jetspark stream ls --json")
)
def ls(*, server: str | None = None, context: str | None = None, json: JsonOption = False) -> None:
    """List the streams.

    Args:
        server: URL of the server, several with commas; it may contain user and password.
            Default: that of --context, else NATS_URL or NATS_CONTEXT, else nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
        json: Print one JSON array with the server's document of each stream.
    """

    async def ask(js: JetStream) -> list[StreamInfo]:
        return sorted(await js.streams().all(), key=lambda info: info.name)

    infos = with_jetstream(server, context, ask)
    if json:
        show_json([to_wire(info) for info in infos])
        return
    headings = ("stream", "messages", "size", "first", "last", "consumers", "last message")
    show_table(*headings, rows=map(_row, infos))


def _row(info: StreamInfo) -> tuple[object, ...]:
    state = info.state
    return (
        info.name,
        f"{state.messages:,}",
        size(state.bytes),
        f"{state.first_seq:,}",
        f"{state.last_seq:,}",
        state.consumer_count,
        moment(state.last_ts),
    )


@stream.command(sort_key=1, help_epilogue=examples("jetspark stream info ORDERS"))
def info(
    name: str,
    /,
    *,
    server: str | None = None,
    context: str | None = None,
    json: JsonOption = False,
) -> None:
    """Show a stream's configuration and state.

    Args:
        name: Name of the stream.
        server: URL of the server, several with commas; it may contain user and password.
            Default: that of --context, else NATS_URL or NATS_CONTEXT, else nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
        json: Print the server's JSON document.
    """
    found = with_jetstream(server, context, lambda js: js.stream_info(name), stream=name)
    if json:
        show_json(to_wire(found))
    else:
        show_facts(_facts(found))


def _facts(found: StreamInfo) -> dict[str, object]:
    config, state, cluster = found.config, found.state, found.cluster
    return {
        "stream": found.name,
        "description": config.description,
        "subjects": ", ".join(config.subjects or ()),
        "mirror of": config.mirror and config.mirror.name,
        "sources": ", ".join(source.name for source in config.sources or ()),
        "created": moment(found.created),
        "storage": config.storage,
        "replicas": config.num_replicas,
        "retention": config.retention,
        "leader": cluster and cluster.leader,
        "messages": f"{state.messages:,} ({size(state.bytes)})",
        "sequences": f"{state.first_seq:,} to {state.last_seq:,}, {state.num_deleted:,} deleted",
        "times": f"{moment(state.first_ts)} to {moment(state.last_ts)}",
        "of subjects": f"{state.num_subjects:,}",
        "consumers": state.consumer_count,
        "max messages": limit(config.max_msgs),
        "max size": limit(config.max_bytes, size),
        "max age": span(config.max_age),
        "max per subject": limit(config.max_msgs_per_subject),
        "max message": limit(config.max_msg_size, size),
    }


_OTHERS: dict[Callable[..., None], tuple[str, ...]] = {
    add: (
        'jetspark stream add ORDERS --subject "orders.>"',
        "jetspark stream add ORDERS --config orders.json --replicas 3",
    ),
    purge: (
        'jetspark stream purge ORDERS --subject "orders.old.>"',
        "jetspark stream purge ORDERS --keep 1000 --force",
    ),
    rm: ("jetspark stream rm ORDERS", "jetspark stream rm ORDERS --force"),
    backup: ("jetspark stream backup ORDERS backups/orders",),
    restore: (
        "jetspark stream restore backups/orders --server nats://other:4222",
        "jetspark stream restore backups/orders --replicas 3",
    ),
    verify: ("jetspark stream verify backups/orders",),
}
for place, (function, lines) in enumerate(_OTHERS.items(), 2):
    stream.command(function, sort_key=place, help_epilogue=examples(*lines))
