"""`jetspark kv`: shows buckets, their keys and values, and what changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from rich.text import Text

from jetspark.cli import console
from jetspark.cli.app import command, group
from jetspark.cli.console import say, write_bytes
from jetspark.cli.flags import JsonFlag, JsonLines, RawOption, check_json_or_raw
from jetspark.cli.formatting import format_duration, format_size, format_time
from jetspark.cli.listings import show_list
from jetspark.cli.server_flags import DEFAULT_SERVER, ServerFlags, describe_missing
from jetspark.cli.show_message import make_bytes_field
from jetspark.documents.document import to_wire
from jetspark.errors import BucketNotFoundError, ConfigError
from jetspark.kv_rules import STREAM_PREFIX

if TYPE_CHECKING:
    from jetspark.full_client import Client
    from jetspark.kv import Bucket, BucketStatus, Entry, Watcher

kv = group("kv", "jetspark kv ls prices", "jetspark kv get prices eu.apples")
_COLUMNS: dict[str, Callable[[BucketStatus], object]] = {
    "bucket": lambda status: _bucket_name(status),
    "entries": lambda status: f"{status.values:,}",
    "size": lambda status: format_size(status.bytes),
    "history": lambda status: status.history,
    "time to live": lambda status: format_duration(status.config.ttl),
}


def _bucket_name(status: BucketStatus) -> str:
    """The name of a bucket, without the prefix of its stream."""
    return status.stream_info.name.removeprefix(STREAM_PREFIX)


async def _open_bucket(nc: Client, name: str) -> Bucket:
    """Open a Key-Value bucket. Raises ConfigError for a missing one, with the nearest name."""
    js = nc.jetstream()
    try:
        return await js.bucket(name)
    except BucketNotFoundError:
        buckets = await js.bucket_names().all()
        raise ConfigError(describe_missing(f'Bucket "{name}"', nc, name, buckets)) from None


@command(kv, "jetspark kv ls", "jetspark kv ls prices")
def ls(
    bucket: str | None = None,
    /,
    *,
    connection: ServerFlags = DEFAULT_SERVER,
    json: JsonFlag = False,
) -> None:
    """List the buckets, or the keys of one bucket that have a value.

    Args:
        bucket: Name of the bucket.
        json: Print one JSON array: of the keys, or with the server's document of each bucket.
    """
    if bucket is None:
        buckets = connection.run(lambda nc: nc.jetstream().buckets().all())
        statuses = sorted(buckets, key=_bucket_name)
        show_list(
            statuses, _COLUMNS, as_json=json, document=lambda status: to_wire(status.stream_info)
        )
        return

    async def keys(nc: Client) -> list[str]:
        return sorted(await (await _open_bucket(nc, bucket)).keys().all())

    names = connection.run(keys)
    if json:
        console.say_json(names, indent=True)
    elif names:
        say(*names)
    else:
        console.warn(f"Bucket {bucket} has no key with a value.")


@command(kv, "jetspark kv get prices eu.apples", "jetspark kv get prices eu.apples --raw > price")
def get(
    bucket: str,
    key: str,
    /,
    *,
    connection: ServerFlags = DEFAULT_SERVER,
    revision: int | None = None,
    json: JsonLines = False,
    raw: RawOption = False,
) -> None:
    """Show the value of a key.

    Args:
        bucket: Name of the bucket.
        key: The key.
        revision: The value of this revision; by default the current one.
        raw: Only the value, unchanged.
    """
    check_json_or_raw(as_json=json, raw=raw)

    async def entry(nc: Client) -> Entry:
        return await (await _open_bucket(nc, bucket)).get(key, revision)

    _show_entry(connection.run(entry), as_json=json, raw=raw)


@command(kv, "jetspark kv watch prices", 'jetspark kv watch prices "eu.*" --count 10 --json')
def watch(
    bucket: str,
    /,
    *keys: str,
    connection: ServerFlags = DEFAULT_SERVER,
    count: int | None = None,
    json: JsonLines = False,
) -> None:
    """Show the current value of each key, then every change, until Ctrl-C.

    Args:
        bucket: Name of the bucket.
        keys: Only these keys; * matches one token, > one or more at the end.
        count: End after this many entries.
    """

    @asynccontextmanager
    async def entries(nc: Client) -> AsyncIterator[AsyncIterator[Entry]]:
        async with (await _open_bucket(nc, bucket)).watch(keys or ">") as watcher:
            yield current_values_first(watcher)

    async def current_values_first(watcher: Watcher) -> AsyncIterator[Entry]:
        """Pass on the entries of a watcher; warn if the bucket has no current value.

        The watcher first gives the current values, then None as their end, then the changes.
        """
        first = True  # nothing has come yet
        async for entry in watcher:
            if entry is not None:
                yield entry
            elif first and not json:  # None comes first: there are no current values
                condition = f" that matches {' or '.join(keys)}" if keys else ""
                console.warn(f"Bucket {bucket} has no key{condition} yet.")
            first = False

    connection.listen(
        entries, lambda entry: _show_entry(entry, as_json=json), to=f"to {bucket}", count=count
    )


def _show_entry(entry: Entry, *, as_json: bool, raw: bool = False) -> None:
    """Print one revision of a key: for people, as a line of JSON, or only its value (`raw`)."""
    if raw:
        write_bytes(entry.value)
    elif as_json:
        console.say_json(_make_document(entry))
    else:
        head = Text.assemble(
            (entry.key, "bold"),
            (f"  revision {entry.revision:,}  {format_time(entry.created)}", "dim"),
        )
        if entry.is_deleted:
            say(head.append(f"  {entry.operation}", style="dim"))
        else:
            say(head, entry.value.decode("utf-8", "backslashreplace"))


def _make_document(entry: Entry) -> dict[str, Any]:
    """Describe one revision of a key for --json.

    It has `value`, or `value_base64` if that is not UTF-8; a deletion has neither.
    """
    document: dict[str, Any] = {
        "bucket": entry.bucket,
        "key": entry.key,
        "revision": entry.revision,
        "created": entry.created.isoformat(),
        "operation": str(entry.operation),
    }
    return document if entry.is_deleted else document | make_bytes_field("value", entry.value)
