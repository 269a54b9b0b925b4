"""`jetspark stream`: shows, makes, edits, purges and removes streams, backs them up, restores them.

The commands that change streams are for a first stream, experiments and tests; the administrator's
tool `nats` has more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.progress import DownloadColumn

from jetspark.backup import verify_backup
from jetspark.backup.folder import local_folder, redact_folder
from jetspark.cli import console
from jetspark.cli.app import command, group
from jetspark.cli.flags import (
    Duration,
    ForceOption,
    JsonLines,
    JsonOption,
    Repeated,
    Switch,
    check_replicas,
    confirm,
)
from jetspark.cli.folders import temporary_folder
from jetspark.cli.formatting import (
    format_count,
    format_duration,
    format_limit,
    format_size,
    format_time,
)
from jetspark.cli.listings import show_list, show_result, show_table
from jetspark.cli.progress import progress_bar, spinner
from jetspark.cli.scopes import NO_SCHEMA, SchemaFlags, codec_of
from jetspark.cli.server_flags import DEFAULT_SERVER, ServerFlags
from jetspark.cli.show_message import show_stored
from jetspark.cli.stream_edit import REMAKE, check_changes, describe_value, find_changes
from jetspark.documents.configuration import config_to_wire, given
from jetspark.documents.document import to_wire
from jetspark.documents.streams import StreamConfig
from jetspark.errors import (
    APIError,
    ConfigError,
    MessageNotFoundError,
    NameInUseError,
    StreamNotFoundError,
)
from jetspark.rows import library
from jetspark.validation import check_whole

if TYPE_CHECKING:
    from jetspark.backup import StreamBackup
    from jetspark.backup.save import ProgressCallback
    from jetspark.documents.streams import StoredMsg, StreamInfo
    from jetspark.full_client import JetStream

_TEMPORARY = "jetspark-backup-"
"""Beginning of the names of temporary folders for backups that are in a store."""
_COLUMNS: dict[str, Callable[[StreamInfo], object]] = {
    "stream": lambda info: info.name,
    "messages": lambda info: f"{info.state.messages:,}",
    "size": lambda info: format_size(info.state.bytes),
    "first": lambda info: f"{info.state.first_seq:,}",
    "last": lambda info: f"{info.state.last_seq:,}",
    "consumers": lambda info: info.state.consumer_count,
    "last message": lambda info: format_time(info.state.last_ts),
}

stream = group(
    "stream",
    "jetspark stream ls",
    "jetspark stream view ORDERS --last 20",
    'jetspark stream add ORDERS --subject "orders.>"',
    "jetspark stream backup ORDERS backups/orders",
)


@command(stream, "jetspark stream ls", "jetspark stream ls --json")
def ls(*, connection: ServerFlags = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """List the streams."""

    infos = connection.jetstream(lambda js: js.streams().all())
    show_list(sorted(infos, key=lambda info: info.name), _COLUMNS, as_json=json)


@command(stream, "jetspark stream info ORDERS")
def info(
    name: str, /, *, connection: ServerFlags = DEFAULT_SERVER, json: JsonOption = False
) -> None:
    """Show a stream's configuration and state.

    Args:
        name: Name of the stream.
    """
    stream_info = _fetch_info(connection, name)
    show_result(_describe_stream(stream_info), to_wire(stream_info), as_json=json)


@command(
    stream,
    "jetspark stream view ORDERS --last 20",
    'jetspark stream view ORDERS --subject "orders.eu.>" --json',
)
def view(
    name: str,
    /,
    *,
    last: int = 10,
    subject: str = ">",
    connection: ServerFlags = DEFAULT_SERVER,
    decode: str | None = None,
    schema: SchemaFlags = NO_SCHEMA,
    json: JsonLines = False,
) -> None:
    """Show the last messages of a stream, oldest first; nothing is removed or acknowledged.

    Args:
        name: Name of the stream.
        last: How many messages to show.
        subject: Only messages under this subject; * matches one token, > one or more at the end.
        decode: Format of the payloads: avro, protobuf, json or cloudevents. They are shown as JSON.
    """
    check_whole("--last", last)
    codec = codec_of(schema, "decode", decode, connection)
    messages = connection.jetstream(
        lambda js: _read_last_messages(js, name, last, subject), stream=name
    )
    for message in messages:
        show_stored(message, as_json=json, codec=codec)
    if not (messages or json):
        condition = "" if subject == ">" else f" with a subject that matches {subject}"
        console.warn(f"Stream {name} has no message{condition}.")


async def _read_last_messages(
    js: JetStream, name: str, count: int, subject: str
) -> list[StoredMsg]:
    """Read the last messages of a stream under a subject, oldest first.

    Reads without a consumer, whose acks could remove messages of a work queue. Searches ranges of
    sequences from the stream's end backwards, each twice as long as the one before, since nobody
    knows where a subject occurs.
    """
    state = (await js.stream(name).info()).state
    first_seq = max(state.first_seq, 1)
    messages: list[StoredMsg] = []
    length, end = count, state.last_seq + 1
    while len(messages) < count and end > first_seq:
        start = max(end - length, first_seq)
        newest: deque[StoredMsg] = deque(maxlen=count - len(messages))
        async for message in _read_range(js, name, start, end, subject):
            newest.append(message)  # drops the oldest if there are too many
        messages = [*newest, *messages]
        length, end = 2 * length, start
    return messages


async def _read_range(
    js: JetStream, name: str, start: int, end: int, subject: str
) -> AsyncIterator[StoredMsg]:
    """Read a stream's messages under a subject from sequence `start` to before `end`."""
    with suppress(MessageNotFoundError):  # there is none after the last one
        while start < end:
            # The next message under the subject at or after `start`.
            message = await js.stream(name).get(start, next_by_subject=subject, direct=False)
            if message.seq >= end:
                return
            yield message
            start = message.seq + 1


