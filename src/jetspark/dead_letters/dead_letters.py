"""Dead letters: created, read, moved and replayed.

Contract: there are two streams. One stores the advisories that a server publishes when a consumer
gives up a message, until a worker has handled them; it must exist beforehand, since advisories are
not repeated. The other stores the letters.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Unpack

import jetspark.errors as errors
from jetspark.client.listing import Listing
from jetspark.dead_letters.letter import (
    ADVISORIES,
    KINDS,
    REASONS,
    WORKER,
    DeadLetter,
    check_replay_subject,
    filter_subject,
    read_letter,
    replayed_headers,
    watched_streams,
)
from jetspark.dead_letters.worker import DeadLetterWorker, Mover, is_stored
from jetspark.documents.document import text_of_time
from jetspark.documents.events import event_subjects
from jetspark.documents.streams import RetentionPolicy, StreamSettings
from jetspark.err_codes import STREAM_NOT_FOUND
from jetspark.jetstream.context import JetStreamContext
from jetspark.letter_rules import letters_subject
from jetspark.subjects import (
    check_name,
    check_publish_subject,
    check_subscribe_subject,
    subject_matches,
    subjects_overlap,
)
from jetspark.validation import check_word, texts_of

if TYPE_CHECKING:
    from jetspark.documents.streams import StreamInfo


class Replayed(NamedTuple):
    """Numbers of letters that a replay handled, by outcome."""

    replayed: int
    """Letters whose messages were published again."""
    skipped: int
    """Letters without a payload, which stay."""
    unproven: int = 0
    """Letters that stay because a stream stored their messages within its duplicate window, but no
    longer has them.
    """
    duplicates: int = 0
    """Letters whose messages an earlier replay stored, within the stream's duplicate window."""


