"""The roles that need no JetStream; see `roles`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from jetspark.arguments import checked
from jetspark.errors import ConfigError
from jetspark.jetstream.acl.permissions import Permissions, Responses
from jetspark.subjects import (
    check_name,
    check_publish_subject,
    check_queue,
    check_subscribe_subject,
)
from jetspark.wire.service_api import DEFAULT_PREFIX as DEFAULT_SERVICE_PREFIX
from jetspark.wire.service_api import Verb, verb_subjects

_OF_SERVERS: Final = (
    *("STATSZ", "VARZ", "HEALTHZ", "CONNZ", "SUBSZ", "JSZ", "ACCOUNTZ"),
    *("ROUTEZ", "GATEWAYZ", "LEAFZ"),
)
_OF_ACCOUNTS: Final = ("INFO", "CONNZ", "JSZ", "SUBSZ", "STATZ")


@checked
class CoreRoles:
    """A base of `Roles`."""

    __slots__ = ("_inbox",)

    def __init__(self, inbox_prefix: str) -> None:
        check_publish_subject(inbox_prefix)
        self._inbox = f"{inbox_prefix}.>"

    # -- services --------------------------------------------------------------------------------

    def service(
        self,
        service: str,
        subjects: str | Iterable[str],
        *,
        queue_group: str | None = None,
        responses: Responses | None = None,
    ) -> Permissions:
        """Run instances of a service, and answer its requests.

        `subjects`: those of its endpoints, with the prefixes of their groups. `queue_group`: listen
        on them as a member of this queue group only. `responses`: how often and how long one
        request may be answered, by default ten times within ten minutes.
        """
        check_name("service", service)
        if queue_group is not None:
            check_queue(queue_group)
        member = f" {queue_group}" if queue_group else ""
        asked = (subject for verb in Verb for subject in verb_subjects(verb, service))
        endpoints = (f"{subject}{member}" for subject in subjects_of(subjects))
        return Permissions(subscribe=(*asked, *endpoints), responses=responses or Responses())

    def service_client(self, subjects: str | Iterable[str]) -> Permissions:
        """Send requests to a service. `subjects`: those of its endpoints."""
        return self._requesting(subjects_of(subjects))

    def service_monitor(
        self, service: str | None = None, *, service_prefix: str = DEFAULT_SERVICE_PREFIX
    ) -> Permissions:
        """Find services and look at them: all, or those of one name.

        `service_prefix`: where another account's services are imported to.
        """
        check_publish_subject(service_prefix)
        if service is not None:
            check_name("service", service)
        levels = [verb_subjects(verb, service or "*", prefix=service_prefix) for verb in Verb]
        first = 0 if service is None else 1
        return self._requesting(tuple(subject for level in levels for subject in level[first:]))

    def tracer(self, subjects: str | Iterable[str]) -> Permissions:
        """Trace the path of messages: `Client.trace`. With `deliver`, to publish them, too.

        The server sends the reports only to where the tracing client may publish itself.
        """
        return self._requesting((*subjects_of(subjects), self._inbox))

    # -- logins ----------------------------------------------------------------------------------

    def auth_callout(
        self, *, queue_group: str = "auth-callout", responses: Responses | None = None
    ) -> Permissions:
        """Run an authorization callout service, in the callout's account.

        `queue_group`: that of its instances. `responses`: how long a login may be decided on, by
        default a minute.
        """
        check_queue(queue_group)
        subject = f"$SYS.REQ.USER.AUTH {queue_group}"
        return Permissions(subscribe=(subject,), responses=responses or Responses(1, 60))

    def system_monitor(self, account: str | None = None) -> Permissions:
        """Look at servers and accounts in the system account: all, or only at one account.

        `Client.system`. It allows no request that changes something, such as a reload.
        """
        if account is not None:
            check_name("account", account)
        asked = [f"$SYS.REQ.ACCOUNT.{account or '*'}.{what}" for what in _OF_ACCOUNTS]
        if account is None:
            asked += [f"$SYS.REQ.SERVER.*.{what}" for what in _OF_SERVERS]
        return self._requesting(tuple(asked))

    def _requesting(self, publish: tuple[str, ...]) -> Permissions:
        """Publish requests, and receive the replies."""
        return Permissions(publish, (self._inbox,))


def several(what: str, words: str | Iterable[str]) -> list[str]:
    found = [words] if isinstance(words, str) else list(words)
    if not found:
        raise ConfigError(f"{what} is empty.")
    return found


def subjects_of(subjects: str | Iterable[str]) -> tuple[str, ...]:
    found = several("subjects", subjects)
    for subject in found:
        check_subscribe_subject(subject)
    return tuple(found)
