"""Stream templates: the server creates a stream for each new subject.

Contract: for servers that still have them, which are those before 2.14 that are not clustered; with
a newer one UnsupportedByServerError is raised before anything is sent. Behind a domain or an API
prefix the answering server is unknown; a newer one does not answer, and the call times out.
"""

from __future__ import annotations

from typing import Unpack

import msgspec

from jetspark.arguments import checked
from jetspark.errors import ConfigError, UnsupportedByServerError
from jetspark.jetstream.api import Api
from jetspark.jetstream.documents import StreamConfig, UnnamedStreamOptions
from jetspark.jetstream.documents.configuration import config_to_wire
from jetspark.jetstream.documents.document import Document, from_wire
from jetspark.jetstream.paging import Paged
from jetspark.jetstream.requirements import check_stream, stream_needs
from jetspark.jetstream.streams.calls import StreamConfigLike
from jetspark.subjects import check_name, check_subscribe_subject
from jetspark.wire import js_api


class StreamTemplateConfig(Document, frozen=True, kw_only=True):
    """A template: the configuration of its streams, and how many there may be."""

    name: str
    config: StreamConfig
    max_streams: int


class StreamTemplateInfo(Document, frozen=True, kw_only=True):
    """A template and the names of its streams."""

    config: StreamTemplateConfig
    streams: list[str] = msgspec.field(default_factory=list)


@checked
class TemplateCalls:
    """The calls of JetStream for stream templates."""

    _api: Api

    async def create_template(
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
        self._check(name)
        if max_streams < 1:
            raise ConfigError("max_streams must be at least 1.")
        wire = config_to_wire(StreamConfig, config, options)
        for subject in wire.get("subjects") or []:
            check_subscribe_subject(subject)
        check_stream(wire, self._api.server)
        body = {"name": name, "config": wire, "max_streams": max_streams}
        needs = stream_needs(wire)
        answer = await self._api.call(js_api.TEMPLATE_CREATE, body, needs, template=name)
        return from_wire(StreamTemplateInfo, answer)

    async def template_info(self, name: str) -> StreamTemplateInfo:
        """A template and the names of its streams.

        Raises UnsupportedByServerError, APIError when there is no such template, and as every API
        call (see `JetStream`).
        """
        self._check(name)
        return from_wire(
            StreamTemplateInfo, await self._api.call(js_api.TEMPLATE_INFO, template=name)
        )

    async def delete_template(self, name: str) -> None:
        """Delete a template and all its streams. Raises as `template_info`."""
        self._check(name)
        await self._api.call(js_api.TEMPLATE_DELETE, template=name)

    def template_names(self) -> Paged[str]:
        """The names of all templates.

        Raises UnsupportedByServerError; while iterating, as every API call (see `JetStream`).
        """
        self._check()
        return Paged(self._api, js_api.TEMPLATE_NAMES, "streams", str, {})

    def _check(self, name: str | None = None) -> None:
        if name is not None:
            check_name("template", name)
        server = self._api.server
        if server is not None and server.at_least(2, 14):
            raise UnsupportedByServerError("A stream template", "< 2.14", server.version)
