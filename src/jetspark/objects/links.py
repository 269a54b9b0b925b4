"""Links (ADR-20): names that lead to an object of this or another store, or to a whole store."""

from __future__ import annotations

from typing import Final

from jetspark.errors import ConfigError, shown
from jetspark.objects.info import ObjectInfo, ObjectLink, ObjectOptions
from jetspark.objects.meta import MetaStore, object_not_found
from jetspark.objects.names import check_store, new_nuid

_MOST_LINKS: Final = 8
"""Links followed from one to the next; this client makes none that leads to a link."""


def link_to(target: ObjectInfo) -> ObjectLink:
    """A link to an object. Raises ConfigError for a target that is deleted or a link."""
    if not isinstance(target, ObjectInfo):
        raise ConfigError(f"target must be the info of an object, not {shown(target)}.")
    if target.deleted:
        raise ConfigError("A link cannot lead to a deleted object.")
    if target.link is not None:
        raise ConfigError("A link cannot lead to a link.")
    return ObjectLink(bucket=target.bucket, name=target.name)


def info_of_link(store: str, name: str, link: ObjectLink) -> ObjectInfo:
    """What is stored for a new link. Raises ConfigError for one that leads to itself."""
    if link.bucket == store and link.name in (None, "", name):
        what = "the store that it is in" if not link.name else "itself"
        raise ConfigError(f"Link {name!r} cannot lead to {what}.")
    return ObjectInfo(name=name, bucket=store, nuid=new_nuid(), options=ObjectOptions(link=link))


async def resolve(meta: MetaStore, name: str) -> tuple[MetaStore, ObjectInfo]:
    """The object that a name or its link leads to, and its store. Raises ObjectNotFoundError."""
    store, wanted = meta, name
    for _ in range(_MOST_LINKS):
        info = (await store.find(wanted)).info
        if info is None or info.deleted:
            if store is meta and wanted == name:
                raise object_not_found(meta.store, name)
            why = f'leads to "{wanted}" in store "{store.store}", which is not there'
            raise object_not_found(meta.store, name, why)
        if info.link is None:
            return store, info
        if not info.link.name:
            raise object_not_found(
                meta.store, name, f'leads to the whole store "{info.link.bucket}"'
            )
        store, wanted = MetaStore(meta.js, check_store(info.link.bucket)), info.link.name
    raise object_not_found(meta.store, name, "leads from link to link")
