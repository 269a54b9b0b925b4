"""The calls of JetStream for dead letters.

Contract: two streams make them. One stores the advisories that a server publishes when a consumer
gives up a message, until a worker has handled them; it must exist before, since advisories are not
repeated. The other stores the letters.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Unpack

from jetspark.arguments import checked
from jetspark.dead_letters.dead_letters import DeadLetters
from jetspark.dead_letters.letter import (
    ADVISORIES,
    KINDS,
    WORKER,
    letters_subject,
    watched_streams,
)
from jetspark.errors import ConfigError, JetsparkError, StreamNotFoundError
from jetspark.jetstream.context import JetStreamContext
from jetspark.jetstream.documents import StreamSettings
from jetspark.jetstream.events.kinds import event_subjects
from jetspark.subjects import check_name

_OURS: Final = frozenset({"name", "subjects", "retention", "mirror", "sources"})


@checked
class DeadLetterCalls:
    """The calls of JetStream for dead letters."""

    @property
    def _js(self) -> JetStreamContext:
        """What dead letters are built on."""
        raise NotImplementedError

    async def create_dead_letters(
        self,
        name: str,
        streams: str | Iterable[str],
        *,
        consumers: str | Iterable[str] | None = None,
        **options: Unpack[StreamSettings],
    ) -> DeadLetters:
        """Store the messages that consumers of `streams` give up, from now on.

        That is: messages delivered `max_deliver` times without an ack, and those that were
        terminated (`term`). A worker moves them (`DeadLetters.worker`). `consumers`: only of these.
        `name`: of the stream for the letters; a second one, `<name>_ADVISORIES`, holds what is to
        be moved. Made again, with other streams say, it changes what is there. `options`: fields of
        StreamConfig for the stream of the letters, such as max_age; storage, num_replicas and
        placement count for both.

        Raises ConfigError for an option that this call decides, when one of both names is another
        stream's, when another stream stores these advisories already, and when letters that are
        given up would come back to these dead letters; StreamNotFoundError for one of `streams`
        that does not exist; and as every API call (see `JetStream`).
        """
        if wrong := sorted(_OURS & options.keys()):
            raise ConfigError(f"create_dead_letters decides on {wrong[0]} itself.")
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
        for stream in watched:
            await self._check_there(stream)
        advisories = f"{name}{ADVISORIES}"
        new = [stream for stream in (name, advisories) if not await self._is_there(stream)]
        try:
            info = await self._js.create_or_update_stream(
                name=name, subjects=[letters_subject(name)], **options
            )
            await self._js.create_or_update_stream(
                name=advisories,
                subjects=subjects,
                retention="workqueue",
                storage=options.get("storage"),
                num_replicas=options.get("num_replicas"),
                placement=options.get("placement"),
            )
            await self._js.create_or_update_consumer(
                advisories, durable_name=WORKER, ack_policy="explicit", max_deliver=-1
            )
        except JetsparkError as error:
            await self._delete(new, error)
            raise
        return DeadLetters(self._js, info)

    async def dead_letters(self, name: str) -> DeadLetters:
        """The dead letters of this name.

        Raises StreamNotFoundError, ConfigError for another stream, and as every API call (see
        `JetStream`).
        """
        info = await self._js.stream_info(name)
        if info.config.subjects != [letters_subject(name)]:
            raise ConfigError(f'Stream "{name}" is not one of dead letters.')
        return DeadLetters(self._js, info)

    async def delete_dead_letters(self, name: str) -> None:
        """Delete dead letters and what is still to be moved, and store no more.

        Raises as `dead_letters`.
        """
        await self.dead_letters(name)
        with suppress(StreamNotFoundError):  # by a call that ended half-way
            if await self._watched_by(name) is not None:
                await self._js.delete_stream(f"{name}{ADVISORIES}")
        await self._js.delete_stream(name)

    async def _is_there(self, stream: str) -> bool:
        with suppress(StreamNotFoundError):
            await self._check_there(stream)
            return True
        return False

    async def _delete(self, streams: list[str], why: JetsparkError) -> None:
        """What a call has made that failed half-way; those that cannot be deleted are noted."""
        for stream in streams:
            try:
                with suppress(StreamNotFoundError):
                    await self._js.delete_stream(stream)
            except JetsparkError as error:
                why.add_note(f"Stream {stream!r} may have been made, and is left: {error}")

    async def _check_there(self, stream: str) -> None:
        """Raises StreamNotFoundError: a name with a slip would watch nothing, in silence."""
        try:
            await self._js.stream_info(stream)
        except StreamNotFoundError as error:
            sentence = f'Stream "{stream}" not found.'
            raise StreamNotFoundError(
                error.code, error.err_code, error.description, sentence
            ) from None

    async def _check_free(self, name: str, subjects: list[str]) -> None:
        """Raises ConfigError before anything is made: it would take something from others."""
        with suppress(StreamNotFoundError):
            await self.dead_letters(name)
        if await self._watched_by(name) is None:
            raise ConfigError(
                f'Stream "{name}{ADVISORIES}" is not one of dead letters, and these would need it: '
                "take another name."
            )
        for subject in subjects:
            async for other in self._js.stream_names(subject):
                if other != f"{name}{ADVISORIES}":
                    raise ConfigError(
                        f"Stream {other!r} stores advisories on {subject!r} already, and only one "
                        "stream can: watch these consumers by the dead letters that are there."
                    )

    async def _check_endless(self, name: str, streams: list[str]) -> None:
        """Raises ConfigError: each letter that is given up would become another one."""
        seen: set[str] = set()
        waiting = [(stream, stream) for stream in streams]
        while waiting:
            stream, first = waiting.pop()
            if stream in seen:
                continue
            seen.add(stream)
            for dead in (stream, stream.removesuffix(ADVISORIES)):
                if dead == name:
                    raise ConfigError(
                        f'Dead letters "{name}" cannot watch stream "{first}": letters that are '
                        "given up would come back without end."
                    )
                waiting += [(one, first) for one in await self._watched_by(dead) or ()]

    async def _watched_by(self, name: str) -> set[str] | None:
        """The streams that dead letters watch, if there are such; None for another stream."""
        try:
            return watched_streams((await self._js.stream_info(f"{name}{ADVISORIES}")).config)
        except StreamNotFoundError:
            return set()


def _names(kind: str, names: str | Iterable[str]) -> list[str]:
    found = [names] if isinstance(names, str) else list(dict.fromkeys(names))
    if not found:
        raise ConfigError(f"{kind}s is empty.")
    return [check_name(kind, name) for name in found]
