"""The official conformance cases of ADR-31, 42, 43, 49, 50 and 51, through jetspark's public names.

The cases of one run share a server and run at the same time, since many of them wait.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance import adr_31, adr_42, adr_43, adr_49, adr_50, adr_51
from tests.conformance.trial import SERVER, Case, Table, Trial
from tests.support.cluster import Cluster

from jetspark.errors import RequestTimeoutError
from jetspark.full_client import connect
from jetspark.server import NatsServer

TABLES: list[Table] = [adr_31.T, adr_42.T, adr_43.T, adr_49.T, adr_50.T, adr_51.T]
CASES = {case.id: case for table in TABLES for case in table}
TOTALS = {31: 46, 42: 44, 43: 36, 49: 37, 50: 101, 51: 57}
"""Cases of the official suite, by ADR."""
AT_ONCE = 64


async def run_cases(port: int, cases: list[Case]) -> dict[str, BaseException | None]:
    """Run the cases; returns the error of each."""
    slots = asyncio.Semaphore(AT_ONCE)
    results: dict[str, BaseException | None] = {}
    async with connect(f"nats://127.0.0.1:{port}") as nc:

        async def run(case: Case) -> None:
            trial = Trial(nc, port)
            async with slots:
                try:
                    assert case.steps is not None
                    await asyncio.wait_for(case.steps(trial), 90)
                    results[case.id] = None
                except BaseException as error:  # the case's test raises it
                    results[case.id] = error
                await trial.delete_streams()

        # With its last stream on disk a server removes their folder, even while it creates another
        # stream there, which then fails.
        keeper = Trial(nc, port)
        await keeper.stream(storage="file")
        await asyncio.gather(*(run(case) for case in cases if not case.alone))
        for case in cases:
            if case.alone:
                await run(case)
        await keeper.delete_streams()
    return results


@pytest.fixture(scope="session")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, BaseException | None]]:
    """What came of the cases that were selected."""
    selected = [
        str(item.callspec.params["id"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.function is test_a_case
    ]
    config = tmp_path_factory.mktemp("conformance") / "server.conf"
    config.write_text(SERVER, "utf-8")
    with NatsServer(port=0, host="127.0.0.1", jetstream=True, config=config) as server:
        yield asyncio.run(run_cases(server.port, [CASES[id] for id in selected]))


@pytest.mark.parametrize("id", [c.id for c in CASES.values() if c.steps and not c.clustered])
def test_a_case(id: str, outcomes: dict[str, BaseException | None]) -> None:
    if (error := outcomes[id]) is not None:
        raise error


@pytest.mark.parametrize("id", [c.id for c in CASES.values() if c.clustered])
def test_a_case_of_a_cluster(id: str, nats_cluster: Cluster) -> None:
    error: BaseException | None = None
    for _ in range(3):
        (error,) = asyncio.run(run_cases(nats_cluster.servers[0].port, [CASES[id]])).values()
        if not isinstance(error, RequestTimeoutError):  # asked while nobody leads the cluster
            break
    if error is not None:
        raise error


def test_every_case_is_in_the_tables_once() -> None:
    ids = Counter(case.id for table in TABLES for case in table)
    assert not [id for id, times in ids.items() if times > 1]
    for table in TABLES:
        assert len(table) == TOTALS[table.adr], table.adr
        assert all(case.outcome and (case.call or not case.steps) for case in table)


def test_the_parity_page_has_the_figures() -> None:
    run = sum(case.steps is not None for case in CASES.values())
    figures = f"{len(CASES)} cases, {run} run, {len(CASES) - run} not a client's matter"
    assert figures in (Path(__file__).parents[2] / "docs" / "parity.md").read_text("utf-8")
