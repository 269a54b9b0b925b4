"""`Client.trace`."""

from __future__ import annotations

from copy import copy
from typing import Final

import jetspark.errors as errors
from jetspark.client.client import CoreClient, seconds_of
from jetspark.payload_bytes import Payload, payload_bytes
from jetspark.timestamps import Seconds
from jetspark.tracing.tree import MessageTrace, Reports, parse_report
from jetspark.wire.headers import Headers, HeadersLike

_DESTINATION: Final = "Nats-Trace-Dest"
_ONLY: Final = "Nats-Trace-Only"
# Accept-Encoding would make a server compress its report.
_TRACE_HEADERS: Final = (_DESTINATION, _ONLY, "Nats-Trace-Hop", "Accept-Encoding")


class TraceCalls(CoreClient):
    """A client with tracing."""

    async def trace(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeadersLike | None = None,
        deliver: bool = False,
        timeout: Seconds | None = None,
    ) -> MessageTrace:
        """Send a message whose path all servers report (ADR-41); `print` the result for a tree.

        Without `deliver` nobody receives the message and no stream stores it: the servers report
        what they would have done. The call ends when all have reported, or after `timeout` seconds
        (default: request_timeout) with an incomplete trace: see `complete` and `missing`. A trace
        crosses into another account only if the import or export has `allow_trace`.

        Raises UnsupportedByServerError before nats-server 2.11, and sends nothing; PermissionsError
        when the server refuses the subject or the inbox of the reports; RequestTimeoutError when no
        server reported; ConfigError for headers that tracing itself sets, ConnectionClosedError,
        BadTimeoutError, and the errors of publish_nowait.

        Example:
            ```python
            trace = await nc.trace("orders.eu", b"42 apples")
            print(trace.complete, [stream.stream for stream in trace.streams])  # True ['ORDERS']
            ```
        """
        seconds = seconds_of(timeout, self.options)
        data = payload_bytes(payload)  # a copy: the caller may change it in the meantime
        sent = Headers(headers or ())
        for name in _TRACE_HEADERS:
            if name in sent:
                raise errors.ConfigError(
                    f"The header {name} cannot be given: tracing sets its own."
                )
        await self.flush(seconds)
        # No await from here to the publish: an older server, after a reconnect, would deliver the
        # message.
        if (info := self.server_info) is not None and not info.at_least(2, 11):
            raise errors.UnsupportedByServerError("trace", "2.11", info.version)
        reports = Reports()
        deadline = self.loop.time() + seconds
        with self.requests.reply_queue(subject, deadline) as (replies, inbox):
            sent.set(_DESTINATION, inbox.decode())
            if not deliver:
                sent.set(_ONLY, "true")
            self.publishing.send(subject, data, None, sent)
            try:
                while reports.missing() and (frame := await replies.next()) is not None:
                    try:
                        reports.add(parse_report(frame.payload))
                    except errors.JetsparkError as error:
                        self.report(error)
            except errors.PermissionsError as error:
                if error.operation == "publish" and error.subject == inbox.decode():
                    own, inbox_pattern = copy(error), f"{self.options.inbox_prefix}.>"
                    own.replace_message(
                        f"Tracing needs the permission to publish to {inbox_pattern!r}, where the "
                        f"servers' reports come: {error.message}"
                    )
                    raise own from None
                raise
        if not reports:
            raise errors.RequestTimeoutError(
                f"No server reported on {subject!r} within {seconds:g} s."
            )
        return reports.joined(subject, delivered=deliver)
