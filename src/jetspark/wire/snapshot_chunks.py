"""The chunks in which a server sends the snapshot of a stream (STREAM.SNAPSHOT). No I/O."""

from __future__ import annotations


class ChunkCounter:
    """Detects lost chunks: the reply subject of each one ends with its size and its number."""

    def __init__(self) -> None:
        self._received = 0

    def is_next(self, reply: str, size: int) -> bool:
        """Count a chunk of `size` bytes; whether none is missing before it, and it is complete.

        True, too, if an import has mapped the reply subject, so that it does not show this.
        """
        self._received += 1
        tokens = reply.split(".")[-2:]
        if not all(token.isdigit() for token in tokens):
            return True
        return tokens == [str(size), str(self._received)]
