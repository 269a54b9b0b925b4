# Written by `python scripts/delegations.py`: change that, or the asyncio class.
"""Calls of jetspark.blocking that hand on: context."""

from __future__ import annotations

from typing import Any

from jetspark.blocking.caller_side import CallerSide
from jetspark.blocking.client import Client
from jetspark.blocking.loop_thread import LoopThread
from jetspark.documents.configuration import Configuration
from jetspark.documents.streams import AccountInfo
from jetspark.full_client import JetStream as AsyncJetStream
from jetspark.timestamps import Seconds
from jetspark.wire.documents import ServerInfo


class GeneratedJetStreamContext:
    """The calls of `JetStreamContext` that hand on to its asyncio twin."""

    _thread: LoopThread
    _caller: CallerSide
    _inner: AsyncJetStream

    def __init__(
        self,
        client: Client,
        *,
        timeout: Seconds = 5.0,
        domain: str | None = None,
        api_prefix: str | None = None,
        trace: bool = False,
    ) -> None:
        self._client = client
        self._thread = client._thread
        self._caller = client._caller
        self._inner = AsyncJetStream(
            client._inner, timeout=timeout, domain=domain, api_prefix=api_prefix, trace=trace
        )

    @property
    def timeout(self) -> float:
        """Seconds for each API call and ack."""
        return self._inner.timeout

    @property
    def api_prefix(self) -> str:
        """What every API subject begins with."""
        return self._inner.api_prefix

    @property
    def server_info(self) -> ServerInfo | None:
        """The server that answers API calls: the connected one.

        None before the first connection, and behind a domain or prefix, where it is unknown.
        """
        return self._inner.server_info

    def account_info(self) -> AccountInfo:
        """What the account uses and may use. Raises as every API call (see `JetStream`)."""
        return self._thread.run(self._inner.account_info)

    def api_request(self, subject: str, document: Configuration | None = None) -> dict[str, Any]:
        """Any call of the JetStream API: the document is sent and the answer given as they are.

        `subject`: what follows the prefix, such as "STREAM.CREATE.ORDERS". `document`: the whole
        request, as a mapping, JSON text, or the path of a JSON file. The answer is parsed JSON with
        all its fields, `type` too. Nothing is added and only the subject is checked. Raises what
        the answer's error is (StreamNotFoundError, APIError …), ConfigError for a document that
        is no JSON object, BadSubjectError, JetStreamError when the answer is no JSON object, and
        as every API call (see `JetStream`).
        """
        return self._thread.run(self._inner.api_request, subject, document)

    def __repr__(self) -> str:
        return repr(self._inner)
