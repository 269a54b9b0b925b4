"""Up to which message a table has its streams: set in the commit that adds the rows.

The position in a stream is a transaction version under the stream's name and creation time, which
tells a recreated stream from its predecessor: the first sequence that the table does not have. A
second one is the fingerprint of the recipe by which messages have become rows (`tails`); the text
of the recipe is a property of the table under that fingerprint, so a commit names the recipe that
its rows were made by. Others tell the query and the commit. If two queries write one stream into a
table, nobody can say what it has: the position is `UNKNOWN` then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from jetspark.errors import ConfigError
from jetspark.tables.fingerprints import fingerprint
from jetspark.tables.table import Table

MAX_STREAMS: Final = 64
"""Most streams of a query whose positions are kept: each commit sets those that have changed."""
UNKNOWN: Final = 0
"""No position: sequences begin at 1."""


class StreamPosition(msgspec.Struct, frozen=True, order=True):
    """The first sequence of a stream that was not read yet."""

    stream: str
    created: str
    """The stream's creation time."""
    next: int


def latest_positions(positions: Iterable[StreamPosition]) -> tuple[StreamPosition, ...]:
    """The highest position in each stream."""
    return tuple({(each.stream, each.created): each for each in sorted(positions)}.values())


class Progress(msgspec.Struct, frozen=True):
    """What a batch tells a table, beside its rows: how they were made, and how far its streams were
    read."""

    recipe: str | None
    """None if the messages alone do not tell their rows; then no position is kept, either."""
    positions: tuple[StreamPosition, ...]

    def store_recipe(self, table: Table) -> bool:
        """Store the recipe as a property of the table, in a commit of its own, unless it is there;
        returns whether that was done. Raises CommitConflict."""
        if self.recipe is None:
            return False
        name = _recipe_property(fingerprint(self.recipe))
        if table.property(name) == self.recipe:
            return False
        table.set_property(name, self.recipe)
        return True

    def versions(self, table: Table, writer: str) -> dict[str, int | None]:
        """Transaction versions to set in the commit. `writer`: the query's id.

        A query that makes the same rows as another one before it, such as one that has lost its
        checkpoint, goes on where that one was, even if it first repeats what is there.
        """
        versions: dict[str, int | None] = {}
        for stream, created, next_ in map(msgspec.structs.astuple, self.positions):
            known = table.txn_version(_key("next", stream, created))
            reader = table.txn_version(_key("reader", stream, created))
            if self.recipe is None:
                if known is not None:
                    versions[_key("next", stream, created)] = UNKNOWN
                continue
            is_other = known is not None and (
                reader != fingerprint(writer)
                and table.txn_version(_key("rows", stream, created)) != fingerprint(self.recipe)
            )
            is_known = known != UNKNOWN and not is_other
            versions |= {
                _key("next", stream, created): max(known or 0, next_) if is_known else UNKNOWN,
                _key("rows", stream, created): fingerprint(self.recipe),
                _key("reader", stream, created): fingerprint(writer),
                _key("version", stream, created): None,  # the table version of this commit
            }
        return versions


def read_position(table: Table, stream: str, created: str) -> tuple[int, str]:
    """The first sequence of a stream that a table does not have, and the text of the recipe by
    which its last batch was made. Raises ConfigError if the table does not say that.

    `created`: the stream's creation time.
    """
    position = table.txn_version(_key("next", stream, created))
    recipe_id = table.txn_version(_key("rows", stream, created))
    version = table.txn_version(_key("version", stream, created))
    if position is None or recipe_id is None or version is None:
        raise ConfigError(
            f"{table.name} has no position in the stream {stream!r}, created at {created}: "
            "jetspark ingest stores it with each batch that it reads of one stream, or of several "
            "that it names, into one table, not into a template of tables."
        )
    if position == UNKNOWN:
        raise ConfigError(
            f"{table.name} has rows of the stream {stream!r} from several queries, or made in a "
            "way that a message alone does not tell, so nobody can say up to which message it has "
            "the stream."
        )
    if table.was_set_back(version, _key("next", stream, created), position):
        raise ConfigError(
            f"{table.name} was set back to a version before its last batch of the stream "
            f"{stream!r}, whose rows it has lost: set it forward again."
        )
    recipe = table.property(_recipe_property(recipe_id))
    if recipe is None or fingerprint(recipe) != recipe_id:
        raise ConfigError(
            f"{table.name} has lost the property {_recipe_property(recipe_id)}, which says how "
            "messages become its rows: jetspark ingest stores it again with its next batch."
        )
    return position, recipe


def _key(kind: Literal["next", "rows", "reader", "version"], stream: str, created: str) -> str:
    """The name of a transaction version by which a table remembers something about a stream.

    | kind | value |
    |---|---|
    | next | the first sequence that the table does not have; UNKNOWN |
    | rows | the fingerprint of the recipe of the last batch |
    | reader | the fingerprint of the query's id |
    | version | the table version that the last batch created |
    """
    return f"jetspark.{kind}.{stream}@{created}"


def _recipe_property(recipe_id: int) -> str:
    """The name of the property with a recipe, from its fingerprint."""
    return f"jetspark.rows.{recipe_id:014x}"
