"""The types of content that the blocking object store accepts."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeAlias

from jetspark.objects.reader import Bytes, Readable

ObjectData: TypeAlias = Bytes | os.PathLike[str] | Readable | Iterable[Bytes]
