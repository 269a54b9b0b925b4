"""`jetspark dead-letters`: messages that consumers gave up on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

import jetspark.errors as errors
from jetspark.cli import console
from jetspark.cli.app import command, group
from jetspark.cli.command_line import show_command
from jetspark.cli.flags import JsonFlag, JsonOption, MetricsOption, Repeated, Switch, check_replicas
from jetspark.cli.formatting import format_count, format_time
from jetspark.cli.listings import show_list, show_result
from jetspark.cli.log import print_refusals
from jetspark.cli.server_flags import DEFAULT_SERVER, ServerFlags
from jetspark.dead_letters.letter import ADVISORIES, as_json, watched_streams
from jetspark.letter_rules import letters_subject
from jetspark.metrics.names import MOVED
from jetspark.metrics.observing import observe
from jetspark.subjects import check_name

if TYPE_CHECKING:
    from jetspark.dead_letters import DeadLetter, DeadLetters, Replayed
    from jetspark.full_client import Client, JetStream

dead_letters = group(
    "dead-letters",
    "jetspark dead-letters create ORDERS_DEAD --stream ORDERS",
    "jetspark dead-letters run ORDERS_DEAD",
    "jetspark dead-letters ls ORDERS_DEAD",
    "jetspark dead-letters replay ORDERS_DEAD --consumer billing",
)
_COLUMNS: dict[str, Callable[[DeadLetter], object]] = {
    "letter": lambda letter: letter.seq,
    "reason": lambda letter: f"{letter.reason}: {letter.text}" if letter.text else letter.reason,
    "stream": lambda letter: letter.stream,
    "sequence": lambda letter: letter.stream_seq,
    "consumer": lambda letter: letter.consumer,
    "deliveries": lambda letter: letter.deliveries,
    "time": lambda letter: format_time(letter.time),
    "subject": lambda letter: letter.subject or "–",
    "bytes": lambda letter: letter.missing or f"{len(letter.data):,}",
}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LetterFilters:
    """The flags that select dead letters: messages that a consumer gave up on."""

    stream: str | None = None
    """Only of this stream."""
    consumer: str | None = None
    """Only of this consumer."""
    subject: str | None = None
    """Only of messages on this subject, wildcards allowed."""
    reason: str | None = None
    """Only max_deliver, terminated or quarantined."""


_ALL_LETTERS = LetterFilters()


@command(dead_letters, "jetspark dead-letters create ORDERS_DEAD --stream ORDERS")
def create(
    name: str,
    /,
    *,
    stream: Annotated[list[str], Parameter(negative="")],
    consumer: Repeated = None,
    replicas: int = 1,
    connection: ServerFlags = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Store messages that consumers give up on from now on; to add a stream, name all streams.

    Args:
        name: Name of the stream for the dead letters; NAME_ADVISORIES holds the advisories.
        stream: Stream whose consumers are watched; may be given again. Replaces an earlier list.
        consumer: Only this consumer; may be given again.
        replicas: Replicas of both streams.
    """
    check_replicas(replicas)
    check_name("stream", name)
    stream = list(dict.fromkeys(stream))

    async def make(js: JetStream) -> tuple[set[str], DeadLetters]:
        """Create or change the dead letters; also returns the streams that were watched before."""
        before: set[str] = set()
        with suppress(errors.StreamNotFoundError):
            info = await js.stream(f"{name}{ADVISORIES}").info()
            before = watched_streams(info.config) or before  # None: not a stream of advisories
        with suppress(errors.StreamNotFoundError):
            info = await js.stream(name).info()
            if info.config.subjects != [letters_subject(name)]:
                raise errors.ConfigError(
                    f'Stream "{name}" exists and has other messages: give the dead letters a name '
                    f"of their own, such as {name}_DEAD."
                )
        dead = await js.create_or_update_dead_letters(
            name, stream, consumers=consumer, num_replicas=replicas
        )
        return before, dead

    before, dead = connection.jetstream(make, stream=stream)
    dropped = sorted(before.difference(stream))
    sentence = (
        f"The advisories of messages that {', '.join(stream)} gives up go to {dead.advisories}; "
        f"`jetspark dead-letters run {dead.name}` moves the messages to {dead.name}."
    )
    if dropped:
        sentence += (
            f"\nNo longer watched: {', '.join(dropped)}. To watch all, name each with --stream."
        )
    document = {"name": dead.name, "advisories": dead.advisories, "streams": stream}
    show_result(sentence, document | {"dropped": dropped}, as_json=json)


async def _open_dead_letters(js: JetStream, name: str) -> DeadLetters:
    """Open the dead letters of this name: the stream of messages that consumers gave up on.

    Raises ConfigError for an unknown name, with the names that there are.
    """
    try:
        return await js.dead_letters(name)
    except errors.StreamNotFoundError:
        streams: list[str] = []
        with suppress(errors.JetsparkError):  # no permission to list them
            # Each stream of dead letters has a subject of this form.
            streams = await js.stream_names(letters_subject("*")).all()
        hint = f"; there are {', '.join(streams)}" if streams else ""
        raise errors.ConfigError(f'There are no dead letters "{name}"{hint}.') from None


