"""`python -m tests.chaos writing`: streaming queries and batch writes while things break.

Each kind names the guarantee it is about. What a query wrote is read by nats-py afterwards and
counted, id by id. Runs of at-least-once may repeat rows, and those with message ids behind the
duplicate window; their notes say how often.
"""

from __future__ import annotations

from typing import Any

from tests.chaos import writing_drivers as drivers
from tests.chaos import writing_faults as faults
from tests.chaos import writing_refusals as refusals
from tests.chaos.campaign import Kind, Kinds
from tests.chaos.writing_faults import Harm, at_any_moment, at_step
from tests.chaos.writing_job import AT_LEAST, EFFECTIVELY, EXACTLY
from tests.chaos.writing_steps import COMMITTED, PUBLISHING


def _while_publishing(guarantee: str, harm: Harm, **of_scene: Any) -> Kind:
    return at_step(harm, [PUBLISHING], guarantee=guarantee, **of_scene)


_EXACTLY: Kinds = {
    "server killed": at_step(faults.server_killed, faults.ALL),
    "server killed again and again": at_any_moment(faults.server_killed, 3, lasts=(0, 0.5)),
    "server restarted": at_step(faults.server_restarted, faults.ALL),
    "leader killed": at_step(faults.leader_killed, faults.ALL, replicas=3),
    "leader paused": at_step(faults.leader_paused, faults.ALL, replicas=3, lasts=(1, 6)),
    "leaders change": at_step(faults.leaders_changed, faults.ALL, replicas=3, lasts=(1, 4)),
    "worker killed": at_step(faults.worker_killed, (*faults.ALL, COMMITTED)),
    "step fails": at_step(faults.step_failed, (*faults.ALL, COMMITTED)),
    "network cut": at_step(faults.network_cut, faults.ALL, proxied=True),
    "half-open": at_step(faults.half_open, faults.ALL, proxied=True, lasts=(0.2, 2)),
    "server slow": at_step(faults.server_slow, faults.ALL, proxied=True, lasts=(1, 3)),
    "driver killed": drivers.driver_killed(worker_lives_on=False),
    "driver killed, its worker lives on": drivers.driver_killed(worker_lives_on=True),
    "driver killed at any moment": drivers.driver_killed_at_any_moment(),
    "executor lost": drivers.executor_lost(),
    "slow task, speculation": drivers.slow_task(),
    "stream full": refusals.stream_full(EXACTLY),
    "storage full": refusals.storage_full,
    "login revoked": refusals.login_revoked,
    "ledger lost": refusals.ledger_lost,
    "target lost": refusals.target_lost,
    "other partitions": refusals.comes_again(partitions=True),
    "batch comes late": refusals.comes_again(window=0.5),
    "row too large": refusals.row_too_large,
    "two drivers, one transaction": refusals.two_drivers,
    "transaction, server killed": at_step(faults.server_killed, faults.ALL, transaction="load"),
    "transaction, worker killed": at_step(faults.worker_killed, faults.ALL, transaction="load"),
}

_EFFECTIVELY: Kinds = {
    "server killed": _while_publishing(EFFECTIVELY, faults.server_killed),
    "leader killed": _while_publishing(EFFECTIVELY, faults.leader_killed, replicas=3),
    "leaders change": _while_publishing(
        EFFECTIVELY, faults.leaders_changed, replicas=3, lasts=(1, 4)
    ),
    "worker killed": _while_publishing(EFFECTIVELY, faults.worker_killed),
    "network cut": _while_publishing(EFFECTIVELY, faults.network_cut, proxied=True),
    "half-open": _while_publishing(EFFECTIVELY, faults.half_open, proxied=True, lasts=(0.2, 2)),
    "driver killed": drivers.driver_killed(EFFECTIVELY, worker_lives_on=True),
    "slow task, speculation": drivers.slow_task(EFFECTIVELY),
    "stream full": refusals.stream_full(EFFECTIVELY),
    "other partitions": refusals.comes_again(EFFECTIVELY, partitions=True),
    "batch comes behind the window": refusals.comes_again(EFFECTIVELY, window=0.5),
}

_AT_LEAST: Kinds = {
    "server killed": _while_publishing(AT_LEAST, faults.server_killed),
    "leader killed": _while_publishing(AT_LEAST, faults.leader_killed, replicas=3),
    "worker killed": _while_publishing(AT_LEAST, faults.worker_killed),
    "network cut": _while_publishing(AT_LEAST, faults.network_cut, proxied=True),
}

KINDS: Kinds = {
    f"{guarantee}: {name}": kind
    for guarantee, kinds in (
        (EXACTLY, _EXACTLY),
        (EFFECTIVELY, _EFFECTIVELY),
        (AT_LEAST, _AT_LEAST),
    )
    for name, kind in kinds.items()
}

COSTLY = frozenset(
    name
    for name in KINDS
    if any(word in name for word in ("driver killed", "executor lost", "speculation"))
)
"""They start a Spark of their own."""
