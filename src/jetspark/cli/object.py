"""`jetspark object`: shows object stores and their objects, stores files, and fetches them."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from jetspark.cli import console
from jetspark.cli.app import command, group
from jetspark.cli.console import escape_to_line, write_bytes
from jetspark.cli.flags import ForceOption, JsonFlag, JsonOption, Switch, confirm
from jetspark.cli.formatting import format_duration, format_metadata, format_size, format_time
from jetspark.cli.listings import show_list, show_result
from jetspark.cli.server_flags import DEFAULT_SERVER, ServerFlags, describe_missing
from jetspark.documents.document import to_wire
from jetspark.errors import ConfigError, ObjectStoreNotFoundError
from jetspark.validation import path_of

if TYPE_CHECKING:
    from jetspark.full_client import Client
    from jetspark.objects import ObjectInfo, ObjectStore, ObjectStoreStatus

object = group(
    "object", "jetspark object put reports report.csv", "jetspark object get reports report.csv"
)
_STANDARD_STREAM = "-"  # in place of a file
_READ_BYTES = 1024 * 1024

_STORE_COLUMNS: dict[str, Callable[[ObjectStoreStatus], Any]] = {
    "store": lambda status: status.bucket,
    "size": lambda status: format_size(status.size),
    "time to live": lambda status: format_duration(status.config.ttl),
    "sealed": lambda status: "yes" if status.sealed else "no",
    "description": lambda status: status.description,
}
_OBJECT_COLUMNS: dict[str, Callable[[ObjectInfo], Any]] = {
    "object": lambda info: info.name,
    "size": lambda info: _format_link(info) or format_size(info.size),
    "modified": lambda info: format_time(info.mtime),
    "description": lambda info: info.description or "",
}


def _format_link(info: ObjectInfo) -> str:
    """The target of a link, such as "link to STORE/name"; "" for an object."""
    if info.link is None:
        return ""
    return "link to " + "/".join(filter(None, (info.link.bucket, info.link.name)))


async def _open_store(nc: Client, name: str) -> ObjectStore:
    """Open an object store. Raises ConfigError for a missing one, with the nearest name."""
    js = nc.jetstream()
    try:
        return await js.object_store(name)
    except ObjectStoreNotFoundError:
        stores = await js.object_store_names().all()
        raise ConfigError(describe_missing(f'Object store "{name}"', nc, name, stores)) from None


@command(object, "jetspark object ls", "jetspark object ls reports")
def ls(
    store: str | None = None,
    /,
    *,
    connection: ServerFlags = DEFAULT_SERVER,
    json: JsonFlag = False,
) -> None:
    """List the object stores, or the objects of one store.

    Args:
        store: Name of the store.
        json: Print one JSON array, with the server's document of each store, or of each object.
    """
    if store is None:
        statuses = connection.run(lambda nc: nc.jetstream().object_stores().all())
        statuses.sort(key=lambda status: status.bucket)
        show_list(
            statuses,
            _STORE_COLUMNS,
            as_json=json,
            document=lambda status: to_wire(status.stream_info),
        )
        return

    async def objects(nc: Client) -> list[ObjectInfo]:
        return await (await _open_store(nc, store)).objects().all()

    infos = sorted(connection.run(objects), key=lambda info: info.name)
    if infos or json:
        show_list(infos, _OBJECT_COLUMNS, as_json=json)
    else:
        console.warn(f"Object store {store} has no object.")


@command(
    object,
    "jetspark object put reports report.csv",
    "jetspark object put reports report.csv --name 2026/report.csv",
    "tar c logs | jetspark object put reports - --name logs.tar",
)
def put(
    store: str,
    file: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    connection: ServerFlags = DEFAULT_SERVER,
    name: str | None = None,
    description: str | None = None,
    json: JsonOption = False,
) -> None:
    """Store a file as an object, in place of the object of that name.

    The object is replaced when the new one is complete. A command that fails or is stopped leaves
    nothing in the store.

    Args:
        store: Name of the store.
        file: The file; - for standard input.
        name: Name of the object; by default the file's, without its folder.
        description: A text about the object.
    """
    if file.startswith("-") and file != _STANDARD_STREAM:
        raise ConfigError(f"There is no option {file}; write ./{file} for a file of that name.")
    if name is None and file == _STANDARD_STREAM:
        raise ConfigError("Standard input has no name: give the object one with --name.")
    path = path_of("file", file)
    object_name = path.name if name is None else name

    async def store_object(nc: Client) -> ObjectInfo:
        opened = await _open_store(nc, store)
        with _os_errors(f"Cannot read {file}"):
            return await opened.put(object_name, _read_file(file), description=description)

    info = connection.run(store_object)
    show_result(
        f"Stored {escape_to_line(info.name)} in {store} ({format_size(info.size)}).",
        to_wire(info),
        as_json=json,
    )


@command(
    object,
    "jetspark object get reports report.csv",
    "jetspark object get reports 2026/report.csv --output report.csv --force",
    "jetspark object get reports logs.tar --output - | tar x",
)
def get(
    store: str,
    name: str,
    /,
    *,
    connection: ServerFlags = DEFAULT_SERVER,
    output: Annotated[
        str | None, Parameter(name=("--output", "-o"), allow_leading_hyphen=True)
    ] = None,
    force: Annotated[Switch, Parameter(name=("--force", "-f"))] = False,
    json: JsonOption = False,
) -> None:
    """Write an object to a file.

    The file appears when it is complete and its digest is right. Without --output it gets the
    object's name, in the current folder, if that is a plain file name.

    Args:
        store: Name of the store.
        name: Name of the object, or of a link to one.
        output: The file; - for standard output.
        force: Replace the file if it exists.
    """
    to_output = output == _STANDARD_STREAM
    if to_output and json:
        raise ConfigError("With --output - the object goes to standard output: leave --json out.")
    path = path_of("--output", _check_file_name(name) if output is None else output)
    if not to_output and path.exists() and not path.is_file():
        raise ConfigError(f"{path} is not a file: name one with --output, or - to pipe the object.")
    if not (to_output or force) and os.path.lexists(path):  # also a broken symlink
        raise ConfigError(f"{path} exists already: add --force, or name another with --output.")

    async def fetch(nc: Client) -> ObjectInfo:
        opened = await _open_store(nc, store)
        if not to_output:
            with _os_errors(f"Cannot write {path}"):
                return await opened.get_into(name, path, overwrite=force)
        reader = await opened.get(name)
        async for chunk in reader:
            write_bytes(chunk)
        return reader.info

    info = connection.run(fetch)
    if not to_output:
        document = {**to_wire(info), "file": str(path)}
        show_result(f"Wrote {path} ({format_size(info.size)}).", document, as_json=json)


@command(object, "jetspark object info reports", "jetspark object info reports report.csv")
def info(
    store: str,
    name: str | None = None,
    /,
    *,
    connection: ServerFlags = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Show a store, or an object of it.

    Args:
        store: Name of the store.
        name: Name of the object or link.
    """

    if name is None:
        status = connection.run(lambda nc: _fetch_status(nc, store))
        show_result(_describe_store(status), to_wire(status.stream_info), as_json=json)
    else:
        object_info = connection.run(lambda nc: _fetch_info(nc, store, name))
        show_result(_describe_object(object_info), to_wire(object_info), as_json=json)


