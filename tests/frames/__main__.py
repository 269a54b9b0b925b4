"""`python -m tests.frames --runs 10000 --seed 1`: every frame of every call spoiled, in every way.

With `--calls` it is what the source and the sink of Spark ask a server: done, and the answer lost;
not done, and no answer; late; an error in place of the answer. With `--leaf` the frames are those
between a leaf node and its hub. `--only CALL` (any number of times), `--kind KIND` and
`--position N` choose; without `--runs` each position is spoiled once. Exit code 1 when a run was
wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

from tests.frames.campaign import (
    CALLS,
    OF_SPARK,
    SCRIPTS,
    WAYS,
    LeafPlace,
    Outcome,
    Place,
    campaign,
    run,
    table,
)
from tests.support.frame_proxy import KINDS, OF_ANSWERS, OF_QUESTIONS, FrameProxy
from tests.support.leaf import HubAndLeaf
from tests.support.ports import free_port

from jetspark.server import NatsServer


@contextlib.asynccontextmanager
async def one_server() -> AsyncIterator[Place]:
    with NatsServer(name="frames") as server:
        yield Place(server)


@contextlib.asynccontextmanager
async def a_leaf_node() -> AsyncIterator[LeafPlace]:
    port = free_port()
    async with FrameProxy(port) as proxy:
        both = HubAndLeaf(port=port, through=proxy.port)
        await asyncio.to_thread(both.__enter__)
        try:
            yield LeafPlace(both.hub, both.leaf, proxy)
        finally:
            await asyncio.to_thread(both.__exit__, None, None, None)


async def _main(options: argparse.Namespace) -> list[Outcome]:
    begun = time.monotonic()
    done = 0

    def tell(outcome: Outcome) -> None:
        nonlocal done
        done += 1
        if outcome.wrong or options.verbose:
            print(outcome, file=sys.stderr, flush=True)
        elif done % 200 == 0:
            print(f"{done} runs, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)

    async with a_leaf_node() if options.leaf else one_server() as place:
        scripts = options.only or list(CALLS if options.calls else SCRIPTS)
        kinds = options.kind or (WAYS if options.calls else KINDS)
        if options.position is not None:
            return [
                await run(place, script, kind, options.position)
                for script in scripts
                for kind in kinds
            ]
        return await campaign(
            place,
            scripts,
            kinds=kinds,
            runs=options.runs,
            seed=options.seed,
            parallel=options.parallel,
            tell=tell,
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.frames", description=__doc__)
    parser.add_argument("--runs", type=int, help="default: each position once in each way")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parallel", type=int, default=12)
    parser.add_argument("--leaf", action="store_true")
    parser.add_argument("--calls", action="store_true")
    parser.add_argument("--only", action="append", choices=[*SCRIPTS, *OF_SPARK], metavar="CALL")
    parser.add_argument("--kind", action="append", choices=(*KINDS, *OF_QUESTIONS, *OF_ANSWERS))
    parser.add_argument("--position", type=int)
    parser.add_argument("--table", type=Path, help="where the Markdown table goes")
    parser.add_argument("--verbose", action="store_true", help="tell each run")
    options = parser.parse_args()
    print(f"seed {options.seed}", file=sys.stderr)
    logging.getLogger("jetspark").setLevel(logging.CRITICAL)
    outcomes = asyncio.run(_main(options))
    text = table(outcomes)
    print(text)
    if options.table is not None:
        options.table.write_text(f"{text}\n", "utf-8")
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    for outcome in wrong or (outcomes if options.position is not None else []):
        print(outcome, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
