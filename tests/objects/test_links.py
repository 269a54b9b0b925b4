"""Links to objects and to stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jetspark.errors import ConfigError, ObjectExistsError, ObjectNotFoundError
from jetspark.objects import ObjectLink

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetspark.full_client import JetStream
    from jetspark.objects import ObjectStore


async def test_links_lead_to_objects_and_stores(
    store: ObjectStore, js: JetStream, unique: Callable[[str], str]
) -> None:
    other = await js.create_object_store(unique("O"), storage="memory")
    near, far = await store.put("a", b"near"), await other.put("b", b"far")
    link = await store.add_link("l", near)
    assert link.link == ObjectLink(bucket=store.name, name="a")
    assert await store.get_bytes("l") == b"near"
    assert (await store.get("l")).info.name == "a"
    await store.add_link("l", far)
    assert await store.get_bytes("l") == b"far"
    assert (await store.info("l")).link == ObjectLink(bucket=other.name, name="b")
    await store.add_store_link("folder", other.name)
    assert (await store.info("folder")).link == ObjectLink(bucket=other.name)
    with pytest.raises(ObjectNotFoundError, match="whole store"):
        await store.get("folder")
    with pytest.raises(ConfigError, match="to a link"):
        await store.add_link("x", await store.info("l"))
    await other.delete("b")
    with pytest.raises(ConfigError, match="deleted"):
        await store.add_link("x", await other.info("b", include_deleted=True))
    gone = f'"l" in store "{store.name}" leads to "b" in store "{other.name}", which does not exist'
    with pytest.raises(ObjectNotFoundError, match=gone):
        await store.get("l")
    for add in (store.add_link("a", far), store.add_store_link("a", other.name)):
        with pytest.raises(ObjectExistsError):
            await add
    await store.update_meta("l", new_name="m")
    assert (await store.info("m")).link is not None
    await store.delete("m")
    await store.delete("a")
    await store.add_store_link("a", other.name)  # what is deleted is no obstacle
    await js.delete_object_store(other.name)


async def test_links_in_a_circle_are_not_found(store: ObjectStore) -> None:
    a, b = await store.put("a", b"1"), await store.put("b", b"2")
    await store.delete("a")
    await store.add_link("a", b)
    await store.delete("b")
    await store.add_link("b", a)
    with pytest.raises(ObjectNotFoundError, match="link to link"):
        await store.get("a")
