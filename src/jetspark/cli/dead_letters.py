"""`jetspark dead-letters`: messages that consumers gave up."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import App, Parameter

import jetspark
from jetspark.cli import console
from jetspark.cli.app import COMMANDS, examples
from jetspark.cli.console import JsonOption, run_until_stopped
from jetspark.cli.log import show_refusals
from jetspark.cli.stream_session import check_replicas, moment, show_table, where, with_jetstream
from jetspark.dead_letters.letter import ADVISORIES, as_json, letters_subject, watched_streams
from jetspark.errors import (
    ConfigError,
    ConsumerNotFoundError,
    JetsparkError,
    NotStoredError,
    StreamNotFoundError,
)
from jetspark.subjects import check_name

if TYPE_CHECKING:
    from jetspark.dead_letters import DeadLetter, DeadLetters, Replayed
    from jetspark.full_client import JetStream

_Several: TypeAlias = Annotated[list[str], Parameter(negative="")]
_SeveralOrNone: TypeAlias = Annotated[list[str] | None, Parameter(negative="")]
_Flag: TypeAlias = Annotated[bool, Parameter(negative=())]

dead_letters = App(
    name="dead-letters",
    help=COMMANDS["dead-letters"].line,
    help_epilogue=examples(
        "jetspark dead-letters create ORDERS_DEAD --stream ORDERS",
        "jetspark dead-letters run ORDERS_DEAD",
        "jetspark dead-letters ls ORDERS_DEAD",
        "jetspark dead-letters replay ORDERS_DEAD --consumer billing",
    ),
)


@dead_letters.command(
    sort_key=0,
    help_epilogue=examples("jetspark dead-letters create ORDERS_DEAD --stream ORDERS"),
)
def create(
    name: str,
    /,
    *,
    stream: _Several,
    consumer: _SeveralOrNone = None,
    replicas: int = 1,
    server: str | None = None,
    context: str | None = None,
) -> None:
    """Store what consumers give up from now on; made again, it changes what is there.

    Args:
        name: Name of the stream for the letters; NAME_ADVISORIES holds what is to be moved.
        stream: Stream whose consumers are watched; may be given again. Others no longer are.
        consumer: Only this consumer; may be given again.
        replicas: Replicas of both streams.
        server: URL of the server, several with commas; it may contain user and password. Without
            it and --context: that of the NATS_… variables, or nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
    """

    check_replicas(replicas)
    check_name("stream", name)
    stream = list(dict.fromkeys(stream))

    async def make(js: JetStream) -> tuple[set[str], DeadLetters]:
        before = await _watched(js, name)
        made = await js.create_dead_letters(name, stream, consumers=consumer, num_replicas=replicas)
        return before, made

    before, made = with_jetstream(server, context, make, stream=stream)
    console.say(
        f"Stores what is given up in {', '.join(stream)} as {made.advisories}; "
        f"`jetspark dead-letters run {made.name}` moves it to {made.name}."
    )
    if dropped := sorted(before.difference(stream)):
        console.say(
            f"No longer watched: {', '.join(dropped)}. To watch all, name each with --stream."
        )


async def _watched(js: JetStream, name: str) -> set[str]:
    """The streams whose consumers these dead letters watch; none when there are none yet."""
    with suppress(StreamNotFoundError):
        info = await js.stream_info(f"{name}{ADVISORIES}")
        return watched_streams(info.config) or set()
    return set()


async def _existing(js: JetStream, name: str) -> DeadLetters:
    """Raises ConfigError, with the names of those that there are."""
    try:
        return await js.dead_letters(name)
    except StreamNotFoundError:
        streams: list[str] = []
        with suppress(JetsparkError):  # who may not list them
            streams = await js.stream_names(letters_subject("*")).all()
        there = f"; there are {', '.join(streams)}" if streams else ""
        raise ConfigError(f'There are no dead letters "{name}"{there}.') from None


@dead_letters.command(
    sort_key=1,
    help_epilogue=examples(
        "jetspark dead-letters run ORDERS_DEAD", "jetspark dead-letters run ORDERS_DEAD --once"
    ),
)
def run(
    name: str,
    /,
    *,
    once: _Flag = False,
    remove_originals: _Flag = False,
    server: str | None = None,
    context: str | None = None,
) -> None:
    """Move messages to the dead letters, until Ctrl-C. Several may run; killing one loses nothing.

    Args:
        name: Name of the dead letters.
        once: Move what waits now, and end.
        remove_originals: Delete each message from its stream when its letter is stored.
        server: URL of the server, several with commas; it may contain user and password. Without
            it and --context: that of the NATS_… variables, or nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
    """
    if once:

        async def move(js: JetStream) -> tuple[int, int]:
            dead = await _existing(js, name)
            try:
                moved = await dead.move(remove_originals=remove_originals)
            except (StreamNotFoundError, ConsumerNotFoundError) as error:
                # Not of the name that was typed, but of one of its parts.
                raise ConfigError(str(error)) from None
            return moved, await dead.waiting()

        moved, left = with_jetstream(server, context, move, stream=name)
        console.say(f"{moved:,} moved")
        if left:
            console.say(
                f"{left:,} more wait: another worker has them (of one that was killed they are "
                "free after 30 s), or they failed and are tried again later."
            )
        return
    options = where(server, context)
    working = False

    async def work() -> None:
        nonlocal working
        async with jetspark.connect(**options) as nc:
            dead = await _existing(nc.jetstream(), name)
            async with dead.worker(remove_originals=remove_originals) as worker:
                console.err.print("Moving dead letters; Ctrl-C ends.", markup=False)
                working = True
                show_refusals(at_once=True)
                await worker.wait()

    run_until_stopped(work, endless=lambda: working)


@dead_letters.command(
    sort_key=2, help_epilogue=examples("jetspark dead-letters ls ORDERS_DEAD --json")
)
def ls(
    name: str,
    /,
    *,
    stream: str | None = None,
    consumer: str | None = None,
    subject: str | None = None,
    reason: str | None = None,
    server: str | None = None,
    context: str | None = None,
    json: JsonOption = False,
) -> None:
    """List the dead letters.

    Args:
        name: Name of the dead letters.
        stream: Only of this stream.
        consumer: Only of this consumer.
        subject: Only of messages on this subject, wildcards allowed.
        reason: Only max_deliver or terminated.
        server: URL of the server, several with commas; it may contain user and password. Without
            it and --context: that of the NATS_… variables, or nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
        json: One line of JSON for each letter, with headers and payload.
    """

    async def read(js: JetStream) -> list[DeadLetter]:
        dead = await _existing(js, name)
        chosen = dead.letters(stream=stream, consumer=consumer, subject=subject, reason=reason)
        return await chosen.all()

    found = with_jetstream(server, context, read, stream=name)
    if json:
        for letter in found:
            console.say_json(as_json(letter))
        return
    headings = ("letter", "reason", "stream", "sequence", "consumer", "deliveries", "time")
    show_table(*headings, "subject", "bytes", rows=map(_row, found))


def _row(letter: DeadLetter) -> tuple[object, ...]:
    why = f"{letter.reason}: {letter.text}" if letter.text else letter.reason
    place = (letter.seq, why, letter.stream, letter.stream_seq, letter.consumer)
    size = letter.missing or f"{len(letter.data):,}"
    return (
        *place,
        letter.deliveries,
        moment(letter.time),
        letter.subject or "–",
        size,
    )


@dead_letters.command(
    sort_key=3,
    help_epilogue=examples(
        "jetspark dead-letters replay ORDERS_DEAD",
        'jetspark dead-letters replay ORDERS_DEAD --subject "orders.eu.>" --to orders.again',
    ),
)
def replay(
    name: str,
    /,
    *,
    stream: str | None = None,
    consumer: str | None = None,
    subject: str | None = None,
    reason: str | None = None,
    to: str | None = None,
    keep: _Flag = False,
    server: str | None = None,
    context: str | None = None,
) -> None:
    """Publish messages of dead letters again, and delete these letters.

    Args:
        name: Name of the dead letters.
        stream: Only of this stream.
        consumer: Only of this consumer.
        subject: Only of messages on this subject, wildcards allowed.
        reason: Only max_deliver or terminated.
        to: Publish to this subject, in place of each message's own.
        keep: Do not delete the letters.
        server: URL of the server, several with commas; it may contain user and password. Without
            it and --context: that of the NATS_… variables, or nats://127.0.0.1:4222.
        context: A context of the nats command, in place of --server.
    """

    async def publish(js: JetStream) -> Replayed:
        dead = await _existing(js, name)
        return await dead.replay(
            stream=stream, consumer=consumer, subject=subject, reason=reason, to=to, keep=keep
        )

    replayed, skipped, unproven, duplicates = with_jetstream(server, context, publish, stream=name)
    console.say(f"{replayed:,} replayed · {skipped:,} without payload")
    if duplicates:
        console.say(
            f"The stream has {console.counted(duplicates, 'message')} already, from a replay "
            "within its duplicate window: it stored none again."
        )
    if unproven:
        raise NotStoredError(f"{console.counted(unproven, 'letter')} stay; see above.")
