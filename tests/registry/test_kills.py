"""`jetspark registry serve` is killed while schemas are registered."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections import Counter
from itertools import count
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from tests.registry.conftest import avro
from tests.support.forked import forked_from

from jetspark.cli import app
from jetspark.errors import RegistryError, RequestTimeoutError
from jetspark.full_client import connect
from jetspark.server import NatsServer

WRITERS, KILLS = 2, 2


def serve(url: str, says: Path) -> None:
    """In a process of its own."""
    os.dup2(os.open(says, os.O_WRONLY | os.O_CREAT), 2)
    app.run(["registry", "serve", "--server", url])


async def start(url: str, folder: Path) -> ForkServerProcess:
    """An instance that answers."""
    says = folder / secrets.token_hex(4)
    process = forked_from("tests.registry.loaded").Process(target=serve, args=(url, says))
    process.start()
    while not (says.exists() and (line := says.read_text())):
        assert process.is_alive()
        await asyncio.sleep(0.01)
    assert line.startswith("Serving the schemas of bucket schemas on nats://"), line
    return process


def end(process: ForkServerProcess) -> None:
    process.kill()
    process.join()


@pytest.mark.full
async def test_what_was_answered_is_there_and_nothing_is_there_twice(
    registry_server: NatsServer, tmp_path: Path
) -> None:
    instances = [await start(registry_server.url, tmp_path) for _ in range(2)]
    answered: list[tuple[int, str]] = []
    doubtful: list[str] = []
    wanted = {avro("id int")}
    done = asyncio.Event()

    async def write(number: int) -> None:
        async with connect(registry_server.url) as nc:
            registry = nc.schema_registry(timeout=1)
            for turn in count():
                if done.is_set():
                    return
                await asyncio.sleep(0.05)
                definition = avro("id int", f"f{number}_{turn} string?")
                wanted.add(definition)
                while True:
                    try:
                        found = await registry.update("orders", definition, format="avro")
                        answered.append((found.version, definition))
                        break
                    except (RegistryError, RequestTimeoutError):
                        # It may have been stored; who cannot accept it twice has to look.
                        doubtful.append(definition)
                        stored = await there()
                        if definition in {one for _, one in stored}:
                            break

    async def there() -> list[tuple[int, str]]:
        async with connect(registry_server.url) as nc:
            while True:
                try:
                    found = await nc.schema_registry(timeout=1).schemas().all()
                    return [(one.version, one.definition) for one in found]
                except (RegistryError, RequestTimeoutError):
                    await asyncio.sleep(0.1)

    async def kill() -> None:
        for turn in range(KILLS):
            await asyncio.sleep(0.15)
            await asyncio.to_thread(end, instances[turn % 2])
            instances[turn % 2] = await start(registry_server.url, tmp_path)
        done.set()

    try:
        async with connect(registry_server.url) as nc:
            await nc.schema_registry(timeout=20).add("orders", avro("id int"), format="avro")
        await asyncio.gather(kill(), *map(write, range(WRITERS)))
        versions = await there()
    finally:
        for process in instances:
            end(process)
    assert [version for version, _ in versions] == list(range(1, len(versions) + 1))
    assert set(answered) <= set(versions)
    times = Counter(definition for _, definition in versions)
    assert times.keys() == wanted
    assert {one for one, often in times.items() if often > 1} <= set(doubtful)