@command(
    dead_letters,
    "jetspark dead-letters run ORDERS_DEAD",
    "jetspark dead-letters run ORDERS_DEAD --once",
)
def run(
    name: str,
    /,
    *,
    once: Switch = False,
    metrics: MetricsOption = None,
    remove_originals: Switch = False,
    connection: ServerFlags = DEFAULT_SERVER,
    json: JsonFlag = False,
) -> None:
    """Move messages to the dead letters, until Ctrl-C. Several may run; killing one loses nothing.

    Args:
        name: Name of the dead letters.
        once: Move the messages that wait now, and end.
        remove_originals: Delete each message from its stream when its dead letter is stored.
        json: With --once, print the numbers of moved and waiting messages as one JSON document.
    """
    if once and metrics is not None:
        raise errors.ConfigError("--metrics is for a worker that goes on: leave --once out.")
    if json and not once:
        raise errors.ConfigError("--json is for --once: a worker that goes on has no result.")
    if once:

        async def move(nc: Client) -> tuple[int, int]:
            """Move the messages that wait now; returns how many, and how many still wait."""
            dead = await _open_dead_letters(nc.jetstream(), name)
            return await dead.move(remove_originals=remove_originals), await dead.waiting()

        moved, left = connection.run(move)
        sentence = f"{moved:,} moved"
        if left:
            sentence += (
                f"\n{left:,} more wait: another worker has them (a killed worker's are "
                "free after 30 s), or they failed and will be retried."
            )
        show_result(sentence, {"moved": moved, "waiting": left}, as_json=json)
        return

    async def work(nc: Client, begin: Callable[[str], None]) -> None:
        """Move dead letters until a signal; `begin` announces that on the terminal."""
        dead = await _open_dead_letters(nc.jetstream(), name)
        async with dead.worker(remove_originals=remove_originals) as worker:
            begin("Moving dead letters")
            print_refusals(at_once=True)  # from now on the server's refusals are logged at once
            with _serving_metrics(metrics, nc, lambda: [(name, worker.moved)]):
                await worker.wait_stopped()

    connection.follow(work, hooks=None if metrics is None else observe())


@contextmanager
def _serving_metrics(
    address: str | None, nc: Client, moved: Callable[[], Any] = list
) -> Iterator[None]:
    """Serve Prometheus metrics and health probes on `address` during the block; None: do nothing.

    `moved`: is called for each scrape, and returns pairs of a name of dead letters and the number
    of messages that this command has moved there so far.
    """
    if address is None:
        yield
        return
    from jetspark.metrics.endpoint import Health, collected, family, serving

    def collect() -> Iterator[Any]:
        """The metric of moved messages, for one scrape."""
        metric = family(MOVED)
        for name, count in moved():
            metric.add_metric([name], count)
        yield metric

    health = Health(lambda: [] if nc.is_connected else ["there is no link to a server"])
    command = show_command(sys.argv[1:])
    with serving(address, health, command=command), collected(collect):
        yield


@command(dead_letters, "jetspark dead-letters ls ORDERS_DEAD --json")
def ls(
    name: str,
    /,
    *,
    selection: LetterFilters = _ALL_LETTERS,
    connection: ServerFlags = DEFAULT_SERVER,
    json: JsonFlag = False,
) -> None:
    """List the dead letters.

    Args:
        name: Name of the dead letters.
        json: One line of JSON for each letter, with headers and payload.
    """

    async def read(nc: Client) -> list[DeadLetter]:
        """Read the selected dead letters."""
        dead = await _open_dead_letters(nc.jetstream(), name)
        return await dead.letters(**asdict(selection)).all()

    selected = connection.run(read)
    if not json:
        show_list(selected, _COLUMNS, as_json=False)
        return
    for letter in selected:
        console.say_json(as_json(letter))


@command(
    dead_letters,
    "jetspark dead-letters replay ORDERS_DEAD",
    'jetspark dead-letters replay ORDERS_DEAD --subject "orders.eu.>" --to orders.again',
)
def replay(
    name: str,
    /,
    *,
    selection: LetterFilters = _ALL_LETTERS,
    to: str | None = None,
    keep: Switch = False,
    metrics: MetricsOption = None,
    connection: ServerFlags = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Publish messages of dead letters again, and delete these letters.

    Args:
        name: Name of the dead letters.
        to: Publish to this subject, in place of each message's own.
        keep: Do not delete the letters.
    """

    async def publish(nc: Client) -> Replayed:
        """Publish the messages of the selected dead letters again; returns what became of them."""
        dead = await _open_dead_letters(nc.jetstream(), name)
        with _serving_metrics(metrics, nc):
            return await dead.replay(**asdict(selection), to=to, keep=keep)

    hooks = None if metrics is None else observe()
    replayed, skipped, unproven, duplicates = connection.run(publish, hooks=hooks)
    sentence = f"{replayed:,} replayed · {skipped:,} without payload"
    if duplicates:
        sentence += (
            f"\nThe stream already has {format_count(duplicates, 'message')} from a replay "
            "within its duplicate window, and stored none again."
        )
    figures = {"replayed": replayed, "skipped": skipped, "unproven": unproven}
    show_result(sentence, figures | {"duplicates": duplicates}, as_json=json)
    if unproven:  # kept, as a stream had stored their messages but no longer has them
        raise errors.NotStoredError(f"{format_count(unproven, 'letter')} stay; see above.")
