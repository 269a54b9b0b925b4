"""Run a campaign: many runs, drawn from a seed, each judged by an oracle.

`python -m tests.campaigns` lists the campaigns, `python -m tests.campaigns NAME --help` the options
of one. `--runs` and `--seed` are options of each. The last line on standard output has the seed and
the figures; the exit code is 1 when a run was wrong.

A campaign is the function or coroutine `run` of its module. Its parameters are the options: all
have defaults, and `Annotated[str, ...]` names the values that one may have. It returns `Figures`.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import inspect
import logging
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from tests.support.campaign import Figures

CAMPAIGNS = {
    "archives": ("fuzz", "Spoiled backups, for the C kernel and for the reader of backups."),
    "avro_datums": ("fuzz", "Datums of Avro, many damaged, for the C kernel."),
    "backup": ("soak", "A large stream is backed up, restored and compared."),
    "backfill": ("chaos", "A range is read through a snapshot while its server or link breaks."),
    "callout": ("soak", "Logins and spoiled requests at an authorization callout."),
    "cancelling": ("soak", "Each awaitable call is cancelled at each of its waits."),
    "change_data": ("fuzz", "Debezium's events become tables, compared with a model."),
    "deadlines": ("soak", "Each call with a timeout is made to a stopped server."),
    "documents": ("fuzz", "Spoiled documents of servers and of other clients."),
    "every_thread": ("soak", "Eight threads make every call of one blocking client."),
    "fairness": ("soak", "Equal tasks and threads get equal shares."),
    "frames": ("frames", "A frame between client and server, or leaf and hub, is disturbed."),
    "groups": ("chaos", "Members of a consumer group come, go, die and stand still."),
    "half_batches": ("chaos", "A batch fails between commits and comes again, changed."),
    "hostile_tables": ("fuzz", "Metadata of a table names code, or files outside the table."),
    "ingesting": ("chaos", "`jetspark ingest` and `run` are killed, with workers and servers."),
    "json_columns": ("fuzz", "Hostile JSON beside good records, under each option of decoding."),
    "json_payloads": ("fuzz", "Payloads that are nearly JSON, for the C kernel."),
    "kills": ("soak", "Servers are killed, stopped and paused under clients."),
    "leaders": ("chaos", "What depends on a leader is asked of one that was replaced."),
    "leaving": ("soak", "Each public iterator is left in every way."),
    "listings": ("soak", "Keys, histories, watches and objects are listed beside writers."),
    "locks": ("chaos", "Processes that contend for a lock are killed and suspended."),
    "objects": ("soak", "A large object goes up and comes down in little memory."),
    "payloads": ("fuzz", "Hostile payloads of each format among good ones."),
    "protobuf_messages": ("fuzz", "Messages of Protobuf, many damaged, for the C kernel."),
    "protobuf_rows": ("fuzz", "Rows of any schema as messages of Protobuf, read by both."),
    "quiet": ("soak", "An idle connection uses no CPU; messages leave no memory behind."),
    "reading": ("chaos", "Queries read a stream while servers, links, workers, drivers break."),
    "round_trips": ("fuzz", "Rows of every type are written, merged, compacted and read by all."),
    "services": ("soak", "Instances of a service are killed and replaced under requests."),
    "source_options": ("chaos", "Queries of a stream under each option, with restarts."),
    "streams": ("fuzz", "Spoiled bytes of a server, for the parser and for a client."),
    "table_answers": ("chaos", "A catalog or an object store answers wrongly during a change."),
    "table_origins": ("chaos", "Tables of other programs are compacted and vacuumed."),
    "tables": ("chaos", "A user's commands on two streams and two folders, in any order."),
    "writing": ("chaos", "Queries and batch writes publish rows while something breaks."),
}
"""Folder of the module, and what a run is, by the campaign's name, which is the module's."""


def campaign_of(name: str) -> Callable[..., Any]:
    run: Callable[..., Any] = importlib.import_module(f"tests.{CAMPAIGNS[name][0]}.{name}").run
    return run


def _parser(name: str, run: Callable[..., Any]) -> argparse.ArgumentParser:
    text = f"{inspect.getdoc(inspect.getmodule(run))}\n\n{inspect.getdoc(run) or ''}"
    parser = argparse.ArgumentParser(
        f"python -m tests.campaigns {name}",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for parameter in inspect.signature(run, eval_str=True).parameters.values():
        flag, default = f"--{parameter.name.replace('_', '-')}", parameter.default
        if isinstance(default, bool):
            parser.add_argument(flag, action="store_true")
        else:
            choices = getattr(parameter.annotation, "__metadata__", (None,))[0]
            parser.add_argument(
                flag, type=type(default), default=default, choices=choices, help="%(default)s"
            )
    return parser


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        for name, (_, sentence) in CAMPAIGNS.items():
            print(f"{name:<15} {sentence}")
        return 0
    name, *rest = arguments
    if name not in CAMPAIGNS:
        print(f"No campaign {name}; there are {', '.join(CAMPAIGNS)}.", file=sys.stderr)
        return 2
    run = campaign_of(name)
    options = vars(_parser(name, run).parse_args(rest))
    logging.getLogger("jetspark").setLevel(logging.CRITICAL)
    # Told to end, it ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    title = f"{name}: seed {options['seed']}"
    print(title, file=sys.stderr, flush=True)
    begun = time.monotonic()
    try:
        figures = run(**options)
        if inspect.iscoroutine(figures):
            figures = asyncio.run(figures)
    except Exception as error:
        traceback.print_exc()
        figures = Figures([f"{type(error).__name__}: {error}"])
    if not figures.runs and not figures.wrong:
        figures.wrong.append("there was no run")
    figures.print_wrong()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{title}; {figures}; {time.monotonic() - begun:.0f} s, at most {peak:,} MB")
    return 1 if figures.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
