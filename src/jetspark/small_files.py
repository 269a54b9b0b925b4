"""Files that people write, such as configurations and credentials: read whole, up to a size."""

from __future__ import annotations

import os
from typing import Final

from jetspark.errors import ConfigError

LARGEST: Final = 16 << 20


def read_small(path: str | os.PathLike[str]) -> bytes:
    """All bytes. Raises OSError, and ConfigError for more than LARGEST: a device has no end."""
    with open(path, "rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ConfigError(
            f"{os.fspath(path)} has more than {LARGEST >> 20} MiB: is it the right file?"
        )
    return data


def read_small_text(path: str | os.PathLike[str]) -> str:
    """The same as text. Raises UnicodeDecodeError, too."""
    return read_small(path).decode().replace("\r\n", "\n")
