"""`jetspark stream backup`, `restore` and `verify`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path  # at run time: cyclopts reads the annotations
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from jetspark.archives.places import folder_to_read, folder_to_write
from jetspark.cli import console
from jetspark.cli.stream_session import JsonOption, check_replicas, show_json, size, with_jetstream
from jetspark.errors import NameInUseError
from jetspark.jetstream import verify_backup
from jetspark.jetstream.documents.document import to_wire

if TYPE_CHECKING:
    from jetspark.full_client import JetStream
    from jetspark.jetstream import BackupProgress, StreamBackup
    from jetspark.jetstream.backup.backup import ProgressCallback
    from jetspark.jetstream.documents import StreamInfo

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
