"""`jetspark kv`: shows and changes buckets, their keys and values, and watches changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.text import Text

import jetspark.errors as errors
from jetspark.cli import console
from jetspark.cli.app import command, group
from jetspark.cli.console import say, write_bytes
from jetspark.cli.content_flags import read_content
from jetspark.cli.flags import (
    Duration,
    ForceOption,
    JsonFlag,
    JsonLines,
    JsonOption,
    RawOption,
    Switch,
    check_json_or_raw,
    check_replicas,
    confirm,
)
from jetspark.cli.formatting import format_duration, format_limit, format_size, format_time
from jetspark.cli.listings import show_list, show_result
from jetspark.cli.server_flags import DEFAULT_SERVER, ServerFlags, describe_missing
from jetspark.cli.show_message import make_bytes_field
from jetspark.documents.configuration import given
from jetspark.documents.document import to_wire
from jetspark.kv_rules import MAX_HISTORY, STREAM_PREFIX
from jetspark.validation import check_sequence, check_whole

if TYPE_CHECKING:
    from jetspark.full_client import Client
    from jetspark.kv import Bucket, BucketStatus, Entry, Watcher

kv = group(
    "kv",
    "jetspark kv add prices --history 5",
    "jetspark kv put prices eu.apples 1.20",
    "jetspark kv get prices eu.apples",
    "jetspark kv watch prices",
)
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


_StdinOption = Annotated[Switch, Parameter(help="Read the value from standard input.")]


async def _open_bucket(nc: Client, name: str) -> Bucket:
    """Open a Key-Value bucket. Raises ConfigError for a missing one, with the nearest name."""
    js = nc.jetstream()
    try:
        return await js.bucket(name)
    except errors.BucketNotFoundError:
        buckets = await js.bucket_names().all()
        sentence = describe_missing(
            f'Bucket "{name}"', nc, name, buckets, listing="`jetspark kv ls` shows the buckets"
        )
        raise errors.ConfigError(sentence) from None


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


@command(kv, "jetspark kv info prices")
def info(
    bucket: str, /, *, connection: ServerFlags = DEFAULT_SERVER, json: JsonOption = False
) -> None:
    """Show a bucket's configuration and state.

    Args:
        bucket: Name of the bucket.
    """

    async def look(nc: Client) -> BucketStatus:
        return await (await _open_bucket(nc, bucket)).status()

    status = connection.run(look)
    show_result(_describe_bucket(status), to_wire(status.stream_info), as_json=json)


def _describe_bucket(status: BucketStatus) -> dict[str, object]:
    """The facts that `kv info` prints of a bucket, by label."""
    config, stream_info = status.config, status.stream_info
    facts = {heading: cell(status) for heading, cell in _COLUMNS.items()}
    return facts | {
        "description": config.description,
        "mirror of": status.mirror_name,
        "markers stay": status.limit_marker_ttl or None,
        "max value": format_limit(config.max_value_size, format_size),
        "max size": format_limit(config.max_bucket_size, format_size),
        "storage": config.storage,
        "replicas": config.replicas,
        "created": format_time(stream_info.created),
        "last change": format_time(stream_info.state.last_ts),
    }


@command(
    kv,
    "jetspark kv add prices",
    "jetspark kv add sessions --ttl 12h --marker-ttl 1h --replicas 3",
)
def add(
    bucket: str,
    /,
    *,
    history: int | None = None,
    ttl: Duration = None,
    marker_ttl: Duration = None,
    storage: Literal["file", "memory"] | None = None,
    replicas: int | None = None,
    description: str | None = None,
    connection: ServerFlags = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Create a bucket. An existing bucket with the same configuration is left unchanged.

    `jetspark stream edit KV_NAME` changes a bucket, and `jetspark stream rm KV_NAME` removes it.

    Args:
        bucket: Name of the bucket.
        history: Entries kept of each key, 1 (the default) to 64.
        ttl: Time after which an entry is removed, such as 12h; by default never.
        marker_ttl: Allow `create --ttl`, and mark what a time to live removes; a marker stays for
            this time, such as 1h. Needs nats-server 2.11.
        storage: file (the default) or memory.
        replicas: Number of replicas in the cluster.
        description: A text about the bucket.
    """
    check_replicas(replicas)
    if history is not None:
        check_whole("--history", history, 1, MAX_HISTORY)
    options: Any = given(
        history=history,
        ttl=ttl,
        limit_marker_ttl=marker_ttl,
        storage=storage,
        replicas=replicas,
        description=description,
    )

    async def create_bucket(nc: Client) -> BucketStatus:
        try:
            return await (await nc.jetstream().create_bucket(bucket, **options)).status()
        except errors.NameInUseError as error:
            error.add_note(f"`jetspark stream edit {STREAM_PREFIX}{bucket}` changes it.")
            raise

    status = connection.run(create_bucket)
    kept = "the current value" if status.history == 1 else f"{status.history} entries"
    sentence = f"Bucket {bucket} keeps {kept} of each key."
    show_result(sentence, to_wire(status.stream_info), as_json=json)


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


