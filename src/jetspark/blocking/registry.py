# Written by `python scripts/delegations.py`: change by_hand/, or the asyncio class.
"""Schema registries without async.

Of docstrings it has the first paragraphs; `help()` shows all.
"""

from __future__ import annotations

from collections.abc import Mapping

from jetspark.blocking.docstrings import twin_of
from jetspark.blocking.twin import Twin
from jetspark.registry.client import SchemaRegistry as AsyncSchemaRegistry
from jetspark.registry.documents import Schema, SchemaVersion

__all__ = ["SchemaRegistry"]


@twin_of(AsyncSchemaRegistry)
class SchemaRegistry(Twin):
    """The schema registry of this account, returned by `Client.schema_registry`."""

    _inner: AsyncSchemaRegistry

    def add(
        self,
        name: str,
        definition: str,
        *,
        format: str,
        compat_policy: str | None = None,
        description: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> SchemaVersion:
        """Register the first version of a schema."""
        return self._thread.run(
            self._inner.add,
            name,
            definition,
            format=format,
            compat_policy=compat_policy,
            description=description,
            metadata=metadata,
        )

    def get(
        self,
        name: str,
        version: int | None = None,
        *,
        revision: int | None = None,
        format: str | None = None,
    ) -> Schema:
        """A schema. `format`: needed for a name that exists in several formats."""
        return self._thread.run(self._inner.get, name, version, revision=revision, format=format)

    def update(
        self,
        name: str,
        definition: str | None = None,
        *,
        format: str,
        version: int | None = None,
        revision: int | None = None,
        description: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> SchemaVersion:
        """Register another version, or change the description or metadata; None: they stay."""
        return self._thread.run(
            self._inner.update,
            name,
            definition,
            format=format,
            version=version,
            revision=revision,
            description=description,
            metadata=metadata,
        )

    def schemas(self, filter: str | None = None) -> list[Schema]:
        """Every version and revision; `filter`: only of names that match it, as in "orders.*"."""
        return self._thread.run(self._inner.schemas, filter)

    def remove(
        self, name: str, *, format: str, version: int | None = None, revision: int | None = None
    ) -> None:
        """Remove a revision, a version, or without both the whole schema. It cannot be undone."""
        self._thread.run(
            self._inner.remove, name, format=format, version=version, revision=revision
        )