class DeadLetters:
    """The dead letters of some streams or consumers; see `JetStream.create_or_update_dead_letters`.

    Calls to the server raise the errors of every API call (see `JetStream`).

    Example:
        ```python
        dead = await js.create_or_update_dead_letters("ORDERS_DEAD", "ORDERS")
        async for letter in dead.letters(reason="max_deliver"):
            print(letter.subject, letter.consumer, letter.data)
        ```
    """

    def __init__(self, js: JetStreamContext, info: StreamInfo) -> None:
        self._js = js
        self._info = info
        self._stored = js.stream(self.name)
        self._waiting = js.stream(self.advisories)
        self._work_queues: dict[str, bool] = {}
        """Whether streams of letters are work queues."""

    @property
    def name(self) -> str:
        """The name of the stream that stores the letters."""
        return self._info.name

    @property
    def advisories(self) -> str:
        """The name of the stream that stores the advisories until they are handled."""
        return f"{self.name}{ADVISORIES}"

    # -- moving ----------------------------------------------------------------------------------

    def worker(self, *, remove_originals: bool = False) -> DeadLetterWorker:
        """A worker that moves messages inside its block.

        `remove_originals`: delete each message from its stream when its letter is stored; in work
        queues it would stay for ever. Entering raises ConsumerNotFoundError or StreamNotFoundError
        when the dead letters were deleted. Later failures are reported and retried.
        """
        return DeadLetterWorker(self._js, self.name, remove_originals=remove_originals)

    async def move(self, *, remove_originals: bool = False) -> int:
        """Move all messages that wait now; returns how many. For scheduled jobs.

        Failures are reported, and left to the next call or worker. Messages of a killed worker are
        free after 30 seconds. Raises the errors of entering a worker.
        """
        consumer = await self._waiting.consumer(WORKER)
        mover = Mover(self._js, self.name, remove_originals=remove_originals)
        while advisories := await consumer.fetch(100):
            for advisory in advisories:
                await mover.move(advisory)
        return mover.moved

    async def waiting(self) -> int:
        """Number of advisories that wait for a worker."""
        return (await self._waiting.info()).state.messages

    # -- reading ---------------------------------------------------------------------------------

    def letters(
        self,
        *,
        stream: str | None = None,
        consumer: str | None = None,
        subject: str | None = None,
        reason: str | None = None,
    ) -> Listing[DeadLetter]:
        """The letters that are stored now, oldest first.

        `stream`, `consumer`: only of these. `subject`: only of messages on it, wildcards allowed.
        `reason`: only "max_deliver", "terminated" or "quarantined". A message that is not a letter
        is reported and left out. Iterating raises ConfigError for a stream or consumer that is not
        watched and has no letter.
        """
        for kind, name in (("stream", stream), ("consumer", consumer)):
            if name is not None:
                check_name(kind, name)
        if subject is not None:
            check_subscribe_subject(subject)
        if reason is not None:
            check_word("reason", reason, REASONS)
        return Listing(partial(self._read, stream, consumer, subject, reason))

    async def _read(
        self, stream: str | None, consumer: str | None, subject: str | None, reason: str | None
    ) -> AsyncIterator[DeadLetter]:
        filter_ = filter_subject(self.name, stream, consumer)
        last = (await self._stored.info()).state.last_seq
        seq = 1
        while seq <= last:
            try:
                stored = await self._stored.get(seq, next_by_subject=filter_, direct=False)
            except errors.MessageNotFoundError:
                break
            if stored.seq > last:
                return  # a newer letter
            seq = stored.seq + 1
            try:
                letter = read_letter(stored)
            except errors.JetStreamError as error:  # anybody may publish on these subjects
                self._js.client.report(error)
                continue
            on_subject = subject is None or (
                letter.subject is not None and subject_matches(subject, letter.subject)
            )
            if on_subject and reason in (None, letter.reason):
                yield letter
        if seq == 1:
            await self._check_watched(stream, consumer)

    async def _check_watched(self, stream: str | None, consumer: str | None) -> None:
        """Raise ConfigError for a misspelt name, which would silently match nothing."""
        if stream in (None, self.advisories) and consumer in (None, WORKER):
            return  # the names in letters of unreadable advisories
        watched: Iterable[str] = ()
        with suppress(errors.StreamNotFoundError):
            watched = (await self._waiting.info()).config.subjects or ()
        chosen = event_subjects(KINDS, stream, consumer)
        if any(subjects_overlap(pattern, subject) for pattern in chosen for subject in watched):
            return
        names = (("stream", stream), ("consumer", consumer))
        filters_text = ", ".join(
            f"{kind} {errors.safe_repr(name)}" for kind, name in names if name is not None
        )
        watched_names = sorted({" > ".join(subject.split(".")[-2:]) for subject in watched})
        raise errors.ConfigError(
            f"Dead letters {self.name!r} have no letter of {filters_text}, and do not watch it. "
            f"They watch (stream > consumer): {', '.join(watched_names) or 'none'}."
        )

    async def letter(self, seq: int) -> DeadLetter:
        """The letter with this sequence. Raises MessageNotFoundError, StreamNotFoundError."""
        return read_letter(await self._stored.get(seq, direct=False))

    async def delete(self, letter: DeadLetter) -> None:
        """Delete a letter. Raises MessageNotFoundError when it no longer exists."""
        await self._stored.delete_msg(letter.seq)

    # -- replaying -------------------------------------------------------------------------------

    async def replay(
        self,
        *,
        stream: str | None = None,
        consumer: str | None = None,
        subject: str | None = None,
        reason: str | None = None,
        to: str | None = None,
        keep: bool = False,
    ) -> Replayed:
        """Publish the messages of the letters again, in their order, and delete these letters.

        `stream`, `consumer`, `subject`, `reason`: as for `letters`. `to`: the subject for all;
        default: each message's own. `keep`: do not delete the letters. A letter without payload
        stays. A message keeps its headers, except those of its first publish (Nats-Msg-Id,
        conditions). A second replay repeats no message within the duplicate window of the stream
        that takes it. If that stream has removed the message since, the letter is reported and
        stays. A message that goes back into its work queue replaces the original, which is deleted
        if it is still there; without the permission for that, the original is reported and stays.

        Raises ConfigError when `to` is a subject of dead letters or of the server;
        NoStreamResponseError when no stream takes a message, and the errors of `publish` and
        `letters`. The letters from there on are untouched.

        Example:
            ```python
            dead = await js.create_or_update_dead_letters("ORDERS_DEAD", "ORDERS")
            result = await dead.replay(subject="orders.eu")
            print(result.replayed)  # 0
            ```
        """
        if to is not None:
            check_publish_subject(to)
            check_replay_subject(to)
        replayed = skipped = unproven = duplicates = 0
        matches = self.letters(stream=stream, consumer=consumer, subject=subject, reason=reason)
        async for letter in matches:
            if letter.subject is None or letter.missing is not None:
                skipped += 1
                continue
            try:
                stored = await self.replay_letter(letter, to=to, keep=keep)
            except errors.NotStoredError as error:
                self._js.client.report(error)
                unproven += 1
                continue
            replayed += stored
            duplicates += not stored
        return Replayed(replayed, skipped, unproven, duplicates)

    async def replay_letter(
        self, letter: DeadLetter, *, to: str | None = None, keep: bool = False
    ) -> bool:
        """`replay` for one letter. False: an earlier replay stored its message.

        Raises MessageNotFoundError when it has no payload, NotStoredError when its message was
        stored before but no longer exists, and the errors of `replay`.
        """
        if letter.subject is None or letter.missing is not None:
            text = f"Letter {letter.seq} has no payload: the message is {letter.missing or 'gone'}."
            raise errors.MessageNotFoundError(404, 0, "no payload", text)
        subject = to or letter.subject
        check_replay_subject(subject, own=to is None)
        msg_id = f"{self.name}.{text_of_time(self._info.created)}.{letter.seq}.{subject}"
        ack = await self._js.publish(
            subject, letter.data, headers=replayed_headers(letter), msg_id=msg_id
        )
        if not await is_stored(self._js, ack, msg_id, letter.data):
            raise errors.NotStoredError(
                f"Letter {letter.seq} stays: stream {ack.stream!r} had stored its message before, "
                "and does not have it now. To publish it again, replay it after the stream's "
                "duplicate window; if it is done with, delete the letter."
            )
        if ack.stream == letter.stream:
            await self._remove_original(letter)
        if not keep:
            with suppress(errors.MessageNotFoundError):  # another replay was faster
                await self._stored.delete_msg(letter.seq)
        return not ack.duplicate

    async def _remove_original(self, letter: DeadLetter) -> None:
        """Delete a message that a consumer gave up from its work queue, once it is there again."""
        stream, js = letter.stream, self._js
        if letter.reason not in KINDS:
            return
        with suppress(errors.MessageNotFoundError, errors.StreamNotFoundError):
            if stream not in self._work_queues:
                config = (await js.stream(stream).info()).config
                self._work_queues[stream] = config.retention == RetentionPolicy.WORK_QUEUE
            if not self._work_queues[stream]:
                return
            original = await js.stream(stream).get(letter.stream_seq, direct=False)
            # In a recreated stream the sequence is another message.
            if (original.time, original.data) != (letter.published, letter.data):
                return
            try:
                await js.stream(stream).delete_msg(letter.stream_seq)
            except errors.PermissionsError as error:
                text = (
                    f"Message {letter.stream_seq} stays in work queue {stream!r} beside the one "
                    f"that letter {letter.seq} put there again: {error}"
                )
                js.client.report(errors.JetStreamError(text))

    def __repr__(self) -> str:
        return f"DeadLetters({self.name!r})"