@command(
    kv,
    "jetspark kv put prices eu.apples 1.20",
    "jetspark kv put prices eu.apples 1.30 --revision 4",
    "jetspark kv put prices logo --stdin < logo.png",
)
def put(
    bucket: str,
    key: str,
    value: str | None = None,
    /,
    *,
    stdin: _StdinOption = False,
    revision: int | None = None,
    connection: ServerFlags = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Store a value under a key.

    Args:
        bucket: Name of the bucket.
        key: The key.
        value: The value; "" for an empty one.
        revision: Only if the last entry of the key has this revision, which `get` shows; for a key
            without an entry, use `create`.
    """
    content = _read_value(value, stdin=stdin)
    if revision is not None:
        check_sequence("--revision", revision)

    async def store(opened: Bucket) -> int:
        if revision is None:
            return await opened.put(key, content)
        return await opened.update(key, content, revision)

    _write(connection, bucket, key, store, f"Stored {key} in {bucket}", as_json=json)


@command(
    kv,
    "jetspark kv create prices eu.apples 1.20",
    "jetspark kv create sessions user-7 token --ttl 30m",
)
def create(
    bucket: str,
    key: str,
    value: str | None = None,
    /,
    *,
    stdin: _StdinOption = False,
    ttl: Duration = None,
    connection: ServerFlags = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Store a value under a key that has none; fail if it has one.

    Args:
        bucket: Name of the bucket.
        key: The key.
        value: The value; "" for an empty one.
        ttl: Time after which the value is removed, in whole seconds, such as 30m; the bucket needs
            --marker-ttl.
    """
    content = _read_value(value, stdin=stdin)
    if ttl is not None and (ttl < 1 or ttl % 1):
        raise errors.ConfigError("--ttl is in whole seconds, at least 1.")

    async def store(opened: Bucket) -> int:
        try:
            return await opened.create(key, content, ttl=ttl)
        except errors.NotEnabledOnStreamError:
            raise errors.ConfigError(
                f"Bucket {bucket} takes no --ttl, since it was made without --marker-ttl: leave "
                "--ttl out, or make another bucket with `jetspark kv add --marker-ttl 1h`."
            ) from None

    _write(connection, bucket, key, store, f"Created {key} in {bucket}", as_json=json)


@command(kv, "jetspark kv rm prices eu.apples", "jetspark kv rm prices eu.apples --purge --force")
def rm(
    bucket: str,
    key: str,
    /,
    *,
    purge: Switch = False,
    force: ForceOption = False,
    connection: ServerFlags = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Remove a key's value. A marker stays, and earlier values stay in the history.

    `jetspark stream rm KV_NAME` removes a whole bucket.

    Args:
        bucket: Name of the bucket.
        key: The key.
        purge: Remove the earlier values, too.
    """

    async def find(nc: Client) -> Entry:
        return await (await _open_bucket(nc, bucket)).get(key, leader=True)

    entry = connection.run(find)
    target = f"{key} and its history" if purge else key
    confirm(f"Remove {target} from {bucket} ({format_size(len(entry.value))})?", force)

    async def remove(opened: Bucket) -> int:
        """Remove the value that was asked about, and no newer one."""
        return await (opened.purge if purge else opened.delete)(key, entry.revision)

    _write(connection, bucket, key, remove, f"Removed {target} from {bucket}", as_json=json)


def _read_value(value: str | None, *, stdin: bool) -> bytes:
    """The value to store: an argument, or standard input. Raises ConfigError without either."""
    if value is None and not stdin:
        raise errors.ConfigError('Give the value, which may be "", or read it with --stdin.')
    return read_content("value", value or "", stdin=stdin)


def _write(
    connection: ServerFlags,
    bucket: str,
    key: str,
    write: Callable[[Bucket], Awaitable[int]],
    sentence: str,
    *,
    as_json: bool,
) -> None:
    """Change a key, and print the new revision after the sentence.

    `write`: makes the change; returns the revision. Raises ConfigError if it expected another
    revision than the key has.
    """

    async def change(nc: Client) -> int:
        opened = await _open_bucket(nc, bucket)
        try:
            return await write(opened)
        except errors.KeyExistsError:
            raise
        except errors.WrongLastSequenceError:
            raise errors.ConfigError(
                f"Nothing was changed: {key} has another revision. `jetspark kv history {bucket} "
                f"{key}` shows its last one."
            ) from None

    revision = connection.run(change)
    document = {"bucket": bucket, "key": key, "revision": revision}
    show_result(f"{sentence}, revision {revision:,}.", document, as_json=as_json)


@command(kv, "jetspark kv history prices eu.apples", 'jetspark kv history prices "eu.>" --json')
def history(
    bucket: str,
    /,
    *keys: str,
    connection: ServerFlags = DEFAULT_SERVER,
    json: JsonLines = False,
) -> None:
    """Show all entries that the bucket still has, oldest first, also the markers of removals.

    Args:
        bucket: Name of the bucket.
        keys: Only these keys; * matches one token, > one or more at the end.
    """

    async def show_all(nc: Client) -> bool:
        """Print the entries as they come; returns whether there are any."""
        found = False
        async for entry in (await _open_bucket(nc, bucket)).history(keys or ">"):
            _show_entry(entry, as_json=json)
            found = True
        return found

    if not (connection.run(show_all) or json):
        console.warn(f"Bucket {bucket} has no key{_describe_filters(keys)}.")


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
                console.warn(f"Bucket {bucket} has no key{_describe_filters(keys)} yet.")
            first = False

    connection.listen(
        entries, lambda entry: _show_entry(entry, as_json=json), to=f"to {bucket}", count=count
    )


def _describe_filters(keys: tuple[str, ...]) -> str:
    """The filters of keys for a sentence: " that matches eu.* or us.*"; "" without one."""
    return f" that matches {' or '.join(keys)}" if keys else ""


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
