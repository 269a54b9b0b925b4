"""Stored messages: read without a consumer, deleted one by one (rows J12, J13).

Contract: names and subjects are checked before anything is sent; then what `Api.call` raises.
"""

from __future__ import annotations

from typing import Any

from jetspark.errors import APIError, ConfigError, MessageNotFoundError
from jetspark.jetstream.api import Api
from jetspark.jetstream.document import from_wire
from jetspark.jetstream.documents import StoredMsg
from jetspark.subjects import check_subscribe_subject
from jetspark.wire import js_api

_NO_MESSAGE = ("EOF", "message found", "message not found", "deleted message")


class StoredCalls:
    """The part of JetStream that is about single stored messages."""

    _api: Api

    async def get_msg(
        self,
        stream: str,
        seq: int | None = None,
        *,
        last_by_subject: str | None = None,
        next_by_subject: str | None = None,
    ) -> StoredMsg:
        """One stored message, as the stream's leader has it.

        By `seq`; the last of a subject; or the first of a subject, from `seq` on when given.
        Raises MessageNotFoundError.
        """
        if last_by_subject is not None and (seq is not None or next_by_subject is not None):
            raise ConfigError("last_by_subject goes with neither seq nor next_by_subject.")
        if seq is None and last_by_subject is None and next_by_subject is None:
            raise ConfigError("Say which message: seq, last_by_subject or next_by_subject.")
        for subject in (last_by_subject, next_by_subject):
            if subject is not None:
                check_subscribe_subject(subject)
        body = _said(seq=seq, last_by_subj=last_by_subject, next_by_subj=next_by_subject)
        answer = await self._api.call(js_api.MSG_GET, body, stream=stream)
        return from_wire(StoredMsg, answer["message"])

    async def delete_msg(self, stream: str, seq: int, *, erase: bool = False) -> None:
        """Delete one message; `erase` overwrites it with random bytes first (slower).

        Raises MessageNotFoundError.
        """
        body = {"seq": seq} if erase else {"seq": seq, "no_erase": True}
        try:
            await self._api.call(js_api.MSG_DELETE, body, stream=stream)
        except APIError as error:
            # A file store has one code for every failure, and Go's texts for the reason.
            if error.err_code == js_api.SEQUENCE_NOT_FOUND or (
                error.err_code == js_api.MESSAGE_DELETE_FAILED
                and error.description.endswith(_NO_MESSAGE)
            ):
                raise MessageNotFoundError(
                    error.code,
                    error.err_code,
                    error.description,
                    f'No message {seq} in stream "{stream}".',
                ) from None
            raise


def _said(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