def _fetch_info(connection: ServerFlags, name: str) -> StreamInfo:
    """Connect and fetch a stream's configuration and state; a missing one gets the nearest name."""
    return connection.jetstream(lambda js: js.stream(name).info(), stream=name)


def _describe_stream(info: StreamInfo) -> dict[str, object]:
    """The facts that `stream info` prints of a stream: its configuration and state, by label."""
    config, state, cluster = info.config, info.state, info.cluster
    return {
        "stream": info.name,
        "description": config.description,
        "subjects": ", ".join(config.subjects or ()),
        "mirror of": config.mirror and config.mirror.name,
        "sources": ", ".join(source.name for source in config.sources or ()),
        "created": format_time(info.created),
        "storage": config.storage,
        "replicas": config.num_replicas,
        "retention": config.retention,
        "leader": cluster and cluster.leader,
        "messages": f"{state.messages:,} ({format_size(state.bytes)})",
        "sequences": f"{state.first_seq:,} to {state.last_seq:,}, {state.num_deleted:,} deleted",
        "times": f"{format_time(state.first_ts)} to {format_time(state.last_ts)}",
        "of subjects": f"{state.num_subjects:,}",
        "consumers": state.consumer_count,
        "max messages": format_limit(config.max_msgs),
        "max size": format_limit(config.max_bytes, format_size),
        "max age": format_duration(config.max_age),
        "max per subject": format_limit(config.max_msgs_per_subject),
        "max message": format_limit(config.max_msg_size, format_size),
    }


@command(
    stream,
    'jetspark stream add ORDERS --subject "orders.>"',
    "jetspark stream add ORDERS --config orders.json --replicas 3",
)
def add(
    name: str,
    /,
    *,
    subject: Repeated = None,
    connection: ServerFlags = DEFAULT_SERVER,
    storage: Literal["file", "memory"] | None = None,
    replicas: int | None = None,
    config: Path | None = None,
    json: JsonOption = False,
) -> None:
    """Create a stream. An existing stream with the same configuration is left unchanged.

    Args:
        name: Name of the stream.
        subject: Subject of the stream, such as "orders.>"; may be given again. Needed without
            --config.
        storage: file (the default) or memory.
        replicas: Number of replicas in the cluster.
        config: JSON file with any options of a stream; flags override these options.
    """
    check_replicas(replicas)
    if subject is None and config is None:
        raise ConfigError(
            f'--subject: name what the stream takes in, such as --subject "{name.lower()}.>".'
        )
    # The file may have a name of its own, which must not be another one.
    own_name = None if config is None else config_to_wire(StreamConfig, config, {}).get("name")
    if own_name not in (None, name):
        raise ConfigError(
            f'{config} is of stream "{own_name}", not "{name}": name that one, or change the file.'
        )

    async def create(js: JetStream) -> StreamInfo:
        """Create the stream by the file, whose options the flags override."""
        made = await js.create_stream(
            config, name=name, subjects=subject, storage=storage, num_replicas=replicas
        )
        return made.cached_info

    created = connection.jetstream(create, stream=name)
    takes = ", ".join(created.config.subjects or ()) or "nothing"
    show_result(f"Stream {name} takes in {takes}.", to_wire(created), as_json=json)


