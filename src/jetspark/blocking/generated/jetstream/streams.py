# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: streams."""

from __future__ import annotations

from typing import Unpack

from jetspark.blocking.jetstream.paging import Paged
from jetspark.blocking.loop_thread import LoopThread
from jetspark.documents.streams import StreamInfo, StreamOptions, UnnamedStreamOptions
from jetspark.full_client import JetStream as AsyncJetStream
from jetspark.jetstream.streams import StreamConfigLike, StreamTemplateInfo


class GeneratedStreamCalls:
    """The calls of `StreamCalls` that hand on to its asyncio twin."""

    _thread: LoopThread
    _inner: AsyncJetStream

    def create_stream(
        self, config: StreamConfigLike | None = None, /, **options: Unpack[StreamOptions]
    ) -> StreamInfo:
        """Create a stream. Options are the fields of StreamConfig; `name` is required.

        An existing one with the same configuration is left alone. Raises NameInUseError when it
        has another one, ConfigError, UnsupportedByServerError, and as every API call (see
        `JetStream`).
        """
        return self._thread.run(self._inner.create_stream, config, **options)

    def update_stream(
        self, config: StreamConfigLike | None = None, /, **options: Unpack[StreamOptions]
    ) -> StreamInfo:
        """Change the stream `name`; options not given keep their values.

        The current configuration is read first, so of two concurrent updates one may undo the
        other. Raises StreamNotFoundError, ConfigError, UnsupportedByServerError, and as every API
        call (see `JetStream`).
        """
        return self._thread.run(self._inner.update_stream, config, **options)

    def create_or_update_stream(
        self, config: StreamConfigLike | None = None, /, **options: Unpack[StreamOptions]
    ) -> StreamInfo:
        """Update a stream, or create it. Raises as `update_stream` and `create_stream`."""
        return self._thread.run(self._inner.create_or_update_stream, config, **options)

    def delete_stream(self, name: str) -> None:
        """Delete a stream and its messages.

        Raises StreamNotFoundError, and as every API call (see `JetStream`).
        """
        self._thread.run(self._inner.delete_stream, name)

    def purge_stream(
        self,
        name: str,
        *,
        filter: str | None = None,
        keep: int | None = None,
        seq: int | None = None,
    ) -> int:
        """Delete all messages or some; returns how many.

        `filter`: only those of matching subjects. `keep`: all but the last so many. `seq`: those
        before this sequence. Raises ConfigError for both `keep` and `seq`, and for less
        than 1, BadSubjectError, StreamNotFoundError, and as every API call (see `JetStream`).
        """
        return self._thread.run(self._inner.purge_stream, name, filter=filter, keep=keep, seq=seq)

    def stream_info(
        self, name: str, *, deleted_details: bool = False, subjects_filter: str | None = None
    ) -> StreamInfo:
        """Configuration and state of a stream.

        `deleted_details`: list the deleted sequences. `subjects_filter`: count the messages of
        each matching subject (">" for all), in as many pages as that takes. Raises
        StreamNotFoundError, BadSubjectError, and as every API call (see `JetStream`).
        """
        return self._thread.run(
            self._inner.stream_info,
            name,
            deleted_details=deleted_details,
            subjects_filter=subjects_filter,
        )

    def stream_names(self, subject: str | None = None) -> Paged[str]:
        """The names of all streams, or of those with `subject` among their subjects.

        Raises BadSubjectError; while iterating, as every API call (see `JetStream`).
        """
        return Paged(self._thread, self._inner.stream_names(subject))

    def streams(self, subject: str | None = None) -> Paged[StreamInfo]:
        """All streams, or those with `subject` among theirs. Raises as `stream_names`."""
        return Paged(self._thread, self._inner.streams(subject))

    def stream_leader_stepdown(self, stream: str, *, preferred: str | None = None) -> None:
        """Make the stream's leader step down; `preferred` names the next one (server 2.11).

        Raises APIError on a server that is not clustered, UnsupportedByServerError,
        StreamNotFoundError, and as every API call (see `JetStream`).
        """
        self._thread.run(self._inner.stream_leader_stepdown, stream, preferred=preferred)

    def create_template(
        self,
        name: str,
        config: StreamConfigLike | None = None,
        /,
        *,
        max_streams: int,
        **options: Unpack[UnnamedStreamOptions],
    ) -> StreamTemplateInfo:
        """Create a template: each new subject gets a stream of its own, named after it.

        `config` and `options` are the fields of StreamConfig without a name; `subjects` are those
        of the template. Raises APIError when the template exists, ConfigError, BadSubjectError,
        UnsupportedByServerError, and as every API call (see `JetStream`).
        """
        return self._thread.run(
            self._inner.create_template, name, config, max_streams=max_streams, **options
        )

    def template_info(self, name: str) -> StreamTemplateInfo:
        """A template and the names of its streams.

        Raises UnsupportedByServerError, APIError when there is no such template, and as every API
        call (see `JetStream`).
        """
        return self._thread.run(self._inner.template_info, name)

    def delete_template(self, name: str) -> None:
        """Delete a template and all its streams. Raises as `template_info`."""
        self._thread.run(self._inner.delete_template, name)

    def template_names(self) -> Paged[str]:
        """The names of all templates.

        Raises UnsupportedByServerError; while iterating, as every API call (see `JetStream`).
        """
        return Paged(self._thread, self._inner.template_names())
