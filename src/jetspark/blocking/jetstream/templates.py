"""Stream templates, without async.

Contract: that of `jetspark.jetstream.streams.templates`.
"""

from __future__ import annotations

from typing import Any

from jetspark.blocking.jetstream.paging import Paged
from jetspark.blocking.loop_thread import LoopThread
from jetspark.jetstream.context import JetStream as AsyncJetStream
from jetspark.jetstream.streams.calls import StreamConfigLike
from jetspark.jetstream.streams.templates import StreamTemplateInfo


class TemplateCalls:
    """The part of JetStream that is about stream templates."""

    _thread: LoopThread
    _inner: AsyncJetStream

    def create_template(
        self,
        name: str,
        config: StreamConfigLike | None = None,
        /,
        *,
        max_streams: int,
        **options: Any,
    ) -> StreamTemplateInfo:
        """Make a template: each new subject gets a stream of its own, named after it.

        `config` and `options` are the fields of StreamConfig, without a name; `subjects` say what
        the template listens to. Raises APIError when there is one of that name.
        """
        return self._thread.run(
            self._inner.create_template, name, config, max_streams=max_streams, **options
        )

    def template_info(self, name: str) -> StreamTemplateInfo:
        """A template and its streams."""
        return self._thread.run(self._inner.template_info, name)

    def delete_template(self, name: str) -> None:
        """Delete a template and all streams that it has made."""
        self._thread.run(self._inner.delete_template, name)

    def template_names(self) -> Paged[str]:
        """The names of all templates."""
        return Paged(self._thread, self._inner.template_names())
