"""Dead letters without async."""

from __future__ import annotations

from tests.blocking.eventually import eventually
from tests.conftest import Unique

from jetspark.blocking import Client


def test_dead_letters_are_moved_and_replayed(nc: Client, unique: Unique) -> None:
    js = nc.jetstream(timeout=20)
    name = unique("ORDERS")
    js.create_stream(name=name, subjects=[f"{name}.>"], storage="memory")
    consumer = js.stream(name).create_consumer(durable_name="worker")
    dead = js.create_or_update_dead_letters(f"{name}_DEAD", name, storage="memory")
    with dead.worker() as worker:
        js.publish(f"{name}.eu", b"a vase")
        consumer.next(timeout=20).term("broken")
        eventually(lambda: worker.moved == 1)
    js.publish(f"{name}.us", b"a cup")
    consumer.next(timeout=20).term("cracked")
    eventually(lambda: dead.waiting() == 1)
    assert dead.move() == 1
    found = dead.letters().all()
    assert [(one.text, one.data) for one in found] == [("broken", b"a vase"), ("cracked", b"a cup")]
    assert [one.seq for one in dead.letters(reason="terminated")] == [1, 2]
    assert dead.replay(subject=f"{name}.eu") == (1, 0, 0, 0)
    assert consumer.next(timeout=20).data == b"a vase"
    assert js.dead_letters(dead.name).letters().all() == found[1:]
    js.delete_dead_letters(dead.name)
    js.delete_stream(name)