@command(
    stream,
    "jetspark stream edit ORDERS --max-age 7d",
    'jetspark stream edit ORDERS --subject "orders.>" --dry-run',
    "jetspark stream edit ORDERS --config changes.json --force",
)
def edit(
    name: str,
    /,
    *,
    subject: Repeated = None,
    description: str | None = None,
    replicas: int | None = None,
    max_age: Duration = None,
    max_messages: int | None = None,
    max_bytes: int | None = None,
    max_per_subject: int | None = None,
    config: Path | None = None,
    dry_run: Switch = False,
    connection: ServerFlags = DEFAULT_SERVER,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Change a stream's configuration: shows the differences, and asks.

    What is not given stays. A lower limit removes the messages beyond it at once.

    Args:
        name: Name of the stream.
        subject: Subject of the stream; may be given again. Replaces the stream's list.
        description: A text about the stream; "" removes it.
        replicas: Number of replicas in the cluster.
        max_age: Age at which messages are removed, such as 7d; 0: unlimited.
        max_messages: Most messages; 0: unlimited.
        max_bytes: Most bytes of all messages; 0: unlimited.
        max_per_subject: Most messages of each subject; 0: unlimited.
        config: JSON file with the options to change; null removes one. Flags override it.
        dry_run: Show the differences, and change nothing.
    """
    check_replicas(replicas)
    limits = {
        "max_msgs": ("--max-messages", max_messages),
        "max_bytes": ("--max-bytes", max_bytes),
        "max_msgs_per_subject": ("--max-per-subject", max_per_subject),
    }
    options: dict[str, Any] = given(
        subjects=subject, description=description, num_replicas=replicas, max_age=max_age
    )
    for field, (flag, limit) in limits.items():
        if limit is not None:
            options[field] = check_whole(flag, limit, 0) or -1
    if not options and config is None:
        raise ConfigError(
            "Say what to change, such as --max-age 7d; --help shows the flags, and --config FILE "
            "takes any option."
        )
    before = to_wire(_fetch_info(connection, name).config)
    changes = find_changes(before, config, options)
    check_changes(name, changes)
    document = {
        "stream": name,
        "changes": {field: {"before": old, "after": new} for field, (old, new) in changes.items()},
        "changed": bool(changes) and not dry_run,
    }
    if not changes:
        show_result(f"Stream {name} is like that already.", document, as_json=json)
        return
    if not json:
        columns = (
            [field, *(describe_value(field, it) for it in changes[field])] for field in changes
        )
        show_table("option", "now", "then", rows=columns)
    if dry_run:
        show_result("Nothing was changed (--dry-run).", document, as_json=json)
        return
    confirm(f"Change stream {name}?", force)

    async def change(js: JetStream) -> None:
        """Change the stream, unless somebody else has meanwhile."""
        if to_wire((await js.stream(name).info()).config) != before:
            raise ConfigError(
                f"Nothing was changed: stream {name} has another configuration than a moment ago. "
                "Run the command again."
            )
        try:
            await js.stream(name).update(config, **options)
        except StreamNotFoundError:
            raise
        except APIError as error:
            raise ConfigError(
                f"The server refuses to change stream {name}: {error.description}. {REMAKE}"
            ) from None

    connection.jetstream(change, stream=name)
    show_result(f"Changed stream {name}.", document, as_json=json)


@command(
    stream,
    'jetspark stream purge ORDERS --subject "orders.old.>"',
    "jetspark stream purge ORDERS --keep 1000 --force",
)
def purge(
    name: str,
    /,
    *,
    subject: str | None = None,
    keep: int | None = None,
    before: int | None = None,
    connection: ServerFlags = DEFAULT_SERVER,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Delete a stream's messages, all or some; the stream stays.

    Args:
        name: Name of the stream.
        subject: Only messages under this subject; * matches one token, > one or more at the end.
        keep: Keep this many of the last messages.
        before: Only messages before this sequence.
    """
    if keep is not None and before is not None:
        raise ConfigError("Give either --keep or --before.")
    if keep is not None and keep < 1:
        raise ConfigError("--keep must be at least 1; without it, all are deleted.")
    if before is not None and before < 1:
        raise ConfigError("--before is a sequence; they begin at 1.")
    state = _fetch_info(connection, name).state
    if before is not None and before > state.last_seq + 1:
        # The server would delete all, and let the stream's sequences go on from there.
        raise ConfigError(f"--before {before:,} is after the last sequence, {state.last_seq:,}.")
    count = format_count(state.messages, "message")
    question = f"Stream {name}: delete all "
    question += f"messages under {subject}" if subject else count
    if keep is not None:
        question += f" but the last {keep:,}"
    if before is not None:
        question += f" before sequence {before:,}"
    confirm(f"{question}?", force)
    purged = connection.jetstream(
        lambda js: js.stream(name).purge(filter=subject, keep=keep, seq=before), stream=name
    )
    show_result(
        f"Deleted {format_count(purged, 'message')} of stream {name}.",
        {"purged": purged},
        as_json=json,
    )


@command(stream, "jetspark stream rm ORDERS", "jetspark stream rm ORDERS --force")
def rm(
    name: str,
    /,
    *,
    connection: ServerFlags = DEFAULT_SERVER,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Remove a stream with all its messages and consumers.

    Args:
        name: Name of the stream.
    """
    state = _fetch_info(connection, name).state
    consumers = format_count(state.consumer_count, "consumer")
    target = f"stream {name} with {format_count(state.messages, 'message')} and {consumers}"
    confirm(f"Remove {target}?", force)
    connection.jetstream(lambda js: js.delete_stream(name), stream=name)
    document = {"removed": name, "messages": state.messages, "consumers": state.consumer_count}
    show_result(f"Removed {target}.", document, as_json=json)


@command(stream, "jetspark stream backup ORDERS backups/orders")
def backup(
    name: str,
    folder: str,
    /,
    *,
    connection: ServerFlags = DEFAULT_SERVER,
    consumers: bool = True,
    check: Switch = False,
    json: JsonOption = False,
) -> None:
    """Back up a stream to a folder, with its messages, configuration and consumers.

    The folder has the format of `nats stream backup`, and appears only when it is complete. For a
    URI, the backup is first made in the temporary folder of this machine, and then copied.

    Args:
        name: Name of the stream.
        folder: New folder for the backup, or its URI (s3://bucket/folder, gs://…, hdfs://…).
        consumers: Include the consumers, with their positions.
        check: Have the server verify all messages first (servers 2.15 and newer always do).
    """

    async def save(js: JetStream, path: Path) -> StreamBackup:
        """Back up the stream, with a progress bar on the terminal."""
        with _byte_progress_bar(f"saving {name}") as progress:
            return await js.backup_stream(
                name, path, consumers=consumers, check=check, progress=progress
            )

    if not _is_in_store(folder):
        path = local_folder(folder)
        saved = connection.jetstream(lambda js: save(js, path), stream=name)
        _show_backup(saved, folder, "Saved", json)
        return
    from jetspark.ranges.backup_store import check_free, upload

    check_free(folder)
    with temporary_folder(_TEMPORARY) as parent:
        saved = connection.jetstream(lambda js: save(js, parent / "backup"), stream=name)
        with spinner(f"copying to {redact_folder(folder)} …"):
            upload(saved.folder, folder)
    _show_backup(saved, folder, "Saved", json)


@command(
    stream,
    "jetspark stream restore backups/orders --server nats://other:4222",
    "jetspark stream restore backups/orders --replicas 3",
)
def restore(
    folder: str,
    /,
    *,
    connection: ServerFlags = DEFAULT_SERVER,
    config: Path | None = None,
    replicas: int | None = None,
    json: JsonOption = False,
) -> None:
    """Restore a stream from a backup.

    Messages keep their sequences and times, consumers their positions. The stream must not exist.

    Args:
        folder: A backup made by `jetspark stream backup` or `nats stream backup`, or its URI.
        config: JSON file with options of the stream that replace the options in the backup.
        replicas: Number of replicas instead of the number in the backup.
    """
    check_replicas(replicas)
    with _on_this_machine(folder) as path:
        _restore(path, folder, connection, config, replicas, json)


def _restore(
    path: Path,
    name: str,
    connection: ServerFlags,
    config: Path | None,
    replicas: int | None,
    as_json: bool,
) -> None:
    """Restore a stream from the folder of a backup, and print it. `name`: what the user calls the
    backup."""

    async def bring_back(js: JetStream) -> tuple[StreamInfo, str]:
        """Restore the stream; or return it with a sentence if it has everything already."""
        with _byte_progress_bar(f"restoring {redact_folder(name)}") as progress:
            try:
                restored = await js.restore_stream(
                    path, config, progress=progress, **given(num_replicas=replicas)
                )
                return restored.cached_info, ""
            except NameInUseError as error:
                if not error.restored:  # another stream has the name
                    raise
                return await js.stream(verify_backup(path).stream).info(), str(error)

    restored, already_restored = connection.jetstream(bring_back)
    state = restored.state
    sentence = already_restored or (
        f"Restored stream {restored.name}: {format_count(state.messages, 'message')} "
        f"({format_size(state.bytes)}), sequences {state.first_seq:,} to {state.last_seq:,}."
    )
    show_result(sentence, to_wire(restored), as_json=as_json)


@command(stream, "jetspark stream verify backups/orders")
def verify(folder: str, /, *, json: JsonOption = False) -> None:
    """Check that a backup is complete and unchanged, without a server.

    Counts its messages, and shows how many were removed from the stream during the backup, which is
    not an error.

    Args:
        folder: A backup made by `jetspark stream backup` or `nats stream backup`, or its URI.
    """
    with _on_this_machine(folder) as path:
        _show_backup(verify_backup(path), folder, "Complete", json)


def _is_in_store(folder: str) -> bool:
    """Whether a backup is in a store, which needs pyarrow. Raises ConfigError without it."""
    if "://" not in folder:
        return False
    library("pyarrow", "'jetspark[arrow]'")
    from jetspark.ranges.backup_store import is_in_store

    return is_in_store(folder)


@contextmanager
def _on_this_machine(folder: str) -> Iterator[Path]:
    """The folder of a backup, for the block; one in a store is copied into a temporary folder."""
    if not _is_in_store(folder):
        yield local_folder(folder)
        return
    from jetspark.ranges.backup_store import download

    with temporary_folder(_TEMPORARY) as path:
        with spinner(f"copying {redact_folder(folder)} …"):
            download(folder, path)
        yield path


def _show_backup(saved: StreamBackup, folder: str, verb: str, as_json: bool) -> None:
    """Print what a stream's backup contains. `folder`: what the user calls it; `verb`: the
    sentence's beginning, such as "Saved"."""
    place = redact_folder(folder) if _is_in_store(folder) else str(saved.folder)
    state = saved.state
    figures = f"{format_count(saved.messages, 'message')} ({format_size(state.bytes)})"
    if saved.removed:
        verb += ", without messages removed meanwhile"
        figures = (
            f"{saved.messages:,} of {format_count(state.messages, 'message')} "
            f"({saved.removed:,} were removed from the stream during the backup)"
        )
    sentence = (
        f"{verb}: stream {saved.stream}, {figures}, sequences {state.first_seq:,} to "
        f"{state.last_seq:,}; {format_size(saved.size)} in {place}."
    )
    document = {
        "stream": saved.stream,
        "folder": place,
        "archive_bytes": saved.size,
        "messages": saved.messages,
        "removed": saved.removed,
        "config": saved.document["config"],
        "state": saved.document["state"],
    }
    show_result(sentence, document, as_json=as_json)


@contextmanager
def _byte_progress_bar(description: str) -> Iterator[ProgressCallback]:
    """Show a progress bar for the bytes of a backup; yields the function to call with each step."""
    with progress_bar(description, DownloadColumn(binary_units=True)) as update:
        yield lambda step: update(completed=step.done, total=step.total)
