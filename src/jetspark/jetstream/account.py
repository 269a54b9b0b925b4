"""The account's use of JetStream, and its limits."""

from __future__ import annotations

from jetspark.jetstream.api import Api
from jetspark.jetstream.documents import AccountInfo
from jetspark.jetstream.documents.document import from_wire
from jetspark.wire import js_api


class AccountCalls:
    """The call of JetStream about the account."""

    _api: Api

    async def account_info(self) -> AccountInfo:
        """What the account uses and may use. Raises as every API call (see `JetStream`)."""
        return from_wire(AccountInfo, await self._api.call(js_api.ACCOUNT_INFO))