async def _fetch_status(nc: Client, store: str) -> ObjectStoreStatus:
    return await (await _open_store(nc, store)).status()


async def _fetch_info(nc: Client, store: str, name: str) -> ObjectInfo:
    return await (await _open_store(nc, store)).info(name)


def _describe_store(status: ObjectStoreStatus) -> dict[str, Any]:
    """The facts that `object info` prints of a store, by label."""
    return {
        **{heading: cell(status) for heading, cell in _STORE_COLUMNS.items()},
        "storage": status.storage,
        "replicas": status.replicas,
    }


def _describe_object(info: ObjectInfo) -> dict[str, Any]:
    """The facts that `object info` prints of an object or link, by label."""
    headers = ((key, value) for key, values in (info.headers or {}).items() for value in values)
    return {
        **{heading: cell(info) for heading, cell in _OBJECT_COLUMNS.items()},
        "chunks": f"{info.chunks:,}",
        "digest": info.digest,
        "headers": ", ".join(f"{key}: {value}" for key, value in headers),
        "metadata": format_metadata(info.metadata),
    }


@command(object, "jetspark object rm reports report.csv")
def rm(
    store: str,
    name: str,
    /,
    *,
    connection: ServerFlags = DEFAULT_SERVER,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Remove an object or a link.

    Args:
        store: Name of the store.
        name: Name of the object or link.
    """

    async def remove(nc: Client) -> None:
        await (await _open_store(nc, store)).delete(name)

    target = f"{escape_to_line(name)} from {store}"
    size = format_size(connection.run(lambda nc: _fetch_info(nc, store, name)).size)
    confirm(f"Remove {target} ({size})?", force)
    connection.run(remove)
    show_result(f"Removed {target} ({size}).", {"store": store, "removed": name}, as_json=json)


def _check_file_name(name: str) -> str:
    """Return an object's name if it can only be a file of the current folder.

    Raises ConfigError for any other name, since anyone who writes to the store chooses names.
    """
    if name.isprintable() and not name.startswith((".", "-")) and not set(name) & set('/\\:*?"<>|'):
        return name
    raise ConfigError(f"{name!r} is not a plain file name: name the file with --output.")


@contextmanager
def _os_errors(problem: str) -> Iterator[None]:
    """Raise ConfigError, which begins with the problem, for an OSError of the block."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{problem}: {error.strerror or error}.") from error


async def _read_file(file: str) -> AsyncIterator[bytes]:
    """The bytes of a file or of standard input.

    A daemon thread reads them, so that a signal does not wait for the writer of a pipe.
    """
    source: str | int = file
    if file == _STANDARD_STREAM:
        if sys.stdin is None:
            raise ConfigError("Standard input is closed.")
        source = sys.stdin.fileno()
    loop = asyncio.get_running_loop()
    blocks: asyncio.Queue[bytes | OSError] = asyncio.Queue(2)

    def hand_over(block: bytes | OSError) -> None:
        """Wait until there is room for the block. Raises RuntimeError if the loop is closed."""
        putting = blocks.put(block)
        try:
            asyncio.run_coroutine_threadsafe(putting, loop).result()
        except RuntimeError:
            putting.close()
            raise

    def read() -> None:
        """Read until the end, an error, or the end of the event loop."""
        with suppress(RuntimeError):
            try:
                with open(source, "rb", buffering=0, closefd=source is file) as opened:
                    while block := opened.read(_READ_BYTES):
                        hand_over(block)
            except OSError as error:
                hand_over(error)
            else:
                hand_over(b"")

    threading.Thread(target=read, name="jetspark-read", daemon=True).start()
    while block := await blocks.get():
        if isinstance(block, OSError):
            raise block
        yield block