_FIXED_OPTIONS: Final = frozenset({"name", "subjects", "retention", "mirror", "sources"})

_SHARED = {"storage", "num_replicas", "placement"}
"""Options of the stream of letters that apply to the stream of advisories, too."""


class DeadLetterCalls(JetStreamContext):
    """The calls of JetStream for dead letters."""

    async def create_or_update_dead_letters(
        self,
        name: str,
        streams: str | Iterable[str],
        *,
        consumers: str | Iterable[str] | None = None,
        **options: Unpack[StreamSettings],
    ) -> DeadLetters:
        """Store the messages that consumers of `streams` give up, from now on.

        These are messages delivered `max_deliver` times without an ack, and terminated ones
        (`term`). A worker moves them (`DeadLetters.worker`). `consumers`: only of these. `name`:
        the stream of the letters; a second one, `<name>_ADVISORIES`, holds what waits for a worker.
        A second call changes existing dead letters. `options`: fields of StreamConfig for the
        stream of the letters, such as max_age; storage, num_replicas and placement apply to both.

        Raises ConfigError when another stream has one of the names or already stores these
        advisories, and when letters that are given up would return to these dead letters;
        StreamNotFoundError for a missing one of `streams`; and the errors of every API call (see
        `JetStream`).

        Example:
            ```python
            dead = await js.create_or_update_dead_letters("ORDERS_DEAD", "ORDERS")
            async with dead.worker():
                pass  # moves what consumers of ORDERS give up
            ```
        """
        if wrong := sorted(_FIXED_OPTIONS & options.keys()):
            raise errors.ConfigError(f"create_or_update_dead_letters decides on {wrong[0]} itself.")
        check_name("stream", name)
        watched = _names("stream", streams)
        subjects = [
            subject
            for stream in watched
            for consumer in (_names("consumer", consumers) if consumers is not None else [None])
            for subject in event_subjects(KINDS, stream, consumer)
        ]
        await self._check_free(name, subjects)
        await self._check_endless(name, watched)
        for stream in watched:  # a misspelt name would silently watch nothing
            if not await self._is_there(stream):
                text = f'Stream "{stream}" not found.'
                raise errors.StreamNotFoundError(404, STREAM_NOT_FOUND, "stream not found", text)
        advisories = f"{name}{ADVISORIES}"
        new = [stream for stream in (name, advisories) if not await self._is_there(stream)]
        try:
            letters = await self.create_or_update_stream(
                name=name, subjects=[letters_subject(name)], **options
            )
            await self.create_or_update_stream(
                {option: value for option, value in options.items() if option in _SHARED},
                name=advisories,
                subjects=subjects,
                retention="workqueue",
            )
            await self.stream(advisories).create_or_update_consumer(
                durable_name=WORKER, ack_policy="explicit", max_deliver=-1
            )
        except errors.JetsparkError as error:
            await self._delete(new, error)
            raise
        return DeadLetters(self, letters.cached_info)

    async def dead_letters(self, name: str) -> DeadLetters:
        """Bind to the dead letters of this name.

        Raises StreamNotFoundError, ConfigError for another stream, and the errors of every API call
        (see `JetStream`).
        """
        info = await self.stream(name).info()
        if info.config.subjects != [letters_subject(name)]:
            raise errors.ConfigError(f'Stream "{name}" is not a stream of dead letters.')
        return DeadLetters(self, info)

    async def delete_dead_letters(self, name: str) -> None:
        """Delete the dead letters and what waits for a worker, and store no more.

        Raises the errors of `dead_letters`.
        """
        await self.dead_letters(name)
        with suppress(errors.StreamNotFoundError):  # by a call that failed half-way
            if await self._watched_by(name) is not None:
                await self.delete_stream(f"{name}{ADVISORIES}")
        await self.delete_stream(name)

    async def _is_there(self, stream: str) -> bool:
        with suppress(errors.StreamNotFoundError):
            await self.stream(stream).info()
            return True
        return False

    async def _delete(self, streams: list[str], cause: errors.JetsparkError) -> None:
        """Clean up after a call that failed half-way; adds notes about streams that stay."""
        for stream in streams:
            try:
                with suppress(errors.StreamNotFoundError):
                    await self.delete_stream(stream)
            except errors.JetsparkError as error:
                cause.add_note(f"Stream {stream!r} may have been made, and is left: {error}")

    async def _check_free(self, name: str, subjects: list[str]) -> None:
        """Raise ConfigError if another stream has one of the names or these subjects."""
        with suppress(errors.StreamNotFoundError):
            await self.dead_letters(name)
        if await self._watched_by(name) is None:
            raise errors.ConfigError(
                f'There is another stream "{name}{ADVISORIES}", whose name would be needed: '
                "take another name."
            )
        for subject in subjects:
            async for stream in self.stream_names(subject):
                if stream != f"{name}{ADVISORIES}":
                    raise errors.ConfigError(
                        f"Stream {stream!r} stores advisories on {subject!r} already, and only one "
                        "stream can: watch these consumers by the dead letters that are there."
                    )

    async def _check_endless(self, name: str, streams: list[str]) -> None:
        """Raise ConfigError if letters that are given up would become letters without end."""
        seen: set[str] = set()
        waiting = [(stream, stream) for stream in streams]
        while waiting:
            stream, first = waiting.pop()
            if stream in seen:
                continue
            seen.add(stream)
            for dead in (stream, stream.removesuffix(ADVISORIES)):
                if dead == name:
                    raise errors.ConfigError(
                        f'Dead letters "{name}" cannot watch stream "{first}": letters that are '
                        "given up would come back without end."
                    )
                waiting += [(one, first) for one in await self._watched_by(dead) or ()]

    async def _watched_by(self, name: str) -> set[str] | None:
        """The streams that these dead letters watch; None if the name is another stream's."""
        try:
            return watched_streams((await self.stream(f"{name}{ADVISORIES}").info()).config)
        except errors.StreamNotFoundError:
            return set()


def _names(kind: str, names: str | Iterable[str]) -> list[str]:
    selected = list(dict.fromkeys(texts_of(f"{kind}s", names)))
    if not selected:
        raise errors.ConfigError(f"{kind}s is empty.")
    return [check_name(kind, name) for name in selected]
